# Keys, certificates and kubeconfigs of the local cluster. Sourced by local.sh.
# shellcheck shell=bash

make_ca() {
  openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/ca.key" &&
    openssl req -x509 -new -key "$PKI/ca.key" -subj "/CN=mpi-cluster" -days 3650 -out "$PKI/ca.crt"
}

make_cert() { # NAME SUBJECT [SUBJECT_ALT_NAMES]
  local name=$1 subject=$2 names=${3:-}
  {
    echo "keyUsage=digitalSignature"
    echo "extendedKeyUsage=clientAuth,serverAuth"
    [[ -z $names ]] || echo "subjectAltName=$names"
  } >"$PKI/$name.ext"
  openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/$name.key" &&
    openssl req -new -key "$PKI/$name.key" -subj "$subject" -out "$PKI/$name.csr" &&
    openssl x509 -req -in "$PKI/$name.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial \
      -days 3650 -extfile "$PKI/$name.ext" -out "$PKI/$name.crt"
}

make_kubeconfig() { # NAME OUTPUT: keys inside, so that the file can be copied anywhere
  cat >"$2" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: mpi
  cluster:
    server: https://127.0.0.1:$API_PORT
    certificate-authority-data: $(base64 -w0 <"$PKI/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 <"$PKI/$1.crt")
    client-key-data: $(base64 -w0 <"$PKI/$1.key")
contexts:
- name: mpi
  context: {cluster: mpi, user: $1}
current-context: mpi
YAML
  chmod 600 "$2"
}

make_pki() {
  local node
  make_ca
  make_cert apiserver /CN=kube-apiserver \
    "IP:127.0.0.1,IP:$SERVICE_IP,IP:$HOST_IP,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  make_cert admin /O=system:masters/CN=admin
  make_cert controller-manager /CN=system:kube-controller-manager
  make_cert scheduler /CN=system:kube-scheduler
  # Read-only by what it asks for; not worth roles of its own in a cluster for tests.
  make_cert coredns /O=system:masters/CN=coredns
  for node in "${NODES[@]}"; do
    make_cert "$node" "/O=system:nodes/CN=system:node:$node"
  done
  openssl genrsa -out "$PKI/service-account.key" 2048
  openssl rsa -in "$PKI/service-account.key" -pubout -out "$PKI/service-account.pub"
  make_kubeconfig admin "$KUBECONFIG_FILE"
  for node in controller-manager scheduler coredns "${NODES[@]}"; do
    make_kubeconfig "$node" "$PKI/$node.kubeconfig"
  done
}
