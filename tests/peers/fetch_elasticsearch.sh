#!/bin/sh
# fetch_elasticsearch.sh [DIR]: a genuine Elasticsearch from Maven's registry, for tests and benchmarks of its connector.
# DIR is $ELASTICSEARCH_HOME or ~/.cache/klamm-elasticsearch; it gets server/ and VERSION. It is Elastic's own distribution
# for integration tests: the server and security, without GET /, scripts, reindex, ingest processors and data stream endpoints.
# Needs mvn, python3 and a JDK: 17 for the 8.19 line, 21 for 9.x (ELASTICSEARCH_VERSION chooses; default: by the JDK).
# Elasticsearch keeps its own licences: for running tests, not for redistribution.
set -eu
dir=${1:-${ELASTICSEARCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/klamm-elasticsearch}}
java=java
[ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
command -v "$java" >/dev/null || { echo "fetch_elasticsearch.sh: a JDK is needed (on PATH or in JAVA_HOME)" >&2; exit 1; }
major=$("$java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.specification\.version = \([0-9]*\).*/\1/p')
if [ "${major:-0}" -ge 21 ]; then default=9.5.3; else default=8.19.21; fi
version=${ELASTICSEARCH_VERSION:-$default}
case $version in
  8.19.21) sha256=215d5f3dbf0609a149f6218a9e47b6ae2df34ebbff3c5754e35f15a5e5393c8a needs=17 ;;
  9.5.3) sha256=bec49f3b8d00e75c8d1cec85c35298635ec9fbd3ae80ef5aeb6bc05abdb3db2d needs=21 ;;
  *) echo "fetch_elasticsearch.sh: ELASTICSEARCH_VERSION=$version is not known here: 8.19.21 or 9.5.3" >&2; exit 1 ;;
esac
[ "${major:-0}" -ge $needs ] || { echo "fetch_elasticsearch.sh: Elasticsearch $version needs a JDK of version $needs, $java is ${major:-unknown}" >&2; exit 1; }
[ "$(cat "$dir/VERSION" 2>/dev/null)" = "$version" ] && [ -f "$dir/server/lib/elasticsearch-$version.jar" ] && { echo "Elasticsearch $version is in $dir"; exit 0; }
command -v mvn >/dev/null || { echo "fetch_elasticsearch.sh: mvn is needed" >&2; exit 1; }
mkdir -p "$dir"
work=$(mktemp -d "$dir/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
# A local repository of its own: the archive of 110 MB is not kept twice.
(cd "$work" && mvn -B -q -Dmaven.repo.local="$work/m2" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
  -Dartifact="org.elasticsearch.distribution.integ-test-zip:elasticsearch:$version:zip" -DoutputDirectory="$work/out")
python3 - "$work"/out/*.zip "$work/server" $sha256 <<'P'
import hashlib, pathlib, shutil, sys, zipfile

archive, target, expected = sys.argv[1:]
digest = hashlib.sha256()
with open(archive, "rb") as f:
    while chunk := f.read(1 << 20):
        digest.update(chunk)
if digest.hexdigest() != expected:
    sys.exit(f"fetch_elasticsearch.sh: {archive} has SHA-256 {digest.hexdigest()}, expected {expected}")
with zipfile.ZipFile(archive) as z:
    for entry in z.infolist():
        parts = pathlib.PurePosixPath(entry.filename).parts[1:]  # without the top folder
        if entry.is_dir() or not parts or ".." in parts:
            continue
        out = pathlib.Path(target, *parts)
        out.parent.mkdir(parents=True, exist_ok=True)
        with z.open(entry) as source, out.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
P
mkdir -p "$work/server/plugins"
chmod -R a+rX "$work/server"
rm -rf "$dir/server"
mv "$work/server" "$dir/server"
echo "$version" >"$dir/VERSION"
echo "Elasticsearch $version is in $dir"
