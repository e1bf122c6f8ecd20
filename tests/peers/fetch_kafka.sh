#!/bin/sh
# fetch_kafka.sh [DIR]: Apache Kafka from Maven's registry, as the tests' oracle and the benchmarks' peer.
# DIR is $KAFKA_HOME or ~/.cache/kafka-oracle; it gets libs/*.jar, plugins/connect-file (for plugin.path) and
# conf/log4j2.properties. Needs mvn and a JDK 17+.
set -eu
dir=${1:-${KAFKA_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/kafka-oracle}}
version=${KAFKA_VERSION:-4.3.1}
log4j=2.25.1
[ "$(cat "$dir/VERSION" 2>/dev/null)" = "$version" ] && [ -f "$dir/libs/connect-mirror-$version.jar" ] && [ -d "$dir/plugins/connect-file" ] && { echo "Kafka $version is in $dir"; exit 0; }
command -v mvn >/dev/null || { echo "fetch_kafka.sh: mvn is needed" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dependency() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"; }
{
  echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
  echo '<groupId>klamm</groupId><artifactId>kafka-oracle</artifactId><version>1</version><packaging>pom</packaging>'
  echo '<dependencies>'
  for artifact in kafka_2.13 kafka-clients kafka-tools connect-api connect-runtime connect-json connect-file connect-mirror connect-mirror-client; do
    dependency org.apache.kafka "$artifact" "$version"
  done
  # Kafka's poms leave the choice of a logger open
  for artifact in log4j-api log4j-core log4j-slf4j-impl log4j-1.2-api; do
    dependency org.apache.logging.log4j "$artifact" "$log4j"
  done
  echo '</dependencies></project>'
} >"$work/pom.xml"
mkdir -p "$dir/libs" "$dir/plugins/connect-file" "$dir/conf"
mvn -B -q -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$dir/libs"
# a plugin, as in a real installation: away from the class path
mv -f "$dir"/libs/connect-file-*.jar "$dir/plugins/connect-file/"
cat >"$dir/conf/log4j2.properties" <<'P'
status = error
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
P
echo "$version" >"$dir/VERSION"
echo "Kafka $version is in $dir"
