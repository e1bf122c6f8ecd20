"""Names of tables and columns: formats, case, and what a table lacks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_connectors.sql.names import TableName, columns_of, folding, table_name
from klamm_connectors.sql.urls import to_sqlalchemy
from klamm_plugins.errors import ConfigError

NAMES = st.lists(st.text("abAB", min_size=1, max_size=3), unique=True, max_size=6)


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("${topic}", (None, "p.shop.t")),
        ("${table}", (None, "t")),
        ("x_${topic}", (None, "x_p.shop.t")),
        ("app.q", ("app", "q")),
        ("app.${table}", ("app", "t")),
        ("${table}.q", ("t", "q")),
        ('"app.q"', (None, "app.q")),
        ("`a.b`.[c.d]", ("a.b", "c.d")),
        ('app."${topic}"', ("app", "p.shop.t")),
        ('a"b', (None, 'a"b')),
        ("$x", (None, "$x")),
    ],
)
def test_a_format_names_a_schema_and_a_table(template, found):
    assert table_name(template, "p.shop.t") == TableName(*found)


@pytest.mark.parametrize("template", ["a.b.c", "a.", ".a", "a..b", "", '""', "a%(b", 'a.""'])
def test_other_formats_are_refused(template):
    with pytest.raises(ConfigError, match=r"table\.name\.format="):
        table_name(template, "t")


@given(fields=NAMES, columns=NAMES)
def test_fields_take_their_own_column_or_one_that_only_case_keeps_apart(fields, columns):
    found = columns_of(fields, columns)
    assert all(found[field] == field for field in fields if field in columns)
    assert all(field.lower() == column.lower() for field, column in found.items())
    assert len(set(found.values())) == len(found), "no two fields have one column"
    for field in set(fields) - set(found):
        free = [c for c in columns if c.lower() == field.lower() and c not in found.values()]
        assert len(free) != 1, "it could have had that one"


def test_databases_differ_in_which_names_are_one():
    assert [folding(name)("ÜA") for name in ("mysql", "sqlite", "postgresql")] == ["üa", "Üa", "ÜA"]


@pytest.mark.parametrize(
    ("url", "made"),
    [
        ("jdbc:postgresql://db:5432/shop?user=u&password=p", "postgresql+psycopg://u:p@db:5432/shop"),
        ("jdbc:postgresql://db/x?currentSchema=a&sslmode=require&user=u", "postgresql+psycopg://u@db/x?options=-csearch_path%3Da&sslmode=require"),
        ("jdbc:postgresql://db/x?ssl=true&socketTimeout=5", "postgresql+psycopg://db/x?sslmode=verify-full&tcp_user_timeout=5000"),
        ("jdbc:postgresql://db/x?reWriteBatchedInserts=true&stringtype=unspecified&prepareThreshold=0", "postgresql+psycopg://db/x"),
        ("jdbc:postgresql://db/x?ApplicationName=a%20b&loginTimeout=7&tcpKeepAlive=true&sslrootcert=f", "postgresql+psycopg://db/x?application_name=a%20b&connect_timeout=7&keepalives=1&sslrootcert=f"),
        ("jdbc:postgresql://db/x?targetServerType=primary&socketTimeout=0", "postgresql+psycopg://db/x?target_session_attrs=primary"),
        ("jdbc:mysql://db/x?allowMultiQueries=true&cachePrepStmts=true&tcpKeepAlive=true&nullCatalogMeansCurrent=true", "mysql+pymysql://db/x"),
        ("jdbc:mysql://db/x?connectTimeout=1500&socketTimeout=60000", "mysql+pymysql://db/x?connect_timeout=2&read_timeout=60&write_timeout=60"),
        ("jdbc:mysql://db/x?sessionVariables=sql_mode='ANSI',wait_timeout=9", "mysql+pymysql://db/x?init_command=SET%20sql_mode%3D%27ANSI%27%2Cwait_timeout%3D9"),
        ("jdbc:mysql://db/x?createDatabaseIfNotExist=false&jdbcCompliantTruncation=true", "mysql+pymysql://db/x"),
        ("jdbc:postgresql://db/x?ssl=true&sslmode=require", "postgresql+psycopg://db/x?sslmode=require"),
        ("jdbc:postgresql://db/x?ssl=false", "postgresql+psycopg://db/x?sslmode=prefer"),
        ("jdbc:mysql://db/x?useSSL=true", "mysql+pymysql://db/x"),
        ("jdbc:mysql://db/x?useSSL=true&requireSSL=true", "mysql+pymysql://db/x?ssl_check_hostname=false"),
        ("jdbc:mysql://db/x?useSSL=false&requireSSL=true&verifyServerCertificate=true", "mysql+pymysql://db/x?ssl_disabled=true"),
        ("jdbc:mysql://db/x?useSSL=no", "mysql+pymysql://db/x?ssl_disabled=true"),
        ("jdbc:mysql://db/x?useSSL=false&sslMode=REQUIRED", "mysql+pymysql://db/x?ssl_check_hostname=false"),
        ("jdbc:mysql://db/x?sslMode=DISABLED&requireSSL=true", "mysql+pymysql://db/x?ssl_disabled=true"),
        ("jdbc:mariadb://db/x?useSsl=false", "mariadb+pymysql://db/x?ssl_disabled=true"),
        ("jdbc:mariadb://db/x?sslMode=disable&useSsl=true", "mariadb+pymysql://db/x?ssl_disabled=true"),
        ("jdbc:mysql://db/x?verifyServerCertificate=true&sslMode=PREFERRED", "mysql+pymysql://db/x"),
        ("jdbc:mariadb://db/x?useSSL=true&trustServerCertificate=true", "mariadb+pymysql://db/x?ssl_check_hostname=false"),
        ("jdbc:mysql://db/x?sslMode=REQUIRED&useUnicode=true", "mysql+pymysql://db/x?ssl_check_hostname=false"),
        ("jdbc:mariadb://db/x?sslMode=trust", "mariadb+pymysql://db/x?ssl_check_hostname=false"),
        ("postgresql+psycopg2://db/shop", "postgresql+psycopg2://db/shop"),
        ("jdbc:sqlserver://db:1433;databaseName=shop;encrypt=false;user=u;password=a;", "mssql+pymssql://u:a@db:1433/shop"),
        ("jdbc:sqlserver://db;encrypt=true;trustServerCertificate=true", "mssql+pymssql://db/?encryption=require"),
        ("jdbc:sqlserver://db", "mssql+pymssql://db/"),
        ("jdbc:oracle:thin:@//db:1522/orclpdb1", "oracle+oracledb://db:1522/?service_name=orclpdb1"),
        ("jdbc:oracle:thin:@db:1521:XE", "oracle+oracledb://db:1521/XE"),
        ("jdbc:oracle:thin:scott/ti:ger@db/XE", "oracle+oracledb://scott:ti%3Ager@db:1521/?service_name=XE"),
    ],
)  # fmt: skip
def test_jdbc_urls_become_those_of_sqlalchemy(url, made):
    assert to_sqlalchemy(url) == made


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("jdbc:mysql://db/x?sslMode=VERIFY_CA", r"sslMode=VERIFY_CA cannot be used.*ssl_ca=FILE"),
        ("jdbc:mysql://db/x?useSSL=true&verifyServerCertificate=true", r"verifyServerCertificate=true cannot be used"),
        ("jdbc:mariadb://db/x?useSsl=true", r"useSsl=true cannot be used.*trust\) to encrypt without a check"),
        ("jdbc:sqlserver://db;encrypt=true;databaseName=x", r"encrypt=true cannot be used.*encrypt=true;trustServerCertificate=true"),
        ("jdbc:sqlserver://db;encrypt=strict;trustServerCertificate=true", r"encrypt=strict cannot be used"),
        ("jdbc:mysql://db/x?createDatabaseIfNotExist=true", r"createDatabaseIfNotExist cannot be used, because PyMySQL has"),
        ("jdbc:mysql://db/x?enabledTLSProtocols=TLSv1.3", r"enabledTLSProtocols cannot be used"),
        ("jdbc:mysql://db/x?connectTimeout=soon", r"'soon' is no number of ms"),
        ("jdbc:postgresql://db/x?sslfactory=a.b.C", r"sslfactory cannot be used, because psycopg has"),
        ("jdbc:sqlserver://db;integratedSecurity=true", r"integratedsecurity cannot be used.*mssql\+pyodbc"),
    ],
)  # fmt: skip
def test_what_cannot_be_obeyed_is_not_left_out(url, said):
    with pytest.raises(ConfigError, match=said) as caught:
        to_sqlalchemy(f"{url}{';' if ';' in url else '&'}password=hush")
    assert "hush" not in str(caught.value)


def test_a_dialect_s_name_says_which_database_it_is():
    assert to_sqlalchemy("jdbc:yugabytedb://db/x", "PostgreSqlDatabaseDialect") == "postgresql+psycopg://db/x"
    assert to_sqlalchemy("jdbc:mariadb://db/x", "mysqldatabasedialect") == "mysql+pymysql://db/x"
    assert to_sqlalchemy("jdbc:mariadb://db/x", "GenericDatabaseDialect") == "mariadb+pymysql://db/x"
    with pytest.raises(ConfigError, match=r"jdbc:oracle:thin:@//host:1521/service"):
        to_sqlalchemy("jdbc:oracle:thin:db/XE")
