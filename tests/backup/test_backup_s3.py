"""A backup in S3, by s3fs and moto's server: with increments, encryption, damage, and a network that breaks off."""

from __future__ import annotations

import asyncio
import re

import pytest
from support.backups import backup, read, write
from support.broker import new_topic
from support.cutting_proxy import CuttingProxy
from support.klamm import klamm

pytestmark = pytest.mark.usefixtures("processes")


@pytest.fixture(scope="module")
def s3():
    """The port of a server that speaks like S3, in a thread."""
    pytest.importorskip("s3fs", reason="S3 needs: pip install s3fs")
    moto = pytest.importorskip("moto.server", reason="a server for S3 needs: pip install 'moto[server]'")
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture(autouse=True)
def settings(s3, monkeypatch):
    for key, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "s"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{key}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3}")


def test_all_commands_with_a_bucket(broker, tmp_path):
    topic, at = new_topic(broker, 2), ("-b", broker.bootstrap)
    place = f"s3://backups/{topic}"
    (tmp_path / "secret").write_text("open sesame")
    key = ("--passphrase-file", tmp_path / "secret")
    write(broker.bootstrap, topic, 0, 2000, 2)
    backup("create", place, *at, "-t", topic, *key)
    write(broker.bootstrap, topic, 2000, 500, 2)
    assert "2500 records" in backup("create", place, *at, "-t", topic, *key)
    assert len(re.findall(r"\d{8}T", backup("list", place))) == 2
    assert "good: 2 backups, 4 chunks, 2500 records" in backup("verify", place, *key)
    assert "needs" not in klamm("backup", "verify", place).stderr
    backup("restore", place, *at, "--prefix", "s3-", "--parts", "topics", *key)
    assert read(broker.bootstrap, f"s3-{topic}", 2) == read(broker.bootstrap, topic, 2)
    assert "removed 1 backup" in backup("prune", place, "--keep-last", "1", *key)
    assert "good: 1 backup, 4 chunks, 2500 records" in backup("verify", place, *key)


def test_a_network_that_breaks_off_delays_a_backup_only(broker, s3, monkeypatch):
    topic, at = new_topic(broker, 4), ("-b", broker.bootstrap)
    write(broker.bootstrap, topic, 0, 20_000, 4)
    place = f"s3://backups/{topic}"

    async def through_a_bad_network():
        async with CuttingProxy(f"127.0.0.1:{s3}") as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.address.port}")
            made = asyncio.create_task(asyncio.to_thread(backup, "create", place, *at, "-t", topic))
            cuts = 0
            while not made.done():
                await asyncio.sleep(0.03)
                if cuts < 8:
                    cuts += bool(proxy.connections)
                    proxy.reset()
            return await made, cuts

    said, cuts = asyncio.run(through_a_bad_network())
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3}")
    assert "20000 records" in said
    assert cuts > 0
    assert "good: 1 backup, 4 chunks, 20000 records" in backup("verify", place)
