#!/bin/sh
# fetch_sslyze.sh [DIR]: the TLS scanner SSLyze, for the tests of the broker's listeners. DIR is ~/.cache/klamm-sslyze.
# It is no dependency of the tests' environment, because it carries an OpenSSL of its own and asks for other versions than ours.
set -eu
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/klamm-sslyze}
version=6.3.1
python=${PYTHON:-.venv/bin/python}
tag=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ -f "$dir/$tag-$version" ] && { echo "SSLyze $version for Python $tag is in $dir"; exit 0; }
rm -rf "$dir"
if command -v uv >/dev/null; then
  uv pip install --quiet --python "$python" --target "$dir" "sslyze==$version"
else
  "$python" -m pip install --quiet --disable-pip-version-check --target "$dir" "sslyze==$version"
fi
touch "$dir/$tag-$version"
echo "SSLyze $version for Python $tag is in $dir"
