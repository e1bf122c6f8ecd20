#!/bin/sh
# tests/bare_debian.sh [--root DIR] [COMMAND ...]: runs COMMANDs in a clean clone of this repository on a bare Debian:
# debootstrap's minbase with python3 and python3-venv, and nothing mounted but /dev and /proc. Without a COMMAND it
# runs the two of the README. Each COMMAND is one argument, for the shell in the clone's folder. It needs root and debootstrap.
#
# The root is made in a temporary folder and removed at the end, or made once in DIR and kept for the next run.
# Packages come from the mirror of this machine's apt. Name resolution and the configuration of apt and pip are this machine's;
# that of apt and pip, which may hold credentials, leaves the root at the end.
set -eu

SUITE=bookworm
PACKAGES=python3,python3-venv

die() { echo "bare_debian: $*" >&2; exit 2; }
say() { echo "bare_debian: $*" >&2; }

kept=
case ${1:-} in
  --root) [ $# -ge 2 ] || die "--root needs a folder"; kept=$2; shift 2 ;;
  -h | --help) sed -n '2,8s/^# //p' "$0"; exit 0 ;;
  -*) die "unknown option $1" ;;
esac
[ $# -gt 0 ] || set -- './dev demo' './dev test'

[ "$(id -u)" = 0 ] || die "root is needed, for chroot and mount"
for program in debootstrap git unshare chroot; do
  command -v $program >/dev/null 2>&1 || die "$program is not there; on Debian or Ubuntu: apt-get install debootstrap git util-linux"
done
repository=$(cd "$(dirname "$0")/.." && pwd)

[ -z "$(git -C "$repository" status --porcelain)" ] || say "what is not committed is not tried"

# The files of a configuration, at the same place in the root.
copy() {
  for path in "$@"; do
    [ -e "$path" ] || continue
    mkdir -p "$root$(dirname "$path")"
    cp -RL --remove-destination "$path" "$root$(dirname "$path")/"
  done
}

forget() { for path in "$@"; do rm -rf "$root$path"; done; }

# Runs copy or forget with the files that may hold credentials: a kept root has them only while this script runs.
credentials() {
  "$1" /etc/apt/apt.conf /etc/apt/apt.conf.d/* /etc/apt/auth.conf /etc/apt/auth.conf.d \
    /etc/pip.conf /etc/xdg/pip "$HOME/.config/pip" "$HOME/.pip" "${PIP_CONFIG_FILE:-/etc/pip.conf}"
}

# The environment variables that pip, apt and TLS libraries read, as NAME=VALUE lines.
variables() { env | grep -E '^(PIP_[A-Z_]+|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|([Hh][Tt][Tt][Pp][Ss]?|[Nn][Oo]|[Aa][Ll][Ll])_[Pp][Rr][Oo][Xx][Yy])=' || true; }

# The mirror that this machine's apt takes the suite from; empty: debootstrap's own.
mirror() {
  command -v apt-get >/dev/null 2>&1 || return 0
  # shellcheck disable=SC2016 # apt's own variables
  apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(ORIGIN) $(REPO_URI)' 'Identifier: Packages' 2>/dev/null |
    sed -n "s/^$SUITE main Debian //p" | head -n 1
}

work=$(mktemp -d "${TMPDIR:-/tmp}/bare-debian.XXXXXX")
root=${kept:-$work/root}
# Mounts are in a namespace of their own: here nothing is mounted below the root that removing it could reach.
trap 'rm -rf "$work" "$root/klamm"; credentials forget' EXIT
trap 'exit 130' INT TERM HUP

if [ ! -e "$root/.bare-debian" ]; then
  say "making $SUITE minbase with $PACKAGES in $root"
  from=$(mirror)
  # shellcheck disable=SC2086 # no mirror: no argument
  debootstrap --variant=minbase --include=$PACKAGES $SUITE "$root" $from >"$work/debootstrap.log" 2>&1 ||
    { tail -n 20 "$work/debootstrap.log" >&2; die "debootstrap failed"; }
  touch "$root/.bare-debian"
fi
credentials copy
copy /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt
# What those name by its path: certificates, folders of wheels.
for path in $({ variables | sed 's/^[^=]*=//'; cat /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf" 2>/dev/null || true; } | tr '= :' '\n\n\n' | grep -E '^/[^/]' | sort -u); do
  copy "$path"
done
rm -rf "$root/klamm"
git clone --quiet --no-hardlinks "file://$repository" "$root/klamm"

variables >"$work/variables"
# shellcheck disable=SC2016 # for the inner shell
inside='
root=$1 variables=$2
shift 2
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
set -- "$@"
for command in "$@"; do
  echo "bare_debian: $command" >&2
  set -- env -i HOME=/root TERM="${TERM:-dumb}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  while IFS= read -r line; do set -- "$@" "$line"; done <"$variables"
  "$@" chroot "$root" /bin/sh -c "cd /klamm && $command" || { code=$?; echo "bare_debian: failed ($code): $command" >&2; exit $code; }
done'
unshare --mount --propagation private sh -euc "$inside" sh "$root" "$work/variables" "$@"
