#!/bin/sh
# Serves the examples, and takes docs/catalog.png, the picture of a page in the README.
#
#   docs/screenshot.sh         (PORTOLAN=target/debug/portolan, CHROME=target/tools/chromium)
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
portolan=${PORTOLAN:-$root/target/debug/portolan}
chromium=${CHROME:-$root/target/tools/chromium}
# The picture shows it in the command that installs the chart.
address=127.0.0.1:8090
page=http://$address/charts/default/harbour/beacon?tab=values
directory=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; wait "$server" || true; fi; rm -rf "$directory"' EXIT
ln -s "$root/examples" "$directory/examples"
cd "$directory"

"$portolan" run --once --manifests examples --log-level warn
"$portolan" serve --manifests examples --serve "$address" --listen 127.0.0.1:0 --log-level warn &
server=$!
curl --silent --fail --output /dev/null --retry 30 --retry-delay 1 --retry-connrefused "$page"
# Chromium's own sandbox does not work for root. The page is ours.
"$chromium" --headless --no-sandbox --no-first-run --disable-background-networking --disable-dev-shm-usage \
    --user-data-dir="$directory/profile" --hide-scrollbars --window-size=1280,960 \
    --screenshot="$directory/catalog.png" "$page" 2>"$directory/chromium.log" || true
if [ ! -s "$directory/catalog.png" ]; then cat "$directory/chromium.log" >&2; exit 1; fi
# Another process at the address would have shown its own page.
kill -0 "$server"
mv "$directory/catalog.png" "$root/docs/catalog.png"
