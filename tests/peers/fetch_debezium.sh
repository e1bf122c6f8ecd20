#!/bin/sh
# fetch_debezium.sh [DIR]: Debezium's connectors for MySQL and MariaDB from Maven's registry, for the table of their keys.
# DIR is ~/.cache/klamm-debezium; it gets the jars and VERSION. Needs mvn and a JDK 17+.
set -eu
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/klamm-debezium}
version=${DEBEZIUM_VERSION:-3.4.0.Final}
[ "$(cat "$dir/VERSION" 2>/dev/null)" = "$version" ] && { echo "Debezium $version is in $dir"; exit 0; }
command -v mvn >/dev/null || { echo "fetch_debezium.sh: mvn is needed" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
  echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
  echo '<groupId>klamm</groupId><artifactId>debezium</artifactId><version>1</version><packaging>pom</packaging>'
  echo '<dependencies>'
  for database in mysql mariadb; do
    echo "<dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-$database</artifactId><version>$version</version></dependency>"
  done
  echo '</dependencies></project>'
} >"$work/pom.xml"
mkdir -p "$dir"
rm -f "$dir"/*.jar
mvn -B -q -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$dir"
echo "$version" >"$dir/VERSION"
echo "Debezium $version is in $dir"
