"""Errors of converters say what is wrong, and nothing of the quick way that was tried first."""

import pytest

from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.errors import DataError
from klamm_plugins.schema import INT32, SchemaBuilder, Struct

ROW = SchemaBuilder.struct("row").field("n", INT32).build()


@pytest.mark.parametrize("schemas", ["true", "false"])
@pytest.mark.parametrize("in_columns", [True, False])
def test_an_error_of_json_has_no_error_of_the_quick_way_behind_it(schemas, in_columns):
    converter = JsonConverter()
    converter.configure({"schemas.enable": schemas}, is_key=False)
    bad = Struct.of_checked(ROW, ["text"])
    convert = converter.from_connect_data_many if in_columns else converter.from_connect_data
    with pytest.raises(DataError) as raised:
        convert("t", ROW, [Struct(ROW, n=1), bad] if in_columns else bad)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
