"""The opening of inputs that are no files, from their checked keys."""

from __future__ import annotations

from typing import Any

from klamm_agent.config.readers import JournaldSettings, Settings, StdinSettings, SyslogSettings
from klamm_agent.events import Reader


def open_reader(settings: Settings, *, parse: bool, checkpoint: Any = None) -> Reader:
    """Opens the reader of an input.

    `parse`: documents are made of the events, so times and fields are wanted. `checkpoint` is the last
    checkpoint of this input's reader, None when there is none. Raises KlammError when the input cannot be opened.
    """
    match settings:
        case SyslogSettings():
            from klamm_agent.inputs.syslog import SyslogReader

            return SyslogReader(settings, parse=parse)
        case JournaldSettings():
            from klamm_agent.inputs.journald import JournaldReader

            return JournaldReader(settings, parse=parse, checkpoint=checkpoint)
        case StdinSettings():
            from klamm_agent.inputs.stdin import StdinReader

            return StdinReader(settings)
