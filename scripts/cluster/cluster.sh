#!/usr/bin/env bash
# A Kubernetes cluster to try omnipipe on, with its images loaded.
#
#   cluster.sh up      find or start one, build the images, load them, print what comes next
#   cluster.sh down    remove what `up` started
#   cluster.sh env     print shell lines that set KUBECONFIG and PATH for it
#
# Which one: the cluster of KUBECONFIG; else kind, where Docker works; else a node of its own, made by
# node.sh (needs root). Images are built by docker or buildah.
#
# OMNIPIPE_IMAGE_REGISTRY   where to push images for a cluster of KUBECONFIG
# OMNIPIPE_LIGHT_BASE       base image; Debian 12 when absent, made by mmdebstrap where none can be pulled
# SSL_CERT_FILE             CA bundle for package traffic, mounted into the build and left out of images
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/omnipipe
BIN=${OMNIPIPE_CLUSTER_BIN:-$cache/bin}
state=${OMNIPIPE_CLUSTER_STATE:-/tmp/omnipipe-node}
kind_cluster=omnipipe
declare -A target=([operator]=operator [gateway]=gateway [stage]=stage-light)
names=(operator gateway stage)

say() { printf 'cluster: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
docker_works() { command -v docker >/dev/null && timeout 20 docker info >/dev/null 2>&1; }

# --- which cluster -----------------------------------------------------------------------------

choose() {
  if [ -n "${KUBECONFIG:-}" ] && [ "$KUBECONFIG" != "$state/admin.kubeconfig" ]; then
    echo given
  elif command -v kind >/dev/null && docker_works; then
    echo kind
  else
    echo embedded
  fi
}

start() { # KIND — prints the kubeconfig
  case $1 in
    given) echo "$KUBECONFIG" ;;
    kind)
      kind get clusters 2>/dev/null | grep -qx $kind_cluster \
        || kind create cluster --name $kind_cluster --wait 120s >&2
      kind get kubeconfig --name $kind_cluster >"$cache/kind.kubeconfig"
      echo "$cache/kind.kubeconfig" ;;
    embedded) "$here/node.sh" up ;;
  esac
}

# --- images ------------------------------------------------------------------------------------

choose_builder() {
  if docker_works; then echo docker; elif command -v buildah >/dev/null; then echo buildah
  else die "images need docker or buildah; on Debian: apt-get install buildah mmdebstrap"; fi
}

# Prints the base image, made from Debian's packages where no registry can be reached.
base_image() { # BUILDER
  local made=localhost/debian:12 public=docker.io/library/debian:12-slim
  if [ -n "${OMNIPIPE_LIGHT_BASE:-}" ]; then echo "$OMNIPIPE_LIGHT_BASE"; return; fi
  if [ "$1" = docker ]; then echo $public; return; fi
  if buildah inspect --type image $made >/dev/null 2>&1; then echo $made; return; fi
  if timeout 60 buildah pull -q $public >/dev/null 2>&1; then echo $public; return; fi
  command -v mmdebstrap >/dev/null \
    || die "no registry answers; to make a base image from packages: apt-get install mmdebstrap"
  say "no registry answers: making $made with mmdebstrap"
  local container
  container=$(buildah from scratch)
  mmdebstrap --quiet --variant=minbase bookworm - | buildah add -q "$container" - / >/dev/null
  buildah commit -q --rm "$container" $made >/dev/null
  echo $made
}

build() { # BUILDER ARGUMENTS… — prints the image's id
  local builder=$1
  shift
  case $builder in
    docker) docker build --quiet "$@" "$root" 2>>"$cache/build.log" ;;
    buildah)
      local trust=()
      if [ -n "${SSL_CERT_FILE:-}" ]; then
        trust=(--volume "$SSL_CERT_FILE:/run/ca.crt:ro" --build-arg SSL_CERT_FILE=/run/ca.crt)
      fi
      buildah build --quiet --layers --isolation chroot --network host "${trust[@]}" "$@" "$root" \
        2>>"$cache/build.log" ;;
  esac || { tail -n 20 "$cache/build.log" >&2; die "the build failed; all of it: $cache/build.log"; }
}

# Prints the image's name, whose tag is its content: a cluster that has it keeps it, and pods restart
# only for another. The example pipelines are a layer on top of what a release ships.
build_image() { # BUILDER BASE NAME
  local began=$SECONDS repository=localhost/omnipipe/$3 id
  say "building $repository"
  build "$1" --target "${target[$3]}" --build-arg "LIGHT_BASE=$2" --tag "$repository:base" >/dev/null
  id=$(build "$1" --file "$root/examples/Dockerfile" --build-arg "BASE=$repository:base" | tail -n 1)
  id=${id#sha256:}
  "$1" tag "$id" "$repository:${id:0:12}"
  say "$repository:${id:0:12} built in $((SECONDS - began)) s"
  echo "$repository:${id:0:12}"
}

load() { # KIND BUILDER IMAGE
  local archive
  case $1 in
    given) push "$2" "$3" "$OMNIPIPE_IMAGE_REGISTRY/${3#localhost/}" ;;
    kind) kind load docker-image --name $kind_cluster "$3" >&2 ;;
    embedded)
      if "$here/node.sh" has "$3"; then return; fi
      archive=$(mktemp -u "$state/image.XXXXXX.tar")
      if [ "$2" = docker ]; then docker save -o "$archive" "$3"
      else buildah push -q "$3" "docker-archive:$archive:$3" >&2; fi
      "$here/node.sh" load "$archive"
      rm -f "$archive" ;;
  esac
}

push() { # BUILDER IMAGE NAME
  if [ "$1" = docker ]; then
    docker tag "$2" "$3"
    docker push --quiet "$3" >&2
  else
    buildah push -q "$2" "docker://$3" >&2
  fi
}

# --- commands ----------------------------------------------------------------------------------

up() {
  local kind builder base kubeconfig name image settings='' registry=localhost
  kind=$(choose)
  builder=$(choose_builder)
  if [ "$kind" = given ]; then
    registry=${OMNIPIPE_IMAGE_REGISTRY:?set it to a registry that the cluster of KUBECONFIG pulls from}
  fi
  say "$kind cluster, images by $builder"
  mkdir -p "$cache"
  : >"$cache/build.log"
  kubeconfig=$(start "$kind")
  say "it answers; kubeconfig: $kubeconfig"
  base=$(base_image "$builder")
  for name in "${names[@]}"; do
    image=$(build_image "$builder" "$base" "$name")
    load "$kind" "$builder" "$image"
    settings+=" --set images.$name.tag=${image##*:}"
  done
  cat >"$cache/cluster.env" <<V
export KUBECONFIG=$kubeconfig
export PATH=$BIN:\$PATH
export OMNIPIPE_IMAGES="--set images.registry=$registry$settings"
V
  say "images are loaded. Next:"
  say "  eval \"\$(scripts/cluster/cluster.sh env)\""
  say "  helm upgrade --install omnipipe charts/omnipipe -n omnipipe-system --create-namespace \$OMNIPIPE_IMAGES --wait"
}

down() {
  case $(choose) in
    given) say "the cluster of KUBECONFIG is left as it is" ;;
    kind) kind delete cluster --name $kind_cluster ;;
    embedded) "$here/node.sh" down ;;
  esac
  rm -f "$cache/cluster.env"
}

case ${1:-} in
  up) up ;;
  down) down ;;
  env) cat "$cache/cluster.env" 2>/dev/null || die "no cluster: run 'make cluster' first" ;;
  *) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
