"""Checks a changed flow against the topics that its source has: what a file alone cannot tell."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from klamm.mirror.flow_props import source_props
from klamm_kafka.client import ClientError
from klamm_mirror.gaps.ledger import remotes_of
from klamm_mirror.loop import ask_cluster
from klamm_mirror.settings.mm2_config import Flow
from klamm_mirror.settings.plugins import FlowPlugins, without_plugins
from klamm_mirror.source.config import config_def
from klamm_mirror.topics.target import Topics
from klamm_mirror.topics.topic_plan import remote_names

log = logging.getLogger(__name__)

ASK_S: Final = 10.0


async def check_names(flow: Flow) -> None:
    """Raises ConfigError when two topics would be copied into one. Clusters that are away refuse nothing, and neither do
    flows with plugins, whose code runs elsewhere.
    """
    props = source_props(flow)
    if not flow.enabled or without_plugins(props) != props:
        return
    parsed = config_def().parse(props)
    try:
        async with (
            asyncio.timeout(ASK_S),
            ask_cluster(props, "source") as source,
            ask_cluster(props, "target") as target,
        ):
            with FlowPlugins(props, parsed) as plugins:
                remotes = await remotes_of(target, plugins.policy, parsed)
                topics = Topics(parsed, plugins, source, target, remotes)
                remote_names(await topics.find(), topics.remote)
    except (ClientError, TimeoutError) as e:
        log.info("%s: the names of its copies cannot be checked now: %s", flow.name, e or "too slow")
