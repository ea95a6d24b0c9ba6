"""Conflicts with the default branch: the worker is told, resolves them itself, and nothing is lost."""

import json
import shutil
import signal
from collections.abc import Iterator

import pytest

from llmc.config.model import Notify
from llmc.notifications.rules import of_items
from llmc.records.items import Item
from tests.support.fleet import REAL_IN_SOAK, Fleet, in_soak
from tests.support.waiting import wait_until

WHO = "git -c user.name=Worker -c user.email=worker@example.com -c core.editor=true"
COMMIT = f"{WHO} commit -q -m"
CONTINUE = f"{WHO} rebase --continue"
BOTH = f"@on-conflict printf 'main\\nmine\\n' > a.txt; git add a.txt; {CONTINUE}"
KILLED = -signal.SIGKILL


def begin(fleet: Fleet, change: str, on_conflict: str, *, subject: str = "Mine", worker: str = "adam") -> str:
    """A worker that waits for review; returns its commit."""
    task = f"Do what I say\n@sh {change}; git add -A; {COMMIT} '{subject}'\n{on_conflict}"
    fleet.llmc("start", "--worker", worker, "--prompt", task)
    return str(fleet.wait(worker, "needs_review")["commit_sha"])


def record(fleet: Fleet, worker: str = "adam") -> dict[str, object]:
    return dict(json.loads((fleet.root / "state.json").read_text())["workers"][worker])


def is_pinned(fleet: Fleet, commit: str) -> bool:
    return bool(fleet.git("for-each-ref", "--contains", commit, "refs/llmc/trash", cwd=fleet.root))


def conflict_prompts(fleet: Fleet) -> list[str]:
    return [text for text in fleet.user_turns() if text.startswith("[llmc conflict-")]


LINES = "".join(f"line {n}\n" for n in range(30))


def set_up(fleet: Fleet, **config: str) -> Fleet:
    fleet.commit("a.txt", LINES, "Add a.txt")
    fleet.set_up("adam", config={key.replace("__", "."): value for key, value in config.items()})
    fleet.up()
    return fleet


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    fleet = set_up(Fleet("scripted"), defaults__patrol_interval_secs="600")  # it rebases, too
    yield fleet
    fleet.close()


@pytest.fixture
def running(shared: Fleet) -> Iterator[Fleet]:
    """A shared fleet: adam is idle, main has the original a.txt, and git remembers no resolution."""
    shared.plant({"a.txt": LINES})
    for known in (shared.root / ".git/rr-cache").glob("*"):
        shutil.rmtree(known)
    yield shared.new_case()
    shared.configure({"repo.validate": "", "notify.command": ""})
    shared.rest("adam")


@pytest.mark.req("1-016", "1-116", "2-017")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_a_conflict_at_accept_is_resolved_by_the_worker(fleet: Fleet) -> None:
    """Break: keep the accept's journal, abort the rebase before the worker sees it, or send /clear first."""
    set_up(fleet, repo__validate="grep -q mine a.txt")
    tip = begin(fleet, "echo mine > a.txt", BOTH)
    conversation = record(fleet)["claude_session_id"]
    fleet.commit("a.txt", "main\n", "Theirs")
    refused = fleet.llmc("accept", "adam", "--json", code=1)
    assert refused.json["conflicts"] == ["a.txt"]
    assert refused.json["status"] == "rebasing"
    assert (
        "adam's commits conflict with main in a.txt; adam is resolving the conflicts. Run `llmc accept adam` again once"
        in refused.err
    )
    done = fleet.wait("adam", "needs_review")
    assert done["reason"] == "conflicts resolved"
    assert record(fleet)["claude_session_id"] == conversation, (
        "the author of the change resolves it, with its context"
    )
    assert done["commit_sha"] == fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("adam")) != tip
    assert fleet.log()[0] == "Theirs", "nothing has landed yet"
    fleet.llmc("accept", "adam")
    assert fleet.log() == ["Mine", "Theirs", "Add a.txt", "First commit"]
    assert (fleet.source / "a.txt").read_text() == "main\nmine\n"
    assert is_pinned(fleet, tip)
    (prompt,) = conflict_prompts(fleet)
    assert "1 file with 1 conflict region:" in prompt
    assert "`a.txt` (Content, 1 marker)" in prompt
    assert "Do what I say" in prompt, "the task is quoted"
    assert "@sh echo mine" in prompt
    assert fleet.git("log", "--format=%s", "main").count("Mine") == 1, "its directives are not run again"
    assert [row["reason"] for row in fleet.events("accept_failed")] == ["conflicts in a.txt"]
    assert len(fleet.events("rebase_resolved")) == 1


RENAME = (
    "cat main.txt mine.txt > /dev/null; git rm -q --cached a.txt mine.txt; rm -f mine.txt; git add main.txt"
)
#: what the prompt says about each: a line in the summary, and the options
WORDS = {
    "modify/delete": ("modified by you, deleted in main", "`git add a.txt`", "`git rm a.txt`"),
    "delete/modify": ("deleted by you, modified in main", "`git add a.txt`", "`git rm a.txt`"),
    "add/add": ("added by both you and main", "Combine the contents, then run\n`git add new.txt`"),
    "rename/rename": (
        "renamed differently by you and main",
        "`git add main.txt` and `git rm a.txt mine.txt`",
        "`git add mine.txt` and `git rm a.txt main.txt`",
    ),
}
KINDS = {
    "modify/delete": (["rm", "-q", "a.txt"], "echo mine > a.txt", "git add a.txt", "ModifyDelete"),
    "delete/modify": (None, "git rm -q a.txt; echo o > other.txt", "git rm -q a.txt", "ModifyDelete"),
    "add/add": (None, "echo mine > new.txt", "printf 'both\\n' > new.txt; git add new.txt", "AddAdd"),
    "rename/rename": (
        ["mv", "a.txt", "main.txt"],
        "git mv a.txt mine.txt; echo o > o.txt",
        RENAME,
        "RenameRename",
    ),
}


@pytest.mark.req("1-132", "2-018", "2-019")
@pytest.mark.parametrize("kind", ["modify/delete", "rename/rename", *in_soak("delete/modify", "add/add")])
def test_each_kind_of_conflict(running: Fleet, kind: str) -> None:
    """Break: detect conflicts by their markers; three of the kinds may have none.

    Or use one sentence for all kinds in conflicts.describe, or in the details of the template.
    """
    theirs, mine, resolve, shown = KINDS[kind]
    tip = begin(running, mine, f"@on-conflict {resolve}; {CONTINUE}")
    if theirs:
        running.git(*theirs)
        running.git("commit", "-q", "-m", "Theirs")
    else:
        running.commit("new.txt" if kind == "add/add" else "a.txt", "main\n", "Theirs")
    rebased = running.llmc("rebase", "adam", code=1)
    assert "adam is resolving the conflicts" in rebased.err
    assert running.wait("adam", "needs_review")["reason"] == "conflicts resolved"
    (prompt,) = conflict_prompts(running)
    assert f"({shown}, " in prompt
    assert "\n1 file with 1 conflict region:" in prompt or "\n1 file with 0 conflict" in prompt
    for words in WORDS[kind]:
        assert words in prompt
    running.llmc("accept", "adam")
    assert running.log()[:2] == ["Mine", "Theirs"]
    assert is_pinned(running, tip)


@pytest.mark.req("1-133", "2-021")
def test_the_labels_in_the_prompt_are_true(running: Fleet) -> None:
    """What the prompt labels as the default branch's version is that version; the same for the worker's own.

    Break: swap :2: and :3: in the template, as in document 002.
    """
    look = f"git show :2:a.txt > {running.dir}/two; git show :3:a.txt > {running.dir}/three"
    begin(running, "echo mine > a.txt", f"@on-conflict {look}; {WHO} rebase --abort")
    running.commit("a.txt", "main\n", "Theirs")
    running.llmc("rebase", "adam", code=1)
    running.wait("adam", "needs_review")
    (prompt,) = conflict_prompts(running)
    assert "- main's version: `git show :2:<file>`" in prompt
    assert "- your own version: `git show :3:<file>`" in prompt
    assert "- DO NOT use `git rebase --abort` unless the conflicts cannot be resolved" in prompt
    assert (running.dir / "two").read_text() == "main\n"
    assert (running.dir / "three").read_text() == "mine\n"


@pytest.mark.req("1-135")
def test_aborted_by_the_worker(running: Fleet) -> None:
    """Break: treat the end of a rebase as its success; or report it only in the status."""
    tip = begin(running, "echo mine > a.txt", f"@on-conflict {WHO} rebase --abort")
    running.commit("a.txt", "main\n", "Theirs")
    running.llmc("accept", "adam", code=1)
    done = running.wait("adam", "needs_review")
    assert done["reason"] == "rebase aborted by the worker"
    assert done["commit_sha"] == tip
    assert len(running.events("rebase_aborted")) == 1
    assert record(running)["pre_rebase_sha"] == ""
    (item,) = [row for row in running.llmc("status", "--json").json["attention"] if row["who"] == "adam"]
    assert (item["kind"], item["severity"]) == ("conflict", "blocked")
    assert item["next"].startswith("llmc rebase adam, or llmc console adam")
    (notice,) = of_items([Item(**item)], Notify().on, ["adam"])
    assert (notice.kind, "rebase aborted by the worker" in notice.title) == ("worker_error", True), (
        "notified by default"
    )


@pytest.mark.soak
@pytest.mark.req("1-135")
def test_an_aborted_rebase_is_told_over_the_channel(scripted: Fleet) -> None:
    """With its own daemon. Break: report it only in the status."""
    told = scripted.dir / "told"
    told.mkdir()
    command = f"cat > {told}/new-$$; mv {told}/new-$$ {told}/told-$$"
    scripted.set_up("adam", config={"notify.command": command})
    scripted.up("--no-patrol")
    begin(scripted, "echo mine > a.txt", f"@on-conflict {WHO} rebase --abort")
    scripted.commit("a.txt", "main\n", "Theirs")
    scripted.llmc("accept", "adam", code=1)
    scripted.wait("adam", "needs_review")
    notices = [json.loads(path.read_text()) for path in wait_until(lambda: list(told.glob("told-*")))]
    assert [(row["kind"], row["worker"]) for row in notices] == [("worker_error", "adam")]
    assert "rebase aborted by the worker" in notices[0]["title"]


@pytest.mark.req("2-016", "2-023")
@pytest.mark.parametrize("what", ["nothing", *in_soak("markers committed", "quit")])
def test_three_rounds_and_then_a_person(running: Fleet, what: str) -> None:
    """Break: prompt again without counting, or accept a commit that still has markers."""
    does = {
        "nothing": "true",
        "markers committed": f"git add -A; {CONTINUE}; true",
        "quit": "git rebase --quit; git checkout -q -f llmc/adam; echo more >> a.txt; git add -A; "
        f"{COMMIT} 'Not on main'; true",
    }[what]
    tip = begin(running, "echo mine > a.txt", f"@on-conflict {does}")
    running.commit("a.txt", "main\n", "Theirs")
    running.llmc("accept", "adam", code=1)
    failed = running.wait("adam", "error")
    assert failed["cause"] == "git"
    assert "after 3 rounds" in failed["error_reason"]
    kept = record(running)
    assert (kept["conflicted_files"], kept["resolution_attempts"]) == (["a.txt"], 3)
    (begun,) = running.events("rebase_started")
    assert abs(float(str(kept["rebase_started_at_unix"])) - begun["ts"]) < 1
    prompts = conflict_prompts(running)
    assert len(prompts) == 3
    assert "This is round 3 of 3" in prompts[2]
    assert ("You are in the middle of that rebase" in prompts[2]) == (what == "nothing")
    assert [row["round"] for row in running.events("rebase_unresolved")] == [1, 2, 3]
    assert running.log()[0] == "Theirs"
    assert is_pinned(running, tip)


def test_a_question_about_a_conflict_is_answered_from_outside(running: Fleet) -> None:
    """Break: answer only in `needs_input`; the dialog stays open, and `answer` denies that there is one."""
    begin(
        running, "echo mine > a.txt", f"@on-conflict while ! test -e {running.dir}/ask; do sleep 0.05; done"
    )
    running.commit("a.txt", "main\n", "Theirs")
    running.llmc("rebase", "adam", code=1)
    resolve = f"@sh printf 'main\\nmine\\n' > a.txt; git add a.txt; {CONTINUE}"
    running.llmc("message", "adam", f"@ask Keep both?\n{resolve}")
    (running.dir / "ask").touch()

    def asks() -> list[dict[str, str]]:
        listed = running.llmc("status", "--json").json["attention"]
        return [item for item in listed if item["kind"] == "question"]

    (item,) = wait_until(asks)
    assert (item["text"], item["next"]) == ("Keep both? [1] Yes [2] No", "llmc answer adam")
    assert running.status("adam")["status"] == "rebasing"
    assert "answer it first with `llmc answer adam`" in running.llmc("message", "adam", "hello", code=3).err
    assert running.llmc("answer", "adam", "1").out.startswith("adam: acknowledged")
    running.wait("adam", "needs_review")
    assert "has no open question (status: needs_review)" in running.llmc("answer", "adam", "1", code=3).err


@pytest.mark.req("1-020")
def test_what_a_rebasing_worker_takes(running: Fleet) -> None:
    """Break: add `rebasing` to the statuses from which a task starts."""
    begin(running, "echo mine > a.txt", f"@on-conflict while ! test -e {running.dir}/go; do sleep 0.05; done")
    running.commit("a.txt", "main\n", "Theirs")
    running.llmc("rebase", "adam", code=1)
    assert running.status("adam")["status"] == "rebasing"
    assert running.status("adam")["conflicted_files"] == ["a.txt"]
    running.llmc("start", "--worker", "adam", "--prompt", "@say no", code=3)
    running.llmc("accept", "adam", code=3)
    running.llmc("rebase", "adam", code=3)
    resolve = f"@sh printf 'by message\\n' > a.txt; git add a.txt; {CONTINUE}"
    running.llmc("message", "adam", resolve)
    (running.dir / "go").touch()
    running.wait("adam", "needs_review")
    running.llmc("accept", "adam")
    assert (running.source / "a.txt").read_text() == "by message\n"


def test_a_resolution_git_remembers_is_used_again(running: Fleet) -> None:
    """The same conflict twice: the second time, git's rerere resolves it without the worker.

    Break: treat a rebase that stopped without unmerged files as a failure.
    """
    tip = begin(running, "echo mine > a.txt", BOTH)
    running.commit("a.txt", "main\n", "Theirs")
    running.llmc("rebase", "adam", code=1)
    running.wait("adam", "needs_review")
    running.git("reset", "-q", "--hard", tip, cwd=running.worktree("adam"))
    assert running.llmc("rebase", "adam", "--json").json["result"] == "clean"
    assert len(conflict_prompts(running)) == 1
    running.llmc("accept", "adam")
    assert (running.source / "a.txt").read_text() == "main\nmine\n"


def test_clean_and_up_to_date(running: Fleet) -> None:
    """Break: leave the old commit_sha in the record."""
    running.configure({"repo.validate": f"echo v >> {running.dir}/validated"})
    tip = begin(running, "echo mine > mine.txt", "")
    assert "up to date" in running.llmc("rebase", "adam").out
    running.commit("b.txt", "main\n", "Theirs")
    running.llmc("hold", "adam")
    running.llmc("rebase", "adam", code=3)
    running.llmc("release", "adam")
    clean = running.llmc("rebase", "adam", "--json").json
    assert clean["result"] == "clean"
    assert running.status("adam")["commit_sha"] == clean["commit"] != tip
    assert (running.dir / "validated").read_text() == "v\n"
    assert is_pinned(running, tip)
    assert running.llmc("rebase", "adam", "--json").json["result"] == "up_to_date"
    running.llmc("accept", "adam")
    assert running.log()[:2] == ["Mine", "Theirs"]
    running.llmc("rebase", "adam", code=3)


def test_another_failure_of_git_changes_nothing(running: Fleet) -> None:
    """Break: treat every failing rebase as a conflict."""
    tip = begin(running, "echo mine > mine.txt", "")
    running.commit("b.txt", "main\n", "Theirs")
    blocked = running.root / ".git/worktrees/adam/rebase-merge"
    blocked.symlink_to("nowhere")
    failed = running.llmc("rebase", "adam", code=1)
    assert "rebase-merge" in failed.err
    after = running.status("adam")
    assert (after["status"], after["commit_sha"]) == ("needs_review", tip)
    assert running.git("rev-parse", "HEAD", cwd=running.worktree("adam")) == tip
    assert record(running)["pre_rebase_sha"] == ""
    blocked.unlink()
    running.llmc("rebase", "adam")
    running.llmc("accept", "adam")


def test_the_agent_crashes_while_it_resolves(running: Fleet) -> None:
    """After a restart, it finds its rebase open and is told once more.

    Break: forget the open rebase when a worker goes offline.
    """
    mark = running.dir / "crashed"
    crash = f"test -e {mark} || (touch {mark}; kill -9 $(ps -o ppid= -p $PPID) $PPID)"
    tip = begin(running, "echo mine > a.txt", f"@on-conflict {crash}\n{BOTH}")
    running.commit("a.txt", "main\n", "Theirs")
    running.llmc("rebase", "adam", code=1)
    wait_until(mark.exists)
    running.wait("adam", "offline")
    running.llmc("down", "--force")
    running.up()
    assert running.wait("adam", "needs_review")["reason"] == "conflicts resolved"
    assert is_pinned(running, tip)
    running.llmc("accept", "adam")
    assert (running.source / "a.txt").read_text() == "main\nmine\n"


@pytest.fixture(scope="module")
def crashing() -> Iterator[Fleet]:
    fleet = Fleet("scripted")
    set_up(fleet)
    fleet.kill_daemon()
    yield fleet
    fleet.close()


#: the end of a step is nearly the start of the next one: those run in `make soak`
POINTS = [
    "rebase.record:before",
    "rebase.prompt:after",
    *in_soak(
        *(f"rebase.{step}:before" for step in ("persist", "run", "prompt")),
        *(f"rebase.{step}:after" for step in ("persist", "run", "record")),
    ),
]


@pytest.mark.parametrize("command", ["accept", pytest.param("rebase", marks=pytest.mark.soak)])
@pytest.mark.parametrize("point", [*POINTS, "submit.paste:after"])
def test_killed_with_conflicts_and_repeated(crashing: Fleet, point: str, command: str) -> None:
    """Break: start the rebase before the intent is in state, or tell the worker before its status is."""
    subject = f"{command} killed at {point}"
    tip = begin(crashing, f"echo '{subject}' > a.txt", BOTH, subject=subject)
    crashing.commit("a.txt", f"main {subject}\n", f"Theirs: {subject}")
    told = len(conflict_prompts(crashing))
    crashing.llmc(command, "adam", code=KILLED, LLMC_FAULT=f"{point}:kill")
    if point != "rebase.prompt:after":  # by then it was told, and repeating is a new command
        crashing.llmc(command, "adam", code=1)
    crashing.wait("adam", "needs_review")
    assert len(conflict_prompts(crashing)) == told + 1, "told exactly once"
    assert is_pinned(crashing, tip)
    crashing.llmc("accept", "adam")
    assert crashing.log()[:2] == [subject, f"Theirs: {subject}"]
    assert record(crashing)["pre_rebase_sha"] == ""


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.soak)])
@pytest.mark.parametrize("step", ["rebase.record", *in_soak("rebase.persist", "rebase.run")])
def test_killed_in_a_clean_rebase_and_repeated(crashing: Fleet, step: str, when: str) -> None:
    """Break: keep the intent when the work was already done."""
    subject = f"clean, killed {when} {step}"
    tip = begin(crashing, f"echo '{subject}' > mine.txt", "", subject=subject)
    crashing.commit("b.txt", f"main {subject}\n", f"Theirs: {subject}")
    crashing.llmc("rebase", "adam", code=KILLED, LLMC_FAULT=f"{step}:{when}:kill")
    result = crashing.llmc("rebase", "adam", "--json").json["result"]
    assert result == ("up_to_date" if (step, when) == ("rebase.record", "after") else "clean")
    assert record(crashing)["pre_rebase_sha"] == ""
    assert crashing.status("adam")["commit_sha"] == crashing.git(
        "rev-parse", "HEAD", cwd=crashing.worktree("adam")
    )
    assert is_pinned(crashing, tip)
    crashing.llmc("accept", "adam")
    assert crashing.log()[:2] == [subject, f"Theirs: {subject}"]
