"""Logins, roles by patterns of subjects, HTTPS, and what the OpenAPI document says, by a registry over TLS with a users file."""

from __future__ import annotations

import base64
import datetime as dt
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.broker import new_name
from support.registry_process import RegistryProcess

from klamm.registry.endpoints import ENDPOINTS
from klamm.security.authority import make_authority, make_server
from klamm.testing import EmbeddedBroker
from klamm.web.passwords import hash_password

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def ask(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    folder = tmp_path_factory.mktemp("secured")
    now = dt.datetime.now(dt.UTC)
    authority = make_authority("us", now)
    made = make_server(authority, ["127.0.0.1"], now)
    (folder / "server.pem").write_bytes(made.key + made.certificate)
    stored = hash_password("secret")
    (folder / "users.toml").write_text(
        f'[users.root]\npassword = "{stored}"\nrole = "admin"\n'
        f'[users.writer]\npassword = "{stored}"\ngrants = [{{ role = "operator", subjects = ["orders-*"] }}]\n'
        f'[users.contextual]\npassword = "{stored}"\nrole = "viewer"\nsubjects = [":.c:*"]\n'
        f'[users.wide]\npassword = "{stored}"\nrole = "admin"\nsubjects = [":.*"]\n'
        f'[users.chief]\npassword = "{stored}"\nrole = "admin"\nsubjects = ["mine-*"]\n'
        f'[users.reader]\npassword = "{stored}"\nrole = "viewer"\nsubjects = ["orders-*"]\n'
    )
    topic = new_name("_schemas")
    registry = RegistryProcess(
        broker.bootstrap,
        folder,
        **{
            "listeners.https.ssl.keystore.location": str(folder / "server.pem"),
            "rest.auth.file": str(folder / "users.toml"),
            "kafkastore.topic": topic,
            "schema.registry.group.id": topic,
        },
        scheme="https",
    )
    context = ssl.create_default_context(cadata=authority.certificate.decode())

    def asked(user: str | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        if user is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:secret".encode()).decode()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(registry.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.loads(e.read())

    with registry:
        yield asked


def test_roles_hold_for_subjects(ask: Ask) -> None:
    schema = {"schema": '"int"'}
    assert ask(None, "GET", "/subjects")[0] == 401
    assert ask(None, "GET", "/health")[0] == 200
    assert ask("writer", "POST", "/subjects/orders-value/versions", schema)[1]["id"] == 1
    refused = ask("writer", "POST", "/subjects/other-value/versions", schema)
    assert refused == (403, {"error_code": 403, "message": "writer may not operate subject other-value"})
    assert ask("root", "POST", "/subjects/other-value/versions", {"schema": '"long"'})[1]["id"] == 2
    assert ask("reader", "GET", "/subjects") == (200, ["orders-value"])
    assert ask("reader", "GET", "/schemas/ids/1")[0] == 200
    assert ask("reader", "GET", "/schemas/ids/2")[0] == 403
    guids = [ask("root", "GET", f"/schemas/ids/{n}")[1]["guid"] for n in (1, 2)]
    assert ask("reader", "GET", f"/schemas/guids/{guids[0]}/ids") == (200, [{"context": ".", "id": 1}])
    assert ask("reader", "GET", f"/schemas/guids/{guids[0]}")[1]["schema"] == '"int"'
    assert ask("reader", "GET", f"/schemas/guids/{guids[1]}")[0] == 403
    assert ask("root", "GET", "/schemas/guids/none")[1]["error_code"] == 40403
    assert [each["subject"] for each in ask("reader", "GET", "/schemas")[1]] == ["orders-value"]
    assert ask("reader", "POST", "/subjects/orders-value/versions", {"schema": '"null"'})[0] == 403
    assert ask("writer", "DELETE", "/subjects/orders-value")[0] == 403
    assert ask("writer", "PUT", "/config", {"compatibility": "NONE"})[0] == 403
    assert ask("root", "DELETE", "/subjects/other-value") == (200, [1])


def test_an_alias_gives_no_right_on_the_subject_behind_it(ask: Ask) -> None:
    assert ask("root", "POST", "/subjects/theirs/versions", {"schema": '"float"'})[0] == 200
    may_not = "chief may not {} subject theirs"
    refused = ask("chief", "PUT", "/config/mine-a", {"alias": "theirs"})
    assert refused == (403, {"error_code": 403, "message": may_not.format("administer")})
    assert ask("root", "PUT", "/config/mine-a", {"alias": "theirs"})[0] == 200
    for method, path, body, what in (
        ("GET", "/subjects/mine-a/versions", None, "view"),
        ("GET", "/subjects/mine-a/versions/1", None, "view"),
        ("GET", "/subjects/mine-a/versions/1/schema", None, "view"),
        ("GET", "/subjects/mine-a/versions/1/referencedby", None, "view"),
        ("POST", "/subjects/mine-a", {"schema": '"float"'}, "view"),
        ("POST", "/compatibility/subjects/mine-a/versions?verbose=true", {"schema": '"int"'}, "view"),
        ("POST", "/compatibility/subjects/mine-a/versions/1", {"schema": '"int"'}, "view"),
        ("POST", "/subjects/mine-a/versions", {"schema": '"float"'}, "operate"),
        ("POST", "/subjects/mine-a/versions", {"schema": '"double"'}, "operate"),
        ("DELETE", "/subjects/mine-a/versions/1", None, "administer"),
        ("DELETE", "/subjects/mine-a", None, "administer"),
    ):
        refused = ask("chief", method, path, body)
        assert refused == (403, {"error_code": 403, "message": may_not.format(what)}), path
    assert ask("root", "GET", "/subjects/mine-a/versions") == (200, [1])
    assert ask("chief", "POST", "/subjects/mine-b/versions", {"schema": '"float"'})[0] == 200
    assert ask("chief", "PUT", "/config/mine-c", {"alias": "mine-b"})[0] == 200
    assert ask("chief", "GET", "/subjects/mine-c/versions") == (200, [1])


def test_a_schema_is_shown_by_the_rights_on_its_own_places(ask: Ask) -> None:
    """The same id in another context, or a reference, opens nothing."""
    inner = {"schema": json.dumps({"type": "enum", "name": "x.Hidden", "symbols": ["A"]})}
    number = ask("root", "POST", "/subjects/hidden/versions", inner)[1]["id"]
    ask("root", "PUT", "/mode/:.c:mine-x", {"mode": "IMPORT"})
    assert (
        ask("root", "POST", "/subjects/:.c:mine-x/versions", {"schema": '"int"', "id": number})[1]["id"]
        == number
    )
    # A grant on names of the context, whose id is the same.
    assert ask("contextual", "GET", f"/schemas/ids/{number}?subject=:.c:mine-x")[1]["schema"] == '"int"'
    assert ask("contextual", "GET", f"/schemas/ids/{number}")[0] == 403
    assert ask("contextual", "GET", f"/schemas/ids/{number}/schema")[0] == 403
    outer = {
        "schema": json.dumps({"type": "record", "name": "R", "fields": [{"name": "e", "type": "x.Hidden"}]}),
        "references": [{"name": "x.Hidden", "subject": "hidden", "version": 1}],
    }
    made = ask("root", "POST", "/subjects/mine-outer/versions", outer)[1]["id"]
    for path in (f"/schemas/ids/{made}", "/subjects/mine-outer/versions/1"):
        assert "symbols" not in ask("chief", "GET", path)[1]["schema"]
        assert ask("chief", "GET", f"{path}?format=resolved")[0] == 403
        assert "symbols" in ask("root", "GET", f"{path}?format=resolved")[1]["schema"]


def test_rights_are_those_on_the_subject_that_is_meant(ask: Ask) -> None:
    """A subject of the default context may be written with that context, and one of another behind an address of it."""
    schema = {"schema": '"int"'}
    assert ask("root", "POST", "/subjects/secret-value/versions", schema)[0] == 200
    for method, path, body in (
        ("GET", "/subjects/:.:secret-value/versions", None),
        ("DELETE", "/subjects/:.:secret-value", None),
        ("PUT", "/config/:.:secret-value", {"compatibility": "NONE"}),
        ("GET", "/contexts/:.:/subjects/secret-value/versions", None),
    ):
        assert ask("wide", method, path, body)[0] == 403, (method, path)
    assert ask("root", "GET", "/subjects/:.:secret-value/versions") == (200, [1])
    assert ask("root", "POST", "/contexts/c/subjects/there-value/versions", schema)[0] == 200
    assert ask("contextual", "GET", "/contexts/c/subjects/there-value/versions") == (200, [1])
    assert ask("contextual", "GET", "/contexts/d/subjects/there-value/versions")[0] == 403
    assert ask("contextual", "DELETE", "/contexts/c/subjects/there-value")[0] == 403
    assert ask(None, "GET", "/contexts/c/subjects")[0] == 401


def test_references_tell_nothing_of_subjects_that_are_not_ones_own(ask: Ask) -> None:
    """The words of differences have names of fields."""

    def record(*names: str) -> str:
        fields = [{"name": name, "type": "int"} for name in names]
        return json.dumps({"type": "record", "name": "Secret", "namespace": "s", "fields": fields})

    assert ask("root", "POST", "/subjects/salaries/versions", {"schema": record("salary")})[0] == 200
    assert ask("root", "POST", "/subjects/orders-r/versions", {"schema": record()})[0] == 200
    reference = [{"name": "s.Secret", "subject": "salaries", "version": 1}]
    schema = {"schema": '"s.Secret"', "references": reference}
    check = "/compatibility/subjects/orders-r/versions"
    for path in (f"{check}?verbose=true", f"{check}/latest", "/subjects/orders-r"):
        assert ask("reader", "POST", path, schema)[0] == 403
    assert ask("writer", "POST", "/subjects/orders-r/versions", schema)[0] == 403
    status, told = ask("root", "POST", f"{check}?verbose=true", schema)
    assert status == 200
    assert "salary" in str(told)


def test_an_address_may_have_a_context(ask: Ask) -> None:
    """Clients get such an address, and know nothing of contexts."""
    at = "/contexts/:.staging:"
    assert ask("root", "POST", f"{at}/subjects/a%2Fb/versions", {"schema": '"int"'})[1]["id"] == 1
    assert (
        ask("root", "POST", "/contexts/staging/subjects/a%2Fb/versions", {"schema": '"long"'})[1]["id"] == 2
    )
    assert ask("root", "GET", f"{at}/subjects") == (200, [":.staging:a/b"])
    assert [v["id"] for v in ask("root", "GET", f"{at}/schemas")[1]] == [1, 2]
    assert ask("root", "GET", f"{at}/schemas/ids/2")[1]["schema"] == '"long"'
    assert ask("root", "GET", f"{at}/schemas/ids/2/versions")[1] == [
        {"subject": ":.staging:a/b", "version": 2}
    ]
    assert ask("root", "GET", f"{at}/subjects/a%2Fb/versions/latest")[1]["subject"] == ":.staging:a/b"
    checked = ask(
        "root", "POST", f"{at}/compatibility/subjects/a%2Fb/versions/latest", {"schema": '"string"'}
    )
    assert checked == (200, {"is_compatible": False})
    assert ask("root", "PUT", f"{at}/config", {"compatibility": "NONE"})[0] == 200
    assert ask("root", "PUT", f"{at}/mode/a%2Fb", {"mode": "READONLY"})[0] == 200
    assert ask("root", "GET", "/config/:.staging:")[1]["compatibilityLevel"] == "NONE"
    assert ask("root", "GET", "/mode/:.staging:a%2Fb") == (200, {"mode": "READONLY"})
    assert ask("root", "GET", "/contexts/a:b/subjects")[1]["error_code"] == 42208
    assert ask("root", "GET", f"{at}/nothing")[0] == 404


def test_checks_and_modes_answer_as_confluents(ask: Ask) -> None:
    path = "/compatibility/subjects/nowhere/versions"
    assert ask("root", "POST", f"{path}/latest", {"schema": '"int"'}) == (200, {"is_compatible": True})
    assert ask("root", "POST", f"{path}/1", {"schema": '"int"'})[0] == 404
    assert ask("root", "POST", path, {"schema": "{"})[1]["error_code"] == 42201
    status, told = ask("root", "POST", f"{path}?verbose=true", {"schema": "{"})
    assert (status, told["is_compatible"], len(told["messages"])) == (200, False, 1)
    assert ask("root", "PUT", "/mode", {"mode": "READWRITE"})[0] == 200
    assert ask("root", "DELETE", "/mode") == (200, {"mode": "READWRITE"})
    owned = {"schema": '"int"', "metadata": {"properties": {"owner": "me"}, "tags": None}, "ruleSet": {}}
    assert ask("root", "POST", "/subjects/owned/versions", owned)[0] == 200
    status, found = ask("root", "GET", "/subjects/owned/metadata?key=owner&value=me")
    assert (status, found["version"], found["metadata"]) == (200, 1, {"properties": {"owner": "me"}})
    assert ask("root", "GET", "/subjects/owned/metadata?key=owner&value=you")[1]["error_code"] == 40403
    assert ask("root", "POST", "/subjects/owned/versions", {"schema": '"int"', "metadata": []})[0] == 422
    assert ask("root", "GET", "/subjects?limit=0")[1] != []


def test_every_endpoint_is_documented(ask: Ask) -> None:
    status, document = ask("root", "GET", "/openapi.json")
    assert status == 200
    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["summary"].endswith((".", "schema", "good")), endpoint.path


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/none/versions", None, 404, 40401),
        ("GET", "/subjects/orders-value/versions/99", None, 404, 40402),
        ("GET", "/subjects/orders-value/versions/x", None, 422, 42202),
        ("GET", "/schemas/ids/999", None, 404, 40403),
        ("GET", "/schemas/ids/x", None, 404, 404),
        ("GET", "/config/none", None, 404, 40408),
        ("GET", "/mode/none", None, 404, 40409),
        ("POST", "/subjects/a/versions", {"schema": "{"}, 422, 42201),
        ("POST", "/subjects/a/versions", {}, 422, 42201),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "schemaType": "XML"}, 422, 42201),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "references": [{}]}, 422, 42201),
        ("POST", "/subjects/:.broken/versions", {"schema": '"int"'}, 422, 42208),
        ("PUT", "/config", {"compatibility": "x"}, 422, 42203),
        ("PUT", "/config", [], 422, 42203),
        ("PUT", "/mode", {"mode": "x"}, 422, 42204),
        ("DELETE", "/subjects/none", None, 404, 40401),
        ("GET", "/nothing", None, 404, 404),
        ("PATCH", "/subjects", None, 405, 405),
    ],
)
def test_wrong_requests(ask: Ask, method: str, path: str, body: Any, status: int, code: int) -> None:
    found, answer = ask("root", method, path, body)
    assert (found, answer["error_code"]) == (status, code), answer
    assert answer["message"]
