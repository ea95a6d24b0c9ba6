"""A reset loses no byte: what git would remove or overwrite is in the trash afterwards, or still there."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from llmc.base.errors import LlmcError
from llmc.landing import rebase
from llmc.records.worker import WorkerRecord
from llmc.repo import git, provision, trash, uncommitted
from llmc.repo.project import Project
from tests.support.fleet import in_soak
from tests.support.repos import (
    Mold,
    Repo,
    Worktree,
    add_worker,
    make_project,
    project_at,
    run_git,
    worker_of,
)


class Bench:
    """A worker on a source with some ignored names, and a search for bytes everywhere llmc keeps things."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.source = Worktree(tmp_path / "src")
        self.project: Project = project_at(tmp_path / "root")
        self.record: WorkerRecord
        self.record, self.tree = worker_of(self.project)

    @staticmethod
    def make(tmp_path: Path) -> None:
        source = Repo(tmp_path / "src")
        source.write("a.txt", "a\n")
        source.write("data", "a file\n")
        source.write("src/a.txt", "a\n")
        source.git("add", "-A")
        source.commit(".gitignore", "*.cache\n/build\n/out/\ndata/\n")
        add_worker(make_project(str(source.path), tmp_path / "root"))

    def write(self, name: str, text: str) -> Path:
        path = self.tree.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def reset(self) -> str | None:
        base = provision.refresh_base(self.project)
        return provision.reset_in_place(self.project, self.record, base, "test")

    def everything(self) -> str:
        """Everything that is kept: files, the trash, and what a ref reaches."""
        places = [self.tree.path, self.project.root.trash]
        files = [text for place in places for text in _files(place)]
        return "\0".join([*files, *(_blobs(repo) for repo in self._repositories())])

    def has(self, text: str) -> bool:
        return text in self.everything()

    def _repositories(self) -> list[Path]:
        own = Path(run_git(self.tree.path, "rev-parse", "--absolute-git-dir"))
        return [self.project.root.path, *(path.parent for path in own.glob("modules/**/HEAD"))]


def _files(place: Path) -> list[str]:
    found = []
    for folder, folders, names in os.walk(place):
        for name in (*names, *folders):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                found.append(os.readlink(path))
            elif os.path.isfile(path):
                found.append(Path(path).read_bytes().decode(errors="replace"))
    return found


def _blobs(repo: Path) -> str:
    listed = run_git(repo, "rev-list", "--objects", "--all").split("\n")
    return _contents(repo, [row.split(" ")[0] for row in listed if row])


def _contents(repo: Path, names: list[str]) -> str:
    argv = ["git", "cat-file", "--batch"]
    given = "".join(f"{name}\n" for name in names).encode()
    return subprocess.run(argv, cwd=repo, input=given, capture_output=True, check=True).stdout.decode(
        errors="replace"
    )


@pytest.fixture
def bench(mold: Mold) -> Bench:
    return Bench(mold.place(Bench.make))


Case = Callable[[Bench], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


# The ignore rules of the worker and of the base differ.


@case
def the_worker_ignores_more(b: Bench) -> None:
    b.tree.commit(".gitignore", "*.cache\nnotes/\n")
    b.write("notes/idea.txt", "PRECIOUS\n")


@case
def the_worker_ignores_more_and_did_not_commit_that(b: Bench) -> None:
    b.write(".gitignore", "notes.txt\n")
    b.write("notes.txt", "PRECIOUS\n")


@case
def the_base_drops_a_line(b: Bench) -> None:
    b.write("build/x.o", "PRECIOUS\n")
    b.source.commit(".gitignore", "*.cache\n")


@case
def a_list_in_a_directory(b: Bench) -> None:
    b.tree.commit("src/.gitignore", "gen/\n")
    b.write("src/gen/made.c", "PRECIOUS\n")


@case
def a_list_that_ignores_itself(b: Bench) -> None:
    b.write("tool/.gitignore", "*\n")
    b.write("tool/state", "PRECIOUS\n")
    b.source.commit("tool/.gitignore", "none\n")


@case
def odd_names(b: Bench) -> None:
    b.tree.commit(".gitignore", "notes/\n")
    (b.tree.path / "notes").mkdir()
    for index, name in enumerate(
        (b"-rf", b"new\nline", b"\xff\xfe", b":(glob)*", b"\xe2\x80\xa8", b" ", b"*")
    ):
        Path(os.fsdecode(os.fsencode(b.tree.path / "notes") + b"/" + name)).write_text(f"ODD{index}!")
    (b.tree.path / "notes/link").symlink_to("PRECIOUS")


@case
def names_that_git_takes_into_no_tree(b: Bench) -> None:
    b.write("GIT~1", "PRECIOUS\n")
    b.write(".GIT/hidden", "AND THIS\n")
    b.write("deep/.Git ", "AND THAT\n")


@case
def a_nested_repository_that_was_ignored(b: Bench) -> None:
    b.tree.commit(".gitignore", "vendor/\n")
    inner = Repo(b.tree.path / "vendor/lib")
    inner.commit("lib.c", "COMMITTED\n")
    inner.write("new.c", "PRECIOUS\n")


@case
def a_damaged_nested_repository(b: Bench) -> None:
    b.write("vendor/.git/objects/half", "PRECIOUS\n")
    b.write("vendor/x.c", "AND THIS\n")


@case
def a_huge_file_that_was_ignored(b: Bench) -> None:
    b.tree.commit(".gitignore", "*.bin\n")
    b.write("deep/huge.bin", "PRECIOUS" + "x" * 2000)


@case
def the_clones_own_list(b: Bench) -> None:
    """An agent that appended to .git/info/exclude; afterwards the line is gone (llmc maintains that file)."""
    b.write("secret.txt", "PRECIOUS\n")
    own = b.project.root.path / ".git/info/exclude"
    own.write_text("secret.txt\n")
    b.tree.commit("work.txt")
    b.reset()
    own.write_text("")
    b.tree.commit("work.txt")


@case
def a_list_that_the_clone_names(b: Bench) -> None:
    b.write("secret.txt", "PRECIOUS\n")
    (b.tmp_path / "ignore").write_text("secret.txt\n")
    b.tree.git("config", "core.excludesFile", str(b.tmp_path / "ignore"))
    b.tree.commit("work.txt")
    b.reset()
    b.tree.git("config", "--unset", "core.excludesFile")
    b.tree.commit("work.txt")


# Files and directories that replace each other, ignored by the worker.


@case
def an_ignored_file_that_the_base_tracks(b: Bench) -> None:
    b.write("x.cache", "PRECIOUS\n")
    b.source.commit("x.cache", "theirs\n")


@case
def an_ignored_directory_where_the_base_has_a_file(b: Bench) -> None:
    b.write("build/x.o", "PRECIOUS\n")
    b.write("build/deep/x.o", "AND THIS\n")
    b.source.commit("build", "theirs\n")


@case
def a_nested_repository_where_the_base_has_a_file(b: Bench) -> None:
    inner = Repo(b.tree.path / "build/lib")
    inner.commit("lib.c", "COMMITTED\n")
    inner.write("new.c", "PRECIOUS\n")
    b.source.commit("build", "theirs\n")


@case
def an_ignored_file_where_the_base_has_a_directory(b: Bench) -> None:
    b.write("build", "PRECIOUS\n")
    b.source.commit("build/x.c", "theirs\n")


@case
def an_ignored_link_where_the_base_has_a_directory(b: Bench) -> None:
    (b.tree.path / "build").symlink_to("PRECIOUS")
    b.source.commit("build/deep/x.c", "theirs\n")


@case
def a_tracked_file_that_became_an_ignored_directory(b: Bench) -> None:
    (b.tree.path / "data").unlink()
    b.write("data/x", "PRECIOUS\n")


@case
def a_tracked_directory_that_became_an_ignored_file(b: Bench) -> None:
    (b.tree.path / "src/a.txt").unlink()
    (b.tree.path / "src").rmdir()
    b.write(".gitignore", "src\n")
    b.write("src", "PRECIOUS\n")


# The index and the files disagree.


@case
def an_ignored_file_that_was_staged_and_changed(b: Bench) -> None:
    b.write("x.cache", "STAGED\n")
    b.tree.git("add", "-f", "x.cache")
    b.write("x.cache", "PRECIOUS\n")


@case
def an_ignored_file_that_is_to_be_added(b: Bench) -> None:
    b.write("x.cache", "PRECIOUS\n")
    b.tree.git("add", "-f", "-N", "x.cache")


@case
def staged_only_in_the_middle_of_a_conflict(b: Bench) -> None:
    b.tree.commit("a.txt", "ours\n")
    b.source.commit("a.txt", "theirs\n")
    provision.refresh_base(b.project)
    b.tree.git("merge", "origin/main", check=False)
    b.write("new.txt", "STAGED\n")
    b.tree.git("add", "new.txt")
    b.write("new.txt", "PRECIOUS\n")


@case
def assumed_unchanged(b: Bench) -> None:
    b.tree.git("update-index", "--assume-unchanged", "a.txt")
    b.write("a.txt", "PRECIOUS\n")
    b.source.commit("a.txt", "theirs\n")


@case
def skipped(b: Bench) -> None:
    b.tree.git("update-index", "--skip-worktree", "a.txt")
    b.write("a.txt", "PRECIOUS\n")
    b.source.commit("a.txt", "theirs\n")


@case
def changed_outside_a_sparse_checkout(b: Bench) -> None:
    b.tree.git("sparse-checkout", "set", "other")
    b.write("src/a.txt", "PRECIOUS\n")


@case
def new_outside_a_sparse_checkout(b: Bench) -> None:
    b.tree.git("sparse-checkout", "set", "other")
    b.write("docs/new.txt", "PRECIOUS\n")
    b.write("docs/mine", "AND THIS\n")
    b.write(".gitignore", "mine\n")


@case
def taken_out_of_the_index(b: Bench) -> None:
    b.tree.git("rm", "-q", "--cached", "a.txt")
    b.write(".gitignore", "a.txt\n")
    b.write("a.txt", "PRECIOUS\n")
    b.source.commit("a.txt", "theirs\n")


@case
def elsewhere_with_an_ignored_file_in_the_way(b: Bench) -> None:
    b.tree.git("checkout", "-q", "--detach")
    b.tree.git("rm", "-q", "--cached", "a.txt")
    b.tree.git("commit", "-q", "-m", "No a.txt")
    b.write(".gitignore", "a.txt\n")
    b.write("a.txt", "PRECIOUS\n")


@case
def a_rebase_with_an_autostash(b: Bench) -> None:
    b.tree.commit("a.txt", "ours\n")
    b.source.commit("a.txt", "theirs\n")
    provision.refresh_base(b.project)
    b.write("src/a.txt", "PRECIOUS\n")
    b.tree.git("rebase", "--autostash", "origin/main", check=False)
    assert uncommitted.rebase_in_progress(b.tree.path)
    b.write("new.txt", "PRECIOUS\n")
    b.write("src/a.txt", "AND THIS\n")


WORDS = ["PRECIOUS", "STAGED", "COMMITTED", "AND THIS", "AND THAT", *(f"ODD{n}!" for n in range(7))]


@pytest.mark.parametrize("name", [*list(CASES)[::2], *in_soak(*list(CASES)[1::2])])
def test_no_byte_is_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Break: `git clean -fdq` after the reset, instead of pinning what it would remove under the new ignore
    rules.
    """
    monkeypatch.setattr(trash, "MAX_PINNED_BYTES", 1000)
    CASES[name](bench)
    before = bench.everything() + _staged(bench)
    here = [word for word in WORDS if word in before]
    assert "PRECIOUS" in here or "ODD0!" in here
    bench.reset()
    kept = bench.everything()
    assert [word for word in here if word not in kept] == []
    assert uncommitted.tree_state(bench.tree.path).clean
    assert bench.tree.git("clean", "-nd") == "", "not even what `git status` does not show"
    assert bench.tree.head() == bench.tree.head(bench.project.base)
    assert bench.reset() is None, "and the next reset finds nothing to keep"


def _staged(bench: Bench) -> str:
    rows = [row for row in bench.tree.git("ls-files", "--stage", "-z").split("\0") if row]
    return _contents(bench.tree.path, [row.split()[1] for row in rows])


# Submodules, which have their own ignore rules and index.


def _during_reset(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Something happens after the check of the worktree, and before its files change."""
    real = provision.fault_step

    def step(name: str) -> AbstractContextManager[None]:
        if name == "provision.reset":
            happens()
        return real(name)

    monkeypatch.setattr(provision, "fault_step", step)


@pytest.mark.parametrize("other", ["", "changed", "new", "on another branch"])
def test_a_file_that_changes_during_the_reset_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Break: `reset --hard` if the worktree has other changes; it overwrites what was saved after the pin."""
    if other == "on another branch":
        bench.tree.git("checkout", "-q", "-b", "idea")
    bench.tree.commit("mine.txt", "mine\n")
    if other == "changed":
        bench.write("src/a.txt", "AND THIS\n")
    elif other:
        bench.write("new.txt", "AND THIS\n")
    bench.source.commit("a.txt", "another a\n")
    before = git.head(bench.tree.path)
    saved = [f"PRECIOUS {n}\n" for n in range(9)]
    texts = iter(saved)
    with monkeypatch.context() as patched:
        _during_reset(patched, lambda: bench.write("a.txt", next(texts)))
        with pytest.raises(LlmcError, match="files changed during the reset"):
            bench.reset()
    saved = saved[: -len([*texts])]
    assert (bench.tree.path / "a.txt").read_text() == saved[-1]
    assert git.head(bench.tree.path) == before
    bench.reset()
    assert [text for text in saved if not bench.has(text)] == []
    assert (bench.tree.path / "a.txt").read_text() == "another a\n"
    assert bench.has("AND THIS") == bool(other)


@pytest.mark.parametrize("name", ["a.txt", "new.txt", "src/a.txt"])
@pytest.mark.parametrize("dirty", [True, False])
def test_a_file_that_is_saved_once_during_the_reset(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, dirty: bool
) -> None:
    """Pinned as well, then reset. Break: overwrite whatever differs from the commit; or fail at the first such file."""
    bench.source.commit("a.txt", "another a\n")
    bench.tree.commit("mine.txt", "mine\n")
    if dirty:
        bench.write("new.txt", "AND THIS\n")
        bench.write("src/a.txt", "AND THAT\n")
    saved: list[Path] = []

    def once() -> None:
        if not saved:
            saved.append(bench.write(name, "PRECIOUS\n"))

    _during_reset(monkeypatch, once)
    ref = bench.reset()
    assert ref
    assert bench.has("PRECIOUS")
    assert bench.tree.git("cat-file", "-t", f"{ref}:mine.txt") == "blob"
    assert not dirty or (bench.has("AND THIS") and bench.has("AND THAT"))
    assert uncommitted.tree_state(bench.tree.path).clean
    assert bench.tree.head() == bench.tree.head(bench.project.base)
    assert bench.reset() is None


def test_a_file_that_was_only_touched_does_not_stop_a_reset(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.source.commit("a.txt", "another a\n")
    _during_reset(monkeypatch, lambda: os.utime(bench.tree.path / "a.txt", (1, 1)))
    bench.reset()
    assert (bench.tree.path / "a.txt").read_text() == "another a\n"
    assert uncommitted.tree_state(bench.tree.path).clean


@pytest.fixture
def library(bench: Bench) -> Repo:
    made = Repo(bench.tmp_path / "lib")
    made.commit(".gitignore", "*.o\n")
    made.commit("lib.c", "1\n")
    allow = ["-c", "protocol.file.allow=always", "submodule"]
    bench.source.git(*allow, "add", "-q", str(made.path), "lib")
    bench.source.git("commit", "-q", "-m", "Submodule")
    bench.reset()
    return made


@pytest.mark.parametrize(
    "what", ["ignored by the agent", "no submodule any more", *in_soak("in the way", "hidden")]
)
def test_no_byte_of_a_submodule_is_lost(bench: Bench, library: Repo, what: str) -> None:
    """Break: `clean -fdq` in the submodule; or `submodule update` before what is in its way is pinned."""
    inside = bench.tree.path / "lib"
    match what:
        case "ignored by the agent":
            (inside / ".gitignore").write_text("notes\n")
            (inside / "notes").write_text("PRECIOUS\n")
        case "in the way":
            (inside / "x.o").write_text("PRECIOUS\n")
            tip = library.commit("x.o", "theirs\n")
            run_git(bench.source.path / "lib", "fetch", "-q", "origin")
            run_git(bench.source.path / "lib", "checkout", "-q", tip)
            bench.source.git("commit", "-q", "-a", "-m", "lib")
        case "hidden":
            run_git(inside, "update-index", "--assume-unchanged", "lib.c")
            (inside / "lib.c").write_text("PRECIOUS\n")
        case _:
            (inside / "x.o").write_text("PRECIOUS\n")
            bench.source.git("rm", "-q", "-r", "lib")
            bench.source.git("commit", "-q", "-m", "No submodule")
            bench.source.commit("lib/x.o", "theirs\n")
    bench.reset()
    assert bench.has("PRECIOUS")
    assert uncommitted.tree_state(bench.tree.path).clean
    assert (inside / "x.o").exists() == (what in ("in the way", "no submodule any more"))


# Our rebases check files out, too.


@pytest.mark.parametrize("added_by", ["the base", "a commit of its own", "a nested repository"])
def test_a_rebase_pins_ignored_files_that_it_writes_over(bench: Bench, added_by: str) -> None:
    """Break: pin only the commits before a rebase. git checks files out over ignored ones silently."""
    if added_by == "a commit of its own":
        bench.tree.commit("x.cache", "once\n")
        bench.tree.git("rm", "-q", "x.cache")
        bench.tree.git("commit", "-q", "-m", "No cache")
        bench.source.commit("later.txt")
    elif added_by == "the base":
        bench.source.commit("x.cache", "theirs\n")
    else:
        bench.source.commit("build", "theirs\n")
        Repo(bench.tree.path / "build").commit("lib.c", "PRECIOUS\n")
    bench.tree.commit("work.txt")
    if added_by != "a nested repository":
        bench.write("x.cache", "PRECIOUS\n")
    rebase.onto_base(bench.project, "w1")
    assert bench.tree.git("merge-base", "HEAD", "origin/main") == bench.source.head()
    assert bench.has("PRECIOUS")


# A full disk: the pin fails, so nothing is removed.


@pytest.fixture
def small_objects(bench: Bench) -> Iterator[Path]:
    """The clone's objects on a file system with about 1 MB of space."""
    objects = bench.project.root.path / ".git/objects"
    kept = objects.with_name("objects.kept")
    shutil.copytree(objects, kept)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(objects)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("NO SMALL DISK: mounting a tmpfs needs root")
    try:
        shutil.copytree(kept, objects, dirs_exist_ok=True)
        yield objects
    finally:
        subprocess.run(["umount", str(objects)], check=True)


@pytest.mark.parametrize("which", ["before the reset", "after it"])
def test_a_full_disk_removes_nothing(bench: Bench, small_objects: Path, which: str) -> None:
    """Break: continue when a pin fails. Once there is space again, the whole reset is done."""
    if which == "after it":
        bench.tree.commit(".gitignore", "huge\n")
    path = bench.tree.path / "huge"
    path.write_bytes(os.urandom(2 * 1024 * 1024))
    before = path.read_bytes()
    with pytest.raises(LlmcError):
        bench.reset()
    assert path.read_bytes() == before
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_objects)], check=True)
    ref = bench.reset()
    assert ref
    assert not path.exists()
    shown = subprocess.run(
        ["git", "show", f"{ref}:huge"], cwd=bench.tree.path, capture_output=True, check=True
    )
    assert shown.stdout == before


def reset_as_nobody(bench: Bench, cwd: Path) -> bool:
    """Reset by a process of another user, for whom modes count; returns whether it was done."""
    pid = os.fork()
    if not pid:
        code = 2
        try:
            os.chdir(cwd)
            os.setgid(65534)
            os.setuid(65534)
            os.environ["HOME"] = str(cwd)
            (cwd / "ref").write_text(bench.reset() or "")
            code = 0
        except LlmcError:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 1)
    return code == 0


def test_line_ends_that_the_base_no_longer_converts(bench: Bench) -> None:
    """git takes a file of another size than in the index for changed. Break: no `compare_again` in `_reset`."""
    bench.source.commit(".gitattributes", "*.bat text eol=crlf\n")
    bench.source.commit("run.bat", "one\n")
    bench.reset()
    converted = bench.tree.path / "run.bat"
    assert converted.read_bytes() == b"one\r\n"
    os.utime(converted, (1, 1))  # git would compare the contents of a file that is as new as the index
    bench.tree.git("update-index", "--refresh")
    bench.source.commit(".gitattributes", "*.dos text\n")
    bench.reset()
    bench.write("new.txt", "PRECIOUS\n")
    assert bench.reset()
    assert uncommitted.tree_state(bench.tree.path).clean
    assert converted.read_bytes() == b"one\n"
    assert bench.has("PRECIOUS")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("what", ["new", "tracked", "unreadable", "repository"])
def test_what_an_agent_may_not_change_does_not_stop_a_reset(what: str) -> None:
    """Go's module cache has read-only directories. Break: handle permissions only where a whole tree is removed."""
    place = Path(tempfile.mkdtemp())
    try:
        Bench.make(place)
        bench = Bench(place)
        Repo(bench.tree.path / "nested").commit("lib.c")
        bench.write("mod/new.go", "text\n")
        bench.reset()  # modules that Python loads on the way may be unreadable for another user
        path = bench.write("src/a.txt" if what == "tracked" else "mod/x/new.go", "PRECIOUS\n")
        match what:
            case "new" | "tracked":
                path.parent.chmod(0o555)
            case "unreadable":
                path.chmod(0)
            case _:
                Repo(bench.tree.path / "nested").commit("lib.c", "PRECIOUS\n")
                (bench.tree.path / "nested").chmod(0o555)
        subprocess.run(["chown", "-R", "65534:65534", str(place)], check=True)
        assert reset_as_nobody(bench, place)
        subprocess.run(["chown", "-R", "root", str(place)], check=True)
        assert bench.has("PRECIOUS")
        assert uncommitted.tree_state(bench.tree.path).clean
        assert not (bench.tree.path / "nested").exists()
        assert (bench.tree.path / "src/a.txt").read_text() == "a\n"
    finally:
        subprocess.run(["chown", "-R", "root", str(place)], check=True)
        shutil.rmtree(place)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_the_entry_of_a_reset_that_failed_halfway_has_the_work() -> None:
    """git changes some files, and then may not change one. Break: forget the first entry when the reset is repeated;
    what llmc names has half of the base's files.
    """
    place = Path(tempfile.mkdtemp())
    try:
        Bench.make(place)
        bench = Bench(place)
        names = ["a.txt", "data", "src/a.txt"]
        bench.reset()
        for name in names:
            bench.write(name, "PRECIOUS\n")
        bench.write("new.txt", "PRECIOUS\n")
        (bench.tree.path / "src").chmod(0o555)
        for name in names:
            bench.source.commit(name, "base\n")
        provision.refresh_base(bench.project)
        subprocess.run(["chown", "-R", "65534:65534", str(place)], check=True)
        assert reset_as_nobody(bench, place)
        subprocess.run(["chown", "-R", "root", str(place)], check=True)
        ref = (place / "ref").read_text()
        assert [bench.tree.git("show", f"{ref}:{name}") for name in [*names, "new.txt"]] == ["PRECIOUS"] * 4
        assert uncommitted.tree_state(bench.tree.path).clean
        assert (bench.tree.path / "src/a.txt").read_text() == "base\n"
    finally:
        subprocess.run(["chown", "-R", "root", str(place)], check=True)
        shutil.rmtree(place)


def test_an_orphan_branch_without_files(bench: Bench) -> None:
    """Break: take HEAD for the start of the move; there is none."""
    bench.tree.git("switch", "-q", "--orphan", "fresh")
    assert uncommitted.tree_state(bench.tree.path).clean
    assert bench.reset() is None
    assert uncommitted.tree_state(bench.tree.path).clean
    assert (bench.tree.path / "a.txt").read_text() == "a\n"
    assert bench.tree.git("symbolic-ref", "HEAD") == "refs/heads/llmc/w1"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_a_clone_that_may_not_be_written_removes_nothing() -> None:
    """As another user, for whom modes count. Break: continue when a pin fails."""
    place = Path(tempfile.mkdtemp())
    try:
        Bench.make(place)
        bench = Bench(place)
        bench.tree.commit("first.txt")
        bench.reset()  # modules that Python loads on the way may be unreadable for another user
        bench.write("new.txt", "PRECIOUS\n")
        bench.tree.commit(".gitignore", "more\n")
        bench.write("more", "AND THIS\n")
        objects = bench.project.root.path / ".git/objects"
        subprocess.run(["chown", "-R", "65534:65534", str(place)], check=True)
        modes = ["find", str(objects), "-type", "d", "-exec"]
        subprocess.run([*modes, "chmod", "0555", "{}", "+"], check=True)
        assert not reset_as_nobody(bench, place)
        assert (bench.tree.path / "new.txt").read_text() == "PRECIOUS\n"
        assert (bench.tree.path / "more").read_text() == "AND THIS\n"
        subprocess.run([*modes, "chmod", "0755", "{}", "+"], check=True)
        assert reset_as_nobody(bench, place)
        assert not (bench.tree.path / "new.txt").exists()
        subprocess.run(["chown", "-R", "root", str(place)], check=True)
        assert bench.has("PRECIOUS")
        assert bench.has("AND THIS")
    finally:
        shutil.rmtree(place)
