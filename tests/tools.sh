#!/bin/sh
# Sets up what the integration tests run against, in target/tools. Each part is built once and kept.
#
#   tests/tools.sh [control-plane] [helm] [registry] [postgres]      (all four without an argument)
#   tests/tools.sh cargo-deny                             (for .ci/run; exits 1 if it cannot be had)
#
# KUBEBUILDER_ASSETS  a folder with etcd, kube-apiserver, kube-controller-manager and kubectl: none is built then
# HELM                a helm 3 binary: none is built then, nor if `helm` on the PATH is of version 3
# REGISTRY            a binary of the distribution registry, version 3: none is built then
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/target/tools
helm_version=v3.21.4
registry_version=v3.1.2
mkdir -p "$tools"

say() { echo "tools: $*" >&2; }
fail() { say "$*"; exit 1; }
need_go() { command -v go >/dev/null || fail "$1 is built from Go modules, and there is no \`go\`: install Go 1.25 or newer, or set $2."; }

control_plane() {
    if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
        for name in etcd kube-apiserver kube-controller-manager kubectl; do
            [ -x "$KUBEBUILDER_ASSETS/$name" ] || fail "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks $name: put it there, or unset the variable to have all four built."
        done
        return
    fi
    source=$root/tests/control-plane
    stamp=$(cat "$source/go.mod" "$source/go.sum" "$source/main.go" | cksum)
    if [ "$(cat "$tools/kube.stamp" 2>/dev/null)" = "$stamp" ] && [ -x "$tools/kube" ]; then return; fi
    need_go "The control plane" KUBEBUILDER_ASSETS
    version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' "$source/go.mod")
    minor=${version#v1.} minor=${minor%%.*}
    info=k8s.io/component-base/version
    say "building etcd, kube-apiserver, kube-controller-manager and kubectl $version: about five minutes from nothing"
    # Without the version flags the API server calls itself v0.0.0.
    (cd "$source" && go build -trimpath -o "$tools/kube" \
        -ldflags "-s -w -X $info.gitVersion=$version -X $info.gitMajor=1 -X $info.gitMinor=$minor" .)
    for name in etcd kube-apiserver kube-controller-manager kubectl; do ln -sf kube "$tools/$name"; done
    echo "$stamp" >"$tools/kube.stamp"
}

is_helm_3() { case $("$1" version --template '{{.Version}}' 2>/dev/null) in v3.*) true ;; *) false ;; esac; }

helm() {
    if [ -n "${HELM:-}" ]; then
        is_helm_3 "$HELM" || fail "HELM=$HELM is no helm of version 3: name one, or unset the variable to have it built."
        return
    fi
    # `helm` is a function here: a new shell is asked what the PATH holds.
    found=$(sh -c 'command -v helm' || true)
    if [ -n "$found" ] && [ "$found" != "$tools/helm" ] && is_helm_3 "$found"; then ln -sf "$found" "$tools/helm"; return; fi
    if [ "$(cat "$tools/helm.stamp" 2>/dev/null)" = "$helm_version" ] && [ -x "$tools/helm" ]; then return; fi
    need_go Helm HELM
    say "building helm $helm_version: about two minutes from nothing"
    rm -f "$tools/helm"
    GOBIN=$tools go install -trimpath "helm.sh/helm/v3/cmd/helm@$helm_version"
    echo "$helm_version" >"$tools/helm.stamp"
}

registry() {
    if [ -n "${REGISTRY:-}" ]; then
        # It names its module, whose path tells the major version however it was built.
        case $("$REGISTRY" --version 2>/dev/null) in
        *distribution/distribution/v3*) return ;;
        *) fail "REGISTRY=$REGISTRY is no distribution registry of version 3: name one, or unset the variable to have it built." ;;
        esac
    fi
    if [ "$(cat "$tools/registry.stamp" 2>/dev/null)" = "$registry_version" ] && [ -x "$tools/registry" ]; then return; fi
    need_go "The registry" REGISTRY
    say "building the distribution registry $registry_version: about two minutes from nothing"
    rm -f "$tools/registry"
    GOBIN=$tools go install -trimpath "github.com/distribution/distribution/v3/cmd/registry@$registry_version"
    echo "$registry_version" >"$tools/registry.stamp"
}

find_postgres() {
    if command -v initdb >/dev/null && command -v postgres >/dev/null; then return; fi
    for folder in /usr/lib/postgresql/*/bin; do # where Debian keeps it, off the PATH
        if [ -x "$folder/initdb" ]; then return; fi
    done
    return 1
}

postgres() {
    if find_postgres; then return; fi
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        say "installing the distribution's Postgres"
        apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >&2
        if find_postgres; then return; fi
    fi
    fail "The tests start a Postgres server of their own, and there is no \`initdb\`: install your system's Postgres server package (Debian, Ubuntu: postgresql; Fedora: postgresql-server; Homebrew: postgresql@17) and have initdb on the PATH."
}

cargo_deny() {
    if command -v cargo-deny >/dev/null; then ln -sf "$(command -v cargo-deny)" "$tools/cargo-deny"; return; fi
    if [ -x "$tools/bin/cargo-deny" ]; then ln -sf bin/cargo-deny "$tools/cargo-deny"; return; fi
    say "installing cargo-deny: about two minutes"
    cargo install --quiet --locked --root "$tools" cargo-deny || fail "cargo-deny could not be installed."
    ln -sf bin/cargo-deny "$tools/cargo-deny"
}

[ $# -gt 0 ] || set -- control-plane helm registry postgres
for part; do
    case $part in
    control-plane) control_plane ;;
    helm) helm ;;
    registry) registry ;;
    postgres) postgres ;;
    cargo-deny) cargo_deny ;;
    *) fail "There is no part called $part: control-plane, helm, registry, postgres or cargo-deny." ;;
    esac
done
