"""Records and their headers."""

from klamm_plugins.records import NO_HEADERS, Header, Headers, SinkRecord, SourceRecord, TopicPartition
from klamm_plugins.schema import STRING


def test_headers_keep_order_and_repeated_names():
    headers = Headers.of(("a", 1), ("b", "x", STRING), ("a", 2))
    assert headers.all("a") == [Header("a", 1), Header("a", 2)]
    assert headers.last("a") == Header("a", 2)
    assert headers.last("none") is None
    assert headers.without("a") == Headers.of(("b", "x", STRING))
    assert isinstance(headers.without("a"), Headers)


def test_headers_are_shared_safely():
    more = NO_HEADERS.with_header("a", 1).with_all([Header("b", 2)])
    assert [h.name for h in more] == ["a", "b"]
    assert not NO_HEADERS
    assert SourceRecord({}, {}, "t").headers is NO_HEADERS


def test_records_are_slotted():
    assert not hasattr(SourceRecord({}, {}, "t"), "__dict__")
    record = SinkRecord("t", 1, None, None, None, "v", 5)
    assert not hasattr(record, "__dict__")
    assert record.topic_partition == TopicPartition("t", 1)
    assert str(record.topic_partition) == "t-1"
