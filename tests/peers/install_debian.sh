#!/bin/sh
# install_debian.sh: the servers that tests meet and that Debian packages: MariaDB, PostgreSQL, rsyslog with its Kafka output,
# Prometheus, systemd, a Kerberos KDC with the headers of its library.
# Installs what is missing when it may (root, apt-get); says what it could not get and exits 0: the tests that need it are skipped.
set -eu
missing=
command -v mariadbd >/dev/null || missing="mariadb-server"
[ -e "$(dirname "$(command -v rsyslogd || echo /usr/sbin/rsyslogd)")/rsyslogd" ] || missing="$missing rsyslog"
ls /usr/lib/*/rsyslog/omkafka.so >/dev/null 2>&1 || missing="$missing rsyslog-kafka"
command -v prometheus >/dev/null || missing="$missing prometheus"
command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
command -v krb5kdc >/dev/null || [ -x /usr/sbin/krb5kdc ] || missing="$missing krb5-kdc krb5-admin-server"
command -v systemd-analyze >/dev/null || missing="$missing systemd"
command -v krb5-config >/dev/null || missing="$missing libkrb5-dev"
[ -n "$missing" ] || { echo "MariaDB, PostgreSQL, rsyslog, Prometheus, systemd and Kerberos are here"; exit 0; }
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "not here, and not installed without root and apt-get: $missing"
  exit 0
fi
# A package's own service must not start: tests start servers of their own, on ports of their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod +x $policy
  trap 'rm -f $policy' EXIT
fi
apt-get update -q >/dev/null
# shellcheck disable=SC2086 # a list of names
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null ||
  { echo "could not be installed: $missing"; exit 0; }
echo "installed: $missing"
