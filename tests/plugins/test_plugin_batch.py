"""A batch in columns is the sequence of records that it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_plugins.batch import SourceBatch
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import STRING


def batch(values: list[str], *, keys: bool = False) -> SourceBatch:
    return SourceBatch(
        {"file": "a"},
        "t",
        values,
        [10 * n for n in range(len(values))],
        offset_name="position",
        value_schema=STRING,
        keys=[f"k{n}" for n in range(len(values))] if keys else None,
        key_schema=STRING if keys else None,
        partition=3,
        timestamp=99,
    )


@given(st.lists(st.text(max_size=3), max_size=8), st.booleans(), st.data())
def test_it_is_the_sequence_of_its_records(values: list[str], keys: bool, data: st.DataObject) -> None:
    found = batch(values, keys=keys)
    records = [
        SourceRecord(
            {"file": "a"}, {"position": 10 * n}, "t", 3,
            STRING if keys else None, f"k{n}" if keys else None, STRING, value, 99,
        )
        for n, value in enumerate(values)
    ]  # fmt: skip
    assert list(found) == records
    assert [found[i] for i in range(len(values))] == records
    assert len(found) == len(records)
    cut = data.draw(st.slices(len(values)))
    assert list(found[cut]) == records[cut]
    if values:
        assert found.offset(len(values) - 1) == records[-1].source_offset


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 values need as many positions"):
        SourceBatch({}, "t", ["a", "b"], [1], offset_name="n")
