"""A root after a month, against the same root with only its last night: cost follows the result, not the age.

A month is 1,000,000 events, 10,000 completed tasks and 1,000 entries in the trash. Both roots have the same last 12 hours,
the same open tasks and the same goal.
"""

import contextlib
import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.fleet import Fleet

from bench.fleets import fleet, llmc
from bench.measure import Row, clock_ms, interleave, program_ms, row
from llmc.base.log_reader import archive_name
from llmc.goals.dispatch import notify_user
from llmc.repo.project import Project

NAME = "growth"
EVENTS, TASKS, TRASH = 1_000_000, 10_000, 1_000
MONTH_S, NIGHT_S = 30 * 86400.0, 12 * 3600.0
OPEN_TASKS = 20
ARCHIVE_BYTES = 20 * 1024 * 1024
TARGET = 1.5
ROUNDS = 7

COMMANDS = (
    ("status",),
    ("status", "--json"),
    ("digest", "--since", "12h", "--json"),
    ("events", "--since", "1h", "--json"),
    ("usage", "--since", "12h", "--json"),
    ("tasks", "list"),
    ("trash", "list"),
    ("overseer", "tick", "--json"),
)

PLAN = """# Goal: Small

## P1: All
### T1.1: All
objective: the only thing
- [ ] S1.1.1: The part
  accept: it is there
"""


def run() -> list[Row]:
    with contextlib.ExitStack() as stack:
        young = stack.enter_context(
            _root(events=round(EVENTS * NIGHT_S / MONTH_S), tasks=TASKS // 60, trash=TRASH // 60)
        )
        old = stack.enter_context(_root(events=EVENTS, tasks=TASKS, trash=TRASH))
        return [_compared(args, young[0], old[0]) for args in COMMANDS] + [_told(young[1], old[1])]


def _compared(args: tuple[str, ...], young: Fleet, old: Fleet) -> Row:
    times = interleave(
        {name: _command(made, args) for name, made in (("young", young), ("old", old))}, ROUNDS, warm_up=1
    )
    return _row(" ".join(args), times)


def _command(made: Fleet, args: tuple[str, ...]) -> Callable[[], float]:
    argv = [llmc(), "--root", str(made.root), *args]
    return lambda: program_ms(argv, made.env)


def _told(young: Project, old: Project) -> Row:
    """A dispatch of a goal that asks the user: it first checks whether it already has."""
    numbers = itertools.count()

    def tell(project: Project) -> Callable[[], float]:
        return lambda: clock_ms(
            lambda: notify_user(project, "", f"D-{next(numbers)}", "which colour?", time.time() - 60)
        )

    return _row("a goal's dispatch", interleave({"young": tell(young), "old": tell(old)}, ROUNDS, warm_up=1))


def _row(case: str, times: dict[str, list[float]]) -> Row:
    floor_ms = sorted(times["young"])[ROUNDS // 2]
    return row(NAME, case, times["old"], "with its last night only", floor_ms, target=TARGET)


@contextlib.contextmanager
def _root(*, events: int, tasks: int, trash: int) -> Iterator[tuple[Fleet, Project]]:
    with fleet("scripted", "adam", up=None) as (made, project):
        made.llmc("config", "set", "auto.task_list_id", "growth")
        made.llmc("config", "set", "auto.tasks_root", str(made.dir / "tasks"))
        made.llmc("config", "set", "overseer.goals.enabled", "true")
        plan = made.dir / "plan.md"
        plan.write_text(PLAN)
        made.llmc("goal", "create", "--title", "Small", "--problem", "It is not there", "--from", str(plan))
        for number in range(OPEN_TASKS):
            made.llmc("tasks", "add", f"Open task {number}")
        now = time.time()
        _write_events(made.root, events, now)
        _write_ledger(made.root, tasks, now)
        _write_trash(made.root, trash, now)
        yield made, project


def _write_events(root: Path, count: int, now: float) -> None:
    """As the store and its rotation write them; the rows of every tenth task end with recorded usage."""
    path = str(root / "logs/events.jsonl")
    began = now - count * MONTH_S / EVENTS
    own = Path(path).read_bytes()
    archive, size, lines = 0, 0, []
    for number in range(count):
        line = json.dumps(_event(number, began + number * MONTH_S / EVENTS))
        lines.append(line)
        size += len(line) + 1
        if size >= ARCHIVE_BYTES:
            archive += 1
            Path(archive_name(path, archive)).write_text("\n".join(lines) + "\n")
            size, lines = 0, []
    Path(path).write_bytes(("\n".join(lines) + "\n" if lines else "").encode() + own)


def _event(number: int, at: float) -> dict[str, object]:
    row: dict[str, object] = {"seq": number, "ts": round(at, 3), "action": "hook_seen", "worker": "adam"}
    task = str(number // 100)
    match number % 100:
        case 1:
            return {**row, "action": "task_claimed", "task_id": task, "subject": f"Task {task}"}
        case 97:
            tokens = {"input_tokens": 9000, "output_tokens": 800, "cache_read_input_tokens": 40000}
            return {**row, "action": "usage_recorded", "task_id": task, "model": "m", "cost": 0.1, **tokens}
        case 98:
            return {**row, "action": "accepted", "commit": f"{number:040x}", "prompt": "Do it. " * 20}
        case 99:
            return {**row, "action": "task_completed", "task_id": task, "subject": f"Task {task}"}
        case _:
            return {**row, "event": f"{number}.json", "details": "x" * 60}


def _write_ledger(root: Path, count: int, now: float) -> None:
    lines = []
    for number in range(100, 100 + count):
        at = now - (100 + count - number) * MONTH_S / TASKS
        same = {"task": str(number), "list": "growth", "worker": "adam", "claim": f"c{number}"}
        lines.append({"ts": at, "action": "claimed", **same, "subject": f"Task {number}"})
        lines.append({"ts": at, "action": "completed", **same, "commit": f"{number:040x}"})
    with (root / ".llmc/tasks.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def _write_trash(root: Path, count: int, now: float) -> None:
    head = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "refs/remotes/origin/main"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    made = []
    for number in range(count):
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now - number * MONTH_S / TRASH))
        made.append(f"create refs/llmc/trash/adam/{stamp}-{number:04x}-accepted {head}\n")
    subprocess.run(
        ["git", "-C", str(root), "update-ref", "--stdin"], input="".join(made).encode(), check=True
    )
