"""The records of a sink: columns of converters are the pairs that they stand for, whatever is in a topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_plugins.converters.bytearray import ByteArrayConverter
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import DataError

CONVERTERS = [
    (StringConverter, {}),
    (StringConverter, {"converter.encoding": "ISO-8859-1"}),
    (ByteArrayConverter, {}),
    (JsonConverter, {"schemas.enable": "false"}),
    (JsonConverter, {"schemas.enable": "true"}),
]
texts = st.sampled_from(
    [b"", b"null", b"1", b'"a"', b'{"a":[1,null]}', b'{"schema":{"type":"int32"},"payload":5}', b"\xff"]
)


@pytest.mark.parametrize(("cls", "props"), CONVERTERS)
@given(values=st.lists(st.none() | texts | st.binary(max_size=4), max_size=6))
def test_columns_are_what_the_values_are_one_by_one(cls, props, values):
    converter = cls()
    converter.configure(props, is_key=False)

    def attempt(f):
        try:
            return f()
        except DataError:
            return "bad"

    one_by_one = attempt(lambda: [tuple(converter.to_connect_data("t", v)) for v in values])
    columns = attempt(lambda: [list(c) for c in converter.to_connect_columns("t", values)])
    if one_by_one == "bad":
        assert columns == "bad"
    else:
        assert columns == [[s for s, _ in one_by_one], [v for _, v in one_by_one]]


class Shouting(StringConverter):
    """Overrides what it needs to, and no more."""

    def to_connect_data_many(self, topic, values):
        return [self.to_connect_data(topic, v and v.upper()) for v in values]


def test_a_subclass_is_asked():
    assert Shouting().to_connect_columns("t", [b"a", None])[1] == ("A", None)
