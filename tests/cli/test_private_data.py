"""Only its owner can read a server's data on the disk: folders 0700, files 0600, whatever the umask."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from support.klamm import Server, klamm, up_words
from support.private import not_private, umask


@pytest.fixture(params=[0, 0o022, 0o027], autouse=True)
def umasks(request):
    with umask(request.param):
        yield


@pytest.mark.usefixtures("processes")
def test_what_klamm_up_keeps_is_private(tmp_path):
    data = tmp_path / "data"
    with Server(*up_words(data)) as server:
        assert klamm("produce", "t", "secret", "-b", server.ready["broker"]).returncode == 0
        while_it_runs = not_private(data)
    assert list(data.glob("broker/t-0/*.log"))
    assert list(data.glob("*.properties"))
    assert (while_it_runs, not_private(data)) == ({}, {})


@pytest.mark.usefixtures("processes")
def test_what_a_broker_keeps_is_private_but_a_folder_that_was_there_keeps_its_mode(tmp_path):
    made, given = tmp_path / "made", tmp_path / "given"
    given.mkdir()
    given.chmod(0o755)
    settings = [f"log.dirs={made},{given}", "listeners=PLAINTEXT://127.0.0.1:0", "num.partitions=4"]
    overrides = [word for each in settings for word in ("--override", each)]
    with Server("broker", "start", *overrides) as server:
        assert klamm("produce", "t", "secret", "-b", server.ready["broker"]).returncode == 0
    assert {p.parent.parent for p in tmp_path.rglob("t-*/*.log")} == {made, given}
    assert not_private(made) == {}
    assert not_private(given) == {".": "0o755"}


@pytest.fixture
def shared():
    """Yields a folder that every user reaches, as pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-exposed-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.usefixtures("processes")
def test_each_server_warns_once_of_a_data_folder_that_every_user_can_read(shared):
    data = shared / "data"
    broker = data / "broker"
    for folder in (data, broker):
        folder.mkdir()
        folder.chmod(0o755)
    with Server(*up_words(data)) as server:
        pass
    for folder in (data, broker):
        said = [line for line in server.errors if line.rstrip().endswith(f"chmod 700 {folder}")]
        assert len(said) == 1, server.errors
    assert (data.stat().st_mode & 0o777, broker.stat().st_mode & 0o777) == (0o755, 0o755)
