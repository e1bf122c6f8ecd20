"""Feature levels: what ApiVersions tells, what UpdateFeatures takes, and that they outlive the broker."""

from __future__ import annotations

import errno
import os

import pytest
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_base.files import NotSynced
from klamm_broker.log.errors import DirectoryError
from klamm_broker.server.cluster_config import ClusterConfig, ResourceType
from klamm_broker.server.features import LATEST, OWN, FeatureRefused, FeatureUpdate, updated
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def versions(client, version):
    return client.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)


def test_clients_learn_the_levels_from_api_versions(broker):
    with RawClient(broker.port) as client:
        old, new = versions(client, 3), versions(client, 4)
    for answer in (old, new):
        levels = {f.name: (f.min_version_level, f.max_version_level) for f in answer.finalized_features}
        assert levels == {name: (level, level) for name, level in LATEST.items()}
        assert levels["transaction.version"] == (2, 2)
        assert levels["group.version"] == (1, 1)
        assert answer.finalized_features_epoch >= 0
    kafkas = [f.name for f in old.supported_features if f.name not in OWN]
    assert kafkas == ["metadata.version"], "a lowest level of 0 is new in 4"
    assert set(OWN) <= {f.name for f in old.supported_features} & {f.name for f in new.supported_features}
    assert {f.name: (f.min_version, f.max_version) for f in new.supported_features}["group.version"] == (0, 1)


@pytest.mark.parametrize(
    ("name", "level", "kind", "says"),
    [
        ("group.version", 0, UPGRADE, "without setting the upgrade type"),
        ("group.version", 2, UPGRADE, "only supports versions 0-1"),
        ("group.version", -1, UPGRADE, "cannot be less than 0"),
        ("group.version", 0, 9, "does not support the given upgrade type"),
        ("nope", 1, UPGRADE, "does not support this feature"),
        ("nope", 0, UNSAFE, "Feature nope not found"),
        ("metadata.version", 29, SAFE, "might delete metadata"),
        ("metadata.version", 20, UNSAFE, "Unsafe metadata downgrade is not supported"),
        ("kraft.version", 0, SAFE, "Can't downgrade the version of this feature."),
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_is_changed(name, level, kind, says):
    good = FeatureUpdate("transaction.version", 1, SAFE)
    with pytest.raises(FeatureRefused, match=says):
        updated(LATEST, [good, FeatureUpdate(name, level, kind)], node_id=1)


def test_a_level_may_not_rise_in_a_downgrade():
    with pytest.raises(FeatureRefused, match="Can't downgrade to a newer version"):
        updated({**LATEST, "group.version": 0}, [FeatureUpdate("group.version", 1, SAFE)], node_id=1)


@pytest.mark.usefixtures("processes")
def test_levels_are_stored_and_outlive_a_restart(tmp_path):
    def set_level(client, level, kind, **more):
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
        return client.request(UpdateFeaturesRequest(feature_updates=[update], **more), 2).error_code

    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as client:
        before = versions(client, 4).finalized_features_epoch
        assert set_level(client, 1, SAFE, validate_only=True) == 0
        assert versions(client, 4).finalized_features_epoch == before
        assert set_level(client, 1, UPGRADE) == ErrorCode.INVALID_UPDATE_VERSION
        assert set_level(client, 0, SAFE) == 0
        answer = versions(client, 4)
        assert "transaction.version" not in {f.name for f in answer.finalized_features}
        assert answer.finalized_features_epoch > before
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as client:
        assert "transaction.version" not in {f.name for f in versions(client, 4).finalized_features}
        assert set_level(client, 2, UPGRADE) == 0
        levels = {f.name: f.max_version_level for f in versions(client, 4).finalized_features}
        assert levels["transaction.version"] == 2


@pytest.mark.usefixtures("processes")
def test_version_0_says_with_a_flag_that_a_downgrade_is_allowed(tmp_path):
    def ask(client, *, allow):
        update = FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=allow)
        return client.request(UpdateFeaturesRequest(feature_updates=[update]), 0)

    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as client:
        assert ask(client, allow=False).error_code == ErrorCode.INVALID_UPDATE_VERSION
        done = ask(client, allow=True)
        assert (done.error_code, [r.feature for r in done.results]) == (0, ["group.version"])


def test_the_store_keeps_configurations_and_tells_who_listens(tmp_path):
    path = tmp_path / "klamm-cluster.json"
    store = ClusterConfig.load(path)
    heard = []
    store.subscribe(lambda kind, name: heard.append((kind, name)))
    assert not store.get(ResourceType.GROUP, "g")
    store.alter(ResourceType.GROUP, "g", {"consumer.session.timeout.ms": "50000"})
    store.alter(ResourceType.BROKER, "", {"log.retention.ms": "5"})
    store.alter(ResourceType.BROKER, "", {})
    assert heard == [(ResourceType.GROUP, "g"), (ResourceType.BROKER, ""), (ResourceType.BROKER, "")]
    again = ClusterConfig.load(path)
    assert again.get(ResourceType.GROUP, "g") == {"consumer.session.timeout.ms": "50000"}
    assert again.names(ResourceType.GROUP) == ["g"]
    assert again.names(ResourceType.BROKER) == []
    assert again.epoch == store.epoch


def test_a_change_that_cannot_be_written_has_not_happened(tmp_path):
    store = ClusterConfig.load(tmp_path / "missing" / "klamm-cluster.json")
    heard = []
    store.subscribe(lambda *change: heard.append(change))
    with pytest.raises(OSError, match="missing"):
        store.alter(ResourceType.GROUP, "g", {"a": "b"})
    with pytest.raises(OSError, match="missing"):
        store.update_features({**LATEST, "group.version": 0})
    assert (store.get(ResourceType.GROUP, "g"), store.features, store.epoch, heard) == ({}, LATEST, 1, [])


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 9}', '{"version": 1}'])
def test_a_damaged_file_stops_the_start_with_a_sentence(tmp_path, content):
    path = tmp_path / "klamm-cluster.json"
    path.write_text(content)
    with pytest.raises(DirectoryError, match=r"klamm-cluster\.json"):
        ClusterConfig.load(path)


def test_what_the_file_has_holds_even_where_its_name_is_not_on_the_disk_for_sure(tmp_path, monkeypatch):
    path = tmp_path / "klamm-cluster.json"
    store, heard = ClusterConfig.load(path), []
    store.subscribe(lambda *change: heard.append(change))

    def broken(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("klamm_base.files.sync_directory", broken)
        with pytest.raises(NotSynced):
            store.alter(ResourceType.GROUP, "g", {"a": "b"})
        with pytest.raises(NotSynced):
            store.update_features({**LATEST, "group.version": 0})
    assert heard == [(ResourceType.GROUP, "g")]
    again = ClusterConfig.load(path)
    for found in (store, again):
        assert found.get(ResourceType.GROUP, "g") == {"a": "b"}
        assert found.features["group.version"] == 0
        assert found.epoch == 3
