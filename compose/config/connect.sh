#!/bin/sh
# Writes the logins of the REST API from the environment, then runs a Connect worker. Arguments are the worker's.
set -eu
users=/var/lib/klamm/rest-users.toml
umask 077
{
  echo '[users.admin]'
  printf '%s\n' "$KLAMM_REST_PASSWORD" | klamm connect password
  echo 'role = "admin"'
} >"$users"
exec klamm connect distributed /etc/klamm/worker.properties --override rest.auth.file="$users" "$@"
