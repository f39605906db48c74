#!/usr/bin/env bash
# From nothing to speech on Kubernetes: a cluster, omnipipe by Helm, a pipeline, one request by the
# Python client and one by OpenAI's, and what the cluster then tells about the pipeline.
#
#   demo.sh [MANIFEST]     an OmniPipeline; examples/qwen3-omni-tiny.yaml when absent
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$(dirname "$(dirname "$here")")"
manifest=${1:-examples/qwen3-omni-tiny.yaml}
question='What do you see in the picture, and what do you hear?'
out=build/demo-k8s
python=${OMNIPIPE_PYTHON:-.venv/bin/python}
ready_seconds=${OMNIPIPE_READY_SECONDS:-600}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
now() { date +%s%N; }
since() { printf '%d.%03d s' $((($(now) - $1) / 1000000000)) $((($(now) - $1) / 1000000 % 1000)); }

# Keeps running in the background until the script ends; sets the local port.
forward() { # SERVICE PORT
  local log=$out/port-forward-$2.log
  : >"$log"
  kubectl port-forward "service/$1" ":$2" >"$log" 2>&1 &
  forwards+=($!)
  until grep -q 'Forwarding from 127.0.0.1:[0-9]* -> ' "$log"; do
    kill -0 "${forwards[-1]}" || { cat "$log" >&2; exit 1; }
    sleep 0.05
  done
  port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$log")
}

forwards=()
trap 'kill "${forwards[@]}" 2>/dev/null || true' EXIT
mkdir -p "$out"

"$here/cluster.sh" up
environment=$("$here/cluster.sh" env)
eval "$environment"

say "helm upgrade --install omnipipe"
# shellcheck disable=SC2086  # several flags
helm upgrade --install omnipipe charts/omnipipe --namespace omnipipe-system --create-namespace \
  $OMNIPIPE_IMAGES --wait --timeout 180s >"$out/helm.txt"
kubectl --namespace omnipipe-system get pods

say "kubectl apply -f $manifest"
began=$(now)
name=$(kubectl apply -f "$manifest" -o name | grep '^omnipipeline\.' | cut -d/ -f2)
kubectl wait "omni/$name" --for=condition=Ready --timeout="${ready_seconds}s" \
  || { kubectl describe "omni/$name"; exit 1; }
echo "ready after $(since "$began")"
kubectl get pods --selector "omnipipe.dev/pipeline=$name"

say "one request by the Python client: a picture and a sound in, text and speech out"
forward "$name-gateway" 8443
$python -m scripts.cluster.ask sdk "127.0.0.1:$port" "$question" "$out/answer.wav"
echo "first answer $(since "$began") after kubectl apply"

say "one request by OpenAI's client"
forward "$name-gateway" 8000
$python -m scripts.cluster.ask openai "http://127.0.0.1:$port/v1" "$question" "$out/openai.wav"

say "kubectl describe omni $name"
kubectl describe "omni/$name" | tee "$out/describe.txt"

say "It goes on running; make cluster-down removes it. To look around:"
echo '  eval "$(scripts/cluster/cluster.sh env)"'
