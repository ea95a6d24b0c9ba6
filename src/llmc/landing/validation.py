"""Validation: [repo].validate and a task's own `verify`, on exactly what lands in a slot, or in the worker's worktree.

In the worktree more is there than the commit: index bits that hide changes, and files that a command leaves behind.
Neither may decide what lands, and what a command left is never taken for the agent's.
"""

import contextlib
import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from llmc.base import proc
from llmc.base.aside import Aside
from llmc.base.clock import now_unix
from llmc.base.errors import Refused
from llmc.base.files import write_atomic
from llmc.base.text import some_files
from llmc.landing import slots
from llmc.landing.slots import NoSlot, Slot
from llmc.records.worker import Assignment, WorkerRecord
from llmc.repo import git, provision, trash, user_commands
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed

__all__ = ["NoSlot", "check_commit", "failing", "failure", "in_slot", "run", "validate", "verify"]

#: the item of the attention list that is about all this
ITEM = "validation"
#: where no slot passes the check on the base, this much longer than that try took is waited before the next
PATIENCE = 10.0
#: how many trees a slot remembers that passed in it
REMEMBERED = 50


def validate(project: Project, name: str, worktree: Path, *, so: str = "nothing landed") -> None:
    """Run it in the worktree, with its output in the worker's log; `so` ends the message of a failure."""
    done = run(project, name, worktree)
    if not done.ok:
        raise failure(project, name, done, so=so)


def run(project: Project, name: str, worktree: Path) -> proc.Done:
    """How it ended, with the end of its output; without a command everything is valid."""
    repo = project.config.repo
    return user_commands.run_command(
        project, name, repo.validate, cwd=worktree, timeout_s=repo.validate_timeout_s
    )


def verify(project: Project, name: str, worktree: Path, task: Assignment) -> None:
    """The task's own acceptance command, in the worktree."""
    limit_s = project.config.repo.validate_timeout_s
    done = user_commands.run_command(project, name, task.verify, cwd=worktree, timeout_s=limit_s)
    if not done.ok:
        raise user_commands.failure(project, name, done, what=_of_task(task), so="nothing landed")


def failure(project: Project, name: str, done: proc.Done, *, so: str) -> CommandFailed:
    return user_commands.failure(project, name, done, what="validation", so=so)


def _of_task(task: Assignment) -> str:
    return f"verify of task {task.task_id}"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one slot; void when the configuration of the checks changes."""

    checks: str = ""
    #: trees that passed in it, newest last
    passed: tuple[str, ...] = ()
    #: the base that did not, when that was, and how long the try took
    failed: str = ""
    failed_unix: float = 0.0
    took_s: float = 0.0


def in_slot(project: Project) -> bool:
    """Whether what lands is validated in a slot now: wanted, and not known to fail there on the base itself."""
    if project.config.repo.validate_in == "worktree":
        _all_is_well(project)
        return False
    known = [_recall(project, one) for one in slots.every(project)]
    if any(memory.passed for memory in known):
        return True
    tried = [memory for memory in known if memory.failed]
    return all(_may_try_again(memory, now_unix()) for memory in tried)


def _may_try_again(memory: Memory, now: float) -> bool:
    """A set-up that lacks something costs a tenth of the time at most, and is noticed when it is complete."""
    return not 0 <= now - memory.failed_unix < PATIENCE * memory.took_s


def check_commit(
    project: Project,
    name: str,
    commit: str,
    base: str,
    *,
    worktree: Path | None,
    task: Assignment | None = None,
) -> None:
    """[repo].validate, then the task's `verify`, on exactly this commit; CommandFailed, or NoSlot.

    In what they print, the slot's path reads as the worktree's, where a worker can look for it.
    """
    if not project.config.repo.validate and not (task and task.verify):
        return
    try:
        with slots.taken(project) as slot:
            _Check(project, name, slot, worktree or slot.path).all(commit, base, task)
    except NoSlot as error:
        _say_where_it_runs(project, error)
        raise


def failing(project: Project, log: str, commit: str, command: str) -> proc.Done | None:
    """How a command fails on exactly this commit, in a slot; None: it passes. NoSlot where there is no slot."""
    with slots.taken(project) as slot:
        failed = _Check(project, log, slot, slot.path).alone(commit, command)
    return failed.done if failed else None


class _Failed(Struct, frozen=True):
    """A command that did not pass; `what` names it."""

    done: proc.Done
    what: str


class _Check:
    """One check in one slot, whose lock is held."""

    def __init__(self, project: Project, name: str, slot: Slot, shown_as: Path) -> None:
        self.project = project
        self.repo = project.config.repo
        self.name = name
        self.slot = slot
        self.shown_as = shown_as
        self.memory = _recall(project, slot)

    def all(self, commit: str, base: str, task: Assignment | None) -> None:
        began = time.monotonic()
        try:
            if self.repo.validate:
                self._validate(commit, base)
            if task is not None and task.verify:
                failed = self._passes(commit, task.verify, _of_task(task))
                if failed is not None:
                    raise self._blame(failed)
        except NoSlot:
            if not self.memory.failed:  # it could not even be made; the next try waits as well
                self._did_not_work("?", time.monotonic() - began)
            raise

    def alone(self, commit: str, command: str) -> _Failed | None:
        return self._passes(commit, command, command)

    def _validate(self, commit: str, base: str) -> None:
        """[repo].validate. A worker is blamed only where the base is known to pass, or known to fail for itself."""
        failed = self._passes(commit, self.repo.validate, "validation")
        if failed is not None and not self._has_passed(base):
            worked = bool(self.memory.passed)
            if self._base_passes(base):
                # It may have passed only because it was set up from nothing: then so is the commit, once more.
                failed = self._passes(commit, self.repo.validate, "validation")
            elif worked:
                self._say_that_the_base_fails(base)
                raise self._blame(failed, f"; it fails on {self.repo.default_branch} itself, too")
            else:
                raise NoSlot(
                    f"`{self.repo.validate}` fails in {self.slot.path} on {self.repo.default_branch} itself"
                )
        if failed is not None:
            raise self._blame(failed)
        self._passed(commit)

    def _blame(self, failed: _Failed, more: str = "") -> CommandFailed:
        so = f"nothing landed{more}"
        return user_commands.failure(self.project, self.name, failed.done, what=failed.what, so=so)

    def _passes(self, commit: str, command: str, what: str, *, anew: bool = False) -> _Failed | None:
        """Run one command on a commit; a failure is repeated once after a set-up. How it failed, None when it did not."""
        with Aside(lambda: slots.setup_inputs(self.project, commit) if self.repo.setup else "") as inputs:
            self._check_out(commit, anew=anew)
        ran = self._set_up(inputs.result())
        if ran is not None and not ran.ok:
            return _Failed(ran, "[repo].setup")
        done = self._run(command, commit)
        if done.ok:
            return None
        if ran is None and self.repo.setup:  # it may need what another set-up brings
            self._forget_set_up()
            return self._passes(commit, command, what)
        return _Failed(done, what)

    def _check_out(self, commit: str, *, anew: bool) -> None:
        if slots.check_out(self.project, self.slot, commit, anew=anew):
            self.memory = Memory()

    def _set_up(self, inputs: str) -> proc.Done | None:
        """[repo].setup, where its inputs are others than the last time here; None: nothing ran."""
        if not self.repo.setup:
            return None
        ran = provision.set_up(
            self.slot, lambda: self._command(self.repo.setup, provision.SETUP_TIMEOUT_S), inputs=inputs
        )
        if ran is not None and slots.changes(self.slot):
            self._forget_set_up()  # what it made is not ignored, so it goes with the next checkout
        return ran

    def _forget_set_up(self) -> None:
        provision.set_up_mark(self.slot).unlink(missing_ok=True)

    def _run(self, command: str, commit: str) -> proc.Done:
        done = self._command(command, self.repo.validate_timeout_s)
        if done.ok and not slots.is_at(self.project, self.slot, commit):
            said = f"\n(llmc: it moved HEAD away from {commit[:12]}, so it says nothing about that commit)\n"
            return proc.Done(done.argv, 1, done.stdout + said, "")
        return done

    def _command(self, command: str, timeout_s: float) -> proc.Done:
        return user_commands.run_in_slot(
            self.project,
            self.name,
            command,
            slot=self.slot.path,
            output=self.slot.output,
            shown_as=self.shown_as,
            timeout_s=timeout_s,
        )

    def _has_passed(self, commit: str) -> bool:
        return git.tree_of(self.project.root.path, commit) in self.memory.passed

    def _base_passes(self, base: str) -> bool:
        """Tried once for each tree, from nothing: a cache that went bad must not look like a bad base."""
        import shutil  # 2 ms that hardly any command needs

        tree = git.tree_of(self.project.root.path, base)
        if self.memory.failed == tree:
            return False
        began = time.monotonic()
        if self._passes(base, self.repo.validate, "validation", anew=True) is None:
            self._passed(base)
            return True
        shutil.copyfile(self.slot.output, self.slot.base_output)
        self._did_not_work(tree, time.monotonic() - began)
        return False

    def _passed(self, commit: str) -> None:
        tree = git.tree_of(self.project.root.path, commit)
        if self.memory.passed[-1:] != (tree,):
            kept = (*(other for other in self.memory.passed if other != tree), tree)[-REMEMBERED:]
            self._remember(Memory(passed=kept))
        _all_is_well(self.project)

    def _did_not_work(self, tree: str, took_s: float) -> None:
        self._remember(replace(self.memory, failed=tree, failed_unix=now_unix(), took_s=took_s))

    def _remember(self, memory: Memory) -> None:
        self.memory = replace(memory, checks=_fingerprint(self.project))
        write_atomic(self.slot.memory, msgspec.json.encode(self.memory))

    def _say_that_the_base_fails(self, base: str) -> None:
        branch = self.repo.default_branch
        text = f"`{self.repo.validate}` fails on {branch} itself ({base[:12]}): no work can pass it"
        show = f"less {shlex.quote(str(self.slot.base_output))}"
        with self.project.store.transaction() as tx:
            tx.raise_item(ITEM, kind="validation", severity="waiting", who=branch, text=text, next=show)


def _say_where_it_runs(project: Project, why: NoSlot) -> None:
    text = f"work is validated in the workers' worktrees: {why.message}"
    output = next((one.base_output for one in slots.every(project) if one.base_output.exists()), None)
    show = f"less {shlex.quote(str(output))}" if output else "llmc doctor"
    with project.store.transaction() as tx:
        tx.raise_item(ITEM, kind="validation", severity="notice", who="slots", text=text, next=show)


def _all_is_well(project: Project) -> None:
    if ITEM in project.store.read().attention:
        with project.store.transaction() as tx:
            tx.clear_item(ITEM)


def _recall(project: Project, one: Slot) -> Memory:
    try:
        memory = msgspec.json.decode(one.memory.read_bytes(), type=Memory)
    except (OSError, msgspec.MsgspecError):
        return Memory()
    return memory if memory.checks == _fingerprint(project) else Memory()


def _fingerprint(project: Project) -> str:
    """What a check's answer depends on besides the commit."""
    repo = project.config.repo
    parts = [
        repo.validate,
        repo.setup,
        repo.copy,
        repo.validate_clean,
        sorted(project.config.defaults.env.items()),
    ]
    from hashlib import sha256  # 4 ms that an accept without a check does not need

    return sha256(json.dumps(parts).encode()).hexdigest()


def is_wanted(project: Project, task: Assignment | None) -> bool:
    """Whether any command has to pass."""
    return bool(project.config.repo.validate or (task is not None and task.verify))


def is_apart(project: Project, task: Assignment | None) -> bool:
    """Whether they run where no agent works."""
    if not is_wanted(project, task):
        return False
    # a project without a check need not wait for this

    return in_slot(project)


def checked_out(project: Project, record: WorkerRecord, commit: str, base: str) -> None:
    """`repo.validate` on what a worker has checked out. Raises CommandFailed."""
    from llmc.landing.slots import NoSlot

    if is_apart(project, None):
        with contextlib.suppress(NoSlot):
            check_in_slot(project, record, commit, base)
            return
    if is_wanted(project, None):
        in_worktree(project, record, commit)


def check_in_slot(
    project: Project, record: WorkerRecord, commit: str, base: str, task: Assignment | None = None
) -> None:
    """Raises CommandFailed; or NoSlot, and then they can run in the worktree, once the commit is there."""

    worktree = Path(record.worktree_path)
    check_commit(project, record.name, commit, base, worktree=worktree, task=task)


def in_worktree(project: Project, record: WorkerRecord, commit: str, task: Assignment | None = None) -> None:
    """Raises CommandFailed. The commit, or one with the same tree, is checked out there."""
    worktree = Path(record.worktree_path)
    if git.tree_of(worktree, "HEAD") != git.tree_of(worktree, commit):
        raise Refused(
            f"{record.name} does not have {commit[:12]} checked out, so it cannot be validated there",
            hint="Try again.",
        )

    refuse_hidden_changes(record)
    with _leaving_nothing(project, record, worktree):
        validate(project, record.name, worktree)
        if task is not None:
            verify(project, record.name, worktree, task)


def refuse_hidden_changes(record: WorkerRecord) -> None:
    """Git looks at all files again; Refused where one that it was told to overlook differs from the commit."""
    worktree = Path(record.worktree_path)
    hidden = _hidden(worktree)
    if not hidden:
        return
    names = "".join(f"{name}\0" for name in hidden).encode("utf-8", "surrogateescape")
    for bit in ("--no-skip-worktree", "--no-assume-unchanged"):  # one at a time: git takes only the last
        git.git(worktree, "update-index", bit, "-z", "--stdin", input=names, timeout_s=300)
    changed = git.tree_state(worktree, untracked=False).tracked
    if changed:
        raise Refused(
            f"{record.name} has uncommitted changes that git was told to overlook: {some_files(changed)}",
            hint=f"Ask for a commit: llmc message {record.name} 'Commit these files, or restore them.'",
        )


def _hidden(worktree: Path) -> list[str]:
    """Files marked `skip-worktree` (S) or `assume-unchanged` (a small letter)."""
    rows = git.git(worktree, "ls-files", "-v", "-z", timeout_s=300).stdout.split("\0")
    return [row[2:] for row in rows if row and (row[0] == "S" or row[0].islower())]


@contextmanager
def _leaving_nothing(project: Project, record: WorkerRecord, worktree: Path) -> Iterator[None]:
    before = git.tree_state(worktree)
    try:
        yield
    finally:
        clear_away(project, record, before)


def clear_away(project: Project, record: WorkerRecord, before: git.TreeState) -> str | None:
    """What is in a worktree now and was not before goes into the trash; the ref it is under, None: nothing."""
    worktree = Path(record.worktree_path)
    after = git.tree_state(worktree)
    changed = [name for name in after.tracked if name not in before.tracked]
    new = [name for name in after.untracked if name not in before.untracked]
    if (not changed and not new) or after.head != before.head:
        return None  # or somebody has committed meanwhile: then nobody can tell whose it is
    if changed:
        ref = trash.pin(project.root, worktree, record.name, "validation", move_out=False)
    else:
        ref = trash.pin_commit(project.root, record.name, "validation", git.head(worktree))
    trash.take_out(worktree, new, trash.folder_of(project.root, ref))
    _restore(worktree, changed)
    with project.store.transaction() as tx:
        tx.emit("validation_left", worker=record.name, files=[*changed, *new][:20], ref=ref)
    return ref


def _restore(worktree: Path, names: list[str]) -> None:
    if names:
        exactly = "".join(f":(literal){name}\0" for name in names).encode("utf-8", "surrogateescape")
        flags = ["--source=HEAD", "--staged", "--worktree", "--pathspec-from-file=-", "--pathspec-file-nul"]
        git.git(worktree, "restore", "--quiet", *flags, input=exactly, timeout_s=300)
