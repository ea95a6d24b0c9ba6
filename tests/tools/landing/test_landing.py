"""Landing: a fast-forward of the source's branch, which never touches the user's uncommitted changes."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.base import locks
from llmc.base.errors import LlmcError, Refused
from llmc.landing import default_branch, validation
from llmc.landing.accept import accept
from llmc.landing.accept_journal import Cancelled, WorkChanged
from llmc.landing.default_branch import BaseMoved, SourceBusy
from llmc.records.transitions import step
from llmc.records.worker import AcceptJournal, Status
from llmc.repo import provision
from llmc.repo.project import Project
from llmc.sessions.rules.decide import FOUND_COMMITS
from tests.support.repos import (
    Mold,
    Repo,
    Worktree,
    add_worker,
    make_project,
    project_at,
    run_git,
    snapshot,
)


class Scene:
    """A source, a root on it, and a worker with one commit to land."""

    def __init__(
        self, source: Repo, project: Project, change: tuple[str, str] = ("new.txt", "new\n")
    ) -> None:
        self.source = source
        self.project = project
        _, self.worktree = add_worker(project)
        self.base = provision.refresh_base(project)
        self.commit = self.worktree.commit(*change)

    def land(self) -> None:
        default_branch.land(self.project, "w1", self.commit, self.base)

    def tip(self) -> str:
        return self.source.head("refs/heads/main")

    def look(self) -> object:
        """Everything in the source that the user could notice."""
        state = self.source.git("status", "--porcelain=v1", "-uall", "--ignored", check=False)
        return (
            self.tip(),
            self.source.git("symbolic-ref", "-q", "HEAD", check=False),
            state,
            snapshot(self.source.path),
        )


def make_source(path: Path) -> Repo:
    source = Repo(path)
    source.commit(".gitignore", "*.cache\n")
    source.commit("a.txt", "a\n")
    return source


def make(place: Path) -> None:
    make_project(str(make_source(place / "my src").path), place / "root")


@pytest.fixture
def tmp_path(mold: Mold) -> Path:
    """With a source and a root in it."""
    return mold.place(make)


@pytest.fixture
def source(tmp_path: Path) -> Repo:
    return Worktree(tmp_path / "my src")


def scene_on(source: Repo, tmp_path: Path, **options: tuple[str, str]) -> Scene:
    return Scene(source, project_at(tmp_path / "root"), **options)


@pytest.mark.req("1-113")
def test_checked_out_and_clean(source: Repo, tmp_path: Path) -> None:
    """The branch, the index and the files move together; the user's other files stay."""
    scene = scene_on(source, tmp_path)
    source.write("notes.txt", "mine\n")
    source.write("big.cache", "mine\n")
    assert not default_branch.is_landed(scene.project, scene.commit)
    scene.land()
    assert scene.tip() == scene.commit
    assert (source.path / "new.txt").read_text() == "new\n"
    assert source.git("status", "--porcelain=v1") == "?? notes.txt"
    assert (source.path / "big.cache").read_text() == "mine\n"
    assert not (source.path / ".git/FETCH_HEAD").exists()
    assert default_branch.is_landed(scene.project, scene.commit)


def test_landing_again_is_not_a_landing(source: Repo, tmp_path: Path) -> None:
    """Breaks when the base is not compared: work validated on another base would land unchecked."""
    scene = scene_on(source, tmp_path)
    scene.land()
    before = scene.look()
    with pytest.raises(BaseMoved):
        scene.land()
    assert scene.look() == before
    source.commit("after.txt")
    assert default_branch.is_landed(scene.project, scene.commit)


@pytest.mark.req("1-113")
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("file", ["a.txt", "other.txt"])
def test_uncommitted_changes_are_not_touched(source: Repo, tmp_path: Path, file: str, staged: bool) -> None:
    """Breaks when check_source does not check: a merge would go through beside the user's changes."""
    source.commit("other.txt", "other\n")
    scene = scene_on(source, tmp_path, change=("a.txt", "landed\n"))
    source.write(file, "half done\n")
    if staged:
        source.git("add", file)
    before = scene.look()
    with pytest.raises(SourceBusy, match=file):
        default_branch.check_source(scene.project)
    with pytest.raises(SourceBusy, match=file):
        scene.land()
    assert scene.look() == before


@pytest.mark.parametrize("name", ["new.txt", "new.cache"])
def test_a_file_in_the_way_is_not_overwritten(source: Repo, tmp_path: Path, name: str) -> None:
    """Breaks without --no-overwrite-ignore: an ignored file would be replaced silently."""
    scene = scene_on(source, tmp_path, change=(name, "landed\n"))
    source.write(name, "a person's only copy\n")
    before = scene.look()
    default_branch.check_source(scene.project)
    with pytest.raises(SourceBusy, match="refused to fast-forward"):
        scene.land()
    assert scene.look() == before
    (source.path / name).unlink()
    scene.land()
    assert scene.tip() == scene.commit


@pytest.mark.parametrize("operation", ["merge", "cherry-pick", "rebase"])
def test_an_operation_in_progress(source: Repo, tmp_path: Path, operation: str) -> None:
    """Breaks when a rebase, which detaches HEAD, hides that the branch is in use."""
    scene = scene_on(source, tmp_path)
    source.git("checkout", "-q", "-b", "other", "HEAD~1")
    source.commit("a.txt", "theirs\n")
    source.git("checkout", "-q", "main")
    source.git(operation, "other", check=False)
    before = scene.look()
    with pytest.raises(SourceBusy, match=operation):
        default_branch.check_source(scene.project)
    with pytest.raises(SourceBusy, match=operation):
        scene.land()
    assert scene.look() == before


def test_checked_out_in_another_worktree_of_the_source(source: Repo, tmp_path: Path) -> None:
    scene = scene_on(source, tmp_path)
    source.git("checkout", "-q", "-b", "feature")
    source.git("worktree", "add", "-q", str(tmp_path / "second"), "main")
    source.write("a.txt", "half done on a feature\n")
    second = Worktree(tmp_path / "second")
    scene.land()
    assert scene.tip() == scene.commit
    assert (second.path / "new.txt").exists()
    assert second.git("status", "--porcelain=v1") == ""
    assert not (source.path / "new.txt").exists()
    assert (source.path / "a.txt").read_text() == "half done on a feature\n"


@pytest.mark.req("1-113")
def test_not_checked_out(source: Repo, tmp_path: Path) -> None:
    """Breaks when the branch is checked out to land: the user's branch and files must stay."""
    scene = scene_on(source, tmp_path)
    source.git("checkout", "-q", "-b", "feature")
    source.write("a.txt", "half done\n")
    before = snapshot(source.path)
    default_branch.check_source(scene.project)
    scene.land()
    assert scene.tip() == scene.commit
    assert snapshot(source.path) == before
    assert source.git("symbolic-ref", "--short", "HEAD") == "feature"


def test_a_bare_source(source: Repo, tmp_path: Path) -> None:
    bare = Repo(tmp_path / "bare.git", bare=True)
    source.git("push", "-q", str(bare.path), "main")
    scene = Scene(bare, make_project(str(bare.path), tmp_path / "bare-root"))
    scene.land()
    assert scene.tip() == scene.commit
    assert default_branch.is_landed(scene.project, scene.commit)


@pytest.fixture
def remote(source: Repo, tmp_path: Path) -> Scene:
    """A source that is a URL: llmc cannot inspect it, it can only push."""
    bare = Repo(tmp_path / "remote.git", bare=True)
    source.git("push", "-q", str(bare.path), "main")
    return Scene(bare, make_project(f"file://{bare.path}", tmp_path / "other-root"))


@pytest.mark.req("1-035")
def test_a_remote(remote: Scene) -> None:
    default_branch.check_source(remote.project)
    remote.land()
    assert remote.tip() == remote.commit
    assert default_branch.is_landed(remote.project, remote.commit)


def test_a_remote_that_moved_meanwhile(remote: Scene, source: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a rejected push is not told from a failed one: it would not rebase and retry."""
    push = default_branch._push

    def somebody_is_faster(project: Project, commit: str, branch: str) -> None:
        source.commit("faster.txt")
        source.git("push", "-q", str(remote.source.path), "main")
        push(project, commit, branch)

    monkeypatch.setattr(default_branch, "_push", somebody_is_faster)
    with pytest.raises(BaseMoved):
        remote.land()
    assert remote.tip() == source.head()


def test_a_remote_that_refuses(remote: Scene) -> None:
    """Breaks when every rejection counts as a moved base: it would retry forever."""
    hook = remote.source.path / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not on a Friday >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(SourceBusy, match="not on a Friday"):
        remote.land()
    assert remote.tip() == remote.base


@pytest.mark.req("1-113")
@pytest.mark.parametrize("kind", ["checked out", "not checked out"])
def test_a_branch_that_moved(source: Repo, tmp_path: Path, kind: str) -> None:
    """Stopped twice: by the comparison of the base, and by git, which only fast-forwards."""
    scene = scene_on(source, tmp_path)
    moved = source.commit("faster.txt")
    if kind == "not checked out":
        source.git("checkout", "-q", "--detach")
    before = scene.look()
    with pytest.raises(BaseMoved):
        scene.land()
    assert scene.look() == before
    assert scene.tip() == moved


@pytest.mark.parametrize("kind", ["checked out", "not checked out"])
def test_a_branch_that_moves_at_the_last_moment(
    source: Repo, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when the move is not a fast-forward, or its refusal is mistaken for a user's file in the way."""
    scene = scene_on(source, tmp_path)
    if kind == "not checked out":
        source.git("checkout", "-q", "-b", "feature")
    checkout = default_branch._checkout

    def somebody_is_faster(project: Project) -> Path | None:
        if scene.tip() == scene.base:
            faster = run_git(source.path, "commit-tree", "main^{tree}", "-p", "main", "-m", "faster")
            if kind == "checked out":
                source.git("merge", "-q", "--ff-only", faster)
            else:
                source.git("update-ref", "refs/heads/main", faster)
        return checkout(project)

    monkeypatch.setattr(default_branch, "_checkout", somebody_is_faster)
    with pytest.raises(BaseMoved):
        scene.land()
    assert source.git("log", "-1", "--format=%s", "main") == "faster"


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_new_branch_never_moves_one_that_is_there(
    source: Repo, remote: Scene, tmp_path: Path, kind: str
) -> None:
    """Breaks without the lease, or with a forced fetch: the user's branch would be replaced."""
    scene = remote if kind == "remote" else Scene(source, make_project(str(source.path), tmp_path / "local"))
    scene.source.git("branch", "taken", "main")
    run_git(scene.project.root.path, "update-ref", "refs/llmc/pick/w1", scene.commit)
    default_branch.make_branch(scene.project, "refs/llmc/pick/w1", scene.commit, "llmc-pick/w1")
    assert scene.source.head("refs/heads/llmc-pick/w1") == scene.commit
    with pytest.raises(Refused, match="branch taken: it already exists"):
        default_branch.make_branch(scene.project, "refs/llmc/pick/w1", scene.commit, "taken")
    assert scene.source.head("refs/heads/taken") == scene.base


def waiting(source: Repo, tmp_path: Path) -> Scene:
    """Its worker waits for review, and the commit that lands is not its own."""
    scene = scene_on(source, tmp_path)
    with scene.project.store.transaction() as tx:
        tx.move("w1", step(Status.NEEDS_REVIEW, FOUND_COMMITS, commit_sha=scene.commit))
    source.commit("b.txt", "b\n")
    return scene


def test_an_accept_that_does_not_know_whether_it_landed_finds_out(
    source: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost after the source took it.

    Break: end the accept, as for any other failure; its task would be done again.
    """
    scene = waiting(source, tmp_path)
    land, reset = default_branch.land, provision.reset_in_place

    def cut_off(*args: Any, **options: Any) -> None:
        land(*args, **options)
        raise LlmcError("the connection was lost")

    monkeypatch.setattr(default_branch, "land", cut_off)
    with scene.project.worker_lock("w1"), pytest.raises(LlmcError, match="connection was lost"):
        accept(scene.project, "w1")
    journal = scene.project.store.worker("w1").accept
    assert journal is not None
    assert journal.step == "land"
    landed = scene.tip()
    monkeypatch.setattr(default_branch, "land", land)

    def no_space(*_: Any) -> None:
        raise LlmcError("no space left")

    # Whatever fails after it has landed: the accept stays, and its end says what landed.
    monkeypatch.setattr(provision, "reset_in_place", no_space)
    with scene.project.worker_lock("w1"), pytest.raises(LlmcError, match="no space left"):
        accept(scene.project, "w1")
    journal = scene.project.store.worker("w1").accept
    assert journal is not None
    assert (journal.step, journal.squash) == ("reset", landed)
    monkeypatch.setattr(provision, "reset_in_place", reset)
    with scene.project.worker_lock("w1"):
        assert accept(scene.project, "w1").commit == landed
    assert (scene.tip(), scene.project.store.worker("w1").accept) == (landed, None)


def test_what_is_not_on_the_branch_has_not_landed(
    source: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: reset the worker without checking the branch; or land before the journal says so."""
    scene = waiting(source, tmp_path)
    before, steps = scene.tip(), list[str]()

    def only_says_so(project: Project, worker: str, *_: Any, **__: Any) -> None:
        journal = project.store.worker(worker).accept
        steps.append(journal.step if journal else "")

    with monkeypatch.context() as patched, scene.project.worker_lock("w1"):
        patched.setattr(default_branch, "land", only_says_so)
        with pytest.raises(LlmcError, match="landed but is no longer on the default branch"):
            accept(scene.project, "w1")
    assert steps == ["land"], "after a crash here it may have landed"
    assert (scene.tip(), scene.worktree.head()) == (before, scene.commit)
    with scene.project.worker_lock("w1"):
        landed = accept(scene.project, "w1").commit
    assert scene.tip() == landed != before


def test_a_commit_made_while_it_waits_for_its_turn_to_land(
    source: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: check the worker only before that; its commit would be left behind."""
    scene = waiting(source, tmp_path)
    before, turn = scene.tip(), default_branch.merge_lock

    def commits_meanwhile(project: Project) -> AbstractContextManager[None]:
        scene.worktree.commit("late.txt", "late\n")
        return turn(project)

    monkeypatch.setattr(default_branch, "merge_lock", commits_meanwhile)
    with (
        scene.project.worker_lock("w1"),
        pytest.raises(WorkChanged, match=r"made commit .* while its work was being accepted"),
    ):
        accept(scene.project, "w1")
    assert (scene.tip(), scene.project.store.worker("w1").accept) == (before, None)
    assert (scene.worktree.path / "late.txt").exists()


def test_only_work_that_waits_for_review_follows_the_branch(source: Repo, tmp_path: Path) -> None:
    """Break: also rebase a worker that is being accepted; its accept would find a commit it did not take."""
    scene = waiting(source, tmp_path)
    for name in ("w2", "w3"):
        _, worktree = add_worker(scene.project, name)
        commit = worktree.commit(f"{name}.txt", "x\n")
        with scene.project.store.transaction() as tx:
            tx.move(name, step(Status.NEEDS_REVIEW, FOUND_COMMITS, commit_sha=commit))
            if name == "w3":
                tx.update(name, accept=AcceptJournal(step="validate", started_unix=1.0, tip=commit))
    with scene.project.worker_lock("w1"):
        accept(scene.project, "w1")
    due = {name: record.rebase_due for name, record in scene.project.store.read().workers.items()}
    assert due == {"w1": False, "w2": True, "w3": False}


def validating(project: Project) -> Project:
    repo = replace(project.config.repo, validate="true")
    return replace(project, config=replace(project.config, repo=repo))


def test_after_a_lost_race_no_other_work_lands_before_this(
    source: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even after a kill.

    Break: validate without the ticket the second time, too; others could always land first.
    """
    scene = waiting(source, tmp_path)
    project, land = validating(scene.project), default_branch.land
    goes_first: list[bool] = []

    def checked(*_: Any, **__: Any) -> None:
        goes_first.append(locks.is_locked(project.root.lock("ticket")))
        if len(goes_first) == 2:
            raise SystemExit  # killed

    def lands_the_second_time(*args: Any, **options: Any) -> None:
        if len(goes_first) == 1:
            source.commit("theirs.txt", "theirs\n")
            raise BaseMoved
        land(*args, **options)

    monkeypatch.setattr(validation, "check_commit", checked)
    monkeypatch.setattr(default_branch, "land", lands_the_second_time)
    with project.worker_lock("w1"), pytest.raises(SystemExit):
        accept(project, "w1")
    with project.worker_lock("w1"):
        accept(project, "w1")
    assert goes_first == [False, True, True]


def test_an_accept_that_was_replaced_while_it_validated_lands_nothing(
    source: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message ended it, and the state has a newer one. Break: check only for a journal, not whose it is."""
    scene = waiting(source, tmp_path)
    project, before = validating(scene.project), scene.tip()

    def replaced(*_: Any, **__: Any) -> None:
        journal = project.store.worker("w1").accept
        assert journal is not None
        with project.store.transaction() as tx:
            tx.update("w1", accept=replace(journal, started_unix=journal.started_unix + 1))

    monkeypatch.setattr(validation, "check_commit", replaced)
    with project.worker_lock("w1"), pytest.raises(Cancelled, match="nothing landed"):
        accept(project, "w1")
    assert scene.tip() == before
    assert project.store.worker("w1").accept is not None, "the newer one is not ended"
