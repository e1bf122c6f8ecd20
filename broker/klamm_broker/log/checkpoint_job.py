"""Writes the checkpoints of one log directory from the present state of its logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm_broker.log import checkpoints
from klamm_broker.log.checkpoints import TopicPartition
from klamm_broker.log.data_directory import DataDirectory
from klamm_broker.log.partition_log import PartitionLog


def checkpoint_job(
    directory: DataDirectory, logs: Mapping[TopicPartition, PartitionLog]
) -> Callable[[], None]:
    """Returns a job that writes them, to be called once, maybe in a thread. It raises OSError."""
    recovery = directory.recovery_points | {key: opened.recovery_point for key, opened in logs.items()}
    starts = directory.log_starts | {
        key: partition_log.log_start_offset
        for key, partition_log in logs.items()
        if partition_log.log_start_offset > partition_log.segment_base_offsets[0]
    }
    watermarks = {key: partition_log.high_watermark for key, partition_log in logs.items()}
    return directory.checkpoint_files.take(
        {
            checkpoints.RECOVERY_POINT: recovery,
            checkpoints.LOG_START_OFFSET: starts,
            checkpoints.HIGH_WATERMARK: watermarks,
        }
    )
