"""Files of many entries, of which only those that changed are encoded anew."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.security.sasl.credentials import Mechanism, of_password
from klamm_broker.server.encoded import EncodedEntries, document
from klamm_broker.server.scram_users import ScramUsers

ENTRIES = st.dictionaries(st.text(max_size=3), st.dictionaries(st.text(max_size=2), st.integers()))


@given(st.lists(ENTRIES))
def test_remembered_entries_are_written_as_if_they_were_new(changes):
    remembering = EncodedEntries(lambda key, value: f"{json.dumps(key)}: {json.dumps(value)}", dict)
    for entries in changes:
        lines = remembering.lines(entries)
        told = json.loads(document({"version": 1}, "entries", "{\n" + ",\n".join(lines) + "\n}"))
        assert told == {"version": 1, "entries": entries}


def test_only_what_changed_is_encoded():
    encoded = []
    remembering = EncodedEntries(lambda key, value: encoded.append(key) or key, dict)
    entries = {f"u{n}": {"a": n} for n in range(1000)}
    remembering.lines(entries)
    encoded.clear()
    entries["u7"]["a"] = -1
    del entries["u8"]
    assert remembering.lines({**entries, "new": {}}) == [*entries, "new"]
    assert encoded == ["u7", "new"], "a value that was changed in place as well"


def test_a_changed_user_is_another_in_the_file(tmp_path):
    users = ScramUsers(tmp_path / "users.json")
    first, second = (
        of_password(Mechanism.SHA256, password, salt=b"s", iterations=4096) for password in ("one", "two")
    )
    for credential in (first, second):
        users.replace({"ann": {Mechanism.SHA256: credential}, "böb": {Mechanism.SHA256: first}})
        again = ScramUsers.load(tmp_path / "users.json")
        assert again.users == users.users
        assert again.secret == users.secret
    users.replace({})
    assert ScramUsers.load(tmp_path / "users.json").users == {}
