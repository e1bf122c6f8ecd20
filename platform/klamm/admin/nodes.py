"""The cluster and its brokers: DescribeCluster (60), UnregisterBroker (64), ApiVersions (18), UpdateFeatures (57)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from klamm_kafka.wire.messages.describe_cluster import DescribeClusterRequest
from klamm_kafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from klamm_kafka.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker as the cluster tells of it; `fenced` brokers are told only where they are asked for."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The id of a cluster, and its brokers by id."""

    id: str
    controller: int
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Levels of a cluster's features: what brokers support, and what the cluster has decided on."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int | None


async def describe_cluster(admin: Admin, *, fenced: bool = False) -> ClusterFacts:
    """Return the cluster's id and brokers. Raises AdminError, and UnsupportedApi for `fenced` at an older broker."""
    request = DescribeClusterRequest(include_fenced_brokers=fenced)
    answer = await admin.patiently(lambda: admin.ask(request, floor=2 if fenced else 0))
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot describe the cluster", answer.error_message)
    brokers = (
        Broker(id=b.broker_id, host=b.host, port=b.port, rack=b.rack, fenced=b.is_fenced)
        for b in answer.brokers
    )
    return ClusterFacts(
        id=answer.cluster_id,
        controller=answer.controller_id,
        brokers=tuple(sorted(brokers, key=lambda b: b.id)),
    )


async def unregister_broker(admin: Admin, broker: int) -> None:
    """Unregister a broker that is gone. Raises AdminError, and UnsupportedApi."""
    answer = await admin.ask(UnregisterBrokerRequest(broker_id=broker))
    if answer.error_code:
        raise AdminError(answer.error_code, f"cannot unregister broker {broker}", answer.error_message)


async def describe_features(admin: Admin) -> Features:
    """Return the features of some broker's cluster. Raises AdminError."""
    request = ApiVersionsRequest(client_software_name="klamm", client_software_version="1")
    answer: ApiVersionsResponse = await admin.ask(request)
    if answer.error_code:
        raise AdminError(answer.error_code, "cannot describe features")
    return Features(
        supported={f.name: (f.min_version, f.max_version) for f in answer.supported_features},
        finalized={f.name: f.max_version_level for f in answer.finalized_features},
        epoch=answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else None,
    )


async def update_features(
    admin: Admin, levels: Mapping[str, int], *, upgrade_type: int, validate_only: bool
) -> dict[str, AdminError | None]:
    """Ask for other levels (1 upgrade, 2 safe downgrade, 3 unsafe): what became of each feature."""
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        for name, level in levels.items()
    ]
    answer = await admin.ask(
        UpdateFeaturesRequest(
            timeout_ms=admin.timeout_ms, feature_updates=updates, validate_only=validate_only
        ),
        floor=1,
    )
    if answer.error_code:
        error = AdminError(answer.error_code, "cannot update features", answer.error_message)
        return dict.fromkeys(levels, error)
    found = {r.feature: r for r in answer.results}
    return {
        name: AdminError(r.error_code, f"feature {name}", r.error_message)
        if (r := found.get(name)) is not None and r.error_code
        else None
        for name in levels
    }
