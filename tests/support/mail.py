"""A mail server that keeps what it gets: `with MailServer() as mail`. Speaks as much SMTP as smtplib needs."""

from __future__ import annotations

import email
import socketserver
import threading
from email.message import Message
from typing import Self


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            match line[:4].upper().strip():
                case b"EHLO" | b"HELO":
                    self.wfile.write(b"250 here\r\n")
                case b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    self.server.letters.append(self._letter())
                    self.wfile.write(b"250 taken\r\n")
                case b"QUIT":
                    self.wfile.write(b"221 bye\r\n")
                    return
                case _:
                    self.wfile.write(b"250 ok\r\n")

    def _letter(self) -> Message:
        lines = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        return email.message_from_bytes(b"".join(lines))


class MailServer(socketserver.ThreadingTCPServer):
    """`letters` are what came, in order."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.letters: list[Message] = []
        self.port: int = self.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.shutdown()
        self.server_close()
