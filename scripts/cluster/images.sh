#!/usr/bin/env bash
# The project's images with the example pipelines on top, built by docker or buildah.
#
#   images.sh build              build operator, gateway and stage; prints a line `NAME IMAGE` for each
#   images.sh save IMAGE FILE    write an archive
#   images.sh push IMAGE NAME    push under another name
#
# A tag is an image's content: a cluster that has it keeps it, and pods restart only for another.
#
# OMNIPIPE_STAGE            `cpu` (default) with torch for CPU, `cuda`, or `light` without torch
# OMNIPIPE_LIGHT_BASE       base image; Debian 12 when absent, made by mmdebstrap where none can be pulled
# SSL_CERT_FILE             CA bundle for package traffic, mounted into the build and left out of images
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/omnipipe
stage=${OMNIPIPE_STAGE:-cpu}
names=(operator gateway stage)

say() { printf 'images: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
docker_works() { command -v docker >/dev/null && timeout 20 docker info >/dev/null 2>&1; }

if docker_works; then builder=docker; elif command -v buildah >/dev/null; then builder=buildah
else die "images need docker or buildah; on Debian: apt-get install buildah mmdebstrap"; fi

# Prints the base image, made from Debian's packages where no registry can be reached.
base_image() {
  local made=localhost/debian:12 public=docker.io/library/debian:12-slim
  if [ -n "${OMNIPIPE_LIGHT_BASE:-}" ]; then echo "$OMNIPIPE_LIGHT_BASE"; return; fi
  if [ $builder = docker ]; then echo $public; return; fi
  if buildah inspect --type image $made >/dev/null 2>&1; then echo $made; return; fi
  if timeout 60 buildah pull -q $public >/dev/null 2>&1; then echo $public; return; fi
  command -v mmdebstrap >/dev/null \
    || die "no registry answers; to make a base image from packages: apt-get install mmdebstrap"
  say "no registry answers: making $made with mmdebstrap"
  local container archive
  archive=$(mktemp --suffix .tar)
  mmdebstrap --quiet --variant=minbase bookworm "$archive" >&2
  container=$(buildah from scratch)
  buildah add -q "$container" "$archive" / >/dev/null
  rm "$archive"
  buildah commit -q --rm "$container" $made >/dev/null
  echo $made
}

run_build() { # ARGUMENTS… — prints the image's id
  case $builder in
    docker) docker build --quiet "$@" "$root" 2>>"$cache/build.log" ;;
    buildah)
      local trust=()
      if [ -n "${SSL_CERT_FILE:-}" ]; then
        trust=(--volume "$SSL_CERT_FILE:/run/ca.crt:ro" --build-arg SSL_CERT_FILE=/run/ca.crt)
      fi
      buildah bud --quiet --layers --isolation chroot --network host "${trust[@]}" "$@" "$root" \
        2>>"$cache/build.log" ;;
  esac || { tail -n 20 "$cache/build.log" >&2; die "the build failed; all of it: $cache/build.log"; }
}

target_arguments() { # NAME BASE — sets `target`
  target=(--target "$1" --build-arg "LIGHT_BASE=$2")
  case $1-$stage in
    stage-light) target=(--target stage-light --build-arg "LIGHT_BASE=$2") ;;
    stage-cpu) target+=(--build-arg "STAGE_BASE=$2" --build-arg LOCK=cpu) ;;
    stage-cuda | operator-* | gateway-*) ;;
    *) die "OMNIPIPE_STAGE is cpu, cuda or light, not '$stage'" ;;
  esac
}

# Several GB each: a stage image that was built over is of no more use to anyone here.
forget_older() { # REPOSITORY TAG
  local image name=.Name
  [ $builder = buildah ] || name=.Repository
  for image in $($builder images --format "{{$name}}:{{.Tag}}" 2>/dev/null); do
    if [[ $image =~ ^$1:[0-9a-f]{12}$ && $image != "$1:$2" ]]; then
      $builder rmi "$image" >/dev/null 2>&1 || true
    fi
  done
}

# The example pipelines are a layer on top of what a release ships.
build() {
  local base name repository began id target
  mkdir -p "$cache"
  : >"$cache/build.log"
  base=$(base_image)
  for name in "${names[@]}"; do
    began=$SECONDS
    repository=localhost/omnipipe/$name
    target_arguments "$name" "$base"
    say "building $repository (${target[1]})"
    run_build "${target[@]}" --tag "$repository:${target[1]}" >/dev/null
    id=$(run_build --file "$root/examples/Dockerfile" \
      --build-arg "BASE=$repository:${target[1]}" | tail -n 1)
    id=${id#sha256:}
    $builder tag "$id" "$repository:${id:0:12}"
    forget_older "$repository" "${id:0:12}"
    say "$repository:${id:0:12} built in $((SECONDS - began)) s"
    echo "$name $repository:${id:0:12}"
  done
}

save() { # IMAGE FILE
  if [ $builder = docker ]; then docker save -o "$2" "$1"
  else buildah push -q "$1" "docker-archive:$2:$1" >&2; fi
}

push() { # IMAGE NAME
  if [ $builder = docker ]; then
    docker tag "$1" "$2"
    docker push --quiet "$2" >&2
  else
    buildah push -q "$1" "docker://$2" >&2
  fi
}

case ${1:-} in
  build) build ;;
  save) save "${2:?an image}" "${3:?a file}" ;;
  push) push "${2:?an image}" "${3:?a name}" ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
