"""Validation asks the connector, the converters and the cluster at once: it takes as long as the slowest answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.connect.children.supervisor import PluginCallError
from klamm.connect.errors import BadRequest, RequestError
from klamm.connect.service.plugins import PluginService
from klamm.connect.validation.definitions import DEAD_LETTERS

DEADLINE_S = 60.0
JSON, AVRO = "JsonConverter", "AvroConverter"
CONFIG = {
    "connector.class": "Some",
    DEAD_LETTERS: "d",
    "key.converter": JSON,
    "value.converter": AVRO,
    "header.converter": JSON,
}
ANSWER = {
    "name": "Some", "kind": "sink", "version": "1", "groups": [], "values": [], "exactly_once": None,
    "stages": [], "warnings": {}, "taken": [], "names": [],
}  # fmt: skip


class Config(SimpleNamespace):
    """A worker's configuration with nothing in it."""

    def __getitem__(self, key: str) -> bool:
        return False


class Slow:
    """A runtime. Nobody gets an answer before all `expected` questions are asked; `errors` are the answers to some."""

    def __init__(self, expected: set[str], **errors: Exception) -> None:
        self.asked: list[str] = []
        self._expected, self._all, self._errors = expected, asyncio.Event(), errors
        self.config = Config(secrets=SimpleNamespace(redact=str))
        self.children = SimpleNamespace(call=self.call)
        self.plugins = SimpleNamespace(unknown_connector=lambda _, message: message)

    async def answer(self, question: str, answer: Any) -> Any:
        self.asked.append(question)
        if set(self.asked) >= self._expected:
            self._all.set()
        if question in self._errors:
            raise self._errors[question]
        async with asyncio.timeout(DEADLINE_S):
            await self._all.wait()
        return answer

    async def validate(self, config: dict[str, str]) -> Any:
        return await self.answer("connector", ANSWER)

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        return await self.answer(params["plugin"], [{"name": params["plugin"]}])


def ask(runtime: Slow) -> Any:
    service = PluginService(runtime)  # type: ignore[arg-type]

    async def objection(config: dict[str, str]) -> Any:
        return await runtime.answer("cluster", None)

    service._dead_letters.objection = objection  # type: ignore[method-assign, assignment]
    return service._ask(CONFIG)


async def test_all_are_asked_before_anybody_answers() -> None:
    runtime = Slow({"connector", "cluster", JSON, AVRO})
    answer, keys, objection = await ask(runtime)
    assert sorted(runtime.asked) == sorted(["connector", "cluster", JSON, AVRO]), "each once"
    assert (answer.plugin.plugin_class, objection) == ("Some", None)
    assert {k: v[0]["name"] for k, v in keys.items()} == {
        "key.converter": JSON, "value.converter": AVRO, "header.converter": JSON,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("who", "kind", "raised"),
    [
        ("connector", "config", BadRequest),
        ("connector", "timeout", RequestError),
        (AVRO, "timeout", RequestError),
    ],
)
async def test_an_error_ends_the_other_questions(who: str, kind: str, raised: type[Exception]) -> None:
    runtime = Slow({"never"}, **{who: PluginCallError("no", kind=kind)})
    with pytest.raises(raised, match="no"):
        await asyncio.wait_for(ask(runtime), DEADLINE_S)


async def test_a_converter_that_nobody_has_is_left_to_the_row_of_its_key() -> None:
    runtime = Slow(
        {"connector", "cluster", JSON, AVRO}, **{AVRO: PluginCallError("no such class", kind="config")}
    )
    _, keys, _ = await ask(runtime)
    assert keys["value.converter"] == []
