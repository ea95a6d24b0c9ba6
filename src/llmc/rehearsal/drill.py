"""llmc drill"""

import shlex
from typing import get_args

import click
from click.shell_completion import CompletionItem

from llmc.base.errors import LlmcError, NotFound, UsageError
from llmc.cli.arguments import Number
from llmc.cli.output import completion, json_option, note, paint, print_json, say, say_lines
from llmc.config.model import Sandbox
from llmc.rehearsal.drills.model import Drill, Report, Terms
from llmc.rehearsal.drills.run import run_all
from llmc.rehearsal.drills.table import DRILLS, EVERY
from llmc.sandbox import probe

_COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        completion(name, help=drill.fault) for name, drill in DRILLS.items() if name.startswith(incomplete)
    ]


@click.command("drill")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_names)
@click.option(
    "--all", "everything", is_flag=True, help="Run every drill except `night`; takes several minutes"
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 16),
    default=2,
    show_default=True,
    help="Number of drills to run at the same time",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Random seed for `night` (selects the faults and their timing)",
)
@click.option(
    "--minutes",
    type=Number(0.2, 600),
    default=4,
    show_default=True,
    help="Duration of `night` in minutes",
)
@click.option(
    "--sandbox",
    type=click.Choice(get_args(Sandbox)),
    default="auto",
    show_default=True,
    help="Contain the agents and checks: always (on), never (off), or if the machine supports it (auto)",
)
@json_option
def drill(
    names: tuple[str, ...],
    everything: bool,
    jobs: int,
    seed: int,
    minutes: float,
    sandbox: Sandbox,
    as_json: bool,
) -> int:
    """Inject failures in a scratch root to test recovery

    \b
    Examples:
      llmc drill                   list the drills
      llmc drill agent-killed      run one drill
      llmc drill --all --jobs 4    run every drill except night
      llmc drill night --seed 7    run a fleet with a fault every few seconds

    Each drill causes a real failure in a scratch root with the scripted agent and its own tmux server, and checks that
    no work is lost. Your files are not touched. Drills use shorter check intervals than the defaults.
    """
    chosen = _chosen(names, everything)
    if not chosen:
        return _list(as_json)
    if sandbox == "on" and (found := probe.problem()):
        again = f"llmc drill --sandbox off {shlex.join(['--all'] if everything else names)}"
        raise LlmcError(
            f"cannot contain the agents: {found.text}",
            hint=f"To fix this, {found.fix}. To run the drills without containment: {again}",
        )

    def began(drill: Drill) -> None:
        if not as_json:
            note(f"{drill.name}: {drill.fault} ...")

    reports = []
    for report in run_all(chosen, jobs, began, Terms(seed, minutes * 60, sandbox)):
        reports.append(report)
        if not as_json:
            say_lines(_line(report))
    if as_json:
        print_json([report.row_of_json() for report in reports])
    else:
        counts = {word: sum(report.outcome == word for report in reports) for word in _COLOURS}
        say(", ".join(f"{count} {word}" for word, count in counts.items() if count))
    return 1 if any(report.outcome == "failed" for report in reports) else 0


def _chosen(names: tuple[str, ...], everything: bool) -> list[Drill]:
    if names and everything:
        raise UsageError("pass drill names or --all, not both", hint="Run: llmc drill --all")
    unknown = [name for name in names if name not in DRILLS]
    if unknown:
        raise NotFound(f"no drill {unknown[0]!r}", hint="Run `llmc drill` to list the drills.")
    return EVERY if everything else [DRILLS[name] for name in names]


def _list(as_json: bool) -> int:
    if as_json:
        rows = [{"name": d.name, "row": d.row, "fault": d.fault, "kind": d.kind} for d in DRILLS.values()]
        print_json(rows)
        return 0
    width = max(map(len, DRILLS))
    for drill in DRILLS.values():
        say(f"{drill.name:<{width}}  {drill.kind:<8}  {drill.fault}")
    return 0


def _line(report: Report) -> str:
    word = paint(f"{report.outcome:<7}", _COLOURS[report.outcome])
    parts = [f"{word} {report.drill.name:<21} {report.drill.kind:<8}"]
    if report.skipped:
        return f"{parts[0]} {report.skipped}"
    if report.detected_s is not None:
        parts.append(f"detected after {report.detected_s:.1f} s")
    if report.recovered_s is not None:
        parts.append(f"recovered after {report.recovered_s:.1f} s")
    parts.append("nothing lost" if not report.lost else "; ".join(report.lost))
    said = "  ".join(parts[:1]) + " " + ", ".join(parts[1:])
    where = [f"files: {report.directory}"] if report.directory else []
    return "\n".join([said, *(f"        {line}" for line in [*report.notes, *report.problems, *where])])
