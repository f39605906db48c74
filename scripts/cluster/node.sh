#!/usr/bin/env bash
# One real Kubernetes node on this machine, without Docker and without an image registry.
#
#   node.sh up             start it (idempotent) and print its kubeconfig
#   node.sh down           stop it and remove what it made, images included
#   node.sh load TAR…      import image archives
#   node.sh has IMAGE      succeed when that image is there
#   node.sh tag IMAGE NAME  give it one more name
#   node.sh keep IMAGE…    forget omnipipe's other images, but for those of containers
#   node.sh kubeconfig     print the path of its kubeconfig
#   node.sh programs       build its programs, and nothing else
#   node.sh stop|start P   stop or start one program (apiserver, kubelet, coredns, …), to see who minds
#
# etcd, API server, controller-manager, scheduler, kubelet and kube-proxy are the real programs, built
# by build.sh into $BIN; pods run in Debian's containerd and runc; CoreDNS answers on the node address.
#
# Its GPUs are fake: nvidia.com/gpu by a device plugin, the DeviceClass fake-gpu by the example
# driver of Dynamic Resource Allocation. Pods get them counted and allocated, and find no device.
#
# Needs root. Everything it writes is under $STATE; it adds two network bridges and iptables rules.
#
# OMNIPIPE_FAKE_GPUS     how many (2; 0 for none)
# OMNIPIPE_PYTHON        what runs their device plugin: a Python with the development extras
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/omnipipe
BIN=${OMNIPIPE_CLUSTER_BIN:-$cache/bin}
STATE=${OMNIPIPE_CLUSTER_STATE:-/tmp/omnipipe-node}
PATH=$BIN:$PATH

node=node-0
node_address=10.245.0.1
pod_range=10.244.0.0/16
service_range=10.96.0.0/16
api=https://127.0.0.1:6443
start_seconds=60
# Kubelet looks for device plugins here, whatever its own root.
device_plugins=/var/lib/kubelet/device-plugins
fake_gpus=${OMNIPIPE_FAKE_GPUS:-2}
python=${OMNIPIPE_PYTHON:-$root/.venv/bin/python}

say() { printf 'node: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

await() { # WHAT COMMAND… — until it succeeds
  local what=$1 deadline=$((SECONDS + start_seconds))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || die "$what did not come up in $start_seconds s; see $STATE/log"
    sleep 0.1
  done
}

# --- credentials -------------------------------------------------------------------------------

issue() { # NAME SUBJECT [EXTENSION]
  local key=$STATE/pki/$1.key request=$STATE/pki/$1.csr
  openssl req -newkey rsa:2048 -nodes -keyout "$key" -out "$request" -subj "$2" 2>/dev/null
  openssl x509 -req -in "$request" -CA "$STATE/pki/ca.crt" -CAkey "$STATE/pki/ca.key" \
    -CAcreateserial -days 30 -out "$STATE/pki/$1.crt" \
    -extfile <(echo "${3:-extendedKeyUsage=clientAuth}") 2>/dev/null
}

write_kubeconfig() { # NAME — for the certificate of that name
  cat >"$STATE/$1.kubeconfig" <<K
apiVersion: v1
kind: Config
clusters:
- {name: node, cluster: {server: "$api", certificate-authority: "$STATE/pki/ca.crt"}}
users:
- {name: $1, user: {client-certificate: "$STATE/pki/$1.crt", client-key: "$STATE/pki/$1.key"}}
contexts:
- {name: node, context: {cluster: node, user: $1}}
current-context: node
K
}

write_credentials() {
  [ -f "$STATE/pki/ca.crt" ] && return
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$STATE/pki/ca.key" \
    -out "$STATE/pki/ca.crt" -days 30 -subj /CN=omnipipe-node-ca 2>/dev/null
  openssl genrsa -out "$STATE/pki/sa.key" 2048 2>/dev/null
  openssl rsa -in "$STATE/pki/sa.key" -pubout -out "$STATE/pki/sa.pub" 2>/dev/null
  local dns=kubernetes names
  names="IP:127.0.0.1,IP:10.96.0.1,IP:$node_address,DNS:localhost"
  names+=",DNS:$dns,DNS:$dns.default,DNS:$dns.default.svc,DNS:$dns.default.svc.cluster.local"
  issue apiserver /CN=kube-apiserver "subjectAltName=$names"
  issue admin /O=system:masters/CN=admin
  issue kubelet "/O=system:nodes/CN=system:node:$node"
  write_kubeconfig admin
  write_kubeconfig kubelet
}

# --- configuration -----------------------------------------------------------------------------

write_configuration() {
  # restrict_oom_score_adj: without CAP_SYS_RESOURCE runc otherwise cannot start a container.
  cat >"$STATE/containerd.toml" <<T
version = 2
root = "$STATE/containerd"
state = "$STATE/containerd-state"
[grpc]
  address = "$STATE/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$STATE/cni"
T
  cat >"$STATE/cni/10-bridge.conflist" <<T
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "omni-pods", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
T
  # Image collection is off: where disk and quota differ kubelet believes the disk full and removes
  # the sandbox image, which cannot be pulled again.
  cat >"$STATE/kubelet.yaml" <<T
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, x509: {clientCAFile: "$STATE/pki/ca.crt"}, webhook: {enabled: true}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
clusterDNS: ["$node_address"]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$STATE/containerd.sock
enforceNodeAllocatable: []
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
failSwapOn: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: 200
T
  printf '.:53 {\n  bind %s\n  errors\n  kubernetes cluster.local in-addr.arpa {\n    kubeconfig %s\n    ttl 2\n  }\n  cache 2\n}\n' \
    "$node_address" "$STATE/admin.kubeconfig" >"$STATE/Corefile"
}

# --- programs ----------------------------------------------------------------------------------

services=(etcd apiserver controller-manager scheduler containerd kubelet proxy coredns fake-gpus fake-dra)
node_programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl
  coredns helm)

command_of() { # NAME — sets `command`
  local as_admin=(--kubeconfig "$STATE/admin.kubeconfig") client=http://127.0.0.1:2379
  case $1 in
    etcd) command=(etcd --data-dir "$STATE/etcd" --listen-client-urls $client
      --advertise-client-urls $client --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync) ;;
    apiserver) command=(kube-apiserver --etcd-servers=$client --secure-port=6443
      --advertise-address=$node_address --service-cluster-ip-range=$service_range
      --tls-cert-file="$STATE/pki/apiserver.crt" --tls-private-key-file="$STATE/pki/apiserver.key"
      --client-ca-file="$STATE/pki/ca.crt"
      --kubelet-client-certificate="$STATE/pki/admin.crt"
      --kubelet-client-key="$STATE/pki/admin.key"
      --kubelet-preferred-address-types=InternalIP
      --service-account-key-file="$STATE/pki/sa.pub"
      --service-account-signing-key-file="$STATE/pki/sa.key"
      --service-account-issuer=https://kubernetes.default.svc
      --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction
      --allow-privileged=true) ;;
    controller-manager) command=(kube-controller-manager "${as_admin[@]}"
      --service-account-private-key-file="$STATE/pki/sa.key" --root-ca-file="$STATE/pki/ca.crt"
      --cluster-signing-cert-file="$STATE/pki/ca.crt" --cluster-signing-key-file="$STATE/pki/ca.key"
      --cluster-cidr=$pod_range --allocate-node-cidrs=true --leader-elect=false
      --use-service-account-credentials=true) ;;
    scheduler) command=(kube-scheduler "${as_admin[@]}" --leader-elect=false) ;;
    containerd) command=(containerd --config "$STATE/containerd.toml") ;;
    kubelet) command=(kubelet --config="$STATE/kubelet.yaml"
      --kubeconfig="$STATE/kubelet.kubeconfig" --hostname-override=$node --node-ip=$node_address
      --root-dir="$STATE/kubelet" --cert-dir="$STATE/pki") ;;
    proxy) command=(kube-proxy "${as_admin[@]}" --proxy-mode=iptables --hostname-override=$node
      --cluster-cidr=$pod_range --conntrack-max-per-core=0) ;;
    # From the root, where its package is.
    fake-gpus) command=(env -C "$root" "$python" -m tests.support.fake_gpus
      $device_plugins "$fake_gpus") ;;
    fake-dra) command=(dra-example-kubeletplugin --node-name $node --num-devices "$fake_gpus"
      --kubeconfig "$STATE/admin.kubeconfig" --cdi-root "$STATE/cdi"
      --kubelet-plugins-directory-path "$STATE/kubelet/plugins"
      --kubelet-registrar-directory-path "$STATE/kubelet/plugins_registry") ;;
    coredns) command=(coredns -conf "$STATE/Corefile") ;;
    *) die "no program '$1'; known: ${services[*]}" ;;
  esac
}

is_running() { [ -f "$STATE/run/$1.pid" ] && kill -0 "$(<"$STATE/run/$1.pid")" 2>/dev/null; }

start() { # NAME
  local command
  command_of "$1"
  is_running "$1" && return
  setsid "${command[@]}" >>"$STATE/log/$1.log" 2>&1 </dev/null &
  echo $! >"$STATE/run/$1.pid"
}

stop() { # NAME
  is_running "$1" || return 0
  local pid
  pid=$(<"$STATE/run/$1.pid")
  kill "$pid"
  for _ in $(seq 50); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null || true
  rm -f "$STATE/run/$1.pid"
}

# --- the node ----------------------------------------------------------------------------------

programs() {
  "$here/build.sh" "$BIN" "${node_programs[@]}"
  [ "$fake_gpus" = 0 ] || "$here/build.sh" "$BIN" dra-example-kubeletplugin
}

require() {
  [ "$(id -u)" = 0 ] || die "needs root: it makes network bridges and containers"
  python3 "$root/scripts/packages.py" node
  programs
}

up() {
  require
  mkdir -p "$STATE"/{log,run,pki,cni,etcd,kubelet}
  write_credentials
  write_configuration
  if ! ip link show omni-node >/dev/null 2>&1; then
    ip link add omni-node type bridge
    ip addr add $node_address/32 dev omni-node
    ip link set omni-node up
  fi
  sysctl -qw net.ipv4.ip_forward=1
  start etcd
  start apiserver
  start containerd
  await "the API server" curl -sfk $api/readyz
  await containerd test -S "$STATE/containerd.sock"
  has_image localhost/pause:1 || "$here/pause.sh" "$STATE" | xargs -r "$here/node.sh" load
  for program in controller-manager scheduler kubelet proxy coredns; do start "$program"; done
  await "the node" kubectl --kubeconfig "$STATE/admin.kubeconfig" \
    wait --for=condition=Ready node/$node --timeout=1s
  [ "$fake_gpus" = 0 ] || add_fake_gpus
  echo "$STATE/admin.kubeconfig"
}

add_fake_gpus() {
  start fake-gpus
  start fake-dra
  kubectl --kubeconfig "$STATE/admin.kubeconfig" apply -f - >/dev/null <<K
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: fake-gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
K
  say "$fake_gpus fake GPUs: nvidia.com/gpu, and DeviceClass fake-gpu"
}

containers() { ctr -a "$STATE/containerd.sock" -n k8s.io "$@"; }
has_image() { containers image ls -q 2>/dev/null | grep -qx "$1"; }

# Kubelet collects no images here, and those of a few builds fill a disk.
keep() { # IMAGE…
  local image used
  used=$(containers container ls | awk 'NR > 1 {print $2}')
  for image in $(containers image ls -q | grep '^localhost/omnipipe/' || true); do
    if ! grep -qx "$image" < <(printf '%s\n' "$@" "$used"); then
      containers image rm "$image" >/dev/null
    fi
  done
}

down() {
  local program task link
  # Containers first: kubelet would start them again, containerd would leave them behind.
  stop kubelet
  for task in $(containers task ls -q 2>/dev/null); do
    containers task delete -f "$task" >/dev/null 2>&1 || true
  done
  for program in "${services[@]}"; do stop "$program"; done
  grep " $STATE/" /proc/mounts | cut -d' ' -f2 | sort -r | xargs -r umount -l 2>/dev/null || true
  for link in $(ip -o link show master omni-pods 2>/dev/null | sed 's/^[0-9]*: \([^@:]*\).*/\1/') \
    omni-pods omni-node; do
    ip link delete "$link" 2>/dev/null || true
  done
  iptables-save 2>/dev/null | grep -vE 'KUBE-|CNI-' | iptables-restore 2>/dev/null || true
  rm -f $device_plugins/{kubelet.sock,fake-gpus.sock,kubelet_internal_checkpoint}
  rm -rf "$STATE"
}

case ${1:-} in
  up) up ;;
  down) down ;;
  kubeconfig) echo "$STATE/admin.kubeconfig" ;;
  programs) programs ;;
  load) shift; for archive; do containers image import "$archive" >/dev/null; done ;;
  tag) containers image tag --force "${2:?an image}" "${3:?a name}" >/dev/null ;;
  keep) shift; keep "$@" ;;
  has) has_image "${2:?an image}" ;;
  start) start "${2:?a program}" ;;
  stop) stop "${2:?a program}" ;;
  *) sed -n '2,23s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
