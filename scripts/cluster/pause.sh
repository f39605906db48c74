#!/usr/bin/env bash
# Makes the sandbox image localhost/pause:1 in $1 and prints its archive: one static program, no more.
# The archive is written by hand, so that this step needs a C compiler and tar, and no image builder.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
directory=${1:?usage: pause.sh DIRECTORY}
work=$(mktemp -d "$directory/pause.XXXXXX")
trap 'rm -rf "$work"' EXIT

mkdir "$work/root"
cc -Os -static -s -o "$work/root/pause" "$here/pause.c"
tar -C "$work/root" --owner=0 --group=0 --mtime=@0 -cf "$work/layer.tar" pause
digest=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
printf '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/pause"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
  "$digest" >"$work/config.json"
printf '[{"Config":"config.json","RepoTags":["localhost/pause:1"],"Layers":["layer.tar"]}]' \
  >"$work/manifest.json"
tar -C "$work" -cf "$directory/pause.tar" manifest.json config.json layer.tar
echo "$directory/pause.tar"
