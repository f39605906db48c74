#!/usr/bin/env bash
# A Kubernetes cluster to try omnipipe on, with its images loaded.
#
#   cluster.sh up        find or start one, build the images, load them, print what comes next
#   cluster.sh prepare   do of it what takes minutes and leaves nothing running: packages, programs, images
#   cluster.sh down      remove what `up` started
#   cluster.sh env       print shell lines that set KUBECONFIG and PATH for it
#
# Which one: the cluster of KUBECONFIG; else kind, where Docker works; else a node of its own, made by
# node.sh, with fake GPUs (needs root).
#
# OMNIPIPE_IMAGE_REGISTRY   where to push images for a cluster of KUBECONFIG
# OMNIPIPE_STAGE            stage image: cpu, cuda or light; see images.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/omnipipe
BIN=${OMNIPIPE_CLUSTER_BIN:-$cache/bin}
state=${OMNIPIPE_CLUSTER_STATE:-/tmp/omnipipe-node}
kind_cluster=omnipipe

say() { printf 'cluster: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

choose() {
  if [ -n "${KUBECONFIG:-}" ] && [ "$KUBECONFIG" != "$state/admin.kubeconfig" ]; then
    echo given
  elif command -v kind >/dev/null && timeout 20 docker info >/dev/null 2>&1; then
    echo kind
  else
    echo embedded
  fi
}

prepare() { # KIND — prints the images
  if [ "$1" = embedded ]; then
    [ "$(id -u)" = 0 ] || die "no KUBECONFIG and no kind: a node of its own needs root"
    python3 "$here/../packages.py" node
    "$here/node.sh" programs
  fi
  "$here/images.sh" build
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

load() { # KIND IMAGE
  local archive
  case $1 in
    given) "$here/images.sh" push "$2" "$OMNIPIPE_IMAGE_REGISTRY/${2#localhost/}" ;;
    kind) kind load docker-image --name $kind_cluster "$2" >&2 ;;
    embedded)
      if "$here/node.sh" has "$2"; then return; fi
      archive=$(mktemp -u "$state/image.XXXXXX.tar")
      "$here/images.sh" save "$2" "$archive"
      "$here/node.sh" load "$archive"
      rm -f "$archive" ;;
  esac
}

up() {
  local kind kubeconfig name image images settings='' registry=localhost began=$SECONDS
  kind=$(choose)
  if [ "$kind" = given ]; then
    registry=${OMNIPIPE_IMAGE_REGISTRY:?set it to a registry that the cluster of KUBECONFIG pulls from}
  fi
  say "$kind cluster"
  mkdir -p "$cache"
  images=$(prepare "$kind")
  kubeconfig=$(start "$kind")
  say "it answers; kubeconfig: $kubeconfig"
  while read -r name image; do
    load "$kind" "$image"
    settings+=" --set images.$name.tag=${image##*:}"
  done <<<"$images"
  [ "$kind" != embedded ] || awk '{print $2}' <<<"$images" | xargs "$here/node.sh" keep
  cat >"$cache/cluster.env" <<V
export KUBECONFIG=$kubeconfig
export PATH=$BIN:\$PATH
export OMNIPIPE_CLUSTER=$kind
export OMNIPIPE_IMAGES="--set images.registry=$registry$settings"
V
  say "images are loaded; all of it took $((SECONDS - began)) s. Next:"
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
  prepare) prepare "$(choose)" >/dev/null ;;
  down) down ;;
  env) cat "$cache/cluster.env" 2>/dev/null || die "no cluster: run 'make cluster' first" ;;
  *) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
