"""What an agent plants in the clone's git settings is not run by llmc's commands, and the user is told."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, in_soak
from tests.support.planted import KEYS, Planted

IDENTITY = "git -c user.name=W -c user.email=w@example.com"


@pytest.fixture
def planted(scripted: Fleet) -> Planted:
    return Planted(scripted.dir / "evil")


def plant_everywhere(fleet: Fleet, planted: Planted, keys: dict[str, str] = KEYS) -> None:
    """The clone's own settings, those of the root and of a worktree, and the attributes of all."""
    clone = fleet.root / ".git"
    for file in (clone / "config", clone / "config.worktree", clone / "worktrees/adam/config.worktree"):
        planted.write(file, keys)
    (clone / "info").mkdir(exist_ok=True)
    (clone / "info/attributes").write_text("* filter=evil diff=evil merge=evil\n")


def work(fleet: Fleet, worker: str, name: str) -> None:
    attributes = "echo '* filter=evil diff=evil merge=evil' > .gitattributes"
    script = f"{attributes}; echo text > {name}; git add -A; {IDENTITY} commit -qm 'Add {name}'"
    fleet.llmc("start", "--worker", worker, "--prompt", f"@sh {script}")
    fleet.wait(worker, "needs_review")


@pytest.mark.parametrize("share", [16, *in_soak(1)], ids=["some", "all"])
def test_no_command_runs_what_was_planted(scripted: Fleet, planted: Planted, share: int) -> None:
    """In every file, before every command: some of the keys, in turn; in `make soak` every key.

    Break: let git run without the guard's check.
    """
    rounds = itertools.count()
    fleet = scripted.set_up("adam", "bea")
    fleet.up()
    work(fleet, "adam", "a.txt")

    def check(*argv: str, code: int | None = 0) -> None:
        plant_everywhere(fleet, planted, dict(list(KEYS.items())[next(rounds) % share :: share]))
        fleet.llmc(*argv, code=code)
        assert planted.ran() == [], f"llmc {' '.join(argv)}"

    plant_everywhere(fleet, planted)
    shutil.copytree(fleet.root / ".git", fleet.dir / "control.git", symlinks=True)
    check("status")
    check("status", "--json")
    check("review", "adam")
    check("peek", "adam")
    fleet.commit("other.txt", "moved\n", "Main moves on")
    check("rebase", "adam")
    check("review", "adam", "--json")
    check("pick", "adam", "--branch", "picked")
    check("accept", "adam")
    assert fleet.log()[0] == "Add a.txt"
    check("undo", "--yes", code=None)
    work(fleet, "bea", "b.txt")
    check("reject", "bea", "@sh true")
    fleet.wait("bea", "needs_review")
    check("reset", "bea")
    check("trash", "list")
    for ref in [row.split()[0] for row in fleet.llmc("trash", "list").out.splitlines()[:1]]:
        check("trash", "show", ref, code=None)
        check("trash", "restore", ref, code=None)
    check("doctor", code=None)
    check("doctor", "--repair", "--yes", code=None)
    check("start", "--worker", "adam", "--prompt", "@sh true")
    fleet.wait("adam", "needs_input")
    check("nuke", "bea", "--yes")
    check("down", "--force")
    check("up", "--detach")
    check("add", "carl")
    assert "git_config" in {row["kind"] for row in fleet.llmc("status", "--json").json["attention"]}
    # Proof that the programs work: git without the guard runs them.
    clone, tree = fleet.dir / "control.git", fleet.dir / "control"
    fleet.git("--git-dir", str(clone), "worktree", "add", "--force", "--detach", str(tree), cwd=fleet.dir)
    assert planted.ran() != []


def test_what_is_undone_is_told_with_who_may_have_done_it(scripted: Fleet, planted: Planted) -> None:
    """Break: undo silently."""
    fleet = scripted.set_up("adam", "bea")
    own = fleet.root / ".git/worktrees/adam/config.worktree"
    planted.write(own, {"core.fsmonitor": KEYS["core.fsmonitor"]})
    fleet.llmc("doctor", code=None)
    items = fleet.llmc("status", "--json").json["attention"]
    item = next(item for item in items if item["kind"] == "git_config")
    assert item["who"] == "adam"
    assert "core.fsmonitor" in item["text"]
    assert "config.worktree" in item["text"]
    event = fleet.events("git_config_undone")[-1]
    assert event["worker"] == "adam"
    assert event["keys"] == ["core.fsmonitor"]
    found = fleet.llmc("doctor", "--json", code=1).json["findings"]
    assert [row["kind"] for row in found] == ["git_config"]
    fleet.llmc("doctor", "--repair", "--yes")
    assert fleet.llmc("status", "--json").json["attention"] == []
    assert fleet.llmc("doctor", "--json").json["healthy"]


ORDINARY: list[Callable[[Fleet, Path], object]] = [
    lambda fleet, tree: fleet.git("checkout", "-q", "-b", "side", "origin/main", cwd=tree),
    lambda fleet, tree: fleet.git("branch", "-m", "side", "other", cwd=tree),
    lambda fleet, tree: fleet.git("config", "user.name", "Adam", cwd=tree),
    lambda fleet, tree: fleet.git("remote", "add", "fork", "https://example.com/fork.git", cwd=tree),
    lambda fleet, tree: fleet.git("lfs", "install", "--local", "--skip-repo", cwd=tree),
    lambda fleet, tree: fleet.git("sparse-checkout", "set", "src", cwd=tree),
    lambda fleet, tree: fleet.git("config", "branch.other.description", 'a "b" \\ # c; d', cwd=tree),
    lambda fleet, tree: fleet.git("config", "http.postBuffer", "524288000", cwd=tree),
    lambda fleet, tree: fleet.git("config", "submodule.lib.url", "../lib.git", cwd=tree),
    lambda fleet, tree: fleet.git("config", "gitflow.branch.master", "main", cwd=tree),
    lambda fleet, tree: fleet.git("checkout", "-q", "llmc/adam", cwd=tree),
]


def test_ordinary_changes_of_agents_stay_byte_for_byte(scripted: Fleet, planted: Planted) -> None:
    """Even when a neighboring setting is undone. Break: rewrite the file from what is known."""
    fleet = scripted.set_up("adam")
    tree, clone = fleet.worktree("adam"), fleet.root / ".git"
    for change in ORDINARY:
        change(fleet, tree)
    with (clone / "config").open("a") as file:
        file.write("\n; a comment of Adam's\n[color]\n\tui =   auto   # odd spacing\n")
    files = (clone / "config", clone / "config.worktree", clone / "worktrees/adam/config.worktree")
    before = [path.read_bytes() for path in files]
    fleet.llmc("doctor", code=None)
    assert [path.read_bytes() for path in files] == before
    assert fleet.llmc("status", "--json").json["attention"] == []
    for path in files:
        planted.write(path, {"core.fsmonitor": "{run}", "filter.evil.clean": "{run}"})
    fleet.llmc("doctor", code=None)
    fleet.git("status", cwd=tree)
    assert planted.ran() == []
    after = [path.read_text().replace('[filter "evil"]\n', "").split() for path in files]
    assert after == [data.decode().split() for data in before]
