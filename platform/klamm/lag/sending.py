"""Sends notices: by HTTP, as e-mail, to a command. One task for each notifier; a slow one holds up no other.

A notice that cannot be sent is tried again after a pause that doubles, until it is sent or the notifier has a newer one of the
same incident; the others have their turn before it. If a beginning was never sent, its end is not sent either.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import smtplib
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from klamm.lag.incidents import Notice
from klamm.lag.settings import NotifierSettings
from klamm.lag.texts import check_template, filled, json_body, letter, values_of
from klamm_base.backoff import Backoff
from klamm_base.errors import ConfigError, KlammError

log = logging.getLogger(__name__)

END_S: Final = 5.0
"""A notice that is on its way when the process stops has so long to arrive: its receiver may have it already."""
FIRST_S: Final = 1.0
LONGEST_S: Final = 60.0
_WAITING_MAX: Final = 10_000
"""Incidents whose notices wait at one notifier; the oldest is given up for a newer one, which is said."""
_SMTPS_PORT: Final = 465


class NotSent(KlammError):
    """A notice was not sent."""


class Sender(Protocol):
    """Sends one notice. Raises NotSent."""

    async def send(self, notice: Notice) -> None: ...


class Notifier:
    """A notifier with the notices that it has to send."""

    def __init__(self, settings: NotifierSettings, done: Callable[[Notice], None]) -> None:
        """`done` is called with each notice that was sent, or will never be."""
        self.name = settings.rules.name
        self._done = done
        self._sender: Sender = _sender(settings)
        self._waiting: dict[str, Notice] = {}
        self._sent_open: set[str] = set()
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self.counts: Counter[tuple[str, str]] = Counter()
        """Notices by event (open, close) and result (sent, failed, dropped)."""

    def knows(self, incident: str) -> None:
        """Take in an incident whose beginning was sent in an earlier life."""
        self._sent_open.add(incident)

    def change(self, other: Notifier) -> None:
        """Send as another notifier does from now on, also what waits."""
        self._sender = other._sender
        self._changed.set()

    def put(self, notice: Notice) -> None:
        """Take in a notice; it replaces one of the same incident that was not sent yet."""
        self._waiting.pop(notice.incident, None)
        if len(self._waiting) >= _WAITING_MAX:
            given_up = self._waiting.pop(next(iter(self._waiting)))
            self._count("dropped", given_up)
            self._done(given_up)
            log.error(
                "notifier %s: too many notices wait; that of %s is given up", self.name, given_up.status.group
            )
        self._waiting[notice.incident] = notice
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled; a notice that is on its way then has END_S to arrive."""
        backoff = Backoff(FIRST_S, LONGEST_S)
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                notice = next(iter(self._waiting.values()))
                if not notice.opened and notice.incident not in self._sent_open:
                    self._count("dropped", notice)  # for the receiver it never began
                    del self._waiting[notice.incident]
                    self._done(notice)
                    continue
                self._changed.clear()
                sending = asyncio.create_task(self._sender.send(notice))
                try:
                    await asyncio.shield(sending)
                except asyncio.CancelledError:
                    await self._end(sending, notice)
                    raise
                except NotSent as e:
                    self._count("failed", notice)
                    if (
                        self._waiting.get(notice.incident) is notice
                    ):  # one that is never taken keeps no other waiting
                        self._waiting[notice.incident] = self._waiting.pop(notice.incident)
                    pause_s = backoff.failed(loop.time(), str(e))
                    log.warning("notifier %s: %s; again in %g s", self.name, e, pause_s)
                    await self._pause(pause_s)
                    continue
                backoff.succeeded()
                self._sent(notice)

    async def _end(self, sending: asyncio.Task[None], notice: Notice) -> None:
        """Lets a notice that is on its way arrive: it would be told again after a restart."""
        await asyncio.wait({sending}, timeout=END_S)
        if not sending.done():
            sending.cancel()
        with contextlib.suppress(NotSent, asyncio.CancelledError):
            await sending
            self._sent(notice)

    def _sent(self, notice: Notice) -> None:
        self._count("sent", notice)
        if self._waiting.get(notice.incident) is notice:
            del self._waiting[notice.incident]
        (self._sent_open.add if notice.opened else self._sent_open.discard)(notice.incident)
        self._done(notice)

    async def _pause(self, seconds: float) -> None:
        """Waits so long, or until the sender is another one."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def _count(self, result: str, notice: Notice) -> None:
        self.counts["open" if notice.opened else "close", result] += 1


class _Texts:
    """The texts of a notifier: its templates, or what is sent without one."""

    def __init__(self, settings: NotifierSettings) -> None:
        self._templates = {
            opened: self._read(settings, key)
            for opened, key in ((True, "template-open"), (False, "template-close"))
        }
        self.extras = settings.extras

    @staticmethod
    def _read(settings: NotifierSettings, key: str) -> str | None:
        path = settings.values[key]
        if not path:
            return None
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"{path}: {e}", key=f"notifier.{settings.rules.name}.{key}") from None
        check_template(text, path, settings.extras)
        return text

    def of(self, notice: Notice, *, as_json: bool) -> str | None:
        """Returns the filled template; None where there is none."""
        template = self._templates[notice.opened]
        return template and filled(template, values_of(notice, self.extras), as_json=as_json)


def _sender(settings: NotifierSettings) -> Sender:
    kinds: dict[str, Callable[[NotifierSettings, _Texts], Sender]]
    kinds = {"http": Http, "email": Email, "command": Command}
    return kinds[settings.values["class-name"]](settings, _Texts(settings))


def _tls(values: Mapping[str, Any], name: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        if values["extra-ca"]:
            context.load_verify_locations(values["extra-ca"])
    except OSError as e:
        raise ConfigError(f"{values['extra-ca']}: {e}", key=f"notifier.{name}.extra-ca") from None
    if values["noverify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def place_of(url: str) -> str:
    """Returns an address without what may be secret in it: the path of a webhook is often its password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…" if parts.netloc else "…"


def program_of(line: str) -> str:
    """Returns a command without its arguments, where a secret may be."""
    words = line.split(maxsplit=1)
    return f"{words[0]} …" if len(words) > 1 else line


class Http:
    """Sends a request for each notice. Any status of 200 to 299 means that it was taken."""

    def __init__(self, settings: NotifierSettings, texts: _Texts) -> None:
        self._values = settings.values
        self._texts = texts
        self._context = _tls(settings.values, settings.rules.name)

    async def send(self, notice: Notice) -> None:
        import aiohttp

        values = self._values
        url = values["url-open"] if notice.opened else values["url-close"] or values["url-open"]
        method = values["method-open" if notice.opened else "method-close"]
        as_json = "json" in values["content-type"]
        body = self._texts.of(notice, as_json=as_json)
        if body is None:
            body = json_body(notice, self._texts.extras)
        headers = {"Content-Type": values["content-type"]}
        if values["authorization"] is not None:
            headers["Authorization"] = values["authorization"].value
        limit = aiohttp.ClientTimeout(total=values["timeout"])
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.request(
                    method, url, data=body.encode(), headers=headers, ssl=self._context, allow_redirects=False
                ) as answer,
            ):
                if not 200 <= answer.status < 300:
                    raise NotSent(f"{method} {place_of(url)} was answered {answer.status}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as e:
            said = (str(e) or type(e).__name__).replace(url, place_of(url))
            raise NotSent(f"{method} {place_of(url)}: {said}") from None


class Email:
    """Sends a letter for each notice, in a thread."""

    def __init__(self, settings: NotifierSettings, texts: _Texts) -> None:
        self._values = settings.values
        self._texts = texts
        self._context = _tls(settings.values, settings.rules.name)

    async def send(self, notice: Notice) -> None:
        subject, text = letter(notice)
        values, message = self._values, EmailMessage()
        try:
            message["From"], message["To"] = values["from"], ", ".join(values["to"])
            message["Subject"] = "".join(c if c.isprintable() else " " for c in subject)
            message.set_content(self._texts.of(notice, as_json=False) or text)
            await asyncio.to_thread(self._deliver, message)
        except (OSError, ValueError, smtplib.SMTPException) as e:
            raise NotSent(f"the mail server {values['server']}:{values['port']}: {e}") from None

    def _deliver(self, message: EmailMessage) -> None:
        values = self._values
        where: dict[str, Any] = {
            "host": values["server"], "port": values["port"], "timeout": values["timeout"],
        }  # fmt: skip
        secure = values["port"] == _SMTPS_PORT
        with smtplib.SMTP_SSL(**where, context=self._context) if secure else smtplib.SMTP(**where) as server:
            server.ehlo()
            if not secure and server.has_extn("starttls"):
                server.starttls(context=self._context)
                secure = True
            if values["username"]:
                if not secure:
                    raise smtplib.SMTPException("it offers no TLS, and a password is sent over TLS only")
                server.login(values["username"], values["password"].value if values["password"] else "")
            server.send_message(message)


class Command:
    """Runs a command of the shell for each notice, with the notice as JSON at its standard input and in KLAMM_LAG_*."""

    def __init__(self, settings: NotifierSettings, texts: _Texts) -> None:
        self._values = settings.values
        self._texts = texts

    async def send(self, notice: Notice) -> None:
        values = self._values
        line = values["command-open"] if notice.opened else values["command-close"] or values["command-open"]
        told = values_of(notice, self._texts.extras)
        environment = {
            f"KLAMM_LAG_{name.upper()}": text.replace("\0", " ")
            for name, text in told.items()
            if len(text) < 32_000
        }
        body = self._texts.of(notice, as_json=True) or json_body(notice, self._texts.extras)
        try:
            process = await asyncio.create_subprocess_shell(
                line, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
                env=os.environ | environment, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as e:
            raise NotSent(f"the command cannot be run: {program_of(line)}: {e}") from None
        try:
            async with asyncio.timeout(values["timeout"]):
                _, said = await process.communicate(body.encode())
        except TimeoutError:
            raise NotSent(
                f"the command did not end within {values['timeout']:g} s: {program_of(line)}"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # its children end with it
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            why = said.decode(errors="replace").strip()[-500:]
            raise NotSent(f"the command ended with {process.returncode}: {program_of(line)}: {why}")
