#!/bin/sh
# fetch_debezium.sh [DIR]: Debezium's connectors from Maven's registry, for the table of their keys.
# DIR is ~/.cache/klamm-debezium. DIR/mysql gets the connector for MySQL, DIR/mariadb the newest release that has the one
# for MariaDB there, with that for MySQL to compare; each gets its jars and VERSION. DIR/scripting gets the newest release of the
# transforms with expressions that is there, and Groovy and JavaScript for them. Needs mvn and a JDK 17+.
set -eu
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/klamm-debezium}

# fetch NAME VERSION DATABASE...: the connectors for these databases into DIR/NAME.
fetch() {
  to=$dir/$1 version=$2
  shift 2
  [ "$(cat "$to/VERSION" 2>/dev/null)" = "$version" ] && { echo "Debezium $version is in $to"; return; }
  command -v mvn >/dev/null || { echo "fetch_debezium.sh: mvn is needed" >&2; exit 1; }
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>klamm</groupId><artifactId>debezium</artifactId><version>1</version><packaging>pom</packaging>'
    echo '<dependencies>'
    for database in "$@"; do
      echo "<dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-$database</artifactId><version>$version</version></dependency>"
    done
    echo '</dependencies></project>'
  } >"$work/pom.xml"
  mkdir -p "$to"
  rm -f "$to"/*.jar
  mvn -B -q -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$to"
  echo "$version" >"$to/VERSION"
  echo "Debezium $version is in $to"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch mysql "${DEBEZIUM_VERSION:-3.6.1.Final}" mysql
fetch mariadb "${DEBEZIUM_MARIADB_VERSION:-3.5.0.Final}" mysql mariadb

scripting=$dir/scripting
version=${DEBEZIUM_SCRIPTING_VERSION:-3.5.0.Final} groovy=4.0.24 js=22.3.5
[ "$(cat "$scripting/VERSION" 2>/dev/null)" = "$version $groovy $js" ] && { echo "Debezium $version is in $scripting"; exit; }
mkdir -p "$scripting"
rm -f "$scripting"/*.jar
{
  echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
  echo '<groupId>klamm</groupId><artifactId>languages</artifactId><version>1</version><packaging>pom</packaging><dependencies>'
  echo "<dependency><groupId>org.apache.groovy</groupId><artifactId>groovy-jsr223</artifactId><version>$groovy</version></dependency>"
  echo "<dependency><groupId>org.graalvm.js</groupId><artifactId>js</artifactId><version>$js</version></dependency>"
  echo "<dependency><groupId>org.graalvm.js</groupId><artifactId>js-scriptengine</artifactId><version>$js</version></dependency>"
  echo '</dependencies></project>'
} >"$work/pom.xml"
mvn -B -q -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$scripting"
mvn -B -q dependency:copy -Dartifact="io.debezium:debezium-scripting:$version" -DoutputDirectory="$scripting"
echo "$version $groovy $js" >"$scripting/VERSION"
echo "Debezium $version is in $scripting"
