#!/bin/sh
# Runs commands as a reader does, and draws the terminal as docs/recording.svg, the picture of the README.
#
#   docs/recording.sh          (PORTOLAN=target/debug/portolan)
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
portolan=${PORTOLAN:-$root/target/debug/portolan}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
ln -s "$portolan" "$directory/portolan"
ln -s "$root/examples" "$directory/examples"
cd "$directory"
PATH=$directory:$PATH

for command in \
    "portolan run --once --manifests examples --log-level warn" \
    "portolan status" \
    "portolan search tides" \
    "portolan show harbour/beacon" \
    "portolan sync missing oci://127.0.0.1:9/charts oci"; do
    echo "\$ $command"
    # The last command fails on purpose: its message says what to do.
    sh -c "$command" 2>&1 || true
done | awk -v columns=100 -f "$root/docs/recording.awk" >"$directory/recording.svg"
mv "$directory/recording.svg" "$root/docs/recording.svg"
