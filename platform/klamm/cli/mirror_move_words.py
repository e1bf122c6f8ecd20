"""Draws moves of applications: a line for each step, a bar while one waits, and what to start where."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self

import typer

from klamm.cli.common import counted
from klamm.cli.output import table
from klamm.cli.words import ago, duration
from klamm.cli.words import bar as drawn_bar

if TYPE_CHECKING:
    from klamm_mirror.move.steps import Move

WIDTH: Final = 24
GROUPS_NAMED: Final = 5
_CLEAR: Final = "\r\x1b[K"
Found = Mapping[str, Any]


class Bar:
    """Progress on standard error: lines of steps, and on a terminal the last line, which changes in place."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._step = ""
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.clear()

    def step(self, name: str) -> None:
        """Begins a step. Elsewhere than on a terminal, it gets a line."""
        if name != self._step and not self._terminal:
            typer.echo(f"{name} …", err=True)
        self._step = name
        self.say("", None)

    def say(self, what: str, share: float | None) -> None:
        """Says what is waited for."""
        if not self._terminal:
            return
        parts = [self._step, "" if share is None else f"{drawn_bar(share, WIDTH)} {share:4.0%}", what]
        text = "  ".join(p for p in parts if p)
        sys.stderr.write(_CLEAR + text[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()
        self._drawn = True

    def line(self, text: str) -> None:
        """Prints a line that stays."""
        self.clear()
        typer.echo(text, err=True)

    def clear(self) -> None:
        """Removes the changing line."""
        if self._drawn:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._drawn = False


def step_line(step: str, found: Found, *, planned: bool = False) -> str:
    """Returns a step's name and what it found, or would do; below it, its details."""
    said = _WORDS[str(step)](found, planned)
    more = [f"note: {w}" for w in found.get("warnings", ())] + _TABLES.get(str(step), _no_table)(found)
    return "".join([f"  {step!s:<8} {said}", *(f"\n           {line}" for line in more)])


def _no_table(found: Found) -> list[str]:
    return []


def _check(found: Found, planned: bool) -> str:
    said = f"{counted(found['topics'], 'topic')} with {counted(found['partitions'], 'partition')}"
    if "heard" not in found:
        return f"{said}, no gap"
    age = found["checkpoint_age_seconds"]
    groups = "nobody knows how old the groups' checkpoints are" if age is None else f"checkpoints {ago(age)}"
    return f"the source is lost; {said} were copied; {groups}"


def _quiet(found: Found, planned: bool) -> str:
    groups = found["groups_with_members"]
    reading = f"groups with members: {', '.join(groups)}" if groups else "no group has members"
    if not planned:
        return f"nobody writes; {reading}"
    writing = found["topics_written_to"]
    said = f"somebody writes to {', '.join(writing)}" if writing else "nobody writes"
    return f"{said}; {reading}" + (": they must stop" if writing or groups else "")


def _drain(found: Found, planned: bool) -> str:
    if planned:
        return f"{counted(found['records_to_copy'], 'record')} to copy now"
    return f"all copied ({counted(len(found['ends']), 'partition')})"


def _verify(found: Found, planned: bool) -> str:
    if found["why_not"]:
        return f"only how far the copy goes: {found['why_not']}"
    return "would compare every record" if planned else f"{counted(found['records'], 'record')} equal"


def _groups(found: Found, planned: bool) -> str:
    verdicts = [p["verdict"] for p in found["places"]]
    parts = [f"{verdicts.count(v)} {words}" for v, words in _VERDICTS.items() if v in verdicts]
    said = ", ".join(parts) or "no offsets"
    notes = [*_not_exact(found), *found.get("refused", ())]
    return (f"would be: {said}" if planned else said) + "".join(f"\n           note: {n}" for n in notes)


def _not_exact(found: Found) -> list[str]:
    """Returns a sentence about groups that read records again; none when all offsets are those of the very records."""
    going = [p for p in found["places"] if p["verdict"] in {"set", "there"}]
    places = [p for p in going if not p["exact"]]
    if not places:
        return _again(going)
    groups = sorted({p["group"] for p in places})
    named = ", ".join(groups[:GROUPS_NAMED]) + (" and others" if len(groups) > GROUPS_NAMED else "")
    what = f"{counted(len(places), 'offset')} {'is' if len(places) == 1 else 'are'} not exact"
    return [f"{what}: some records are read again by {named}", *_again(going)]


def _again(going: list[Found]) -> list[str]:
    """Returns a sentence for each share group that gets records again that it has finished."""
    found = []
    for group in sorted({p["group"] for p in going if p.get("kind") == "share"}):
        counts = [p["again"] for p in going if p["group"] == group]
        if None in counts:
            found.append(f"share group {group} gets what it acknowledged behind its start offsets again")
        elif sum(counts):
            found.append(
                f"share group {group} gets up to {counted(sum(counts), 'record')} again that it acknowledged"
            )
    return found


def _promote(found: Found, planned: bool) -> str:
    if not found["promoted"]:
        return "no copy keeps offsets"
    said = f"{'would promote' if planned else 'promoted'} {_names(found['promoted'])}"
    return said + ("" if planned else "; this is not undone")


def _hold(found: Found, planned: bool) -> str:
    return f"{'would hold' if planned else 'holds'} the flow, so that nothing is copied by itself when the source is back"


def _loss(found: Found, planned: bool) -> str:
    rows = found["partitions"]
    known = [p["records"] for p in rows if p["records"] is not None]
    parts = [f"{counted(sum(known), 'record')} known of that were not copied"] if known else []
    if unknown := len(rows) - len(known):
        parts.append(f"nothing is known of {counted(unknown, 'partition')}")
    seconds = [p["seconds"] for p in rows if p["seconds"] is not None]
    if seconds:
        parts.append(f"at most the last {duration(max(seconds))} before this command")
    return "; ".join(parts) or "nothing was copied"


def _diverged(found: Found, planned: bool) -> str:
    alone, own = found["diverged"], found["own"]
    said = f"{counted(sum(t['records'] for t in alone), 'record')} only {found['at']} has"
    if lost := sum(t["lost"] for t in alone):
        said += f", {lost} offsets that were copied are gone there"
    if own:
        said += f"; {counted(sum(t['records'] for t in own), 'record')} written at the other side since the failover"
    return said


def _settle(found: Found, planned: bool) -> str:
    match found["decision"]:
        case "copy":
            said = f"{'would copy' if planned else 'copied'} {counted(found['records'], 'record')}"
        case "export":
            into = f" to {found['file']}" if found["file"] else ""
            said = f"{'would write' if planned else 'wrote'} {counted(found['records'], 'record')}{into}"
        case _:
            said = "needs --diverged" if found["records"] else "nothing to decide"
    return said + ("" if planned else "; this is not undone, and the flow goes on")


def tail_table(found: Found) -> list[str]:
    """Returns the records that each side has alone by partition, and those that are to be shown, as lines."""
    rows = [
        {
            "only at": at, "topic": t["topic"], "partition": t["partition"], "from": t["start"], "to": t["end"],
            "records": t["records"], "lost": t["lost"], "first": _when(t["first_ms"]), "last": _when(t["last_ms"]),
        }
        for at, side in ((found.get("at"), "diverged"), ("the other", "own")) for t in found.get(side, ())
    ]  # fmt: skip
    if not rows:
        return []
    shown = [r for side in ("diverged", "own") for t in found[side] for r in t.get("shown", ())]
    lines = table(rows, list(rows[0])).splitlines()
    if shown:
        lines += table(shown, ["topic", "partition", "offset", "timestamp", "key", "value"]).splitlines()
    return lines


def _when(ms: int | None) -> str:
    return "-" if ms is None else _moment(ms)


def loss_table(found: Found) -> list[str]:
    """Returns the loss by partition, as lines."""
    rows = [
        {
            "topic": p["topic"],
            "partition": p["partition"],
            "copied to": p["copied"],
            "source end": "unknown" if p["end"] is None else p["end"],
            "not copied": "unknown" if p["records"] is None else p["records"],
            "at most": "unknown" if p["seconds"] is None else duration(p["seconds"]),
            "newest record": _when(p["newest_ms"]),
        }
        for p in found.get("partitions", ())
    ]
    return table(rows, list(rows[0])).splitlines() if rows else []


def _moment(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))


def _tell(found: Found, planned: bool) -> str:
    late = [
        f"\n           note: {topic}: {counted(count, 'record')} behind the promoted copy's end stay at the source"
        for topic, count in sorted(found.get("late", {}).items())
    ]
    goes_on = f"; {found['released']} goes on" if found.get("released") else ""
    return "".join(
        [f"start producers and groups at {found['cluster']} ({found['bootstrap']}){goes_on}", *late]
    )


_VERDICTS: Final = {
    "set": "set", "there": "there already", "ahead": "farther already, left alone",
    "active": "with members there, left alone", "unknown": "not known to any mapping",
    "taken": "of groups whose name another kind of group has there", "unserved": "of share groups, which the target does not know",
    "unread": "of share groups without a start offset yet",
}  # fmt: skip
_WORDS: Final = {
    "check": _check, "quiet": _quiet, "drain": _drain, "verify": _verify, "groups": _groups, "tell": _tell,
    "hold": _hold, "promote": _promote, "loss": _loss, "diverged": _diverged, "settle": _settle,
}  # fmt: skip


_TABLES: Final = {"loss": loss_table, "diverged": tail_table}


def drawn(move: Move) -> list[str]:
    """Returns what to start where after a move."""
    from klamm_mirror.move.steps import Step

    told, groups = move.found(Step.TELL), move.found(Step.GROUPS)
    lines = [f"{move.kind} {move.flow}: {move.phase}"]
    lines += [f"start at {told['cluster']}, {told['bootstrap']}:"]
    renamed = [t for t in told["topics"] if t["topic"] != t["target_topic"]]
    lines.append(f"  producers   {_names([t['topic'] for t in told['topics']])}")
    if renamed:
        lines.append("  consumers   subscribe to both names of each topic:")
        lines += [
            f"              {', '.join(dict.fromkeys((t['topic'], t['target_topic'])))}"
            for t in told["topics"]
        ]
    else:
        lines.append("  consumers   the same topics")
    rows = [
        {
            "group": p["group"],
            "topic": p["target_topic"],
            "partition": p["partition"],
            "offset": _now(p),
            "": p["verdict"],
        }
        for p in groups.get("places", ())
    ]
    if "places" not in groups and move.is_done(Step.GROUPS):
        lines.append(
            f"  groups      have their offsets since {_moment(move.notes[Step.GROUPS].at_ms)}: klamm group describe shows where they are now"
        )
    if rows:
        lines += ["  groups go on at", *(f"    {line}" for line in table(rows, list(rows[0])).splitlines())]
    if move.found(Step.PROMOTE).get("promoted"):
        return lines
    return [*lines, _undo_line(move)]


def _now(place: Found) -> Any:
    return place["before"] if place["verdict"] in {"ahead", "there", "active"} else place["target_offset"]


def _names(names: list[str]) -> str:
    return ", ".join(names) or "no topics"


def _undo_line(move: Move) -> str:
    from klamm_mirror.move.steps import Step

    target = move.flow.partition("->")[2]
    what = "undo of the groups' offsets" if Step.SETTLE in move.notes else "undo"
    return f"{what}: klamm mirror {move.kind} FILE '{move.flow}' --undo, until somebody writes or reads at {target}"


def ended(move: Move) -> str:
    """Returns when a move that is done ended."""
    return _moment(max(note.at_ms for note in move.notes.values()))


def told_undone(move: Move) -> str:
    """Returns what is so after an undo."""
    return f"{move.kind} {move.flow}: undone. Groups have the offsets that they had; go on at {move.flow.partition('->')[0]}"
