#!/bin/sh
# Writes logins from the environment, then runs a server: arguments are its command. With ALL_MAY_LOOK, who has no login may look, as at Grafana.
set -eu
users=/var/lib/klamm/rest-users.toml
umask 077
{
  echo '[users.admin]'
  printf '%s\n' "$KLAMM_REST_PASSWORD" | klamm connect password
  echo 'role = "admin"'
  [ -z "${ALL_MAY_LOOK-}" ] || printf '[anonymous]\nrole = "viewer"\n'
} >"$users"
exec "$@" --override rest.auth.file="$users"
