"""Validation: run [repo].validate and a task's own `verify`, on exactly what lands, in a slot or in the worktree.

A worktree has more than the commit: index bits that hide changes, and files left by commands. Neither may affect what
lands, and files left by a command are never taken for the agent's.
"""

import contextlib
import json
import shlex
import time
from pathlib import Path

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from llmc.base import proc
from llmc.base.clock import Aside, now_unix
from llmc.base.errors import Refused
from llmc.base.files import private_dir, write_atomic
from llmc.base.text import some_files
from llmc.landing import failing_base, slots
from llmc.landing.slots import NoSlot as NoSlot
from llmc.landing.slots import Slot
from llmc.records.worker import Assignment, WorkerRecord
from llmc.repo import git, provision, trash, uncommitted, user_commands
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed

#: the key of the attention item about validation
ITEM = "validation"
#: how many passed trees a slot remembers
REMEMBERED = 50


def run(project: Project, name: str, worktree: Path) -> proc.Done:
    """Run [repo].validate; the result has the end of its output. Without a command, everything passes."""
    repo = project.config.repo
    return user_commands.run_command(
        project, name, repo.validate, cwd=worktree, timeout_s=repo.validate_timeout_s
    )


def verify(project: Project, name: str, worktree: Path, task: Assignment) -> None:
    """Run the task's verify command in the worktree. Raises CommandFailed."""
    limit_s = project.config.repo.validate_timeout_s
    done = user_commands.run_command(project, name, task.verify, cwd=worktree, timeout_s=limit_s)
    if not done.ok:
        raise user_commands.failure(project, name, done, what=_of_task(task), so="nothing landed")


def _of_task(task: Assignment) -> str:
    return f"the verify command for task {task.task_id}"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one slot; invalid after the configuration of the checks changes."""

    checks: str = ""
    #: trees that passed in it, latest last
    passed: tuple[str, ...] = ()
    #: the tree of the base that failed ("?": no slot could be created), when, and how long the try took
    failed: str = ""
    failed_unix: float = 0.0
    took_s: float = 0.0


def in_slot(project: Project) -> bool:
    """Whether to validate in a slot now: it is configured, and the base itself is not known to fail there."""
    if project.config.repo.validate_in == "worktree":
        _all_is_well(project)
        return False
    known = [_recall(project, one.memory) for one in slots.every(project)]
    if any(memory.passed for memory in known):
        return True
    tried = [memory for memory in known if memory.failed]
    return all(_may_try_again(memory, now_unix()) for memory in tried)


def _may_try_again(memory: Memory, now: float) -> bool:
    """Whether to retry now: retries take at most a tenth of the time, and notice when the setup is fixed."""
    return not failing_base.is_too_soon(memory.failed_unix, memory.took_s, now, least_s=0.0)


def check_commit(
    project: Project,
    name: str,
    commit: str,
    base: str,
    *,
    worktree: Path | None,
    task: Assignment | None = None,
) -> None:
    """Run [repo].validate, then the task's `verify`, on exactly this commit. Raises CommandFailed, or NoSlot: then
    they can run in the worktree, once the commit is there.

    In their output, the slot's path is replaced by the worktree's, where the worker can find the files.
    """
    if not is_wanted(project, task):
        return
    try:
        with slots.taken(project) as slot:
            _Check(project, name, slot, worktree or slot.path).all(commit, base, task)
    except NoSlot as error:
        _say_where_it_runs(project, error)
        raise


def failing(project: Project, log: str, commit: str, command: str) -> proc.Done | None:
    """How a command fails on exactly this commit, in a slot; None: it passes. Raises NoSlot without one."""
    with slots.taken(project) as slot:
        failed = _Check(project, log, slot, slot.path).passes(commit, command, command)
    return failed.done if failed else None


def base_is_due(project: Project, base: str) -> bool:
    """Whether the default branch is known to fail and is due for another check."""
    found = project.store.read().failing_base
    return found is not None and failing_base.is_due(found, base, _fingerprint(project), now_unix())


def look_at_base(project: Project, log: str, base: str) -> None:
    """Check again whether the default branch fails. Without a slot it counts as passing; the next task will tell."""
    before = project.store.read().failing_base
    if not project.config.repo.validate or not in_slot(project):
        failing_base.forget(project)
        return
    try:
        with slots.taken(project) as slot:
            _Check(project, log, slot, slot.path).base_again(base, moved=not before or before.commit != base)
    except NoSlot:
        failing_base.forget(project)


class _Failed(Struct, frozen=True):
    """A failed command; `what` names it."""

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
        self.memory = _recall(project, slot.memory)

    def all(self, commit: str, base: str, task: Assignment | None) -> None:
        began = time.monotonic()
        try:
            if self.repo.validate:
                self._validate(commit, base)
            if task is not None and task.verify:
                failed = self.passes(commit, task.verify, _of_task(task))
                if failed is not None:
                    raise self._blame(failed)
        except NoSlot:
            if not self.memory.failed:  # the slot could not be created; delay the next try, too
                self._did_not_work("?", time.monotonic() - began)
            raise

    def _validate(self, commit: str, base: str) -> None:
        """Run [repo].validate. A failure is the worker's only if the base is known to pass."""
        failed = self.passes(commit, self.repo.validate, "validation")
        if failed is not None and not self._has_passed(base):
            if failing_base.known(self.project, base, _fingerprint(self.project)):
                raise failing_base.failure(self.project, base, failed.done)
            worked = bool(self.memory.passed)
            if self._base_passes(base):
                # The base may have passed only because of its fresh setup: retry the commit with a fresh one.
                failed = self.passes(commit, self.repo.validate, "validation")
            elif worked:
                self._note_failing(base)
                raise failing_base.failure(self.project, base, failed.done)
            else:
                raise NoSlot(
                    f"`{self.repo.validate}` fails in {self.slot.path} on {self.repo.default_branch} itself"
                )
        if failed is not None:
            raise self._blame(failed)
        self._passed(commit)

    def _blame(self, failed: _Failed) -> CommandFailed:
        return user_commands.failure(
            self.project, self.name, failed.done, what=failed.what, so="nothing landed"
        )

    def passes(self, commit: str, command: str, what: str, *, from_scratch: bool = False) -> _Failed | None:
        """Run one command on a commit; retried once after a setup. Returns the failure, None if it passed."""
        with Aside(lambda: slots.setup_inputs(self.project, commit) if self.repo.setup else "") as inputs:
            self._check_out(commit, from_scratch=from_scratch)
        ran = self._set_up(inputs.result())
        if ran is not None and not ran.ok:
            return _Failed(ran, "repo.setup")
        done = self._run(command, commit)
        if done.ok:
            return None
        if ran is None and self.repo.setup:  # it may need another setup
            self._forget_set_up()
            return self.passes(commit, command, what)
        return _Failed(done, what)

    def _check_out(self, commit: str, *, from_scratch: bool) -> None:
        if slots.check_out(self.project, self.slot, commit, from_scratch=from_scratch):
            self.memory = Memory()

    def _set_up(self, inputs: str) -> proc.Done | None:
        """Run [repo].setup if its inputs changed since the last run here; None: nothing ran."""
        if not self.repo.setup:
            return None
        ran = provision.set_up(
            self.slot, lambda: self._command(self.repo.setup, provision.SETUP_TIMEOUT_S), inputs=inputs
        )
        if ran is not None and slots.changes(self.slot):
            self._forget_set_up()  # its results are not ignored, so the next checkout removes them
        return ran

    def _forget_set_up(self) -> None:
        provision.set_up_mark(self.slot).unlink(missing_ok=True)

    def _run(self, command: str, commit: str) -> proc.Done:
        done = self._command(command, self.repo.validate_timeout_s)
        if done.ok and not slots.is_at(self.project, self.slot, commit):
            said = f"\n(llmc: the command moved HEAD away from {commit[:12]}, so llmc treats it as failed)\n"
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
        """Whether the base passes from scratch: a broken cache is not a broken base. A failure holds for a while."""
        tree = git.tree_of(self.project.root.path, base)
        memory = self.memory
        if memory.failed == tree and failing_base.is_too_soon(memory.failed_unix, memory.took_s, now_unix()):
            return False
        began = time.monotonic()
        if self.passes(base, self.repo.validate, "validation", from_scratch=True) is None:
            self._passed(base)
            return True
        _copy(self.slot.output, self.slot.base_output)
        self._did_not_work(tree, time.monotonic() - began)
        return False

    def _passed(self, commit: str) -> None:
        tree = git.tree_of(self.project.root.path, commit)
        if self.memory.passed[-1:] != (tree,):
            self.memory = _remember(self.project, self.slot.memory, _with(self.memory, tree))
        _all_is_well(self.project)
        failing_base.forget(self.project)

    def _did_not_work(self, tree: str, took_s: float) -> None:
        known = replace(self.memory, failed=tree, failed_unix=now_unix(), took_s=took_s)
        self.memory = _remember(self.project, self.slot.memory, known)

    def base_again(self, base: str, *, moved: bool) -> None:
        """Check the base again. A slot where nothing has passed cannot tell whether a new base fails."""
        worked = bool(self.memory.passed)
        if not self._base_passes(base) and (worked or not moved):
            self._note_failing(base)
        else:
            failing_base.forget(self.project)

    def _note_failing(self, base: str) -> None:
        _copy(self.slot.base_output, failing_base.output_of(self.project.root))
        failing_base.note(self.project, base, _fingerprint(self.project), self.memory.took_s)


def _say_where_it_runs(project: Project, why: NoSlot) -> None:
    text = f"llmc validates work in the workers' worktrees, not in clean checkouts: {why.message}"
    output = next((one.base_output for one in slots.every(project) if one.base_output.exists()), None)
    show = f"less {shlex.quote(str(output))}" if output else "llmc doctor"
    with project.store.transaction() as tx:
        tx.raise_item(ITEM, kind="validation", severity="notice", who="slots", text=text, next=show)


def _copy(output: Path, kept: Path) -> None:
    import shutil  # 2 ms that hardly any command needs

    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(output, kept)


def _all_is_well(project: Project) -> None:
    if ITEM in project.store.read().attention:
        with project.store.transaction() as tx:
            tx.clear_item(ITEM)


def _recall(project: Project, file: Path) -> Memory:
    try:
        memory = msgspec.json.decode(file.read_bytes(), type=Memory)
    except (OSError, msgspec.MsgspecError):
        return Memory()
    return memory if memory.checks == _fingerprint(project) else Memory()


def _with(memory: Memory, tree: str) -> Memory:
    """The memory after a tree passed; an earlier failure of the base no longer counts."""
    return Memory(passed=(*(other for other in memory.passed if other != tree), tree)[-REMEMBERED:])


def _remember(project: Project, file: Path, memory: Memory) -> Memory:
    memory = replace(memory, checks=_fingerprint(project))
    write_atomic(file, msgspec.json.encode(memory))
    return memory


def _fingerprint(project: Project) -> str:
    """A digest of what the result of a check depends on besides the commit."""
    repo = project.config.repo
    parts = [
        repo.validate,
        repo.setup,
        repo.copy,
        repo.validate_clean,
        sorted(project.config.defaults.env.items()),
    ]
    if project.config.checks != "off":
        parts.append(to_builtins(project.config.sandbox))
    from hashlib import sha256  # 4 ms, not needed without a check

    return sha256(json.dumps(parts).encode()).hexdigest()


def is_wanted(project: Project, task: Assignment | None) -> bool:
    """Whether any check is configured."""
    return bool(project.config.repo.validate or (task is not None and task.verify))


def is_apart(project: Project, task: Assignment | None) -> bool:
    """Whether checks run in a slot."""
    return is_wanted(project, task) and in_slot(project)


def checked_out(project: Project, record: WorkerRecord, commit: str, base: str) -> None:
    """Run `repo.validate` on a worker's checkout. Raises CommandFailed."""
    if is_apart(project, None):
        with contextlib.suppress(NoSlot):
            check_commit(project, record.name, commit, base, worktree=Path(record.worktree_path))
            return
    if is_wanted(project, None):
        in_worktree(project, record, commit, base)


def in_worktree(
    project: Project, record: WorkerRecord, commit: str, base: str, task: Assignment | None = None
) -> None:
    """Run the checks in the worktree, where this commit or its tree is checked out. Raises CommandFailed."""
    worktree = Path(record.worktree_path)
    root = project.root.path
    _Worktree(project, record).end_killed_try()
    if git.tree_of(root, git.head(worktree)) != git.tree_of(root, commit):
        raise Refused(
            f"cannot validate {commit[:12]} in {record.name}'s worktree: another commit is checked out",
            hint="Run the command again.",
        )
    refuse_hidden_changes(record)
    before = uncommitted.tree_state(worktree)
    try:
        done = run(project, record.name, worktree)
        if done.ok and task is not None:
            verify(project, record.name, worktree, task)
    finally:
        clear_away(project, record, before)
    if not done.ok and not _Worktree(project, record).base_passes(base):
        raise failing_base.failure(project, base, done)
    if not done.ok:
        raise user_commands.failure(project, record.name, done, what="validation", so="nothing landed")
    if project.config.repo.validate:
        _Worktree(project, record).passed(commit)


class _Worktree:
    """What is known about validation in worktrees; checks the base in this one."""

    def __init__(self, project: Project, record: WorkerRecord) -> None:
        self.project = project
        self.record = record
        self.path = Path(record.worktree_path)
        self.file = project.root.slots / "worktrees.json"
        self.memory = _recall(project, self.file)
        #: exists while the base's files are in the worktree; names the HEAD there
        self.tried = git.llmc_file(self.path, "llmc-base-tried")

    def passed(self, commit: str) -> None:
        tree = git.tree_of(self.project.root.path, commit)
        if self.memory.passed[-1:] != (tree,):
            private_dir(self.project.root.slots)
            _remember(self.project, self.file, _with(self.memory, tree))
        failing_base.forget(self.project)

    def base_passes(self, base: str) -> bool:
        """Whether the base passes, checked once per commit; one that cannot be checked out counts as passing."""
        checks = _fingerprint(self.project)
        if git.tree_of(self.project.root.path, base) in self.memory.passed:
            return True
        if failing_base.known(self.project, base, checks):
            return False
        began = time.monotonic()
        done = self._try(base)
        if done is None or done.ok:
            if done is not None:
                self.passed(base)
            return True
        private_dir(self.project.root.slots)
        write_atomic(failing_base.output_of(self.project.root), done.stdout.encode(errors="replace"))
        failing_base.note(self.project, base, checks, time.monotonic() - began)
        return False

    def _try(self, base: str) -> proc.Done | None:
        """Validate the base's files. HEAD stays: after a kill they are changes, which `end_killed_try` clears away."""
        before = uncommitted.tree_state(self.path)
        git.git(self.path, "update-index", "-q", "--refresh", check=False, timeout_s=600)
        if not before.clean:
            return None
        write_atomic(self.tried, (before.head or "").encode())
        try:
            return run(self.project, self.record.name, self.path) if self._read("-m", "HEAD", base) else None
        finally:
            self._read("--reset", "HEAD")
            clear_away(self.project, self.record, before)
            self.tried.unlink(missing_ok=True)

    def end_killed_try(self) -> None:
        """Move what a killed `_try` left in the worktree to the trash, unless the worker has made a commit since."""
        if not self.tried.exists():
            return
        head = git.head(self.path)
        if self.tried.read_text() == head:
            clear_away(self.project, self.record, uncommitted.TreeState((), (), head=head))
        self.tried.unlink(missing_ok=True)

    def _read(self, *args: str) -> bool:
        return git.git(self.path, "read-tree", "-u", *args, check=False, timeout_s=600).ok


def refuse_hidden_changes(record: WorkerRecord) -> None:
    """Make git check all files again; Refused if a file marked as unchanged differs from the commit."""
    worktree = Path(record.worktree_path)
    hidden = uncommitted.hidden_files(worktree)
    if not hidden:
        return
    uncommitted.unhide(worktree, hidden)
    changed = uncommitted.tree_state(worktree, untracked=False).tracked
    if changed:
        raise Refused(
            f"{record.name} has uncommitted changes hidden by assume-unchanged or skip-worktree: {some_files(changed)}",
            hint=f"Run `llmc message {record.name} 'Commit or restore these files.'`. "
            "Then run the command again.",
        )


def clear_away(project: Project, record: WorkerRecord, before: uncommitted.TreeState) -> str | None:
    """Move new and changed files of a worktree to the trash; returns the ref, or None if there were none."""
    worktree = Path(record.worktree_path)
    after = uncommitted.tree_state(worktree)
    changed = [name for name in after.tracked if name not in before.tracked]
    new = [name for name in after.untracked if name not in before.untracked]
    if (not changed and not new) or after.head != before.head:
        return None  # or a commit was made in the meantime: then it is unknown whose files they are
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
        exactly = git.nul_separated(f":(literal){name}" for name in names)
        flags = ["--source=HEAD", "--staged", "--worktree", "--pathspec-from-file=-", "--pathspec-file-nul"]
        git.git(worktree, "restore", "--quiet", *flags, input=exactly, timeout_s=300)
