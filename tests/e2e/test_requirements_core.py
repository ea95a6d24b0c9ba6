"""Promises of docs/requirements/core.md that no other test proves, on the scripted agent."""

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
SECRET = "sk-not-for-the-state"
ROLE = "You are Baker, who bakes."


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    """Three workers and a daemon without patrol; every test leaves adam idle."""
    fleet = Fleet("scripted")
    fleet.env["ANTHROPIC_API_KEY"] = SECRET
    fleet.llmc("init", "--source", str(fleet.source), "--target", str(fleet.root), cwd=fleet.dir)
    (fleet.home / "project").symlink_to(fleet.source)
    fleet.llmc("config", "set", "repo.source", "~/project")
    fleet.llmc("config", "set", "repo.setup", "echo the setup ran")
    fleet.llmc("config", "set", "repo.validate", "echo the validation ran")
    fleet.llmc("config", "set", "defaults.patrol_interval_secs", "0.2")
    fleet.llmc("add", "aaron", "--excluded-from-pool")
    fleet.llmc("add", "adam")
    fleet.llmc("add", "baker", "--model", "sonnet", "--role-prompt", ROLE)
    shutil.rmtree(fleet.worktree("baker"))
    assert {fleet.status(name)["status"] for name in ("aaron", "adam", "baker")} == {"offline"}
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


def state_of(fleet: Fleet) -> dict[str, Any]:
    return dict(json.loads((fleet.root / "state.json").read_text()))


def pane(fleet: Fleet, worker: str, format: str) -> str:
    return fleet.tmux("display-message", "-p", "-t", fleet.session(worker), format).strip()


def task(subject: str, *, file: str = "file.txt") -> str:
    return f"@sh echo '{subject}' > {file}; git add {file}; {COMMIT} '{subject}'"


def turn_of(fleet: Fleet, sent: dict[str, Any]) -> str:
    """The one turn that a prompt started, as the agent recorded it."""
    (turn,) = [turn for turn in fleet.user_turns() if turn.startswith(f"[llmc {sent['prompt_id']}]\n")]
    return turn


def accepted(fleet: Fleet, worker: str = "adam") -> None:
    fleet.wait(worker, "needs_review")
    fleet.llmc("accept", worker)


@pytest.mark.req("1-002", "1-003", "1-005", "1-006", "1-090", "1-095", "2-002", "2-007")
def test_the_root_after_init_and_add(running: Fleet) -> None:
    """Break: share the clone's files with the source, put a worktree elsewhere,
    skip a setting of setup._clone.
    """
    root = running.root
    assert (root / "config.toml").is_file()
    assert state_of(running)["version"] == 1
    assert (root / "logs").is_dir()
    assert (root / ".git").is_dir()
    setting = {key: running.git("config", key, cwd=root) for key in ("rerere.enabled", "rerere.autoupdate")}
    assert setting == {"rerere.enabled": "true", "rerere.autoupdate": "true"}
    assert Path(running.git("config", "remote.origin.url", cwd=root)).samefile(running.source)
    assert not Path(running.git("config", "remote.origin.pushurl", cwd=root)).exists()
    first = running.git("rev-list", "--max-parents=0", "main")
    objects = [path for path in (root / ".git/objects").rglob("*") if path.is_file()]
    assert objects
    assert all(path.stat().st_nlink == 1 for path in objects), "an agent could reach the source's files"
    listed = running.git("worktree", "list", "--porcelain", cwd=root)
    for name in ("aaron", "adam", "baker"):
        assert f"worktree {root}/.worktrees/{name}\n" in listed
        assert f"branch refs/heads/llmc/{name}" in listed
        assert running.git("merge-base", f"llmc/{name}", "main", cwd=running.worktree(name))
        assert running.git("merge-base", f"llmc/{name}", first, cwd=root) == first
    config = (root / "config.toml").read_text()
    assert 'model = "sonnet"' in config
    assert ROLE in config
    assert "already" in running.llmc("add", "adam", code=3).err


@pytest.mark.req("1-091", "2-029")
def test_up_makes_what_is_missing_and_everybody_is_idle(running: Fleet) -> None:
    """Break: no provision in Daemon._bring_up; baker's worktree was removed before `up`."""
    assert (running.worktree("baker") / ".git").exists()
    for name in ("aaron", "adam", "baker"):
        assert running.status(name)["status"] == "idle"
        moves = [e["to"] for e in running.events("status_changed") if e["worker"] == name]
        assert moves[0] == "idle"
        assert pane(running, name, "#{pane_dead}") == "0"


@pytest.mark.req("1-031", "1-032", "1-036", "1-051", "1-052", "1-053", "1-060", "2-005", "2-006", "2-032")
def test_how_an_agent_is_launched(running: Fleet) -> None:
    """Break: a flag left out of ClaudeCode.argv, a mark out of sessions._environment,
    the size out of Tmux._launch.
    """
    for name, model in (("adam", "opus"), ("baker", "sonnet")):
        process = Path("/proc", pane(running, name, "#{pane_pid}"))
        argv = (process / "cmdline").read_text().split("\0")
        assert argv[argv.index("--model") + 1] == model
        assert "--dangerously-skip-permissions" in argv
        assert argv[argv.index("--allowedTools") + 1] == "Bash,Edit,Read,Write,Glob,Grep"
        assert "--output-format" not in argv
        assert not {"-p", "--print"} & set(argv)
        settings = json.loads(Path(argv[argv.index("--settings") + 1]).read_text())
        assert settings["skipDangerousModePermissionPrompt"] is True
        environ = dict(item.split("=", 1) for item in (process / "environ").read_text().split("\0") if item)
        assert (environ["LLMC_WORKER"], environ["LLMC_ROOT"]) == (name, str(running.root))
        assert environ["LLMC_INSTANCE"] == state_of(running)["workers"][name]["instance"] != ""
        assert os.readlink(process / "cwd") == str(running.worktree(name))
        size = pane(running, name, "#{pane_width}x#{pane_height} #{session_attached}")
        assert size == "500x100 0"


@pytest.mark.req("1-037", "1-101", "1-102", "1-103", "2-010", "2-011")
def test_what_start_does_before_and_with_the_prompt(running: Fleet) -> None:
    """Break: no refresh_base in start_task, no /clear, or a line of the preamble left out."""
    newest = running.commit("news.txt", "news\n", "News of a person")
    (running.worktree("baker") / "draft.txt").write_text("never committed\n")
    sent = running.llmc("start", "--worker", "baker", "--prompt", "@say Bake a cake", "--json").json
    running.wait("baker", "needs_input")
    assert running.git("rev-parse", "HEAD", cwd=running.worktree("baker")) == newest
    assert not (running.worktree("baker") / "draft.txt").exists()
    pinned = running.events("work_pinned")[-1]
    assert pinned["worker"] == "baker"
    assert running.git("show", f"{pinned['ref']}:draft.txt", cwd=running.root) == "never committed"
    cleared = [e for e in running.events("session_started") if e["worker"] == "baker"][-1]
    assert cleared["source"] == "clear"
    _, text = turn_of(running, sent).split("\n", 1)
    assert text.startswith(ROLE)
    for words in (
        f"You are working in: {running.worktree('baker')}\n",
        f"Repository root: {running.root}\n",
        "AGENTS.md",
        "echo the validation ran",
        "a single commit with a detailed message",
        "DO NOT push",
    ):
        assert words in text
    assert text.rstrip().endswith("@say Bake a cake")


@pytest.mark.req("1-104")
def test_a_message_goes_into_the_running_conversation(running: Fleet) -> None:
    """Break: submit a message with clear=True."""
    running.llmc("start", "--worker", "adam", "--prompt", "@say hello")
    running.wait("adam", "needs_input")
    before = state_of(running)["workers"]["adam"]["claude_session_id"]
    running.llmc("message", "adam", task("Asked by message"))
    accepted(running)
    assert [
        turn
        for turn in running.user_turns()
        if turn.startswith("[llmc message-") and "Asked by message" in turn
    ]
    assert state_of(running)["workers"]["adam"]["claude_session_id"] == before


@pytest.mark.req("1-038", "1-099")
def test_an_excluded_worker_gets_tasks_by_name_only(running: Fleet) -> None:
    """Break: leave `excluded` out of `_is_free`; aaron comes before adam."""
    started = running.llmc("start", "--json", "--prompt", task("Picked")).json
    assert started["worker"] == "adam"
    accepted(running)
    running.llmc("start", "--worker", "aaron", "--prompt", task("Named"))
    accepted(running, "aaron")


PHRASES = [
    "Do you want to proceed?",
    "❯ 1. Yes, and don't ask again",
    "I have completed the task. All tests pass.",
    "Error: API Error (529 overloaded)",
    "You've hit your usage limit",
    "Bypass Permissions mode",
    "> ",
    "bash-5.2$ ",
]


@pytest.mark.req("1-012", "1-019", "1-072", "1-075", "2-033")
def test_neither_words_on_the_screen_nor_a_commit_end_a_turn(running: Fleet) -> None:
    """Break: judge a worker by its screen, or treat a commit as the end of its task."""
    go, turns = running.dir / "go", len(running.user_turns())
    hold = f"while [ ! -e {go} ]; do sleep 0.05; done"
    base = running.git("rev-parse", "main")
    running.llmc("start", "--worker", "adam", "--prompt", f"{task('Half of it')}; {hold}")
    wait_until(lambda: running.git("rev-parse", "HEAD", cwd=running.worktree("adam")) != base)
    Path(pane(running, "adam", "#{pane_tty}")).write_text("\r\n" + "\r\n".join(PHRASES))
    wait_until(lambda: "usage limit" in running.screen("adam"))
    running.wake("adam")
    others = "offline,idle,needs_input,needs_review,rejected,rebasing,no_changes,error"
    unmoved = running.llmc("wait", "adam", "--status", others, "--timeout", "1.5", code=1)
    assert "adam is working" in unmoved.err
    assert len(running.user_turns()) == turns + 1, "llmc typed without being asked"
    go.touch()
    done = running.wait("adam", "needs_review")
    assert done["commit_sha"] == running.git("rev-parse", "HEAD", cwd=running.worktree("adam"))
    running.llmc("accept", "adam")


@pytest.mark.req("1-040", "1-047")
def test_the_record_of_a_worker(running: Fleet) -> None:
    """Break: rename a field of WorkerRecord, or store the launch's environment in it."""
    text = "Two lines\n" + task("Recorded")
    running.llmc("start", "--worker", "adam", "--prompt", text)
    tip = running.wait("adam", "needs_review")["commit_sha"]
    record = state_of(running)["workers"]["adam"]
    assert record["name"] == "adam"
    assert record["worktree_path"] == str(running.worktree("adam"))
    assert record["branch"] == "llmc/adam"
    assert record["status"] == "needs_review"
    assert record["current_prompt"] == text
    assert record["commit_sha"] == tip
    assert record["session_id"] == f"llmc-{running.root.name}-adam"
    assert 0 < record["created_at_unix"] < record["last_activity_unix"]
    environ = Path("/proc", pane(running, "adam", "#{pane_pid}"), "environ").read_text()
    assert SECRET in environ, "the agent itself has the key"
    for name in ("state.json", "state.json.bak", "logs/events.jsonl", "logs/daemon.jsonl"):
        assert SECRET not in (running.root / name).read_text()
    running.llmc("accept", "adam")


@pytest.mark.req("1-004", "1-007", "1-035", "1-110", "1-111", "1-112", "1-142")
def test_from_two_commits_to_one(running: Fleet) -> None:
    """Break: no expanduser in Project.source, no tree check in accept, no clean() of the message, no bell."""
    credits = (
        "🤖 Generated with [Claude Code](https://claude.com/claude-code)",
        "Co-Authored-By: Claude <noreply@anthropic.com>",
        "Co-Authored-By: Cursor Agent <cursoragent@cursor.com>",
        "Co-Authored-By: Jane Doe <jane@example.com>",
    )
    signed = " ".join(f"-m '{line}'" for line in credits)
    second = f"@sh echo 2 > two.txt; git add two.txt; {COMMIT} 'Second' {signed}"
    running.llmc("start", "--worker", "adam", "--prompt", f"{task('First')}\n{second}")
    running.wait("adam", "needs_review")
    wait_until(
        lambda: (
            "adam: needs_review (stopped with commits)\a" in (running.root / "logs/daemon.out").read_text()
        )
    )
    loose = running.worktree("adam") / "loose.txt"
    loose.write_text("not committed")
    assert "uncommitted changes: loose.txt" in running.llmc("accept", "adam", code=3).err
    loose.unlink()
    other = running.commit("meanwhile.txt", "x\n", "Meanwhile")
    landed = running.llmc("accept", "adam", "--json").json["commit"]
    assert running.git("rev-parse", "main", "main^").split() == [landed, other]
    body = running.git("show", "-s", "--format=%B", "main")
    assert "First" in body
    assert "Second" in body
    assert [word for word in ("Claude", "Cursor", "Generated") if word in body] == []
    assert "Co-Authored-By: Jane Doe <jane@example.com>" in body, "a human's credit is not ours to take"
    log = (running.root / "logs/adam.log").read_text()
    assert "the setup ran" in log
    assert "the validation ran" in log


@pytest.mark.req("1-004")
def test_each_worker_has_a_log_from_its_first_prompt_on(running: Fleet) -> None:
    """Break: write to it only when a command runs or an agent crashes; or leave the note out of `submit`."""
    log = running.root / "logs/aaron.log"
    before = log.read_text() if log.exists() else ""
    sent = running.llmc(
        "start", "--worker", "aaron", "--prompt", f"Log this\n{task('Logged')}", "--json"
    ).json
    running.wait("aaron", "needs_review")
    running.llmc("reset", "aaron")
    told = log.read_text().removeprefix(before)
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}"
    order = (
        rf"^{stamp} sending {sent['prompt_id']}:$",
        r"^Log this$",
        rf"^{stamp} {sent['prompt_id']}: (acknowledged|queued)$",
        rf"^{stamp} working -> needs_review: ",
        rf"^{stamp} needs_review -> idle: ",
    )
    places = [match.start() if (match := re.search(line, told, re.MULTILINE)) else -1 for line in order]
    assert -1 not in places, told
    assert places == sorted(places), told
    assert "Log this" not in (running.root / "logs/adam.log").read_text()
    assert told.strip().splitlines()[-1] in running.llmc("logs", "aaron").out


@pytest.mark.req("1-058", "1-098")
def test_a_long_task_from_a_file(running: Fleet) -> None:
    """Break: paste it regardless of its size."""
    path = running.dir / "task.md"
    path.write_text("a long story\n" * 10_000)
    sent = running.llmc("start", "--worker", "adam", "--prompt-file", str(path), "--json").json
    running.wait("adam", "needs_input")
    turn = turn_of(running, sent)
    assert len(turn) < 1000
    named = re.search(r"/\S+\.md", turn)
    assert named, turn
    assert path.read_text().strip() in Path(named[0]).read_text()
    running.llmc("message", "adam", task("After the story"))
    accepted(running)


@pytest.mark.req("1-097", "2-009")
def test_status_as_text(running: Fleet) -> None:
    """Break: leave the age or the badge out of overview._Columns._line."""
    prompt = "@say " + "word " * 40
    running.llmc("start", "--worker", "adam", "--prompt", prompt)
    running.wait("adam", "needs_input")
    title, *lines = running.llmc("status").out.splitlines()
    assert str(running.root) in title
    assert "daemon" in title
    (line,) = [line for line in lines if line.split()[:1] == ["adam"]]
    _, badge, age, *task_words = line.split()
    assert badge == "[needs_input]"
    assert re.fullmatch(r"\d+s", age)
    assert task_words[:2] == ["@say", "word"]
    assert line.endswith("…")
    assert sorted(line.split()[0] for line in lines if "[" in line) == ["aaron", "adam", "baker"]
    assert max(map(len, lines)) <= 80
    running.llmc("message", "adam", task("After the words"))
    accepted(running)


def test_every_worker_was_left_idle(running: Fleet) -> None:
    assert running.status("adam")["status"] == "idle"
    assert not running.status("adam")["accept_step"]


@pytest.mark.req("1-018", "1-080", "1-082", "1-093", "1-141", "2-033")
@pytest.mark.soak
def test_patrol_finds_a_session_that_is_gone(scripted: Fleet) -> None:
    """A pane without its mark is not a worker's agent, although its process lives: only patrol can notice.

    Break: no _patrol in Daemon._serve, patrol with --no-patrol, or a launch in sessions.reconcile.
    """
    scripted.set_up("adam", "baker", config={"defaults.patrol_interval_secs": "0.2"})
    scripted.up("--no-patrol")
    # The daemon checks all workers once when it starts; a whole task later that is over.
    scripted.llmc("start", "--worker", "baker", "--prompt", "@say hello")
    scripted.wait("baker", "needs_input")
    scripted.llmc("reset", "baker", "--yes")
    mark = ("set-option", "-p", "-t", scripted.session("adam"), "@llmc")
    before = scripted.tmux("show-options", "-pv", "-t", scripted.session("adam"), "@llmc").strip()
    scripted.tmux(*mark, "another")
    scripted.llmc("wait", "adam", "--status", "offline", "--timeout", "1.5", code=1)
    scripted.tmux(*mark, before)
    scripted.llmc("down")
    scripted.up()
    scripted.llmc("start", "--worker", "baker", "--prompt", "@say once\n@crash 3")
    scripted.wait("baker", "offline")
    scripted.tmux(*mark, "another")
    gone = scripted.wait("adam", "offline", timeout=10)
    assert gone["reason"] == "session gone"
    scripted.llmc("wait", "adam", "--status", "idle,working", "--timeout", "1.5", code=1)
    launched = [event["worker"] for event in scripted.events("session_launched")]
    assert sorted(launched) == ["adam", "adam", "baker", "baker"], "once per `up`"
    assert len([turn for turn in scripted.user_turns() if "@say once" in turn]) == 1


@pytest.mark.req("1-053", "1-054", "1-062", "2-025")
def test_a_prompt_or_a_dialog_on_the_screen_is_no_sign_of_readiness(scripted: Fleet) -> None:
    """Break: wait for `>` instead of SessionStart, or answer the dialog with Down and Enter."""
    missing = scripted.set_up("adam", "baker", config={"defaults.ready_timeout_s": "3"}).llmc(
        "up", code=1, LLMC_AGENT="/none/claude"
    )
    assert "/none/claude is not an executable file" in missing.err
    assert "agent_command" in missing.err
    client, keys = scripted.dir / "client", scripted.dir / "keys"
    dialog = "Bypass Permissions mode\\n\\n 1. No, exit\\n 2. Yes, I accept\\n\\n> \\n❯ "
    client.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec echo 2.1\n[ $LLMC_WORKER = baker ] && exec {sys.executable} -P -m '
        f"llmc.agents.scripted \"$@\"\nprintf '{dialog}'\nstty raw\nexec cat > {keys}\n"
    )
    client.chmod(0o755)
    scripted.config_dir.mkdir()
    scripted.env |= {
        "LLMC_AGENT": str(client),
        "CLAUDE_CODE_SANDBOXED": "1",
        "CLAUDE_CONFIG_DIR": str(scripted.config_dir),
    }
    out = scripted.llmc("up", "--detach").out
    assert "adam" in out
    assert "was not ready after 3 s" in out
    assert "I accept" in scripted.screen("adam")
    assert keys.read_bytes() == b""
    assert scripted.status("adam")["status"] == "offline"
    assert "llmc peek adam" in scripted.status("adam")["error_reason"]
    assert scripted.status("baker")["status"] == "idle"


@pytest.mark.req("1-094", "1-142", "2-015")
@pytest.mark.soak
def test_down_ends_everything_even_a_daemon_that_hangs(scripted: Fleet) -> None:
    """Break: no leftovers in sessions.end, no SIGKILL in daemon/control.py, or a bell that is always on.

    Or no Escape in sessions.end: the transcript would not say that the turn was interrupted.
    """
    scripted.set_up("adam", "baker", config={"defaults.sound_on_review": "false"})
    scripted.up()
    scripted.llmc("start", "--worker", "baker", "--prompt", task("Quiet"))
    scripted.wait("baker", "needs_review")
    shown = scripted.root / "logs/daemon.out"
    wait_until(lambda: "baker: needs_review" in shown.read_text())
    assert "\a" not in shown.read_text()
    left = scripted.dir / "left"
    prompt = f"@sh setsid sh -c 'echo $$ > {left}.new; mv {left}.new {left}; exec sleep 300' & sleep 300"
    scripted.llmc("start", "--worker", "adam", "--prompt", prompt)
    wait_until(left.exists)
    # In order: the turn is interrupted, the conversation saved, every process ended, and the state updated.
    processes = [
        int(left.read_text()),
        *(int(pane(scripted, name, "#{pane_pid}")) for name in ("adam", "baker")),
    ]
    scripted.llmc("down")
    assert [pid for pid in processes if _lives(pid)] == []
    assert scripted.tmux("list-sessions") == ""
    rows = [json.dumps(row) for row in scripted.transcript_rows()]
    assert any("[Request interrupted by user" in row for row in rows)
    record = scripted.record("adam")
    assert (record["status"], record["reason"], record["current_prompt"]) == ("offline", "down", prompt)
    left.unlink()
    scripted.up()
    scripted.llmc("message", "adam", prompt)
    wait_until(left.exists)
    processes = [int(pane(scripted, name, "#{pane_pid}")) for name in ("adam", "baker")]
    processes += [int(left.read_text()), scripted.daemon_pid()]
    os.kill(scripted.daemon_pid(), signal.SIGSTOP)
    said = scripted.llmc("down", "--force").out
    assert said == "stopped\n  adam was working; `llmc up --detach` resumes its conversation\n"
    wait_until(
        lambda: not [pid for pid in processes if Path(f"/proc/{pid}/cmdline").exists() and _lives(pid)]
    )
    assert {scripted.status(name)["status"] for name in ("adam", "baker")} == {"offline"}
    assert scripted.tmux("list-sessions") == ""


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.req("1-001", "1-050")
def test_the_default_root_and_its_session_names(scripted: Fleet) -> None:
    """Break: no is_default in Project.session."""
    outside = scripted.dir / "outside"
    outside.mkdir()
    scripted.llmc("init")
    scripted.llmc("add", "adam", cwd=outside)
    view = scripted.llmc("status", "--json", cwd=outside).json
    assert view["root"] == str(scripted.home / "llmc")
    assert [worker["session"] for worker in view["workers"]] == ["llmc-adam"]
    scripted.set_up("adam")
    assert scripted.status("adam")["session"] == f"llmc-{scripted.root.name}-adam"


@pytest.mark.req("0-250", "0-251", "0-252", "0-253")
def test_each_worktree_is_a_serena_project_of_its_own(scripted: Fleet) -> None:
    """Break: name projects after the source; leave the registration out of `settle`, or the other projects'
    names out of `_unique_name`: two roots of the same name would share a project.
    """
    fleet = scripted
    registry = fleet.home / ".serena/serena_config.yml"
    registry.parent.mkdir()
    registry.write_text("# mine\nprojects:\n- /elsewhere\nlog_level: 20\n")
    fleet.set_up("adam", config={"repo.serena": "true"})

    def registered() -> list[str]:
        lines = registry.read_text().splitlines()
        assert (lines[:3], lines[-1]) == (["# mine", "projects:", "- /elsewhere"], "log_level: 20")
        return [json.loads(line.removeprefix("- ")) for line in lines[3:-1]]

    def project(worktree: Path) -> str:
        return (worktree / ".serena/project.yml").read_text()

    adam = fleet.worktree("adam")
    assert project(adam) == 'project_name: "llmc-root-adam"\n'
    assert registered() == [str(adam)]
    # A reset restores what is gone, and keeps what is there.
    shutil.rmtree(adam / ".serena")
    fleet.llmc("reset", "adam")
    assert project(adam) == 'project_name: "llmc-root-adam"\n'
    registry.write_text("# mine\nprojects:\n- /elsewhere\nlog_level: 20\n")
    fleet.llmc("reset", "adam")
    assert registered() == [str(adam)]
    # Another root of the same name, with a worker of the same name.
    other = fleet.dir / "other/root"
    fleet.llmc("init", "--target", str(other))
    for command in (("config", "set", "repo.serena", "true"), ("add", "adam")):
        fleet.llmc("--root", str(other), *command)
    assert re.fullmatch(r'project_name: "llmc-root-adam-\w{8}"\n', project(other / ".worktrees/adam"))
    assert registered() == [str(adam), str(other / ".worktrees/adam")]
    fleet.llmc("--root", str(fleet.root), "nuke", "adam", "--yes")
    assert registered() == [str(other / ".worktrees/adam")], "a deleted project is not offered"
