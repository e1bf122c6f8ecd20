"""Prometheus as a peer: `Prometheus(folder, {"job": "host:port"})`. Tests take the fixture `prometheus_server`."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml


class Prometheus:
    """A real one that scrapes `targets` every half second, and evaluates `rules` as often."""

    def __init__(self, folder: Path, targets: dict[str, str], rules: dict[str, Any] | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        jobs = [{"job_name": job, "static_configs": [{"targets": [t]}]} for job, t in targets.items()]
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

    def answers(self) -> bool:
        try:
            return bool(self.query("up == 1"))
        except OSError:
            return False

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
