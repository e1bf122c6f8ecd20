#!/bin/sh
# fetch_gssapi.sh [DIR]: the package gssapi, compiled, for the tests of Kerberos logins. DIR is ~/.cache/klamm-gssapi.
# It is no dependency of the tests' environment, because it needs a C compiler and Kerberos' headers (Debian: gcc libkrb5-dev).
set -eu
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/klamm-gssapi}
version=1.11.1
python=${PYTHON:-.venv/bin/python}
tag=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ -f "$dir/$tag-$version" ] && { echo "gssapi $version for Python $tag is in $dir"; exit 0; }
command -v krb5-config >/dev/null || { echo "fetch_gssapi.sh: krb5-config is needed (Debian: libkrb5-dev)" >&2; exit 1; }
rm -rf "$dir"
if command -v uv >/dev/null; then
  uv pip install --quiet --python "$python" --target "$dir" "gssapi==$version"
else
  "$python" -m pip install --quiet --disable-pip-version-check --target "$dir" "gssapi==$version"
fi
touch "$dir/$tag-$version"
echo "gssapi $version for Python $tag is in $dir"
