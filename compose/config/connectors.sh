#!/bin/sh
# Makes the connectors that are not there yet. The password reaches the document here, not in the repository.
set -eu
for file in /etc/connectors/*.json; do
  name=$(basename "$file" .json)
  if klamm connector status "$name" >/dev/null 2>&1; then
    echo "$name is there"
  else
    sed "s|@KLAMM_MYSQL_PASSWORD@|$KLAMM_MYSQL_PASSWORD|" "$file" | klamm connector create -f -
  fi
done
