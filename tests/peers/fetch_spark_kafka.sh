#!/bin/sh
# fetch_spark_kafka.sh [DIR]: the jars of Spark's own Kafka connector, the peer of our data source, by Maven.
# DIR is $SPARK_KAFKA_HOME or ~/.cache/klamm-spark-kafka. Needs mvn. Versions: the connector of Spark 4.2 runs on 4.2 and 4.3; of
# its helper for tokens only some versions are in Maven's registry, and every one of 4.x goes with it for plain connections.
# Transitive dependencies are left out: Spark brings them, and the parent's POM lists a registry that may not answer.
set -eu
dir=${1:-${SPARK_KAFKA_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/klamm-spark-kafka}}
sql=${SPARK_KAFKA_VERSION:-4.2.0}
token=${SPARK_TOKEN_PROVIDER_VERSION:-4.1.0-preview1}
clients=${KAFKA_CLIENTS_VERSION:-3.9.2}
want="$sql $token $clients"
[ "$(cat "$dir/VERSION" 2>/dev/null)" = "$want" ] && { echo "Spark's Kafka connector $sql is in $dir"; exit 0; }
command -v mvn >/dev/null || { echo "fetch_spark_kafka.sh: mvn is needed" >&2; exit 1; }
mkdir -p "$dir"
work=$(mktemp -d "$dir/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
one() {
  echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version><exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
}
{
  echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>klamm</groupId>'
  echo '<artifactId>spark-kafka</artifactId><version>1</version><packaging>pom</packaging><dependencies>'
  one org.apache.spark spark-sql-kafka-0-10_2.13 "$sql"
  one org.apache.spark spark-token-provider-kafka-0-10_2.13 "$token"
  one org.apache.kafka kafka-clients "$clients"
  one org.apache.commons commons-pool2 2.13.1
  echo '</dependencies></project>'
} >"$work/pom.xml"
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/jars"
rm -rf "$dir/jars"
mv "$work/jars" "$dir/jars"
echo "$want" >"$dir/VERSION"
echo "Spark's Kafka connector $sql is in $dir"
