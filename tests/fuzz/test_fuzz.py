"""Hostile input, from a seed: no traceback, nothing overwritten, and the rest of the fleet continues.

A part of it runs with the other tests; `make soak` runs 10,000 of each. A failure names its seed:
`LLMC_FUZZ=tasks:1234 pytest tests/fuzz` runs that one alone.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import click
import pytest

from llmc.base.errors import LlmcError
from llmc.cli.app import cli
from llmc.cli.commands import COMMANDS
from llmc.config import root_layout
from llmc.goals.drive.updates import parse as parse_update
from llmc.goals.plan.plan import Limits
from llmc.goals.plan.plan_check import check_plan, check_split
from llmc.goals.plan.plan_text import read_plan
from llmc.repo.project import open_project
from llmc.tasks import queue as task_queue
from llmc.tasks.rules.draft import read_answer as read_pool
from tests.fuzz import mutate
from tests.fuzz.grounds import Grounds, Unchanged, environment
from tests.support.command_tree import context
from tests.support.fleet import Fleet
from tests.support.goal_plans import small_plan

FEW, MANY = 15, 10_000
ONE = os.environ.get("LLMC_FUZZ", "")

TASK: dict[str, Any] = {
    "id": "1",
    "subject": "Do it",
    "description": "All of it\n",
    "status": "pending",
    "blocks": ["9"],
    "blockedBy": ["2"],
    "owner": "auto-1",
    "activeForm": "Doing it",
    "metadata": {
        "priority": 1,
        "label": "ui",
        "llmc": {
            "verify": "true",
            "claim": "c1",
            "hold": "parked",
            "by": {"worker": "adam", "task": "3"},
            "budget": {"max_cost": 1.5},
            "key": "k",
            "goal": {"goalId": "g", "workNodeId": "n", "assignmentId": "a", "dispatchId": "d"},
        },
    },
}
LEDGER: list[dict[str, Any]] = [
    {"ts": 1.5, "action": "created", "task": "1", "list": "plan", "worker": "", "claim": "", "dispatch": "d", "part": "g/n"},
    {"ts": 1.5, "action": "made", "task": "2", "list": "plan", "worker": "adam", "claim": "", "at": "1", "hold": "proposed"},
    {"ts": 1.5, "action": "approved", "task": "2", "list": "plan", "worker": "adam", "claim": "", "budget": {"max_cost": 1}},
    {"ts": 2.5, "action": "claimed", "task": "1", "list": "plan", "worker": "auto-1", "claim": "c1", "subject": "Do it"},
    {"ts": 3.5, "action": "landing", "task": "1", "list": "plan", "worker": "auto-1", "claim": "c1", "commit": "c0ffee"},
    {"ts": 4.5, "action": "failed", "task": "1", "list": "plan", "worker": "auto-1", "claim": "c1", "cause": "task", "reason": "no"},
    {"ts": 5.5, "action": "released", "task": "1", "worker": "auto-1", "claim": "c1", "hold": "parked", "reason": "no"},
    {"ts": 6.5, "action": "completed", "task": "1", "worker": "auto-1", "claim": "c1", "commit": "c0ffee"},
    {"ts": 7.5, "action": "unnamed_are_of", "list": "plan"},
]  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {"seq": 1, "ts": 1.5, "action": "auto_started", "worker": None, "reason": "", "concurrency": 1},
    {"seq": 2, "ts": 2.5, "action": "task_assigned", "worker": "auto-1", "reason": "", "task_id": "1", "task_list": "plan", "claim": "c"},
    {"seq": 3, "ts": 3.5, "action": "usage_recorded", "worker": "adam", "task_id": "1", "model": "opus", "input_tokens": 1, "cost": 0.1,
     "output_tokens": 1, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 1, "claude_session_id": "s"},
    {"seq": 4, "ts": 4.5, "action": "accepted", "worker": "adam", "reason": "", "commit": "c0ffee", "prompt": "p"},
    {"seq": 5, "ts": 5.5, "action": "task_completed", "worker": "auto-1", "task_id": "1", "commit": "c0ffee", "subject": "s"},
    {"seq": 6, "ts": 6.5, "action": "task_failed", "worker": "auto-1", "task_id": "2", "cause": "task", "attempt": 3, "ref": "r"},
    {"seq": 7, "ts": 7.5, "action": "fleet_parked", "worker": "auto-1", "cause": "limit", "until_unix": 9.5, "reason": "r"},
    {"seq": 8, "ts": 8.5, "action": "post_accept", "worker": None, "task_id": "1", "code": 0, "elapsed_s": 1.5},
    {"seq": 9, "ts": 9.5, "action": "worker_added", "worker": "adam", "reason": ""},
    {"seq": 10, "ts": 9.5, "action": "status_changed", "worker": "adam", "reason": "r", "from": "idle", "to": "working"},
    {"seq": 11, "ts": 9.6, "action": "overseer_failure", "worker": None, "reason": "r", "kind": "log", "ran_s": 3.5},
    {"seq": 12, "ts": 9.7, "action": "undone", "worker": "adam", "commit": "c0ffee", "revert": "beef"},
]  # fmt: skip
HOOKS: list[dict[str, Any]] = [
    {
        "hook_event_name": "SessionStart",
        "session_id": "s",
        "source": "startup",
        "transcript_path": "/nowhere",
    },
    {"hook_event_name": "UserPromptSubmit", "prompt": "[llmc task-1]\nx", "session_id": "s"},
    {"hook_event_name": "PreToolUse", "tool_name": "TaskCreate", "tool_input": {"subject": "x"}},
    {"hook_event_name": "TaskCreated", "task_id": "1", "task_subject": "x"},
    {
        "hook_event_name": "Stop",
        "background_tasks": [{"type": "shell", "status": "running"}],
        "agent_id": None,
    },
    {"hook_event_name": "StopFailure", "error": "rate_limit", "last_assistant_message": "m"},
    {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {"command": "x"}},
    {"hook_event_name": "Report", "kind": "blocked", "text": "no key"},
]


@pytest.fixture(scope="module")
def grounds() -> Iterator[Grounds]:
    fleet = Fleet("scripted")
    config = {"auto.task_list_id": "plan", "auto.tasks_root": str(fleet.dir / "tasks")}
    fleet.set_up("adam", "eve", config=config)
    with environment(fleet):
        yield Grounds(fleet)
    fleet.close()


@pytest.fixture(autouse=True)
def _here(grounds: Grounds) -> Iterator[None]:
    with environment(grounds.fleet):
        yield


def config(grounds: Grounds, dice: Random) -> None:
    path = grounds.root / "config.toml"
    good = path.read_bytes()
    lines = good.decode().splitlines()
    if dice.random() < 0.5:
        at = dice.randrange(len(lines))
        word = dice.choice(
            ("nan", "inf", "-1", "[" * 2000, '""', '"\\u202e"', "1e999", "true", "{}", "9" * 5000, "07:00:00")
        )
        lines[at] = f"{lines[at].partition('=')[0]}= {word}"
        data = "\n".join(lines).encode(errors="replace")
    else:
        data = mutate.mangled(dice, good)
    path.write_bytes(data)
    try:
        for argv in (
            ("config", "check", "--json"),
            ("status", "--json"),
            ("tasks", "list", "--json"),
            ("config", "get"),
        ):
            grounds.llmc(*argv)
        assert path.read_bytes() == data, "a broken configuration is not written"
    finally:
        path.write_bytes(good)


def state(grounds: Grounds, dice: Random) -> None:
    path = grounds.root / "state.json"
    good = path.read_bytes()
    data = mutate.document(dice, json.loads(good))
    path.write_bytes(data)
    try:
        for argv in (
            ("status", "--json"),
            ("digest", "--json"),
            ("wait", "adam", "--status", "idle", "--timeout", "0"),
        ):
            grounds.llmc(*argv)
        before, said = path.read_bytes(), grounds.llmc("hold", "eve")
        if said.code:
            assert path.read_bytes() == before, "a refusal writes nothing"
        else:
            assert open_project(str(grounds.root)).store.worker("eve").held
    finally:
        path.write_bytes(good)


def overseer(grounds: Grounds, dice: Random) -> None:
    """The small records of llmc's own processes."""
    good = {"state": "running", "pid": 1, "daemon": {"pid": 2, "start_time_unix": 1.5}, "events": [{"ts": 1.5}], "attempt": 1,
            "remediations": [1.5], "instance_id": "x", "ready": True, "auto": True, "incidents": {}, "why": "w"}  # fmt: skip
    names = (
        ".llmc/overseer.json",
        ".llmc/daemon.json",
        ".llmc/incidents.json",
        ".llmc/auto.heartbeat",
        ".llmc/canary.json",
    )
    path = grounds.root / dice.choice(names)
    path.write_bytes(mutate.document(dice, good))
    try:
        for argv in (("status", "--json"), ("status",), ("notify", "list", "--json"), ("down",)):
            grounds.llmc(*argv)
    finally:
        path.unlink(missing_ok=True)


def inbox(grounds: Grounds, dice: Random) -> None:
    folder = grounds.root / ".llmc/inbox/adam"
    folder.mkdir(parents=True, exist_ok=True)
    record = open_project(str(grounds.root)).store.worker("adam")
    envelope = {"worker": "adam", "instance": record.instance, "payload": dice.choice(HOOKS)}
    now = time.time_ns()
    digits = str(now) if dice.random() < 0.9 else "9" * dice.choice((1, 19, 20, 21, 200))
    (folder / f"{digits}-1.json").write_bytes(mutate.document(dice, envelope))
    if dice.random() < 0.05:
        _odd(dice, folder / f"{now}-3.json")
    ok = {"hook_event_name": "Report", "kind": "progress", "text": f"still here {now}"}
    after = now + 10**9 if len(digits) < 20 else now
    (folder / f"{after}-2.json").write_text(json.dumps({**envelope, "payload": ok}))
    said = grounds.llmc("status", "--json")
    assert said.code == 0, said
    lines = (grounds.root / root_layout.EVENTS).read_bytes().split(b"\n")[-40:]
    rows = [json.loads(line) for line in lines if line]
    assert [row for row in rows if f"{after}-2" in str(row.get("event"))], "the next event still counts"
    assert list(folder.glob("*-2.json")) == [], "and is done with"
    shutil.rmtree(folder, ignore_errors=True)


def tasks(grounds: Grounds, dice: Random) -> None:
    for number in range(1, dice.choice((2, 2, 4))):
        path = grounds.tasks / dice.choice(
            (f"{number}.json", f"{number}.json", f"{dice.choice(_NAMES)}.json")
        )
        if os.path.lexists(path):
            continue  # something odd perhaps, and writing into a FIFO blocks
        data = mutate.document(dice, {**TASK, "id": path.stem if dice.random() < 0.9 else "1"})
        if dice.random() < 0.05:
            _odd(dice, path)
        else:
            path.write_bytes(data)
        if path.exists() and not path.is_symlink():
            os.utime(path, (1, 1))
    good = {**TASK, "id": "777", "blockedBy": [], "blocks": [], "owner": "", "metadata": {}}
    (grounds.tasks / "777.json").write_text(json.dumps(good))
    os.utime(grounds.tasks / "777.json", (1, 1))
    before = _files(grounds.tasks)
    try:
        for argv in (
            ("tasks", "list", "--json"),
            ("tasks", "graph"),
            ("tasks", "show", "1"),
            ("digest", "--json"),
        ):
            grounds.llmc(*argv)
        assert _files(grounds.tasks) == before, "a check changes nothing"
        queue = task_queue.open_queue(open_project(str(grounds.root)))
        taken = []
        while (found := queue.take_next("auto-1", ())) is not None and len(taken) < 9:
            taken.append(found[0].id)
        assert "777" in taken, "the others continue"
        if dice.random() < 0.1:
            for argv in (("tasks", "requeue", "1"), ("tasks", "done", "1"), ("tasks", "approve", "1")):
                grounds.llmc(*argv)
    finally:
        _clear(grounds)


_NAMES = ("x", "..", "0", "007", "9" * 200, "\u2028", "a b", "\x1b[2J", "\udcff", "-1", "é")


def ledger(grounds: Grounds, dice: Random) -> None:
    path = grounds.root / root_layout.TASKS_LEDGER
    rows = [json.dumps(row).encode() for row in LEDGER]
    for _ in range(dice.choice((1, 2, 5))):
        rows.insert(dice.randrange(len(rows) + 1), mutate.document(dice, dice.choice(LEDGER)))
    last = {
        "ts": 9.0,
        "action": "completed",
        "task": "888",
        "list": "plan",
        "worker": "w",
        "claim": "c",
        "commit": "",
    }
    path.write_bytes(b"\n".join([*rows, json.dumps(last).encode(), b""]))
    (grounds.tasks / "1.json").write_text(json.dumps({**TASK, "blockedBy": []}))
    before = path.read_bytes()
    try:
        for argv in (("tasks", "list", "--json"), ("tasks", "show", "1", "--json"), ("digest", "--json")):
            said = grounds.llmc(*argv)
        assert path.read_bytes().startswith(before), "rows are only added"
        assert "888" in grounds.llmc("tasks", "list").out, "a good row counts whatever precedes it"
        if dice.random() < 0.1:
            said = grounds.llmc("tasks", "requeue", "1")
            assert path.read_bytes().startswith(before), said
    finally:
        _clear(grounds)


def events(grounds: Grounds, dice: Random) -> None:
    path = grounds.root / root_layout.EVENTS
    grounds.llmc("digest", "--json")  # attention items left by an earlier case go now, with an event
    good = path.read_bytes()
    rows = [json.dumps(row).encode() for row in EVENTS]
    for _ in range(dice.choice((1, 2, 5))):
        rows.insert(dice.randrange(len(rows) + 1), mutate.document(dice, dice.choice(EVENTS)))
    path.write_bytes(b"\n".join([*rows, b""]))
    unchanged = Unchanged(path)
    try:
        assert "worker_added" in grounds.llmc("events").out
        for argv in (("events", "--json"), ("events", "--since", "1h"), ("digest", "--since", "0"), ("usage", "--json"),
                     ("usage", "--by", "task"), ("digest", "--json")):  # fmt: skip
            grounds.llmc(*argv)
        if dice.random() < 0.1:
            grounds.llmc("undo")
        unchanged.check()
    finally:
        path.write_bytes(good)


def plans(grounds: Grounds, dice: Random) -> None:
    data = mutate.document(dice, small_plan()).decode(
        errors="surrogateescape" if dice.random() < 0.1 else "replace"
    )
    limits = Limits()
    check_plan(data, limits)
    check_split(data, 5, ["P1"])
    read_pool(dice.choice((0, 0, 0, 3, 4, 9)), data, "k")
    parse_update(f"said\n```json\n{data}\n```\n")
    marked = "# Title\n\n## P1 Phase\n- [ ] T1.1 Task (after: P1)\n  - [x] S1.1.1 Sub\n"
    markdown = mutate.mangled(dice, marked.encode()).decode(errors="replace")
    for text in (data, markdown, f"{markdown}{mutate.text(dice)}"):
        read_plan(text, limits)
    if dice.random() < 0.02:
        file = grounds.fleet.dir / "plan.md"
        file.write_bytes(
            mutate.document(dice, small_plan())
            if dice.random() < 0.5
            else mutate.mangled(dice, marked.encode())
        )
        grounds.llmc("goal", "create", "--title", "A goal", "--from", str(file), "--json")
        grounds.llmc("goal", "list", "--json")


#: they start agents, daemons or editors, wait for the user, or create roots
NOT_CALLED = {
    "up",
    "overseer",
    "web",
    "start",
    "attach",
    "console",
    "claude",
    "uninstall",
    "demo",
    "drill",
    "init",
    "hook",
    "message",
    "wait",
    "peek",
    "add",
}
NOT_GIVEN = {"follow", "watch", "root"}


def arguments(grounds: Grounds, dice: Random) -> None:
    name = dice.choice(sorted(COMMANDS.keys() - NOT_CALLED))
    command = cli.get_command(context(cli), name)
    argv = [name]
    assert command is not None
    if isinstance(command, click.Group) and dice.random() < 0.95:
        name = dice.choice([*command.list_commands(context(command)), "x"])
        command = command.get_command(context(command), name) or command
        argv.append(name)
    if argv[:2] == ["config", "edit"] or argv[:2] == ["goal", "plan"]:
        return
    if argv[:2] == ["goal", "create"]:
        argv.append("--no-plan")
    given = [p for p in command.params if isinstance(p, click.Option) and p.name not in NOT_GIVEN]
    options = [option for param in given for option in (*param.opts, *param.secondary_opts)]
    words = [
        "adam",
        "eve",
        "1",
        "auto-1",
        "plan",
        "goal_1",
        "--",
        "-",
        "--json",
        "--help",
        "0",
        "1h",
        "--yes",
    ]
    for _ in range(dice.randrange(5)):
        argv.append(dice.choice([*options, *options, *words, mutate.text(dice).replace("\0", "")]))
    grounds.llmc(*(word[:4000] for word in argv))
    assert open_project(str(grounds.root)).store.read().workers.keys() <= {"adam", "eve"}
    if not {"adam", "eve"} <= open_project(str(grounds.root)).store.read().workers.keys():
        for worker in ("adam", "eve"):
            grounds.fleet.llmc("add", worker, code=None)


AREAS: dict[str, Callable[[Grounds, Random], None]] = {
    area.__name__: area for area in (config, state, overseer, inbox, tasks, ledger, events, plans, arguments)
}


def run(grounds: Grounds, area: str, seeds: range) -> None:
    for seed in seeds:
        try:
            AREAS[area](grounds, Random(f"{area} {seed}"))
        except LlmcError as error:
            raise AssertionError(f"LLMC_FUZZ={area}:{seed}: {error.message}") from error
        except BaseException as error:
            error.add_note(f"LLMC_FUZZ={area}:{seed}")
            raise


@pytest.mark.parametrize("area", AREAS)
def test_hostile_input(grounds: Grounds, area: str) -> None:
    """Break: read one of these files with `json.loads` alone, or let one bad item raise."""
    if ONE and not ONE.startswith(f"{area}:"):
        pytest.skip("another one is asked for")
    first = int(ONE.partition(":")[2]) if ONE else 0
    run(grounds, area, range(first, first + 1) if ONE else range(FEW))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("area", AREAS)
def test_hostile_input_at_length(grounds: Grounds, area: str) -> None:
    run(grounds, area, range(FEW, MANY))


def _odd(dice: Random, path: Path) -> None:
    """Something that is not a regular file: it must not block, lead elsewhere, or fill the memory."""
    path.unlink(missing_ok=True)
    match dice.randrange(5):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to("/dev/zero")
        case 3:
            path.symlink_to(path.name)
        case 4:
            with path.open("wb") as file:
                file.truncate(1 << 30)


def _files(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = ((path, os.lstat(path)) for path in folder.iterdir())
    return {path.name: (info.st_size, info.st_mtime_ns, info.st_mode) for path, info in found}


def _clear(grounds: Grounds) -> None:
    for path in grounds.tasks.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (grounds.root / root_layout.TASKS_LEDGER).unlink(missing_ok=True)
