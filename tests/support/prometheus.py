"""Prometheus as a peer: `Prometheus(folder, {"job": "host:port"})`. Tests take the fixture `prometheus_server`."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import yaml
from support.broker import wait_until

RULES = Path(__file__).parents[2] / "compose/prometheus/rules.yml"


def quick_rules(
    names: Collection[str], smaller: Mapping[str, str] = {}, *, window: str = "6s"
) -> dict[str, Any]:
    """Returns rules of ours for a test that cannot wait: no patience, `window` for minutes, other ends of expressions by `smaller`."""
    rules = yaml.safe_load(RULES.read_text())
    found = [r for g in rules["groups"] for r in g["rules"] if r["alert"] in names]
    for rule in found:
        rule.pop("for", None)
        if rule["alert"] in smaller:
            rule["expr"], count = re.subn(r"> [0-9.e]+$", smaller[rule["alert"]], rule["expr"])
            assert count == 1, rule
        rule["expr"] = re.sub(r"\[\d+m\]", f"[{window}]", rule["expr"])
    assert {rule["alert"] for rule in found} == set(names)
    return {"groups": [{"name": "quick", "rules": found}]}


class Prometheus:
    """A real one that scrapes `targets` every half second, with `logins` (name, password) by job, and evaluates `rules` as often."""

    def __init__(
        self,
        folder: Path,
        targets: dict[str, str],
        rules: dict[str, Any] | None = None,
        logins: Mapping[str, tuple[str, str]] = {},
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        jobs: list[dict[str, Any]] = [
            {"job_name": job, "static_configs": [{"targets": [t]}]} for job, t in targets.items()
        ]
        for job in jobs:
            if job["job_name"] in logins:
                name, password = logins[job["job_name"]]
                job["basic_auth"] = {"username": name, "password": password}
        often = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "500ms")
        config: dict[str, Any] = {"global": often, "scrape_configs": jobs}
        if rules is not None:
            (folder / "rules.yml").write_text(yaml.safe_dump(rules))
            config["rule_files"] = ["rules.yml"]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus", f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Raises AssertionError with Prometheus' words for an expression that it does not take."""
        asked = urllib.parse.urlencode({"query": expr.replace("$__rate_interval", "1m")})
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/api/v1/query?{asked}", timeout=60
            ) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as e:
            if e.code == 503:  # it has not read its storage yet
                raise ConnectionError(str(e)) from None
            raise AssertionError(f"{expr}: {e.read().decode()}") from None

    def firing(self) -> dict[str, dict[str, str]]:
        """Returns the alerts that fire: name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/alerts", timeout=60) as answer:
            alerts = json.load(answer)["data"]["alerts"]
        return {a["labels"]["alertname"]: a["labels"] for a in alerts if a["state"] == "firing"}

    def wait_for(
        self,
        wanted: Collection[str],
        fired: set[str],
        step: Callable[[], None] = lambda: None,
        *,
        timeout_s: float = 60,
    ) -> None:
        """Waits until these alerts fire, or for an empty collection until none does; `step` goes on with the fault or the repair."""

        def they_do() -> bool:
            step()
            firing = set(self.firing())
            fired.update(firing)
            return set(wanted) <= firing if wanted else not firing

        wait_until(they_do, f"{sorted(wanted) or 'silence'}", timeout_s=timeout_s)

    def answers(self) -> bool:
        try:
            return bool(self.query("up == 1"))
        except OSError:
            return False

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
