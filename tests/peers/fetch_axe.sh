#!/bin/sh
# fetch_axe.sh [DIR]: axe-core, the checks of accessibility, for the tests of the console in Chromium. DIR is ~/.cache/klamm-axe. It is never
# in the wheel. It comes from the npm registry by npm.
set -eu
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/klamm-axe}
version=4.14.1
[ -f "$dir/axe-core-$version.min.js" ] && { echo "axe-core $version is in $dir"; exit 0; }
command -v npm >/dev/null || { echo "npm is not installed: apt-get install npm" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" "axe-core@$version" >/dev/null
tar -xzf "$work/axe-core-$version.tgz" -C "$work"
mkdir -p "$dir"
cp "$work/package/LICENSE" "$dir/LICENSE"
mv "$work/package/axe.min.js" "$dir/axe-core-$version.min.js"
echo "axe-core $version is in $dir"
