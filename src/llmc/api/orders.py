"""Actions of front ends: each as a command line, and an operation that runs in a thread and returns its outcome."""

import contextlib

from llmc.api import acceptance, commenting, workers
from llmc.api.acceptance import NotAsked, Unseen, Waiting
from llmc.api.roots import Project
from llmc.api.said import BAD, GOOD, PLAIN, Act, Said, Show, command_line, failed
from llmc.api.workers import Receipt, Worker
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.text import printable, shortened


def guarded(command: str, act: Act) -> Act:
    """Wrap an operation so that an error becomes its outcome, and a front end that has gone does not end it."""

    def run(show: Show) -> Said:
        def shown(step: str) -> None:
            with contextlib.suppress(Exception):
                show(step)

        try:
            return act(shown)
        except LlmcError as error:
            return failed(command, error, now_unix())
        except Exception as error:
            return Said(command, f"unexpected error: {type(error).__name__}: {error}", now_unix(), BAD)

    return run


def message(project: Project, name: str, text: str) -> tuple[str, Act]:
    command = command_line("message", name, text)

    def act(show: Show) -> Said:
        receipt, cancelled = workers.message(project, name, text)
        return _receipt(command, receipt, f"; cancelled `llmc accept {name}`" if cancelled else "")

    return command, guarded(command, act)


def start(project: Project, name: str | None, text: str) -> tuple[str, Act]:
    chosen = ["--worker", name] if name else ["--new"]
    command = command_line("start", *chosen, "--prompt", text)

    def act(show: Show) -> Said:
        return _receipt(command, workers.start(project, text, name, None, show, new=name is None))

    return command, guarded(command, act)


def answer(project: Project, name: str, text: str, seen: str = "") -> tuple[str, Act]:
    """Answer a worker. NODE/WORKER is on another node; it gets the answer only if it still asks the question `seen`."""
    command = command_line("answer", name, text)
    node, _, worker = name.rpartition("/")

    def act(show: Show) -> Said:
        if not node:
            return _receipt(command, workers.answer(project, worker, text))
        from llmc.api import fleet_nodes  # most roots work alone

        show(f"waiting for node {node} to deliver the answer")
        return _receipt(command, fleet_nodes.answer(project, node, worker, text, seen))

    return command, guarded(command, act)


def hold(project: Project, name: str, held: bool | None = None) -> tuple[str, Act]:
    """Put a worker on hold or release it; None toggles, for a key that does both."""
    command = command_line("release" if held is False else "hold", name)

    def act(show: Show) -> Said:
        now = workers.switch_hold(project, name, held)
        if now is None:
            return Said(command, f"{name}: {'already' if held else 'not'} on hold", now_unix(), PLAIN)
        word = "on hold" if now else "released"
        return Said(command_line("hold" if now else "release", name), f"{name}: {word}", now_unix(), GOOD)

    return command, guarded(command, act)


def add(project: Project, name: str) -> tuple[str, Act]:
    command = command_line("add", name)

    def act(show: Show) -> Said:
        warnings: list[str] = []
        workers.add(project, name, Worker(), warnings.append)
        told = f"  {warnings[0]}" if warnings else ""
        return Said(command, f"added {name}{told}", now_unix(), GOOD, "\n".join(warnings))

    return command, guarded(command, act)


def accept(project: Project, name: str, commit: str, *, only_seen: bool = False) -> tuple[str, Act]:
    """Land only `commit`, which the user confirmed. `only_seen`: refuse a change other than the reviewed one."""
    command = command_line("accept", name, "--yes")

    def act(show: Show) -> Said:
        now = workers.commit_of(project, name)
        try:
            if commit and now != commit:
                raise NotAsked(name, commit, now)
            done = acceptance.accept(project, name, show, only_seen=only_seen, asked=commit)
        except (NotAsked, Unseen) as error:
            return failed(command, error, now_unix())
        except Waiting as waits:
            return Said(command, waits.message, now_unix(), PLAIN)
        branch = project.config.repo.default_branch
        if not done.commit:
            return Said(
                command, f"nothing to land: every change from {name} is already on {branch}", now_unix(), GOOD
            )
        late = (
            f" ({name} made more commits while its work was landing; they are in the trash)"
            if done.late
            else ""
        )
        return Said(command, f"{done.commit[:9]} on {branch}: {done.subject}{late}", now_unix(), GOOD)

    return command, guarded(command, act)


def undo(project: Project, target: "acceptance.Target") -> tuple[str, Act]:
    command = command_line("undo", "--yes")

    def act(show: Show) -> Said:
        show("reverting")
        done = acceptance.undo(project, target)
        return Said(
            command,
            f"reverted {done.commit[:9]}" + (f": {done.returned}" if done.returned else ""),
            now_unix(),
            GOOD,
        )

    return command, guarded(command, act)


def request(project: Project, name: str, general: str, seen: str = "") -> tuple[str, Act]:
    """Send all drafts as one request for changes. `seen`: the key of the only prompt that may be sent."""
    command = command_line("reject", name, *([general] if general else []), "--comments")

    def act(show: Show) -> Said:
        return _receipt(command, commenting.send(project, name, general, seen))

    return command, guarded(command, act)


def _receipt(command: str, receipt: Receipt, more: str = "") -> Said:
    tone = {"acknowledged": GOOD, "queued": GOOD, "refused": BAD, "unconfirmed": BAD}.get(
        str(receipt.outcome), PLAIN
    )
    reason = f": {receipt.reason}" if receipt.reason else ""
    text = f"{receipt.worker}: {receipt.outcome}{reason}{more}  {receipt.prompt_id}  {receipt.elapsed_ms} ms"
    return Said(command, text, now_unix(), tone)


def note_sign_in(project: Project, by: str) -> None:
    """Record who signed in to the web page, so that the use of a stolen link shows."""
    with project.store.transaction() as tx:
        tx.emit("web_signed_in", by=by)


def note(project: Project, worker: str, command: str, by: str) -> None:
    """Record a command from a browser, and who sent it, before it runs."""
    with project.store.transaction() as tx:
        tx.emit("web_ordered", worker=worker or None, command=shortened(printable(command), 400), by=by)
