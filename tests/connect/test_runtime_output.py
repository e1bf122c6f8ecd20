"""The output of children: all of it is logged, and a child that floods its output does not hold up the worker."""

import asyncio
import logging
import os
import threading

from klamm.connect.children.output import OutputLog


def writer(fd, chunks):
    def write():
        for chunk in chunks:
            os.write(fd, chunk)
        os.close(fd)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


async def test_a_flood_leaves_the_loop_to_others(caplog):
    caplog.set_level(logging.INFO, "klamm.connect.children.output")
    read, write = os.pipe()
    output = OutputLog("flood", read)
    thread = writer(write, [b"x\n" * 10_000] * 2)
    ticks = 0
    async with asyncio.timeout(60):
        # Each tick is a chance of the loop for everybody else.
        while thread.is_alive() and ticks < 100:
            await asyncio.sleep(0)
            ticks += 1
            logged = len(caplog.records)
            assert logged <= ticks * 2_100, "what one look at the output may take"
        while thread.is_alive():
            await asyncio.sleep(0.01)
    output.finish()
    assert [r.getMessage() for r in caplog.records] == ["[flood] x"] * 20_000


async def test_a_busy_output_is_left_alone_for_a_while(monkeypatch, caplog):
    monkeypatch.setattr("klamm.connect.children.output._WORK_S", -1)
    monkeypatch.setattr("klamm.connect.children.output._REST", 1e9)
    caplog.set_level(logging.INFO, "klamm.connect.children.output")
    read, write = os.pipe()
    output = OutputLog("busy", read)
    os.write(write, b"a\n" * 3_000)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(caplog.records) == 2_048
    os.close(write)
    output.finish()
    assert len(caplog.records) == 3_000
