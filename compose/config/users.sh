#!/bin/sh
# Writes logins from the environment, then runs a server: arguments are its command. Who has no login may look, as at Grafana.
set -eu
users=/var/lib/klamm/rest-users.toml
umask 077
{
  echo '[users.admin]'
  printf '%s\n' "$KLAMM_REST_PASSWORD" | klamm connect password
  echo 'role = "admin"'
  echo '[anonymous]'
  echo 'role = "viewer"'
} >"$users"
exec "$@" --override rest.auth.file="$users"
