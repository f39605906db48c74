# The images from one file: `--target operator`, `--target gateway`, `--target stage`, and
# `--target stage-light` for pipelines whose stages need no torch.
#
#   docker build --target gateway -t omnipipe/gateway .
#   buildah build --target stage --build-arg STAGE_BASE=debian:12-slim --build-arg LOCK=cpu .
#
# LIGHT_BASE  base of all but stage: a Debian or Ubuntu with Python 3.11 or 3.12
# STAGE_BASE  base of stage: CUDA's runtime by default, plain Debian for CPU
# LOCK        dependencies of stage: `cuda` (requirements/cuda.txt) or `cpu` (uv.lock, no CUDA kernels)
# SSL_CERT_FILE  path of a CA bundle that the build mounts, where package traffic needs one

ARG LIGHT_BASE=debian:12-slim
ARG STAGE_BASE=nvidia/cuda:13.0.2-runtime-ubuntu24.04

# One fixed user everywhere: MPS serves one UID at a time, and Pod Security wants it not to be root. It
# has a name, for libraries ask for it.
FROM ${LIGHT_BASE} AS light-base
ARG DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --no-create-home --home-dir /tmp omnipipe

FROM ${STAGE_BASE} AS stage-base
ARG DEBIAN_FRONTEND=noninteractive
# Triton, which SGLang imports, compiles a small C launcher on a GPU; nothing else needs a compiler.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev python3 python3-dev \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --no-create-home --home-dir /tmp omnipipe

FROM light-base AS light-build
ARG SSL_CERT_FILE=
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
COPY scripts/bootstrap_uv.py /build/scripts/
RUN cd /build && export ${SSL_CERT_FILE:+PIP_CERT=$SSL_CERT_FILE} \
 && ln -s "$(python3 scripts/bootstrap_uv.py)" /usr/local/bin/uv
WORKDIR /build
COPY pyproject.toml uv.lock LICENSE README.md ./
ENV UV_PROJECT_ENVIRONMENT=/opt/omnipipe UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON_PREFERENCE=only-system

# Dependencies and the project are layers of their own: a new version of the project is a small
# download. The second is put together by `--prefix` and copied over the first.
FROM light-build AS operator-dependencies
ARG SSL_CERT_FILE=
RUN uv sync --frozen --no-install-project --extra operator --extra cli

FROM light-build AS gateway-dependencies
ARG SSL_CERT_FILE=
RUN uv sync --frozen --no-install-project --extra gateway

FROM light-build AS stage-light-dependencies
ARG SSL_CERT_FILE=
RUN uv sync --frozen --no-install-project --extra stage

FROM light-build AS light-project
ARG SSL_CERT_FILE=
RUN uv venv /opt/omnipipe
COPY operator operator
COPY stage_runtime stage_runtime
RUN uv pip install --no-deps --python /opt/omnipipe/bin/python --prefix /opt/project .

FROM stage-base AS stage-dependencies
ARG LOCK=cuda
ARG SSL_CERT_FILE=
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
COPY scripts/bootstrap_uv.py /build/scripts/
RUN cd /build && export ${SSL_CERT_FILE:+PIP_CERT=$SSL_CERT_FILE} \
 && ln -s "$(python3 scripts/bootstrap_uv.py)" /usr/local/bin/uv
WORKDIR /build
COPY pyproject.toml uv.lock LICENSE README.md ./
COPY requirements requirements
ENV UV_PROJECT_ENVIRONMENT=/opt/omnipipe UV_LINK_MODE=copy UV_PYTHON_PREFERENCE=only-system
# Without a GPU some of CUDA's libraries must be there for torch to load; the others, 1.5 GB, are
# never opened.
RUN if [ "$LOCK" = cpu ]; then \
      uv sync --frozen --no-cache --no-install-project --extra runtime --extra cli \
      && cd /opt/omnipipe/lib/python3*/site-packages \
      && rm -rf nvidia/cudnn/lib/libcudnn_* nvidia/*/include nvidia/*/lib/*.alt.so* nvidia/nvshmem/lib/*.bc \
           triton/backends/nvidia/bin triton/backends/nvidia/lib/cupti*; \
    else \
      uv venv /opt/omnipipe \
      && VIRTUAL_ENV=/opt/omnipipe uv pip install --no-cache --requirements requirements/cuda.txt; \
    fi
# The file system of pods is read-only: what is not compiled here would be at each start. Templates
# among the packages are no Python and do not compile.
RUN /opt/omnipipe/bin/python -m compileall -qq -j 0 /opt/omnipipe/lib || true

FROM stage-dependencies AS stage-project
ARG SSL_CERT_FILE=
COPY operator operator
COPY stage_runtime stage_runtime
RUN uv pip install --no-deps --compile-bytecode --python /opt/omnipipe/bin/python --prefix /opt/project .

FROM light-base AS operator
LABEL org.opencontainers.image.title="omnipipe operator" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=operator-dependencies /opt/omnipipe /opt/omnipipe
COPY --from=light-project /opt/project /opt/omnipipe
ENV PATH=/opt/omnipipe/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
ENTRYPOINT ["python", "-m", "omni_operator"]

FROM light-base AS gateway
LABEL org.opencontainers.image.title="omnipipe gateway" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=gateway-dependencies /opt/omnipipe /opt/omnipipe
COPY --from=light-project /opt/project /opt/omnipipe
ENV PATH=/opt/omnipipe/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
CMD ["python", "-m", "omni_gateway.main", "--help"]

FROM stage-base AS stage
LABEL org.opencontainers.image.title="omnipipe stage" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=stage-dependencies /opt/omnipipe /opt/omnipipe
COPY --from=stage-project /opt/project /opt/omnipipe
ENV PATH=/opt/omnipipe/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
CMD ["python", "-m", "omni_runtime.pod", "--help"]

FROM light-base AS stage-light
LABEL org.opencontainers.image.title="omnipipe stage without torch" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=stage-light-dependencies /opt/omnipipe /opt/omnipipe
COPY --from=light-project /opt/project /opt/omnipipe
ENV PATH=/opt/omnipipe/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
CMD ["python", "-m", "omni_runtime.pod", "--help"]
