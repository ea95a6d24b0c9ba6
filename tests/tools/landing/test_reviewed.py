"""What counts as reviewed is what lands: its files, message and author, on any base."""

from pathlib import Path

import pytest

from llmc.base import proc
from llmc.landing import merging, review
from llmc.records.transitions import step
from llmc.records.worker import Reviewed, Status
from llmc.repo import git, provision
from llmc.repo.project import Project
from llmc.workers import nuke, reset
from tests.support.repos import Mold, Repo, Worktree, add_worker, make_project, project_at, worker_of

#: the same lines in two functions, too far apart for one hunk
BODY = "    x = load(user)\n    y = check(x)\n    if y:\n        stop()\n    z = save(y)\n    send(z)\n    wait(z)\n"
TWINS = "def read(user):\n" + BODY + "# between\n" * 8 + "def delete(user):\n" + BODY
LINE = "        return True\n"
FIRST, SECOND = (TWINS.replace("stop()\n", f"stop()\n{LINE}", count) for count in (1, 2))
IN_READ, IN_DELETE = FIRST, TWINS[: TWINS.index("def delete")] + SECOND[SECOND.index("def delete") :]


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("m.py", TWINS)
    source.commit("other.txt", "other\n")
    project = make_project(str(source.path), place / "root")
    _, worktree = add_worker(project)
    worktree.commit("m.py", IN_READ, "Allow guests to read\n\nThey asked for it.")


@pytest.fixture
def project(mold: Mold) -> Project:
    """A worker with one commit, which was reviewed."""
    project = project_at(mold.place(make) / "root")
    with project.store.transaction() as tx:
        for status in (Status.IDLE, Status.WORKING):
            tx.move("w1", step(status, "test"))
        tx.move("w1", step(Status.NEEDS_REVIEW, "test", commit_sha=worker_of(project)[1].head()))
    seen(project)
    return project


def seen(project: Project) -> None:
    record, _ = worker_of(project)
    review.remember(project, review.look(project, record))


def compared(project: Project) -> Reviewed:
    """What accept says about the worker's commit."""
    record, worktree = worker_of(project)
    made = merging.landing_commit(project, "w1", provision.refresh_base(project), worktree.head())
    return review.compare(project, record, made)


def source(project: Project) -> Repo:
    return Worktree(Path(project.source))


def amend(worktree: Worktree, *options: str) -> None:
    worktree.git("commit", "-q", "--amend", "--no-edit", "-a", *options)


def move_to_twin(worktree: Worktree) -> None:
    worktree.write("m.py", (worktree.path / "m.py").read_text().replace(IN_READ, IN_DELETE))
    amend(worktree)


def test_the_twins_differ_by_their_place_only(project: Project) -> None:
    _, worktree = worker_of(project)
    was = git.diff(worktree.path, "HEAD^", "HEAD")
    move_to_twin(worktree)
    now = git.diff(worktree.path, "HEAD^", "HEAD")
    assert [line for line in was.split("\n") if line.startswith("+ ")] == [f"+{LINE.rstrip()}"]

    def hunk(diff: str) -> str:
        return diff.partition("@@ ")[2].partition("\n")[2]

    assert hunk(was) == hunk(now)


def test_the_same_under_another_id(project: Project) -> None:
    """Break: compare commit ids."""
    _, worktree = worker_of(project)
    before = worktree.head()
    worktree.git(
        "commit", "-q", "--amend", "--no-edit", "--no-verify", "--allow-empty", "--date=2001-01-01T00:00:00Z"
    )
    assert worktree.head() != before
    assert compared(project) is Reviewed.CHANGED, "the author date lands, too"
    seen(project)
    run = ["-c", "user.name=Another committer", "commit", "-q", "--amend", "--no-edit"]
    worktree.git(*run)
    assert compared(project) is Reviewed.SAME


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-m", "[deploy production] Allow guests to read"), id="subject"),
        pytest.param(("-m", "Allow guests to read\n\nFixes #1"), id="body"),
        pytest.param(("--author", "Linus <linus@example.com>"), id="author"),
        pytest.param(("--author", "Person <linus@example.com>"), id="address"),
    ],
)
def test_message_and_author_are_part_of_it(project: Project, options: tuple[str, ...]) -> None:
    """Break: compare only the files."""
    _, worktree = worker_of(project)
    worktree.git("commit", "-q", "--amend", "--no-edit", *options)
    assert compared(project) is Reviewed.CHANGED


def test_the_place_is_part_of_it(project: Project) -> None:
    """Break: compare diffs without their line numbers. The line would be in the other function."""
    _, worktree = worker_of(project)
    move_to_twin(worktree)
    assert compared(project) is Reviewed.CHANGED


def test_the_mode_is_part_of_it(project: Project) -> None:
    _, worktree = worker_of(project)
    (worktree.path / "m.py").chmod(0o755)
    amend(worktree)
    assert compared(project) is Reviewed.CHANGED


def test_on_the_same_base_git_is_not_asked(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accept waits for it. Break: compute a diff, or read the ref of what was reviewed."""
    record, worktree = worker_of(project)
    made = merging.landing_commit(project, "w1", provision.refresh_base(project), worktree.head())
    monkeypatch.setattr(proc, "run", lambda *args, **more: pytest.fail(str(args)))
    assert review.compare(project, record, made) is Reviewed.SAME


@pytest.mark.parametrize("how", ["as it is", "rebase", "merge"])
def test_on_a_base_that_moved_it_is_the_same(project: Project, how: str) -> None:
    """The branch changed the same file elsewhere. Break: compare trees on another base, or line numbers."""
    _, worktree = worker_of(project)
    source(project).commit("m.py", f"# new\n# new\n{TWINS}", "Main moves")
    source(project).commit("other.txt", "another\n")
    provision.refresh_base(project)
    if how != "as it is":
        worktree.git(how, "-q", "origin/main")
    assert compared(project) is Reviewed.SAME


def test_on_a_base_that_moved_it_is_in_the_twin(project: Project) -> None:
    """Break: compare diffs without their line numbers where the base moved."""
    _, worktree = worker_of(project)
    source(project).commit("m.py", f"# new\n{TWINS}", "Main moves")
    provision.refresh_base(project)
    worktree.git("rebase", "-q", "origin/main")
    assert compared(project) is Reviewed.SAME
    move_to_twin(worktree)
    assert compared(project) is Reviewed.CHANGED


def test_on_a_base_that_moved_nothing_is_added(project: Project) -> None:
    _, worktree = worker_of(project)
    source(project).commit("other.txt", "another\n")
    provision.refresh_base(project)
    worktree.git("rebase", "-q", "origin/main")
    worktree.write("other.txt", "other\n")  # as before: what landed there would be reverted
    amend(worktree)
    assert compared(project) is Reviewed.CHANGED


def test_a_branch_that_went_back(project: Project) -> None:
    """Break: merge without the reviewed base. What the branch dropped would count as reviewed."""
    _, worktree = worker_of(project)
    source(project).git("reset", "-q", "--hard", "HEAD^")
    provision.refresh_base(project)
    assert compared(project) is Reviewed.CHANGED, "the worker would restore other.txt"
    worktree.git("rebase", "-q", "--onto", "origin/main", "HEAD^")
    assert compared(project) is Reviewed.SAME


def test_what_conflicted_when_it_was_reviewed(project: Project) -> None:
    """It was shown without the base that it conflicts with: its resolution, whatever it is, was not seen."""
    _, worktree = worker_of(project)
    source(project).commit("m.py", TWINS.replace("stop()", "end()"), "Main moves")
    provision.refresh_base(project)
    seen(project)
    worktree.git("rebase", "-q", "origin/main", check=False)
    worktree.write("m.py", TWINS.replace("stop()\n", f"end()\n{LINE}", 1))
    worktree.git("add", "m.py")
    worktree.git("-c", "core.editor=true", "rebase", "--continue")
    assert compared(project) is Reviewed.CHANGED


def test_a_review_by_an_older_llmc(project: Project) -> None:
    """It records too little of what was seen: it counts as another change until the next review."""
    with project.store.transaction() as tx:
        tx.update("w1", seen=None, reviewed_patch="0" * 64)
    assert compared(project) is Reviewed.CHANGED
    seen(project)
    assert compared(project) is Reviewed.SAME
    assert worker_of(project)[0].reviewed_patch is None
    with project.store.transaction() as tx:
        tx.update("w1", seen=None)
    assert compared(project) is Reviewed.NOT_REVIEWED


def test_what_was_reviewed_survives_gc(project: Project) -> None:
    """Break: no ref for it. On another base there would be nothing to compare with."""
    _, worktree = worker_of(project)
    message, date = worktree.git("log", "-1", "--format=%B"), worktree.git("log", "-1", "--format=%aI")
    worktree.git("reset", "-q", "--hard", "HEAD^")
    for line in ("reflog expire --expire=now --all", "gc --quiet --prune=now"):
        worktree.git(*line.split())
    source(project).commit("other.txt", "another\n")
    provision.refresh_base(project)
    worktree.git("reset", "-q", "--hard", "origin/main")
    worktree.write("m.py", IN_READ)
    worktree.git("commit", "-q", "-a", "-m", message, f"--date={date}")
    assert compared(project) is Reviewed.SAME


@pytest.mark.parametrize("how", ["reset", "nuke"])
def test_its_ref_goes_with_the_work(project: Project, how: str) -> None:
    ref = "refs/llmc/reviewed/w1"
    assert git.resolve(project.root.path, ref) is not None
    if how == "reset":
        reset.reset_worker(project, "w1")
    else:
        nuke.nuke_worker(project, "w1")
    assert git.resolve(project.root.path, ref) is None
