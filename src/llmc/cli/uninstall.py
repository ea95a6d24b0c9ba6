"""llmc uninstall"""

import shlex
import sys

import click
import msgspec

from llmc.api import uninstall as service
from llmc.api.uninstall import Work
from llmc.base.errors import Refused, UsageError
from llmc.cli.ask import confirm
from llmc.cli.output import json_option, note, print_json, say
from llmc.cli.workers import project_of
from llmc.repo.project import Project


@click.command("uninstall")
@click.option("--dry-run", "-n", is_flag=True, help="Show what would go and what would stay; change nothing.")
@click.option(
    "--yes", "-y", is_flag=True, help="Do not ask; work that has not landed is kept beside the root."
)
@click.option("--discard", is_flag=True, help="With --yes: keep no work.")
@json_option
@click.pass_context
def command(ctx: click.Context, dry_run: bool, yes: bool, discard: bool, as_json: bool) -> None:
    """Take back what llmc made for this root: agents, worktrees, branches, settings, pinned work, and the root itself.

    Your repository keeps its branches and files. Where the root has work that is nowhere else, that is listed and nothing
    is done without --yes.

    \b
    Examples:
      llmc uninstall --dry-run
      llmc uninstall --yes
    """
    if discard and not (yes or dry_run):
        raise UsageError("--discard needs --yes", hint="Look first: llmc uninstall --dry-run")
    project = project_of(ctx)
    root = project.root.path
    work = service.work_in(project)
    if dry_run:
        _show(project, work, discard, as_json)
        return
    service.refuse_in_use(project)
    if work and not yes:
        _refuse(project, work)
    confirm(f"Remove {root}, and everything in it?", f"this removes {root}", yes)
    left = service.left_alone(project)
    done = service.take_back(project, keep=bool(work) and not discard, discard=discard)
    if as_json:
        kept = str(done.kept) if done.kept else None
        print_json({"removed": list(done.removed), "kept": kept, "left": left, "program": how_to_remove()})
        return
    for what in done.removed:
        say(f"removed {what}")
    if done.kept:
        say(
            f"kept {done.kept}: a git repository with every pinned commit (git log --all), and what was in the trash"
        )
    for what in left:
        note(f"left as it is: {what}")
    note(f"llmc itself: {how_to_remove()}")


def _refuse(project: Project, work: list[Work]) -> None:
    rows = "\n".join(f"  {one.what} -> {one.save}" for one in work)
    refusal = Refused(
        f"{project.root.path} has work that is nowhere else:\n{rows}",
        hint="`llmc uninstall --yes` keeps it in a directory beside the root; with --discard it is gone for good.",
    )
    refusal.details["work"] = [msgspec.structs.asdict(one) for one in work]
    raise refusal


def _show(project: Project, work: list[Work], discard: bool, as_json: bool) -> None:
    kept = str(service.place_to_keep(project)) if work and not discard else None
    left = service.left_alone(project)
    if as_json:
        rows = [msgspec.structs.asdict(one) for one in work]
        print_json({"root": str(project.root.path), "work": rows, "kept": kept, "left": left})
        return
    say(f"would remove {project.root.path}, and what llmc noted of it elsewhere")
    for name in project.store.read().workers:
        say(f"would end and remove the worker {name}")
    for one in work:
        say(f"has not landed: {one.what} -> {one.save}")
    if kept:
        say("with --yes that is kept in a directory beside the root")
    for what in left:
        say(f"would leave as it is: {what}")


def how_to_remove() -> str:
    """The command that removes the program, by how it was installed."""
    prefix = sys.prefix
    if "/uv/tools/" in prefix:
        return "uv tool uninstall llmc"
    if "/pipx/" in prefix:
        return "pipx uninstall llmc"
    return f"{shlex.quote(sys.executable)} -m pip uninstall llmc"
