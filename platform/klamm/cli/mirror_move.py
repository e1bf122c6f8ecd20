"""`klamm mirror cutover`, `failover` and `failback`: move applications to the other cluster, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.cli.common import (
    EXIT_FAILED,
    Output,
    OutputOption,
    OverrideOption,
    fail,
    print_document,
    reported,
)
from klamm.cli.mirror_move_words import Bar, drawn, ended, step_line, told_undone
from klamm.cli.mirror_options import EXIT_UNREACHABLE, ConfigArgument, FlowArgument

if TYPE_CHECKING:
    from klamm.mirror.moves.common import CommonSteps
    from klamm.mirror.moves.ground import Options
    from klamm.mirror.moves.runner import Found, Runner
    from klamm_mirror.move.steps import Move, Step

EXIT_NOT_YET: Final = 4

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what each step finds and would do; change nothing.")
]
UndoOption = Annotated[
    bool, typer.Option("--undo", help="Undo the move, the latest step first, while the target was not used.")
]
RestartOption = Annotated[
    bool, typer.Option("--restart", help="Begin anew, also after a move that is done, or that did not end.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long each step may wait.")
]
QuietOption = Annotated[
    float,
    typer.Option(
        "--quiet", metavar="SECONDS", min=0.1, help="How long nobody may have written to the source."
    ),
]
VerifyOption = Annotated[
    str,
    typer.Option(
        "--verify",
        metavar="records|ends",
        help="Compare every record with the source, or only how far the copy goes.",
    ),
]
GroupsOption = Annotated[
    bool,
    typer.Option(
        "--groups-may-run", help="Do not wait for groups at the source to stop; they may read records again."
    ),
]


def cutover(
    config: ConfigArgument,
    name: FlowArgument,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    restart: RestartOption = False,
    timeout: TimeoutOption = 300.0,
    quiet: QuietOption = 3.0,
    verify: VerifyOption = "records",
    groups_may_run: GroupsOption = False,
    output: OutputOption = Output.TABLE,
    override: OverrideOption = None,
) -> None:
    """Move applications from A to B while both are there.

    Checks the flow, waits until producers and groups at A have stopped and all is copied, compares, sets the groups'
    offsets at B, and says what to start where. The mirror must run. A command that was killed goes on when it is given
    again. Exit code 1: it cannot be done as things are, 3: a cluster does not answer, 4: not in time, give the command again.
    """
    from klamm.mirror.moves.cutover import Cutover
    from klamm.mirror.moves.ground import Options

    options = Options(
        timeout_s=timeout, quiet_s=quiet, records=_records(verify), groups_may_run=groups_may_run
    )
    _Command(config, name, override, output, Cutover).moved(
        options, dry_run=dry_run, undo=undo, restart=restart
    )


def failover(
    config: ConfigArgument,
    name: FlowArgument,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    restart: RestartOption = False,
    force: Annotated[bool, typer.Option("--force", help="Move though the source answers.")] = False,
    output: OutputOption = Output.TABLE,
    override: OverrideOption = None,
) -> None:
    """Move applications from A to B when A is lost.

    Says what was not copied, by partition in records and seconds, as far as the target and the flow's process know. Holds the
    flow, so that nothing is copied by itself when A is back (klamm mirror failback decides then), sets the groups' offsets
    at B by their last checkpoints, and says what to start. Exit code 1: it cannot be done as things are, as when A answers,
    3: B does not answer.
    """
    from klamm.mirror.moves.failover import Failover
    from klamm.mirror.moves.ground import Options

    command = _Command(config, name, override, output, Failover)
    command.moved(Options(force=force), dry_run=dry_run, undo=undo, restart=restart)


def failback(
    config: ConfigArgument,
    name: Annotated[str, typer.Argument(metavar="B->A", help="The flow back to the cluster that was lost.")],
    diverged: Annotated[
        str | None,
        typer.Option(
            "--diverged", metavar="copy|export", help="What becomes of records that only A has: see below."
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="The new file for --diverged=export: JSON lines."),
    ] = None,
    show: Annotated[
        int,
        typer.Option("--show", metavar="N", min=0, help="Show the first N such records of each partition."),
    ] = 0,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
    restart: RestartOption = False,
    timeout: TimeoutOption = 300.0,
    quiet: QuietOption = 3.0,
    verify: VerifyOption = "records",
    groups_may_run: GroupsOption = False,
    output: OutputOption = Output.TABLE,
    override: OverrideOption = None,
) -> None:
    """Move applications back to A, which was lost and is there again.

    A->B must be held, as failover leaves it. Shows the records that A has and B lacks, and those that B got since.
    --diverged=copy copies A's to B, behind B's; export writes them to a file and leaves them at A alone. Then A->B goes on,
    and B->A brings A what it missed. The rest is as in a cutover: give the command again when producers and groups at B
    have stopped. Exit code 1: it cannot be done as things are, as without a decision, 3: a cluster does not answer, 4: not
    in time, give the command again.
    """
    from klamm.mirror.moves.failback import COPY, EXPORT, Failback
    from klamm.mirror.moves.ground import Options

    if diverged not in {None, COPY, EXPORT}:
        raise typer.BadParameter(f"{diverged!r} is neither {COPY} nor {EXPORT}", param_hint="--diverged")
    if (diverged == EXPORT) != (export is not None):
        raise typer.BadParameter("--diverged=export and --export FILE belong together", param_hint="--export")
    options = Options(
        timeout_s=timeout, quiet_s=quiet, records=_records(verify), groups_may_run=groups_may_run,
        diverged=diverged, export=export, show=show,
    )  # fmt: skip
    _Command(config, name, override, output, Failback).moved(
        options, dry_run=dry_run, undo=undo, restart=restart
    )


def _records(verify: str) -> bool:
    if verify not in {"records", "ends"}:
        raise typer.BadParameter(f"{verify!r} is neither records nor ends", param_hint="--verify")
    return verify == "records"


class _Command:
    """One command: finds the move in the journal, and begins, continues or undoes it."""

    def __init__(
        self, config: Path, name: str, override: list[str] | None, output: Output, steps: type[CommonSteps]
    ) -> None:
        self._config = config
        self._name = name
        self._override = override
        self._output = output
        self._steps = steps
        self._kind = steps.kind
        self._bar = Bar()

    def moved(self, options: Options, *, dry_run: bool, undo: bool, restart: bool) -> None:
        """Does what the command says, and prints it."""
        import asyncio

        if undo and (dry_run or restart):
            raise typer.BadParameter(
                f"an undo goes without {'--dry-run' if dry_run else '--restart'}", param_hint="--undo"
            )

        from klamm.mirror.moves.ground import NotYet
        from klamm_kafka.client import ClientError

        with reported(), self._bar:
            try:
                asyncio.run(self._run(options, dry_run=dry_run, undo=undo, restart=restart))
            except NotYet as e:
                self._bar.clear()
                fail(str(e), EXIT_NOT_YET)
            except ClientError as e:
                self._bar.clear()
                fail(str(e), EXIT_UNREACHABLE)

    async def _run(self, options: Options, *, dry_run: bool, undo: bool, restart: bool) -> None:
        opened = self._steps.open(self._config, self._name, self._override, options, self._bar.say)
        async with opened as steps:
            runner = steps.runner(self._told)
            known = await runner.find(self._kind, self._name)
            if dry_run:
                await self._preview(steps, known)
            elif undo:
                await self._undo(runner, known)
            else:
                self._show(await self._go_on(steps, runner, known, restart=restart))

    async def _preview(self, steps: CommonSteps, known: Move | None) -> None:
        from klamm_mirror.move.steps import Phase

        if known is not None and known.phase is Phase.RUNNING:
            typer.echo(f"klamm: a {self._kind} that did not end is in the journal: it would go on", err=True)
        found = await steps.preview()
        self._bar.clear()
        if self._output.structured:
            said = {"move": str(self._kind), "flow": self._name, "dry_run": True}
            print_document({**said, "steps": {str(s): f for s, f in found}}, self._output)
            return
        typer.echo(f"dry run of {self._kind} {self._name}: nothing is changed")
        for step, result in found:
            typer.echo(step_line(step, result, planned=True))

    async def _undo(self, runner: Runner, known: Move | None) -> None:
        from klamm_mirror.move.steps import Phase

        if known is None or known.phase is Phase.UNDONE:
            fail(f"there is no {self._kind} of {self._name} to undo", EXIT_FAILED)
            return
        after = await runner.undo(known)
        self._bar.clear()
        if self._output.structured:
            print_document(_as_json(after), self._output)
        else:
            typer.echo(told_undone(after))

    async def _go_on(self, steps: CommonSteps, runner: Runner, known: Move | None, *, restart: bool) -> Move:
        from klamm.mirror.moves.runner import new_move, now_ms
        from klamm_mirror.move.steps import Phase, restarted

        done = known is not None and known.phase is Phase.DONE
        if known is None or known.phase is Phase.UNDONE or (done and await runner.led_back(known)):
            known = new_move(self._kind, self._name)
        elif restart:
            known = restarted(known, now_ms())
        elif done:
            self._bar.line(f"this {self._kind} is done, since {ended(known)}: --restart begins anew")
        else:
            await steps.agree(known)
            self._bar.line(f"going on with the {self._kind} of {self._name} that did not end")
        return await runner.run(known)

    def _told(self, move: Move, step: Step, found: Found | None) -> None:
        from klamm_mirror.move.steps import PLANS

        plan = PLANS[move.kind]
        at = f"{plan.index(step) + 1}/{len(plan)}"
        self._bar.step(f"{at} {step}")
        if found is not None:
            self._bar.line(f"{at}{step_line(step, found)}")

    def _show(self, move: Move) -> None:
        self._bar.clear()
        if self._output.structured:
            print_document(_as_json(move), self._output)
        else:
            typer.echo("\n".join(drawn(move)))


def _as_json(move: Move) -> dict[str, object]:
    notes = {str(s): {"at": n.at_ms, "done": n.done, "found": n.found} for s, n in move.notes.items()}
    return {
        "move": str(move.kind), "flow": move.flow, "id": move.identity, "began": move.began_ms,
        "phase": str(move.phase), "steps": notes,
    }  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the commands to `klamm mirror`."""
    app.command()(cutover)
    app.command()(failover)
    app.command()(failback)
