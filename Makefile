# Everything a developer or CI runs. `make test` and `make demo` work on a machine that has only
# python3, make and a package index: uv is fetched into .tools when PATH has none.
#
#   make test PYTHON=3.12     the same with another interpreter, in an environment of its own

PYTHON ?=
VENV   := .venv$(addprefix -,$(notdir $(PYTHON)))
BIN    := $(VENV)/bin

LIGHT_EXTRAS   := client cli gateway operator stage dev
RUNTIME_EXTRAS := $(LIGHT_EXTRAS) runtime
# What `make test` installs; `make test SYNC_EXTRAS="client cli gateway operator stage dev"` leaves out torch.
SYNC_EXTRAS    ?= $(RUNTIME_EXTRAS)

IMAGE_EXTRAS   := client cli gateway operator runtime
IMAGE_PYTHON   := 3.12
IMAGE_PLATFORM := x86_64-manylinux_2_34

UV = $(eval UV := $$(shell python3 scripts/bootstrap_uv.py))$(UV)

# PYENV_VERSION makes a pyenv shim find an interpreter that is installed but not active.
sync = echo "set-up: $(VENV) with $(1)" && UV_PROJECT_ENVIRONMENT=$(VENV) $(addprefix PYENV_VERSION=,$(PYTHON)) $(UV) sync --quiet --frozen \
	$(addprefix --python ,$(PYTHON)) $(addprefix --extra ,$(1))

# All tests on a node need torch in the image of stages, and GPUs to count.
WHOLE_NODE := OMNIPIPE_STAGE=cpu OMNIPIPE_FAKE_GPUS=2
cluster = OMNIPIPE_PYTHON=$(abspath $(BIN))/python scripts/cluster/cluster.sh

.PHONY: help setup setup-runtime test test-all check generate pictures bench soak demo cluster cluster-down demo-k8s e2e lock cuda-constraints clean
.DEFAULT_GOAL := help

help:  ## Show the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

# --inexact: a light set-up does not remove a torch that is already there.
setup:  ## Install everything but torch and SGLang
	@$(call sync,$(LIGHT_EXTRAS)) --inexact

setup-runtime:  ## Install everything, torch and SGLang included (for CPU)
	@$(call sync,$(RUNTIME_EXTRAS))

test:  ## Set up, check and run every test that this machine can run
	@$(call sync,$(SYNC_EXTRAS)) --inexact
	@$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest --ignore tests/e2e
	$(BIN)/python -m pytest tests/e2e

test-all:  ## The same, with what takes minutes: all of transformers' parity, all faults
	@$(call sync,$(SYNC_EXTRAS)) --inexact
	$(BIN)/python -m pytest --ignore tests/e2e -m ""
	$(WHOLE_NODE) $(BIN)/python -m pytest tests/e2e -m ""

check: setup  ## Lint, types, import contract, generated files, lock
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/generate.py --check
	$(UV) lock --check --offline --quiet
	@$(BIN)/python scripts/sizes.py

generate: setup  ## Rewrite the generated files, and what commands print in the documents
	$(BIN)/python scripts/generate.py
	$(BIN)/python -m tests.support.documents

pictures: setup  ## Draw the pictures of the page in the documents
	$(BIN)/python -m tests.support.page_pictures

bench: setup  ## Run every benchmark and print one table of bars
	$(BIN)/python -m benchmarks.run

soak: setup  ## Send requests for minutes while groups are killed and clients leave
	$(BIN)/python -m tests.soak.soak --requests 2000 --concurrency 64

demo: setup-runtime  ## Run the speech pipeline on this CPU with a tiny checkpoint, and ask it something
	$(BIN)/python -m scripts.demo

cluster: setup  ## Find or start a Kubernetes cluster, build the images and load them
	@$(cluster) up

cluster-down:  ## Remove what `make cluster` started
	@$(cluster) down

demo-k8s: setup  ## Install omnipipe on a cluster, apply a speech pipeline there, and ask it something
	@OMNIPIPE_PYTHON=$(abspath $(BIN))/python scripts/cluster/demo.sh

e2e: setup-runtime  ## Run every test that needs a real Kubernetes node, faults included
	$(WHOLE_NODE) $(BIN)/python -m pytest tests/e2e -m "" -s

lock:  ## Update uv.lock after a change of dependencies, then the image's constraints
	$(UV) lock
	@$(MAKE) --no-print-directory cuda-constraints

# --no-config leaves out the overrides that keep CUDA wheels off a development machine.
cuda-constraints:  ## Compile the CUDA image's constraints, with uv.lock's versions
	@mkdir -p build
	$(UV) export --frozen --quiet --all-extras --no-hashes --no-emit-project --no-annotate \
		--no-header --output-file build/locked.txt
	$(UV) pip compile --no-config --quiet pyproject.toml $(addprefix --extra ,$(IMAGE_EXTRAS)) \
		--constraint build/locked.txt --python-version $(IMAGE_PYTHON) \
		--python-platform $(IMAGE_PLATFORM) --no-annotate --upgrade \
		--custom-compile-command "make cuda-constraints" --output-file requirements/cuda.txt

clean:  ## Remove environments, fetched tools and caches
	rm -rf .venv .venv-* .tools build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache
