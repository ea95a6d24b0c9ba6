"""What is validated is what lands, whatever is in the worktree; a slot leaves the worker free meanwhile."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support import auto
from tests.support.auto import Daemon, add
from tests.support.fleet import Fleet, in_soak
from tests.support.waiting import wait_until

WHO = "git -c user.name=Worker -c user.email=worker@example.com"
COMMIT = f"{WHO} commit -q -m"
KILLED = -9
WAYS = pytest.mark.parametrize("way", ["slot", "worktree"])


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    fleet = Fleet("scripted").set_up("adam", "baker", config={"repo.validate": "sh check.sh"})
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


SetUp = Callable[..., Fleet]


@pytest.fixture
def set_up(shared: Fleet, request: pytest.FixtureRequest) -> Iterator[SetUp]:
    """Prepares the shared fleet with a check script in the repository; afterwards its workers rest."""

    def make(way: str, check: str, **files: str) -> Fleet:
        for name in ("runs", "go", "said"):
            (shared.dir / name).unlink(missing_ok=True)
        shared.configure({"repo.validate_in": way})
        # No two tests validate the same tree: what passed once is not validated again.
        shared.plant({**files, "check.sh": f"# {request.node.name}\n{check}"}, "Add a check")
        return shared.new_case()

    yield make
    shared.rest("adam", "baker")
    if not shared.has_daemon():
        shared.up("--no-patrol")


def work(fleet: Fleet, script: str, worker: str = "adam") -> str:
    fleet.llmc("start", "--worker", worker, "--prompt", f"@sh {script}")
    return str(fleet.wait(worker, "needs_review")["commit_sha"])


def one_file(name: str) -> str:
    return f"echo {name} > {name}; git add {name}; {COMMIT} 'Add {name}'"


def in_worktree(fleet: Fleet, script: str) -> None:
    done = subprocess.run(
        ["sh", "-c", script], cwd=fleet.worktree("adam"), env=fleet.env, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


def record(fleet: Fleet, worker: str = "adam") -> dict[str, Any]:
    return dict(json.loads((fleet.root / "state.json").read_text())["workers"][worker])


def head(fleet: Fleet) -> str:
    return fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("adam"))


def lines(fleet: Fleet, name: str) -> list[str]:
    path = fleet.dir / name
    return path.read_text().splitlines() if path.exists() else []


def waiting(fleet: Fleet) -> str:
    """A check that reports its start, and continues when the test lets it."""
    return f"echo >> {fleet.dir}/runs; {auto.until(fleet.dir / 'go')}\n"


@contextmanager
def accepting(fleet: Fleet, code: int) -> Iterator[list[str]]:
    """`llmc accept adam` during its validation; afterwards it continues and exits with the code."""
    said = fleet.dir / "said"
    with said.open("w") as out:
        argv = [sys.executable, "-m", "llmc", "accept", "adam"]
        process = subprocess.Popen(argv, cwd=fleet.source, env=fleet.env, stdout=out, stderr=out)
    before = len(lines(fleet, "runs"))
    wait_until(lambda: len(lines(fleet, "runs")) > before, story=fleet.story)
    found: list[str] = []
    try:
        yield found
    finally:
        (fleet.dir / "go").touch()
        ended = process.wait(60)
    assert ended == code, said.read_text() + fleet.story()
    found.append(said.read_text())


@pytest.mark.parametrize(
    ("way", "bit"),
    [
        ("slot", "--skip-worktree"),
        ("worktree", "--assume-unchanged"),
        pytest.param("slot", "--assume-unchanged", marks=pytest.mark.soak),
        pytest.param("worktree", "--skip-worktree", marks=pytest.mark.soak),
    ],
)
def test_hidden_changes_do_not_pass_the_check(set_up: SetUp, way: str, bit: str) -> None:
    """Breaks when the worktree is validated with a file that git was told to ignore."""
    fleet = set_up(way, "test ! -e bad\n")
    work(fleet, one_file("bad"))
    in_worktree(fleet, f"git update-index {bit} check.sh; echo exit 0 > check.sh")
    refused = fleet.llmc("accept", "adam", code=1 if way == "slot" else 3)
    assert (
        "validation failed" if way == "slot" else "hidden by assume-unchanged or skip-worktree: check.sh"
    ) in refused.err
    assert fleet.log()[0] == "Add a check"


@WAYS
def test_an_ignored_file_that_is_only_here(set_up: SetUp, way: str) -> None:
    """A slot does not have it; the worktree does, which is why a slot is better."""
    fleet = set_up(way, "test ! -e lib.user || test -e build/lib\n", **{".gitignore": "build/\n"})
    work(fleet, f"mkdir build; touch build/lib; {one_file('lib.user')}")
    fleet.llmc("accept", "adam", code=1 if way == "slot" else 0)


LEAVES = "echo x > report.xml; mkdir -p out; echo y > out/y; echo z >> README.md\n"


@WAYS
def test_what_a_check_leaves_behind_is_not_the_workers(set_up: SetUp, way: str) -> None:
    """Breaks when the second accept is refused because of it, or when it lands."""
    fleet = set_up(way, f"{LEAVES}test ! -e bad\n")
    work(fleet, one_file("bad"))
    fleet.llmc("accept", "adam", code=1)
    assert fleet.git("status", "--porcelain", cwd=fleet.worktree("adam")) == ""
    fleet.llmc("message", "adam", f"@sh git rm -q bad; echo g > good; git add -A; {COMMIT} 'Good'")
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")
    assert fleet.git("ls-tree", "-r", "--name-only", "main").split() == ["README.md", "check.sh", "good"]
    assert fleet.git("show", "main:README.md") == "sample"
    if way == "worktree":  # it could be the agent's, so it is kept
        ref = fleet.events("validation_left")[0]["ref"]
        assert "z" in fleet.git("show", f"{ref}:README.md", cwd=fleet.root)
        kept = [path.name for path in fleet.root.glob(".llmc/trash/adam-*/report.xml")]
        assert kept


def test_a_check_that_was_killed_leaves_nothing_behind(set_up: SetUp) -> None:
    """Breaks when its leftovers count as the agent's: then no accept would ever proceed."""
    fleet = set_up("worktree", "echo x > report.xml\n")
    fleet.kill_daemon()
    work(fleet, one_file("good"))
    fleet.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.validate:before:kill")
    (fleet.worktree("adam") / "report.xml").write_text("half of it")
    fleet.llmc("accept", "adam")
    assert fleet.git("ls-tree", "-r", "--name-only", "main").split() == ["README.md", "check.sh", "good"]


@WAYS
def test_a_commit_made_during_validation_is_seen(set_up: SetUp, shared: Fleet, way: str) -> None:
    """Breaks when only the validated commit lands, and the reset silently moves the rest to the trash."""
    fleet = set_up(way, waiting(shared))
    work(fleet, one_file("one"))
    with accepting(fleet, 3) as said:
        in_worktree(fleet, one_file("two"))
        late = head(fleet)
    assert f"adam made commit {late[:12]} while its work was being accepted; nothing landed" in said[0]
    assert head(fleet) == late
    assert fleet.log()[0] == "Add a check"
    assert record(fleet)["accept"] is None
    fleet.llmc("accept", "adam")
    assert (fleet.source / "two").exists()


@WAYS
def test_files_changed_during_validation_are_seen(set_up: SetUp, shared: Fleet, way: str) -> None:
    """In the worktree they cannot be told from what the check left: they are kept."""
    fleet = set_up(way, waiting(shared))
    work(fleet, one_file("one"))
    with accepting(fleet, 3 if way == "slot" else 0) as said:
        in_worktree(fleet, "echo mine > mine")
    if way == "slot":
        assert "adam changed files while its work was being accepted: mine; nothing landed" in said[0]
        assert (fleet.worktree("adam") / "mine").exists()
        assert fleet.log()[0] == "Add a check"
    else:
        assert list(fleet.root.glob(".llmc/trash/adam-*/mine"))


@pytest.mark.soak
def test_what_happens_to_an_auto_worker_meanwhile(scripted: Fleet) -> None:
    """It makes another commit, and then the user sends it a message: neither costs a round; all of it lands.

    Breaks when only the first commit lands, or when the message takes the task away.
    """
    fleet = scripted
    fleet.commit("check.sh", waiting(fleet), "Add a check")
    auto.set_up(fleet, **{"repo.validate": "sh check.sh"})
    add(fleet, 1)
    daemon = Daemon(fleet)
    worker = validated_in_auto_mode(fleet)
    subprocess.run(["sh", "-c", one_file("two")], cwd=fleet.worktree(worker), env=fleet.env, check=True)
    (fleet.dir / "go").touch()
    auto.wait_completed(fleet, 1)
    assert (fleet.source / "two").exists(), "the commit it made in the meantime"
    assert (fleet.source / "file-1").exists()
    for name in ("go", "runs"):
        (fleet.dir / name).unlink()
    add(fleet, 2)
    worker = validated_in_auto_mode(fleet)
    fleet.llmc("message", worker, f"@sh {one_file('three')}")
    (fleet.dir / "go").touch()
    auto.wait_completed(fleet, 2)
    assert (fleet.source / "three").exists(), "the result of the message"
    assert (fleet.source / "file-2").exists()
    assert not fleet.events("task_sent_back")
    daemon.stop()


def validated_in_auto_mode(fleet: Fleet) -> str:
    """The worker whose work is being validated."""
    wait_until(lambda: lines(fleet, "runs"), 30, story=fleet.story)
    return next(iter(auto.at_work(fleet)))


@pytest.mark.soak
def test_the_branch_moves_while_it_is_validated(set_up: SetUp, shared: Fleet) -> None:
    """It is merged again, and validated again if the tree differs: not for an empty commit."""
    fleet = set_up("slot", waiting(shared))
    work(fleet, one_file("one"))
    with accepting(fleet, 0):
        fleet.git("commit", "-q", "--allow-empty", "-m", "Nothing")
    assert len(lines(fleet, "runs")) == 1
    (fleet.dir / "go").unlink()
    work(fleet, one_file("two"))
    with accepting(fleet, 0):
        fleet.commit("main.txt", "main\n", "Main moves")
    assert len(lines(fleet, "runs")) == 3
    assert fleet.log()[:4] == ["Add two", "Main moves", "Add one", "Nothing"]


def test_the_worker_is_free_while_its_work_is_validated(set_up: SetUp, shared: Fleet) -> None:
    """Breaks when its lock is held during validation, or when another process may end the accept."""
    fleet = set_up("slot", waiting(shared))
    tip = work(fleet, one_file("one"))
    with accepting(fleet, 0):
        fleet.llmc("peek", "adam")
        fleet.llmc("logs", "adam", code=None)
        for args in (["reject", "adam", "No, not so"], ["reset", "adam"], ["nuke", "adam", "--yes"]):
            assert "is being accepted" in fleet.llmc(*args, code=3).err
        for args in (
            ["rebase", "adam"],
            ["pick", "adam"],
            ["start", "--worker", "adam", "--prompt", "x"],
        ):
            fleet.llmc(*args, code=3)
        fleet.wake("adam")  # its lane has the lock now, and must not think that a crash left this accept
        assert record(fleet)["accept"]["step"] == "validate"
        assert head(fleet) == tip
    assert fleet.log()[0] == "Add one"
    assert len(lines(fleet, "runs")) == 1
    assert len(fleet.events("accepted")) == 1


def test_a_message_cancels_the_accept(set_up: SetUp, shared: Fleet) -> None:
    """Breaks when it waits for the validation, or when the work lands despite the message."""
    fleet = set_up("slot", waiting(shared))
    work(fleet, one_file("one"))
    with accepting(fleet, 3) as said:
        told = fleet.llmc("message", "adam", f"@sh {one_file('two')}")
        assert "cancelled `llmc accept adam`; nothing landed" in told.err
        wait_until(lambda: "was cancelled" in (fleet.dir / "said").read_text(), story=fleet.story)
    assert "`llmc accept adam` was cancelled during validation; nothing landed" in said[0]
    assert fleet.log()[0] == "Add a check"
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")
    assert (fleet.source / "two").exists()


@pytest.mark.parametrize("way", ["slot", *in_soak("worktree")])
def test_recovery_leaves_held_work_alone(set_up: SetUp, way: str) -> None:
    """Breaks when finish_interrupted continues while the user holds the worker: held work would land."""
    fleet = set_up(way, "true\n")
    fleet.kill_daemon()
    work(fleet, one_file("one"))
    fleet.llmc("accept", "adam", code=KILLED, LLMC_FAULT="accept.land:before:kill")
    fleet.llmc("hold", "adam")
    fleet.up("--no-patrol")
    work(fleet, one_file("two"), "baker")  # a full round of another lane
    for _ in range(3):
        fleet.wake("adam")
        fleet.llmc("status")
    fleet.llmc("message", "adam", "hello", code=None)
    assert fleet.log()[0] == "Add a check"
    assert record(fleet)["accept"]["step"] == "land"
    fleet.llmc("release", "adam")
    wait_until(lambda: fleet.log()[0] == "Add one", story=fleet.story)


@pytest.mark.req("0-043")
def test_a_clean_merge_that_is_red_is_mended_in_one_round(scripted: Fleet) -> None:
    """Breaks when the worker stays on its old base: the check passes there, and its rounds are wasted."""
    fleet = scripted
    fleet.commit("check.sh", "! { test -e file-1 && test -e rule; }\n", "Add a check")
    auto.set_up(fleet, **{"repo.validate": "sh check.sh"})
    red = fleet.dir / "red"
    mend = f"sh check.sh || {{ pwd > {red}; git mv file-1 good; {COMMIT} 'Mended'; }}"
    add(fleet, 1, f"{auto.commit(1)}; {auto.until(fleet.dir / 'go')}", f"@on-verify {mend}")
    daemon = Daemon(fleet)
    wait_until(lambda: auto.at_work(fleet), 30, story=fleet.story)
    worker = next(iter(auto.at_work(fleet)))
    wait_until(lambda: (fleet.worktree(worker) / "file-1").exists(), 30, story=fleet.story)
    fleet.commit("rule", "rule\n", "A rule that the work breaks")
    (fleet.dir / "go").touch()
    auto.wait_completed(fleet, 1, 60)
    assert [row["round"] for row in fleet.events("task_sent_back")] == [1]
    assert red.read_text().strip() == str(fleet.worktree(worker))
    assert (fleet.source / "good").exists()
    daemon.stop()


def test_a_person_finds_the_worker_on_the_base_that_failed(set_up: SetUp) -> None:
    fleet = set_up("slot", "! { test -e one && test -e rule; }\n")
    tip = work(fleet, one_file("one"))
    fleet.commit("rule", "rule\n", "A rule that the work breaks")
    fleet.llmc("accept", "adam", code=1)
    assert (fleet.worktree("adam") / "rule").exists()
    assert fleet.status("adam")["status"] == "needs_review"
    assert fleet.git("for-each-ref", "--contains", tip, "refs/llmc/trash", cwd=fleet.root)


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_a_long_step_counts_its_seconds_on_a_terminal(fleet: Fleet) -> None:
    """Break: print a step once and stay silent while it runs; or print the seconds to a log file, too."""
    fleet.set_up("adam", config={"repo.validate": "sleep 1.3"})
    fleet.up("--no-patrol")
    commit = "git -c user.name=W -c user.email=w@e.com commit -qm Work"
    fleet.llmc("start", "--worker", "adam", "--prompt", f"@sh echo 1 > f; git add -A; {commit}")
    fleet.wait("adam", "needs_review")
    shown = fleet.on_terminal("accept", "adam", "--yes")
    lines = [line.rpartition("\r")[2] for line in shown.replace("\r\n", "\n").split("\n")]
    steps = [line.replace("\x1b[K", "") for line in lines if "..." in line]
    assert any(re.fullmatch(r"  validating the commit \.\.\. [1-9]\d*s", line) for line in steps), steps
    assert any(line.startswith("  landing the commit ...") for line in steps), steps
    assert any(line.startswith("\x1b[32maccepted adam") for line in lines)
