"""A token endpoint as librdkafka's OIDC test (0126) expects it: client credentials, JWT bearer assertions, and Azure's metadata GET.

`/token` gives a signed token, `/expired` one that has ended, `/malformed` none that is a JWT. `keys` is the file with the
public key, for `sasl.oauthbearer.jwks.endpoint.url`. Loopback only.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from joserfc import jwk, jwt
from joserfc.errors import JoseError

CLIENT_ID, CLIENT_SECRET = "123", "abc"  # those of librdkafka's own set-up
AUDIENCE: Final = "kafka-cluster"
ISSUER: Final = "https://issuer.example"
SCOPE: Final = "test"
LIFE_S: Final = 60
PASSPHRASE: Final = "passphrase"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_AZURE: Final = ("api-version", "resource", "client_id")


class TokenServer:
    """A server in a thread; files of its keys, and of the client's, lie in `work`."""

    def __init__(self, work: Path) -> None:
        self._key = jwk.RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})
        self._client = jwk.RSAKey.generate_key(2048)
        self.keys = work / "keys.json"
        self.keys.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self.client_key, self.encrypted_client_key = work / "client.pem", work / "client-encrypted.pem"
        self.client_key.write_bytes(self._client.as_pem(private=True))
        self.encrypted_client_key.write_bytes(self._client.as_pem(private=True, password=PASSPHRASE))
        self.given = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = urlsplit(self.path)
                query = parse_qs(asked.query)
                azure = self.headers.get("Metadata") == "true" and all(name in query for name in _AZURE)
                self._answer(200, owner.token()) if azure else self._answer(400, None)

            def do_POST(self) -> None:
                said = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
                form = {name: values[0] for name, values in said.items()}
                if not owner.accepts(form, self.headers.get("Authorization", "")):
                    self._answer(401, None)
                elif self.path == "/expired":
                    self._answer(200, owner.token(life_s=-LIFE_S))
                else:
                    self._answer(200, "not a token" if self.path == "/malformed" else owner.token())

            def _answer(self, status: int, token: str | None) -> None:
                said: dict[str, Any] = {"error": "invalid_request", "error_description": "refused here"}
                if token is not None:
                    said = {
                        "access_token": token,
                        "token_type": "Bearer",
                        "expires_in": LIFE_S,
                        "scope": SCOPE,
                    }
                body = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="tokens")

    def url(self, path: str = "token") -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def token(self, life_s: int = LIFE_S) -> str:
        now = int(time.time())
        self.given += 1
        claims = {
            "sub": "testuser", "client_id": CLIENT_ID, "iss": ISSUER, "aud": AUDIENCE, "scope": SCOPE,
            "iat": now - 2 * LIFE_S, "exp": now + life_s,
        }  # fmt: skip
        return jwt.encode({"alg": "RS256", "kid": "k1"}, claims, self._key)

    def accepts(self, form: dict[str, str], authorization: str) -> bool:
        """Tells whether a request shows the client's secret or an assertion that its key signed, and asks for a scope that there is."""
        if form.get("scope", SCOPE) != SCOPE:
            return False
        if form.get("grant_type") == JWT_BEARER:
            try:
                return bool(
                    jwt.decode(form.get("assertion", ""), self._client, algorithms=["RS256"]).claims.get(
                        "sub"
                    )
                )
            except (JoseError, ValueError):
                return False
        secret = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        return form.get("grant_type") == "client_credentials" and authorization == f"Basic {secret}"
