"""`llmc accept`: what it does and prints, without click, which is slow to import.

`dispatch` runs the plain command lines; all others go to click, whose command calls `land` too.
"""

import sys

from llmc.api import acceptance, roots
from llmc.api.acceptance import CHANGED, Accepted, Progress, Unseen, Waiting
from llmc.base.text import in_line, indented
from llmc.cli.elapsed import Elapsed
from llmc.cli.output import ask, note, paint, print_json, say, say_lines

_NOT_SEEN = "the change differs from the one you reviewed"
_DOING = {
    "check": "checking the source repository",
    "merge": "squashing the work into one commit",
    "validate": "validating the commit",
    "land": "landing the commit",
    "wait": "checking whether the commit landed",
    "verify": "verifying the result",
    "reset": "resetting the worker",
}


def dispatch(argv: list[str]) -> int | None:
    """Run `accept WORKER [--json] [--yes]`; None for any other command line, or if an agent calls."""
    flags = {word for word in argv[1:] if word.startswith("-")}
    names = [word for word in argv[1:] if word not in flags]
    if len(names) != 1 or not names[0].isascii() or "/" in names[0] or not flags <= {"--json", "--yes", "-y"}:
        return None
    if roots.caller().kind is not roots.Kind.PERSON:
        return None
    try:
        land(
            roots.open_project(None),
            names[0],
            yes="--yes" in flags or "-y" in flags,
            as_json="--json" in flags,
        )
    except BrokenPipeError:
        raise
    except Exception as error:
        from llmc.cli.app import ended

        return ended(error, argv)
    return 0


def land(project: roots.Project, name: str, *, yes: bool, as_json: bool) -> None:
    """Land a worker's changes. On a terminal, ask if they differ from what the user reviewed."""
    roots.require_worker(project, name)
    progress = _progress(project, name, as_json)
    asks = not yes and not as_json and sys.stdin.isatty()
    try:
        done = _accepted(project, name, progress, asks)
    except KeyboardInterrupt:
        _say_after_stop(f"interrupted; {acceptance.after_interrupt(project, name)}")
        raise
    except Waiting as waits:
        if as_json:
            print_json({"worker": name, "commit": None, "waits": waits.message})
        else:
            say(f"{waits.message}; the daemon will check again. To check now: llmc accept {name}")
        return
    _show(done, project.config.repo.default_branch, as_json)


def _accepted(project: roots.Project, name: str, progress: Progress, asks: bool) -> Accepted:
    agreed = None
    while True:
        try:
            return acceptance.accept(project, name, progress, only_seen=asks, agreed=agreed)
        except Unseen as found:
            # Hold no lock while the user decides; then land only the change that was shown.
            say_lines(f"Author: {in_line(found.author)}\n{indented(found.commit_message)}\n", err=True)
            _ask_to_land(f"{name}: {_NOT_SEEN} (to see it: llmc review {name}). Land it anyway?")
            agreed, progress = found.lands, _progress(project, name, False, asked=True)


def _ask_to_land(question: str) -> None:
    from click import Abort  # slow to import, and needed only to ask

    try:
        ask(question, abort=True)
    except Abort:
        _say_after_stop("nothing landed")
        raise


def _say_after_stop(text: str) -> None:
    """Print a note on its own line, below the `^C` that a terminal shows."""
    if sys.stderr.isatty():
        note("")
    note(text)


def _progress(project: roots.Project, name: str, as_json: bool, *, asked: bool = False) -> Progress:
    told = {CHANGED} if asked else set()

    def progress(step: str) -> None:
        if step == CHANGED and step not in told:
            note(paint(f"  warning: {name}: {_NOT_SEEN}", "yellow", err=True))
        told.add(step)
        if not as_json and step == "validate" and not project.config.repo.validate:
            note("  skipping validation: repo.validate is not set")
        elif not as_json and step in _DOING:
            Elapsed(f"  {_DOING[step]}", keep=True).begin()

    return progress


def _show(done: Accepted, branch: str, as_json: bool) -> None:
    name, commit, subject = done.worker, done.commit, done.subject
    if as_json:
        print_json({"worker": name, "commit": commit or None, "subject": subject, "reviewed": done.reviewed})
    if done.late:
        back = f"llmc trash restore {acceptance.short(done.late)}"
        late = f"{name} made new commits while its work was landing; to restore them: {back}"
        note(paint(late, "yellow", err=True))
    if as_json:
        return
    if commit:
        say(paint(f"accepted {name}: {commit[:12]} on {branch}: {subject}", "green"))
    else:
        say(f"nothing to land: every change from {name} is already on {branch}; {name} is now idle")
