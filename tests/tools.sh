#!/bin/sh
# Installs the tools of the integration tests in target/tools. Each tool is built once.
#
#   tests/tools.sh [control-plane] [evaluator] [helm] [helm4] [registry] [postgres] [faketime] [browser] [axe]
#                                                         (default: all nine)
#   tests/tools.sh cargo-deny                             (for .ci/run; exits 1 on failure)
#   tests/tools.sh mdbook                                 (for make docs)
#
# KUBEBUILDER_ASSETS  directory with etcd, kube-apiserver, kube-controller-manager and kubectl, used instead of a build
# PORTOLAN_CUE_EVALUATOR  CUE evaluator, used instead of a build
# HELM                Helm 3 binary, used instead of a build; so is `helm` in PATH if it is version 3
# HELM4               Helm 4 binary, used instead of a build
# REGISTRY            distribution registry 3 binary, used instead of a build
# CHROME, CHROMEDRIVER  Chromium or Chrome and its driver, of the same release, used instead of those in PATH
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/target/tools
mkdir -p "$tools"

say() { echo "tools: $*" >&2; }
fail() { say "$*"; exit 1; }
need_go() { command -v go >/dev/null || fail "cannot build $1: \`go\` not found; install Go 1.26 or newer, or set $2"; }

# The module of the control plane and Helm: they share most of their dependencies, which are compiled once.
module=$root/tests/control-plane
version_of() { awk -v path="$1" '$1 == path && $2 ~ /^v/ { print $2; exit } $2 == path && $3 ~ /^v/ { print $3; exit }' "$2/go.mod"; }

control_plane() {
    if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
        for name in etcd kube-apiserver kube-controller-manager kubectl; do
            [ -x "$KUBEBUILDER_ASSETS/$name" ] || fail "$name not found in KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS; add it, or unset the variable to build all four"
        done
        return
    fi
    stamp=$(cat "$module/go.mod" "$module/go.sum" "$module/main.go" | cksum)
    if [ "$(cat "$tools/kube.stamp" 2>/dev/null)" = "$stamp" ] && [ -x "$tools/kube" ]; then return; fi
    need_go "the control plane" KUBEBUILDER_ASSETS
    version=$(version_of k8s.io/kubernetes "$module")
    minor=${version#v1.} minor=${minor%%.*}
    info=k8s.io/component-base/version
    say "building etcd, kube-apiserver, kube-controller-manager and kubectl $version (about five minutes)"
    # Without these flags the API server reports version v0.0.0.
    (cd "$module" && go build -trimpath -o "$tools/kube" \
        -ldflags "-s -w -X $info.gitVersion=$version -X $info.gitMajor=1 -X $info.gitMinor=$minor" .)
    for name in etcd kube-apiserver kube-controller-manager kubectl; do ln -sf kube "$tools/$name"; done
    echo "$stamp" >"$tools/kube.stamp"
}

evaluator() {
    if [ -n "${PORTOLAN_CUE_EVALUATOR:-}" ]; then return; fi
    stamp=$(cat "$root"/evaluator/go.* "$root"/evaluator/*.go | cksum)
    if [ "$(cat "$tools/portolan-cue.stamp" 2>/dev/null)" = "$stamp" ] && [ -x "$tools/portolan-cue" ]; then return; fi
    need_go "the CUE evaluator" PORTOLAN_CUE_EVALUATOR
    say "building portolan-cue (about a minute)"
    (cd "$root/evaluator" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$tools/portolan-cue" .)
    echo "$stamp" >"$tools/portolan-cue.stamp"
}

is_helm() { case $("$2" version --template '{{.Version}}' 2>/dev/null) in "v$1."*) true ;; *) false ;; esac; }

helm() {
    if [ -n "${HELM:-}" ]; then
        is_helm 3 "$HELM" || fail "HELM=$HELM is not Helm 3; set another binary, or unset the variable to build it"
        return
    fi
    # A new shell, because `helm` is a function in this one.
    found=$(sh -c 'command -v helm' || true)
    if [ -n "$found" ] && [ "$found" != "$tools/helm" ] && is_helm 3 "$found"; then ln -sf "$found" "$tools/helm"; return; fi
    version=$(version_of helm.sh/helm/v3 "$module")
    if [ "$(cat "$tools/helm.stamp" 2>/dev/null)" = "$version" ] && [ -x "$tools/helm" ]; then return; fi
    need_go helm HELM
    say "building helm $version (about a minute)"
    rm -f "$tools/helm"
    (cd "$module" && go build -trimpath -ldflags "-s -w" -o "$tools/helm" helm.sh/helm/v3/cmd/helm)
    echo "$version" >"$tools/helm.stamp"
}

helm4() {
    if [ -n "${HELM4:-}" ]; then
        is_helm 4 "$HELM4" || fail "HELM4=$HELM4 is not Helm 4; set another binary, or unset the variable to build it"
        return
    fi
    version=$(version_of helm.sh/helm/v4 "$module/helm4")
    if [ "$(cat "$tools/helm4.stamp" 2>/dev/null)" = "$version" ] && [ -x "$tools/helm4" ]; then return; fi
    need_go helm4 HELM4
    say "building helm $version (about two minutes)"
    (cd "$module/helm4" && go build -trimpath -ldflags "-s -w" -o "$tools/helm4" helm.sh/helm/v4/cmd/helm)
    echo "$version" >"$tools/helm4.stamp"
}

registry() {
    if [ -n "${REGISTRY:-}" ]; then
        # The output contains the module path, which includes the major version in all builds.
        case $("$REGISTRY" --version 2>/dev/null) in
        *distribution/distribution/v3*) return ;;
        *) fail "REGISTRY=$REGISTRY is not distribution registry 3; set another binary, or unset the variable to build it" ;;
        esac
    fi
    version=$(version_of github.com/distribution/distribution/v3 "$module/registry")
    if [ "$(cat "$tools/registry.stamp" 2>/dev/null)" = "$version" ] && [ -x "$tools/registry" ]; then return; fi
    need_go "the registry" REGISTRY
    say "building the distribution registry $version (about a minute)"
    (cd "$module/registry" && go build -trimpath -ldflags "-s -w" -o "$tools/registry" .)
    echo "$version" >"$tools/registry.stamp"
}

find_postgres() {
    if command -v initdb >/dev/null && command -v postgres >/dev/null; then return; fi
    for directory in /usr/lib/postgresql/*/bin; do # Debian's location outside PATH
        if [ -x "$directory/initdb" ]; then return; fi
    done
    return 1
}

postgres() {
    if find_postgres; then return; fi
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        say "installing Postgres with apt-get"
        apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >&2
        if find_postgres; then return; fi
    fi
    fail "\`initdb\` not found, which the tests need to start Postgres; install the Postgres server package (Debian, Ubuntu: postgresql; Fedora: postgresql-server; Homebrew: postgresql@17) and add initdb to PATH"
}

find_faketime() {
    for library in /usr/lib*/faketime/libfaketimeMT.so.1 /usr/lib/*/faketime/libfaketimeMT.so.1; do
        if [ -e "$library" ]; then return; fi
    done
    return 1
}

faketime() {
    if find_faketime; then return; fi
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        say "installing libfaketime with apt-get"
        apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libfaketime >&2
        if find_faketime; then return; fi
    fi
    fail "libfaketime not found, with which the tests set the clock of a process; install its package (Debian, Ubuntu, Fedora: libfaketime)"
}

release_of() { "$1" --version 2>/dev/null | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+\./) { sub(/\..*/, "", $i); print $i; exit } }'; }

first_of() {
    for name; do
        if command -v "$name"; then return; fi
    done
}

# Sets `chromium` and `chromedriver`, which are empty if none is found.
find_browser() {
    chromium=${CHROME:-$(first_of chromium chromium-browser google-chrome google-chrome-stable)}
    chromedriver=${CHROMEDRIVER:-$(first_of chromedriver)}
    [ -n "$chromium" ] && [ -n "$chromedriver" ]
}

browser() {
    if ! find_browser && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        say "installing Chromium and ChromeDriver with apt-get"
        apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >&2
    fi
    find_browser || fail "Chromium and ChromeDriver not found, with which the tests look at pages; install their packages (Debian: chromium and chromium-driver; Fedora: chromium and chromedriver), or set CHROME and CHROMEDRIVER"
    release=$(release_of "$chromium") driver=$(release_of "$chromedriver")
    [ -n "$release" ] || fail "$chromium is not Chromium; set CHROME to another binary"
    [ "$release" = "$driver" ] || fail "$chromium is of release $release and $chromedriver of release ${driver:-unknown}; install both of one release, or set CHROME and CHROMEDRIVER"
    if [ -z "${CHROME:-}" ]; then ln -sf "$chromium" "$tools/chromium"; fi
    if [ -z "${CHROMEDRIVER:-}" ]; then ln -sf "$chromedriver" "$tools/chromedriver"; fi
}

AXE=4.14.1
AXE_SHA256=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745

axe() {
    if [ "$(cat "$tools/axe.stamp" 2>/dev/null)" = "$AXE_SHA256" ] && [ -f "$tools/axe.min.js" ]; then return; fi
    command -v npm >/dev/null || fail "cannot download axe-core: \`npm\` not found; install Node.js, which brings it"
    say "downloading axe-core $AXE"
    archive=$tools/axe-core-$AXE.tgz
    (cd "$tools" && npm pack --silent "axe-core@$AXE" >/dev/null) || fail "failed to download axe-core $AXE"
    echo "$AXE_SHA256  $archive" | sha256sum --check --status || fail "$archive does not have the checksum $AXE_SHA256; delete it and try again"
    tar -xzf "$archive" -C "$tools" --strip-components=1 package/axe.min.js
    rm "$archive"
    echo "$AXE_SHA256" >"$tools/axe.stamp"
}

cargo_deny() {
    if command -v cargo-deny >/dev/null; then ln -sf "$(command -v cargo-deny)" "$tools/cargo-deny"; return; fi
    if [ -x "$tools/bin/cargo-deny" ]; then ln -sf bin/cargo-deny "$tools/cargo-deny"; return; fi
    say "installing cargo-deny (about two minutes)"
    # It runs for seconds, so compiling without optimization is faster in all.
    cargo install --quiet --locked --debug --root "$tools" cargo-deny || fail "failed to install cargo-deny"
    ln -sf bin/cargo-deny "$tools/cargo-deny"
}

MDBOOK=0.5.4

mdbook() {
    if [ "$("$tools/bin/mdbook" --version 2>/dev/null)" != "mdbook v$MDBOOK" ]; then
        say "installing mdbook $MDBOOK (about three minutes)"
        # Without the features that serve and watch a book. It runs for seconds, as cargo-deny does.
        cargo install --quiet --locked --debug --no-default-features --features search --root "$tools" "mdbook@$MDBOOK" || fail "failed to install mdbook"
    fi
    ln -sf bin/mdbook "$tools/mdbook"
}

[ $# -gt 0 ] || set -- control-plane evaluator helm helm4 registry postgres faketime browser axe
for part; do
    case $part in
    control-plane) control_plane ;;
    evaluator) evaluator ;;
    helm) helm ;;
    helm4) helm4 ;;
    registry) registry ;;
    postgres) postgres ;;
    faketime) faketime ;;
    browser) browser ;;
    axe) axe ;;
    cargo-deny) cargo_deny ;;
    mdbook) mdbook ;;
    *) fail "unknown tool $part; expected control-plane, evaluator, helm, helm4, registry, postgres, faketime, browser, axe, cargo-deny or mdbook" ;;
    esac
done
