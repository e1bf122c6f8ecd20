"""The topics that the broker makes for itself when a client needs them, and a disk that does not take them."""

from __future__ import annotations

import errno
import os

import pytest
from support.inprocess import connect, serving

from klamm_broker.log.errors import StorageError
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.find_coordinator import FindCoordinatorRequest


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_full_disk_is_told_in_a_sentence_and_tried_again(
    tmp_path, monkeypatch, caplog, kind, wrapped
):
    name = ("__consumer_offsets", "__transaction_state")[kind]
    async with serving(tmp_path / "data", transaction_state_log_num_partitions="1") as server:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/registry")
        error = StorageError(f"/data/registry cannot be written: {full}") if wrapped else full

        def refuse(*_, **__):
            raise error

        client = await connect(server)

        async def ask():
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"])
            return (await client.request(request, 4)).coordinators[0].error_code

        with monkeypatch.context() as patched:
            patched.setattr(server.broker.topic_changes, "create_topic", refuse)
            assert await ask() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        (said,) = [r.message for r in caplog.records if r.levelname == "ERROR"]
        before = f"{name} could not be created, it is tried again when a client needs it: "
        assert said == before + ("/data/registry cannot be written: " if wrapped else "") + (
            "No space left on device: '/data/registry'"
        )
        assert await ask() == ErrorCode.NONE
        await client.close()
