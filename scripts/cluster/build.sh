#!/usr/bin/env bash
# Builds the programs of a Kubernetes node from Go modules.
#
#   build.sh DIRECTORY [PROGRAM…]
#
# Without names: all of them. A program that is already there at its pinned version is left alone, and
# Go's build cache makes a second build a matter of seconds, so keep DIRECTORY outside the work tree.
# Needs Go and a Go module proxy; nothing is downloaded as a binary.
set -euo pipefail

kubernetes=1.34.4
node_programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
declare -A package=(
  [etcd]=go.etcd.io/etcd/server/v3
  [coredns]=github.com/coredns/coredns
  [helm]=helm.sh/helm/v4/cmd/helm
  [kwok]=sigs.k8s.io/kwok/cmd/kwok
  [kubeconform]=github.com/yannh/kubeconform/cmd/kubeconform
  [dra-example-kubeletplugin]=sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin
)
declare -A version=(
  [etcd]=v3.6.16 [coredns]=v1.15.0 [helm]=v4.3.2 [kwok]=v0.8.0 [kubeconform]=v0.8.0
  [dra-example-kubeletplugin]=v0.2.1
)

directory=$(mkdir -p "${1:?usage: build.sh DIRECTORY [PROGRAM…]}" && cd "$1" && pwd)
shift
sources=$directory/.src
export CGO_ENABLED=0

say() { printf 'build: %s\n' "$*" >&2; }

# k8s.io/kubernetes is published as a library of commands whose staging modules must be replaced by
# their own tags.
write_kubernetes_module() {
  local minor_patch=${kubernetes#1.} module
  mkdir -p "$sources/kubernetes"
  cd "$sources/kubernetes"
  [ -f go.sum ] && return
  {
    printf 'module omnipipe.invalid/kubernetes\n\ngo 1.26\n\n'
    for module in api apiextensions-apiserver apimachinery apiserver cli-runtime client-go \
      cloud-provider cluster-bootstrap code-generator component-base component-helpers \
      controller-manager cri-api cri-client csi-translation-lib dynamic-resource-allocation \
      endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy \
      kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver \
      sample-cli-plugin sample-controller; do
      printf 'replace k8s.io/%s => k8s.io/%s v0.%s\n' "$module" "$module" "$minor_patch"
    done
  } >go.mod
  {
    printf '//go:build tools\n\npackage tools\n\nimport (\n'
    printf '\t_ "k8s.io/kubernetes/cmd/%s"\n' "${node_programs[@]}"
    printf ')\n'
  } >tools.go
  go get "k8s.io/kubernetes@v$kubernetes"
  go mod tidy
}

build_node_program() { # NAME
  local stamp=k8s.io/component-base/version minor=${kubernetes#*.}
  minor=${minor%%.*}
  write_kubernetes_module
  go build -trimpath -o "$directory/$1" -ldflags "-s -w -X $stamp.gitVersion=v$kubernetes \
    -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor -X $stamp.gitTreeState=clean" \
    "k8s.io/kubernetes/cmd/$1"
}

build_tool() { # NAME
  mkdir -p "$sources/$1"
  cd "$sources/$1"
  if [ ! -f go.sum ]; then
    printf 'module omnipipe.invalid/%s\n\ngo 1.26\n' "$1" >go.mod
    go get -tool "${package[$1]}@${version[$1]}"
  fi
  go build -trimpath -ldflags '-s -w' -o "$directory/$1" "${package[$1]}"
}

is_node_program() { [[ " ${node_programs[*]} " == *" $1 "* ]]; }

programs=("$@")
[ ${#programs[@]} -gt 0 ] || programs=("${node_programs[@]}" etcd coredns helm)
for program in "${programs[@]}"; do
  [ -x "$directory/$program" ] && continue
  began=$SECONDS
  if is_node_program "$program"; then
    build_node_program "$program"
  elif [ -n "${package[$program]:-}" ]; then
    build_tool "$program"
  else
    say "unknown program '$program'; known: ${node_programs[*]} ${!package[*]}"
    exit 2
  fi
  say "$program built in $((SECONDS - began)) s"
done
