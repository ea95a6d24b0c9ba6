"""Merging: the one commit that lands, made from trees."""

from pathlib import Path

import pytest

from llmc.base.errors import Refused, ToolFailed
from llmc.landing import merging
from llmc.repo import provision
from llmc.repo.project import Project
from tests.support.repos import Repo, Worktree, add_worker, make_project, tree


class Scene:
    """A source, a root on it, and a worker."""

    def __init__(self, path: Path, **files: str) -> None:
        self.source = Repo(path / "src")
        for name, text in {"a.txt": "1\n2\n3\n4\n5\n", **files}.items():
            self.source.commit(name, text)
        self.project: Project = make_project(str(self.source.path), path / "root")
        _, self.worktree = add_worker(self.project)

    @property
    def base(self) -> str:
        return provision.refresh_base(self.project)

    def make(self) -> merging.Made:
        return merging.landing_commit(self.project, "w1", self.base, self.worktree.head())

    def files(self, made: merging.Made) -> dict[str, str]:
        return tree(self.worktree.path, made.commit)

    def merge_main(self, *args: str) -> None:
        """As an agent would: `git merge origin/main`."""
        self.worktree.git("merge", "-q", *args, self.base)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_it_is_one_commit_on_the_base(scene: Scene) -> None:
    """Both sides' changes, the worker as author, the messages joined; nothing in the worktree moves."""
    scene.worktree.git("config", "user.name", "Agent")
    scene.worktree.commit("b.txt", "b\n", "Add b")
    scene.worktree.commit("c.txt", "c\n", "Add c")
    scene.source.commit("d.txt", "d\n")
    tip = scene.worktree.head()
    made = scene.make()
    shown = scene.worktree.git("show", "-s", "--format=%P%n%an%n%B", made.commit).split("\n")
    assert shown[:2] == [scene.base, "Person"]
    assert "\n".join(shown[2:]).strip() == "Add b\n\nAdd c"
    assert set(scene.files(made)) == {"a.txt", "b.txt", "c.txt", "d.txt"}
    assert scene.worktree.head() == tip
    assert scene.worktree.git("status", "--porcelain") == ""


def test_what_a_merge_commit_changed_itself_is_in_it(scene: Scene) -> None:
    """Breaks when the commits are rebased one by one without the merges."""
    scene.worktree.commit("b.txt", "b\n")
    scene.source.commit("c.txt", "c\n")
    scene.merge_main("--no-commit", "--no-ff")
    scene.worktree.write("a.txt", "made to fit\n")
    scene.worktree.git("commit", "-qam", "Merge branch 'main'")
    scene.source.commit("d.txt", "d\n")
    made = scene.make()
    assert scene.files(made)["a.txt"] == "made to fit"
    assert "Merge branch" not in scene.worktree.git("show", "-s", "--format=%B", made.commit)


def test_a_conflict_names_the_files(scene: Scene) -> None:
    scene.worktree.commit("a.txt", "worker\n")
    scene.source.commit("a.txt", "main\n")
    with pytest.raises(merging.Conflicts) as found:
        scene.make()
    assert found.value.files == ("a.txt",)


def test_the_workers_own_attributes_do_not_decide(scene: Scene) -> None:
    """Breaks when the merge runs in the worktree: `* merge=union` there merges what must conflict."""
    scene.worktree.write(".gitattributes", "* merge=union\n")
    scene.worktree.git("add", ".gitattributes")
    scene.worktree.commit("a.txt", "worker\n")
    scene.source.commit("a.txt", "main\n")
    with pytest.raises(merging.Conflicts):
        scene.make()


@pytest.mark.parametrize("where", [".gitattributes", "deep/er/.gitattributes"])
def test_the_attributes_of_the_base_decide(tmp_path: Path, where: str) -> None:
    """Breaks when it runs in a bare repository, where git ignores them."""
    name = str(Path(where).parent / "log.txt")
    scene = Scene(tmp_path, **{where: "log.txt merge=union\n", name: "begin\n"})
    scene.worktree.commit(name, "begin\nworker\n")
    scene.source.commit(name, "begin\nmain\n")
    assert set(scene.files(scene.make())[name].split()) == {"begin", "main", "worker"}
    scene.source.commit(where, "log.txt -merge\n")
    with pytest.raises(merging.Conflicts):
        scene.make()


def test_nothing_is_left_to_land(scene: Scene) -> None:
    scene.worktree.commit("b.txt", "b\n")
    scene.source.commit("b.txt", "b\n")
    assert scene.make().commit == ""
    scene.worktree.git("reset", "-q", "--hard", scene.base)
    assert scene.make().commit == ""


def test_several_merge_bases_are_refused(scene: Scene) -> None:
    """Each side has merged the other: git would invent an ancestor, with an unpredictable result."""
    scene.worktree.commit("b.txt", "b\n")
    scene.source.commit("c.txt", "c\n")
    worker, main = scene.worktree.head(), scene.source.head()
    scene.merge_main()
    scene.source.git("fetch", "-q", str(scene.project.root.path), worker)
    scene.source.git("merge", "-q", worker)
    scene.source.commit("d.txt", "d\n")
    assert main != worker
    with pytest.raises(Refused, match="2 merge bases") as found:
        scene.make()
    assert "Merge origin/main into your branch again" in str(found.value.hint)
    scene.merge_main()
    assert scene.make().commit == ""


def test_histories_without_a_common_commit_are_refused(scene: Scene) -> None:
    scene.worktree.git("checkout", "-q", "--orphan", "other")
    scene.worktree.commit("a.txt", "other\n")
    with pytest.raises(Refused, match="unrelated histories"):
        scene.make()


def test_a_git_that_fails_is_no_conflict(scene: Scene) -> None:
    """Exit 1 without a tree: an object is missing. Breaks when every 1 is treated as a conflict."""
    scene.worktree.commit("a.txt", "worker\n")
    scene.source.commit("c.txt", "c\n")
    base = scene.base
    with pytest.raises(ToolFailed):
        merging.merge(scene.project, base, "1" * 40)


def test_without_an_identity_the_author_commits(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Breaks when git may guess one from the host name."""
    scene.worktree.commit("b.txt", "b\n")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EMAIL", raising=False)
    commit = scene.make().commit
    assert (
        scene.worktree.git("show", "-s", "--format=%an %ae %cn %ce", commit).split()
        == [
            "Person",
            "person@example.com",
        ]
        * 2
    )


def test_a_common_ancestor_of_our_choice(scene: Scene) -> None:
    """What undo does: the base without one commit's changes, although more came after it."""
    taken = scene.source.commit("a.txt", "1\n2\n3\n4\nfive\n")
    scene.source.commit("b.txt", "b\n")
    base = scene.base
    made = merging.merge_with(scene.project, taken, base, f"{taken}^", base=base)
    assert tree(scene.worktree.path, made) == {"a.txt": "1\n2\n3\n4\n5", "b.txt": "b"}


def test_collapsed_work_has_the_tree_of_the_tip(scene: Scene) -> None:
    parted = scene.worktree.head()
    scene.worktree.commit("b.txt", "b\n")
    scene.source.commit("c.txt", "c\n")
    scene.merge_main("--no-ff", "-m", "Merge branch 'main'")
    merged_at = scene.base
    scene.source.commit("d.txt", "d\n")
    work = merging.work_of(scene.project, "w1", scene.base, scene.worktree.head())
    one = merging.collapsed(scene.project, work)
    repo = Worktree(scene.worktree.path)
    assert repo.head(f"{one}^{{tree}}") == repo.head("HEAD^{tree}")
    assert repo.head(f"{one}^") == merged_at != parted
