"""A browser without a screen, for tests of the console."""

from __future__ import annotations

import http.client
import re
from html import unescape
from urllib.parse import urlencode


class Browser:
    """A browser without a screen: it keeps its cookie, and takes the token of each form from the page."""

    def __init__(self, address):
        self.host = address.removeprefix("http://")
        self.cookie = ""
        self.status = 0
        self.token = ""
        self.headers = {}

    def ask(self, method, path, fields=None, **headers):
        connection = http.client.HTTPConnection(self.host, timeout=60)
        if fields is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        if self.cookie:
            headers["Cookie"] = self.cookie
        connection.request(method, path, urlencode(fields) if fields is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        self.status, self.headers = answer.status, answer.headers
        if given := answer.headers.get("Set-Cookie"):
            self.cookie = given.partition(";")[0]
        if found := re.search(r'data-token="(\w+)"', text):
            self.token = found[1]
        return unescape(text)

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def post(self, path, **fields):
        """Sends a form, and follows to the page that it leads to."""
        text = self.ask("POST", path, {"csrf": self.token, **fields})
        if self.status == 303:
            return self.get(self.headers["Location"])
        return text
