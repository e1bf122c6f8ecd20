"""Grok's usual patterns as data: `NAME regular expression` per line, in the syntax that Python and Java share.

Fields have ECS's names (as in Logstash's own patterns with ECS compatibility on). Users' pattern files have the
same form. Groups do not capture, apart from fields. `[` inside a class is escaped, since in Java it would begin a
class in the class.

Java matches a repeated group by recursion: a line of some thousand characters would exceed its stack, which ends
the whole process. So a group is repeated at most some hundred times, or without going back (`++`, `*+`), or is
written as a class.
"""

from __future__ import annotations

from typing import Final

TEXT: Final = r"""
# --- words and numbers
USERNAME [a-zA-Z0-9._-]+
USER %{USERNAME}
EMAILLOCALPART [a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,64}(?:\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,62}){0,63}
EMAILADDRESS %{EMAILLOCALPART}@%{HOSTNAME}
INT [+-]?[0-9]+
BASE10NUM (?<![0-9.+-])[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
NUMBER %{BASE10NUM}
BASE16NUM (?<![0-9A-Fa-f])[+-]?(?:0x)?[0-9A-Fa-f]+
BASE16FLOAT \b(?<![0-9A-Fa-f.])[+-]?(?:0x)?(?:[0-9A-Fa-f]+(?:\.[0-9A-Fa-f]*)?|\.[0-9A-Fa-f]+)\b
POSINT \b[1-9][0-9]*\b
NONNEGINT \b[0-9]+\b
WORD \b\w+\b
NOTSPACE \S+
SPACE \s*
DATA .*?
GREEDYDATA .*
GREEDYMULTILINE (?s:.*)
QUOTEDSTRING (?<!\\)(?:"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|`(?:[^`\\]++|\\.)*+`)
QS %{QUOTEDSTRING}
UUID [A-Fa-f0-9]{8}-(?:[A-Fa-f0-9]{4}-){3}[A-Fa-f0-9]{12}
URN urn:[0-9A-Za-z][0-9A-Za-z-]{0,31}:(?:%[0-9a-fA-F]{2}|[0-9A-Za-z()+,.:=@;$_!*'/?#-])++

# --- networks
CISCOMAC (?:[A-Fa-f0-9]{4}\.){2}[A-Fa-f0-9]{4}
WINDOWSMAC (?:[A-Fa-f0-9]{2}-){5}[A-Fa-f0-9]{2}
COMMONMAC (?:[A-Fa-f0-9]{2}:){5}[A-Fa-f0-9]{2}
MAC (?:%{CISCOMAC}|%{WINDOWSMAC}|%{COMMONMAC})
IPV4OCTET (?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])
IPV4 (?<![0-9.])(?:%{IPV4OCTET}\.){3}%{IPV4OCTET}(?![0-9])
IPV6HEX [0-9A-Fa-f]{1,4}
IPV6TAIL (?:%{IPV6HEX}:%{IPV6HEX}|%{IPV4})
IPV6 (?<![0-9A-Fa-f:.])(?:(?:%{IPV6HEX}:){6}%{IPV6TAIL}|(?:%{IPV6HEX}:){1,7}:(?![0-9A-Fa-f:])|::(?:%{IPV6HEX}:){0,5}%{IPV6TAIL}|::%{IPV6HEX}|(?:%{IPV6HEX}:){1,6}(?::%{IPV6HEX}){1,6}(?![0-9A-Fa-f:.])|(?:%{IPV6HEX}:){1,5}:(?:%{IPV6HEX}:){0,4}%{IPV4}|::(?![0-9A-Fa-f:]))(?:%[0-9A-Za-z_.-]+)?
IP (?:%{IPV4}|%{IPV6})
HOSTNAME \b[0-9A-Za-z][0-9A-Za-z-]{0,62}(?:\.[0-9A-Za-z][0-9A-Za-z-]{0,62}){0,126}\.?(?![0-9A-Za-z-])
IPORHOST (?:%{IP}|%{HOSTNAME})
HOSTPORT %{IPORHOST}:%{POSINT}

# --- paths and addresses
PATH (?:%{UNIXPATH}|%{WINPATH})
UNIXPATH /[\w_%!$@:.,+~/-]*
TTY /dev/(?:pts|tty[pq]?)(?:\w+)?/?[0-9]*
WINPATH (?:[A-Za-z]+:|\\)\\[^?*]*
URIPROTO [A-Za-z][A-Za-z0-9+.-]+
URIHOST %{IPORHOST}(?::%{POSINT})?
URIPATH /[A-Za-z0-9$.+!*'(){},~:;=@#%&_/-]*
URIQUERY [A-Za-z0-9$.+!*'|(){},~@#%&/=:;_?<>\[\]-]*
URIPARAM \?%{URIQUERY}
URIPATHPARAM %{URIPATH}(?:\?%{URIQUERY})?
URI %{URIPROTO:url.scheme}://(?:%{USER:url.username}(?::[^@]*)?@)?(?:%{IPORHOST:url.domain}(?::%{POSINT:url.port:int})?)?(?:%{URIPATH:url.path}(?:\?%{URIQUERY:url.query})?)?

# --- dates and times
MONTH \b(?:[Jj]an(?:uary)?|[Ff]eb(?:ruary)?|[Mm](?:a|ä)?r(?:ch|z)?|[Aa]pr(?:il)?|[Mm]a(?:y|i)|[Jj]une?|[Jj]uly?|[Aa]ug(?:ust)?|[Ss]ep(?:tember)?|[Oo](?:c|k)?t(?:ober)?|[Nn]ov(?:ember)?|[Dd]e(?:c|z)(?:ember)?)\b
MONTHNUM (?:0?[1-9]|1[0-2])
MONTHNUM2 (?:0[1-9]|1[0-2])
MONTHDAY (?:0[1-9]|[12][0-9]|3[01]|[1-9])
DAY (?:Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)
YEAR (?:\d\d){1,2}
HOUR (?:2[0123]|[01]?[0-9])
MINUTE [0-5][0-9]
SECOND (?:[0-5]?[0-9]|60)(?:[:.,][0-9]+)?
TIME (?<![0-9])%{HOUR}:%{MINUTE}(?::%{SECOND})(?![0-9])
DATE_US %{MONTHNUM}[/-]%{MONTHDAY}[/-]%{YEAR}
DATE_EU %{MONTHDAY}[./-]%{MONTHNUM}[./-]%{YEAR}
ISO8601_TIMEZONE (?:Z|[+-]%{HOUR}(?::?%{MINUTE})?)
ISO8601_SECOND %{SECOND}
TIMESTAMP_ISO8601 %{YEAR}-%{MONTHNUM}-%{MONTHDAY}[T ]%{HOUR}:?%{MINUTE}(?::?%{SECOND})?%{ISO8601_TIMEZONE}?
DATE (?:%{DATE_US}|%{DATE_EU})
DATESTAMP %{DATE}[- ]%{TIME}
TZ (?:[APMCE][SD]T|UTC|GMT|CES?T)
DATESTAMP_RFC822 %{DAY} %{MONTH} %{MONTHDAY} %{YEAR} %{TIME} %{TZ}
DATESTAMP_RFC2822 %{DAY}, %{MONTHDAY} %{MONTH} %{YEAR} %{TIME} %{ISO8601_TIMEZONE}
DATESTAMP_OTHER %{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{TZ} %{YEAR}
DATESTAMP_EVENTLOG %{YEAR}%{MONTHNUM2}%{MONTHDAY}%{HOUR}%{MINUTE}%{SECOND}
HTTPDATE %{MONTHDAY}/%{MONTH}/%{YEAR}:%{TIME} %{INT}
HTTPDERROR_DATE %{DAY} %{MONTH} %{MONTHDAY} %{TIME} %{YEAR}

# --- log levels
LOGLEVEL (?:[Aa]lert|ALERT|[Tt]race|TRACE|[Dd]ebug|DEBUG|[Nn]otice|NOTICE|[Ii]nfo(?:rmation)?|INFO(?:RMATION)?|[Ww]arn(?:ing)?|WARN(?:ING)?|[Ee]rr(?:or)?|ERR(?:OR)?|[Cc]rit(?:ical)?|CRIT(?:ICAL)?|[Ff]atal|FATAL|[Ss]evere|SEVERE|[Ee]merg(?:ency)?|EMERG(?:ENCY)?)

# --- syslog
SYSLOGTIMESTAMP %{MONTH} +%{MONTHDAY} %{TIME}
PROG [\x21-\x5a\x5c\x5e-\x7e]+
SYSLOGPROG %{PROG:process.name}(?:\[%{POSINT:process.pid:int}\])?
SYSLOGHOST %{IPORHOST}
SYSLOGFACILITY <%{NONNEGINT:log.syslog.facility.code:int}\.%{NONNEGINT:log.syslog.priority:int}>
SYSLOGBASE %{SYSLOGTIMESTAMP:timestamp} (?:%{SYSLOGFACILITY} )?%{SYSLOGHOST:host.hostname} %{SYSLOGPROG}:
SYSLOGBASE2 (?:%{SYSLOGTIMESTAMP:timestamp}|%{TIMESTAMP_ISO8601:timestamp})(?: %{SYSLOGFACILITY})?(?: %{SYSLOGHOST:host.hostname})?(?: %{SYSLOGPROG}:)?
SYSLOGPAMSESSION %{SYSLOGBASE} (?=%{GREEDYDATA:message})%{WORD:system.auth.pam.module}\(%{DATA:system.auth.pam.origin}\): session %{WORD:system.auth.pam.session_state} for user %{USERNAME:user.name}(?: by %{GREEDYDATA})?
SYSLOGLINE %{SYSLOGBASE2} %{GREEDYDATA:message}
SYSLOG5424PRI <%{NONNEGINT:log.syslog.priority:int}>
SYSLOG5424SD \[(?:[^\]\\"]++|\\.|"(?:[^"\\]++|\\.)*+")++\]
SYSLOG5424PRINTASCII [!-~]+
SYSLOG5424BASE %{SYSLOG5424PRI}%{NONNEGINT:system.syslog.version} +(?:-|%{TIMESTAMP_ISO8601:timestamp}) +(?:-|%{IPORHOST:host.hostname}) +(?:-|%{SYSLOG5424PRINTASCII:process.name}) +(?:-|%{POSINT:process.pid:int}|%{SYSLOG5424PRINTASCII}) +(?:-|%{SYSLOG5424PRINTASCII:event.code}) +(?:-|(?:%{SYSLOG5424SD})++)
SYSLOG5424LINE %{SYSLOG5424BASE} +%{GREEDYDATA:message}
CRON_ACTION [A-Z ]+
CRONLOG %{SYSLOGBASE} \(%{USER:user.name}\) %{CRON_ACTION:cron.action} \(%{DATA:message}\)
SSHDLOGIN (?:Accepted|Failed) %{WORD:system.auth.ssh.method} for (?:invalid user )?%{NOTSPACE:user.name} from %{IP:source.ip} port %{INT:source.port:int}(?: ssh2)?

# --- web servers
HTTPDUSER (?:%{EMAILADDRESS}|%{USER})
HTTPMETHOD [A-Za-z]+
HTTPREQUEST (?:%{HTTPMETHOD:http.request.method} %{NOTSPACE:url.original}(?: HTTP/%{NUMBER:http.version})?|%{DATA})
HTTPD_COMMONLOG %{IPORHOST:source.address} (?:-|%{HTTPDUSER:apache.access.user.identity}) (?:-|%{HTTPDUSER:user.name}) \[%{HTTPDATE:timestamp}\] "%{HTTPREQUEST}" (?:-|%{INT:http.response.status_code:int}) (?:-|%{INT:http.response.body.bytes:int})
HTTPD_COMBINEDLOG %{HTTPD_COMMONLOG} "(?:-|(?<http.request.referrer>[^"]*))" "(?:-|(?<user_agent.original>(?:[^"\\]++|\\.)*+))"
COMMONAPACHELOG %{HTTPD_COMMONLOG}
COMBINEDAPACHELOG %{HTTPD_COMBINEDLOG}
NGINXACCESS %{COMBINEDAPACHELOG}(?: "(?:-|%{DATA:network.forwarded_ip})")?
NGINXERROR (?<timestamp>%{YEAR}/%{MONTHNUM2}/%{MONTHDAY} %{TIME}) \[%{LOGLEVEL:log.level}\] %{POSINT:process.pid:int}#%{NONNEGINT:process.thread.id:int}: (?:\*%{NONNEGINT:nginx.error.connection_id:int} )?%{GREEDYDATA:message}
HTTPD20_ERRORLOG \[%{HTTPDERROR_DATE:timestamp}\] \[%{LOGLEVEL:log.level}\] (?:\[client %{IPORHOST:source.address}\] )?%{GREEDYDATA:message}
HTTPD24_ERRORLOG \[%{HTTPDERROR_DATE:timestamp}\] \[(?:%{WORD:apache.error.module})?:%{LOGLEVEL:log.level}\] \[pid %{POSINT:process.pid:int}(?::tid %{INT:process.thread.id:int})?\](?: \[client %{IPORHOST:source.address}(?::%{POSINT:source.port:int})?\])? (?:(?<error.code>AH[0-9]+): )?%{GREEDYDATA:message}
HTTPD_ERRORLOG (?:%{HTTPD20_ERRORLOG}|%{HTTPD24_ERRORLOG})
HAPROXYDATE %{MONTHDAY}/%{MONTH}/%{YEAR}:%{TIME}
HAPROXYHTTP (?:%{SYSLOGTIMESTAMP} %{SYSLOGHOST:host.hostname} )?(?:%{SYSLOGPROG}: )?%{IP:source.address}:%{INT:source.port:int} \[%{HAPROXYDATE:timestamp}\] %{NOTSPACE:haproxy.frontend_name} %{NOTSPACE:haproxy.backend_name}/(?:<NOSRV>|%{NOTSPACE:haproxy.server_name}) (?:-1|%{INT:haproxy.http.request.time_wait_ms:int})/(?:-1|%{INT:haproxy.total_waiting_time_ms:int})/(?:-1|%{INT:haproxy.connection_wait_time_ms:int})/(?:-1|%{INT:haproxy.http.request.time_wait_without_data_ms:int})/%{NOTSPACE:haproxy.total_time_ms} %{INT:http.response.status_code:int} %{INT:source.bytes:int} (?:-|%{DATA:haproxy.http.request.captured_cookie}) (?:-|%{DATA:haproxy.http.response.captured_cookie}) %{NOTSPACE:haproxy.termination_state} %{INT:haproxy.connections.active:int}/%{INT:haproxy.connections.frontend:int}/%{INT:haproxy.connections.backend:int}/%{INT:haproxy.connections.server:int}/%{NOTSPACE:haproxy.connections.retries} %{INT:haproxy.server_queue:int}/%{INT:haproxy.backend_queue:int} (?:\{%{DATA:haproxy.http.request.captured_headers}\} )?(?:\{%{DATA:haproxy.http.response.captured_headers}\} )?"%{HTTPREQUEST}"?
ELB_TIMESTAMP %{TIMESTAMP_ISO8601:timestamp}
ELB_ACCESS_LOG %{ELB_TIMESTAMP} %{NOTSPACE:aws.elb.name} %{IP:source.ip}:%{INT:source.port:int} (?:-|%{IP:aws.elb.backend.ip}:%{INT:aws.elb.backend.port:int}) (?:-1|%{NUMBER:aws.elb.request_processing_time.sec:float}) (?:-1|%{NUMBER:aws.elb.backend_processing_time.sec:float}) (?:-1|%{NUMBER:aws.elb.response_processing_time.sec:float}) (?:-|%{INT:http.response.status_code:int}) (?:-|%{INT:aws.elb.backend.http.response.status_code:int}) %{INT:http.request.body.bytes:int} %{INT:http.response.body.bytes:int} "%{HTTPREQUEST}"(?: "(?:-|%{DATA:user_agent.original})")?

# --- programs
JAVACLASS (?:[a-zA-Z$_][a-zA-Z$_0-9]*\.){0,200}[a-zA-Z$_][a-zA-Z$_0-9]*
JAVAFILE [a-zA-Z$_0-9. -]+
JAVAMETHOD (?:<(?:cl)?init>|[a-zA-Z$_][a-zA-Z$_0-9]*)
JAVASTACKTRACEPART %{SPACE}at %{JAVACLASS:java.log.origin.class.name}\.%{JAVAMETHOD:log.origin.function}\(%{JAVAFILE:log.origin.file.name}(?::%{INT:log.origin.file.line:int})?\)
JAVATHREAD (?:[A-Z]{2}-Processor[\d]+)
JAVALOGMESSAGE .*
TOMCATLEGACY_DATESTAMP %{YEAR}-%{MONTHNUM}-%{MONTHDAY} %{HOUR}:%{MINUTE}:%{SECOND}(?: %{ISO8601_TIMEZONE})?
CATALINA_DATESTAMP %{MONTHDAY}-%{MONTH}-%{YEAR} %{HOUR}:%{MINUTE}:%{SECOND}
CATALINALOG %{CATALINA_DATESTAMP:timestamp} %{LOGLEVEL:log.level} \[%{DATA:process.thread.name}\] %{JAVACLASS:java.log.origin.class.name}\.(?:%{JAVAMETHOD:log.origin.function})? %{JAVALOGMESSAGE:message}
TOMCATLOG %{CATALINALOG}
LOG4J %{TIMESTAMP_ISO8601:timestamp} +\[%{DATA:process.thread.name}\] +%{LOGLEVEL:log.level} +%{NOTSPACE:log.logger} +-? *%{GREEDYMULTILINE:message}
LOGBACK %{TIMESTAMP_ISO8601:timestamp} +%{LOGLEVEL:log.level} +%{POSINT:process.pid:int} +--- +\[ *%{DATA:process.thread.name}\] +%{NOTSPACE:log.logger} *: %{GREEDYMULTILINE:message}
KAFKALOG \[%{TIMESTAMP_ISO8601:timestamp}\] %{LOGLEVEL:log.level} %{GREEDYMULTILINE:message} \(%{NOTSPACE:log.logger}\)
PYTHONLOG %{TIMESTAMP_ISO8601:timestamp} (?:- )?(?:%{NOTSPACE:log.logger} - )?\[?%{LOGLEVEL:log.level}\]?(?: -|:)? %{GREEDYMULTILINE:message}
PYTHONBASIC %{LOGLEVEL:log.level}:%{NOTSPACE:log.logger}:%{GREEDYMULTILINE:message}
GLOG (?<log.level>[IWEF])(?<timestamp>%{MONTHNUM2}%{MONTHDAY} %{TIME}) +%{POSINT:process.thread.id:int} %{NOTSPACE:log.origin.file.name}:%{POSINT:log.origin.file.line:int}\] %{GREEDYDATA:message}
RUBY_LOGLEVEL (?:DEBUG|FATAL|ERROR|WARN|INFO|ANY)
RUBY_LOGGER [DFEWIA], \[%{TIMESTAMP_ISO8601:timestamp} #%{POSINT:process.pid:int}\] *%{RUBY_LOGLEVEL:log.level} -- +%{DATA:process.name}: %{GREEDYDATA:message}
REDISTIMESTAMP %{MONTHDAY} %{MONTH}(?: %{YEAR})? %{TIME}
REDISLOG (?:\[%{POSINT:process.pid:int}\]|%{POSINT:process.pid:int}:%{WORD:redis.log.role}) %{REDISTIMESTAMP:timestamp} [.*#-] %{GREEDYDATA:message}
POSTGRESQL %{TIMESTAMP_ISO8601:timestamp} (?:%{TZ:event.timezone} )?\[%{POSINT:process.pid:int}\] (?:%{NOTSPACE:user.name}@%{NOTSPACE:postgresql.log.database} )?%{WORD:log.level}: +%{GREEDYMULTILINE:message}
MYSQLERROR %{TIMESTAMP_ISO8601:timestamp} %{NONNEGINT:process.thread.id:int} \[%{WORD:log.level}\] (?:\[%{NOTSPACE:error.code}\] \[%{WORD:mysql.error.subsystem}\] )?%{GREEDYDATA:message}
MONGO3_LOG %{TIMESTAMP_ISO8601:timestamp} %{WORD:log.level} +%{NOTSPACE:mongodb.component} +\[%{DATA:mongodb.context}\] %{GREEDYDATA:message}
S3_ACCESS_LOG %{WORD:aws.s3access.bucket_owner} %{NOTSPACE:aws.s3access.bucket} \[%{HTTPDATE:timestamp}\] (?:-|%{IP:client.ip}) (?:-|%{NOTSPACE:client.user.id}) %{NOTSPACE:aws.s3access.request_id} %{NOTSPACE:aws.s3access.operation} (?:-|%{NOTSPACE:aws.s3access.key}) (?:-|"%{HTTPREQUEST}") (?:-|%{INT:http.response.status_code:int}) (?:-|%{NOTSPACE:aws.s3access.error_code}) (?:-|%{INT:aws.s3access.bytes_sent:int}) (?:-|%{INT:aws.s3access.object_size:int}) (?:-|%{INT:aws.s3access.total_time:int}) (?:-|%{INT:aws.s3access.turn_around_time:int}) "(?:-|%{DATA:http.request.referrer})" "(?:-|%{DATA:user_agent.original})"(?: (?:-|%{NOTSPACE:aws.s3access.version_id}))?
"""
