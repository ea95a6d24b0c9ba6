"""What scripts rely on: the shape of every `--json`, and the exit codes, as in tests/data/json_shapes.txt.

To change a shape on purpose, update the file with `WRITE_SHAPES=1`, and add a line to CHANGELOG.md.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import goals
from tests.support.fleet import Fleet, Result

SHAPES = Path(__file__).parents[1] / "data" / "json_shapes.txt"

COMMIT = "git -c user.name=W -c user.email=w@example.com commit -q -m"
#: two commits, so that another commit lands, and these are in the trash
WORK = f"@sh {COMMIT} 'First' --allow-empty; echo work > work.txt && git add work.txt && {COMMIT} 'Work'"


class Shapes:
    """The shapes of all output so far: for each command its exit code, then each path with its types."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.seen: dict[str, dict[str, set[str]]] = {}

    def run(self, *args: str, about: str = "", code: int | None = 0, **more: Any) -> Any:
        """Run a command with --json; `about` is how the file names it."""
        done: Result = self.fleet.llmc(*args, "--json", code=code, **more)
        rows = [json.loads(line) for line in done.out.splitlines()] if _is_lines(done.out) else [done.json]
        found = self.seen.setdefault(f"{about or ' '.join(args)} = {code}", {})
        for row in rows:
            for path, kind in paths(row):
                if not path.startswith("missing"):  # programs that this machine does not have
                    found.setdefault(path, set()).add(kind)
        return rows[-1]

    def differ_from(self, text: str) -> list[str]:
        """Differences from `lines`; null and empty do not say what may be there."""
        known: dict[str, dict[str, set[str]]] = {}
        for line in text.splitlines():
            if not line.startswith("  "):
                here = known.setdefault(line, {})
            else:
                path, _, kinds = line.strip().partition(": ")
                here[path] = set(kinds.split())
        assert list(known) == list(self.seen)
        return [
            f"{command}: {path}: {sorted(was.get(path, ['-']))} became {sorted(now.get(path, ['-']))}"
            for command, now in self.seen.items()
            for was in [known[command]]
            for path in sorted({*was, *now})
            if path not in was or path not in now or not _agree(was[path], now[path])
        ]

    def lines(self) -> list[str]:
        return [
            line
            for command, found in self.seen.items()
            for line in (command, *(f"  {path}: {' '.join(sorted(found[path]))}" for path in sorted(found)))
        ]


def _agree(was: set[str], now: set[str]) -> bool:
    empty = {"null", "[]", "{}"}
    return was - empty == now - empty or not was - empty or not now - empty


def _is_lines(text: str) -> bool:
    """Whether a command printed one object per line."""
    return len(text.splitlines()) > 1 and all(row.startswith("{") for row in text.splitlines())


def paths(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Every path into a value, with its type; names of workers, ids and times become one name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, f"{at}.{'*' if _is_data(key) else key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{at}[]")
    if not isinstance(value, dict | list) or not value:
        yield (
            at,
            {"NoneType": "null", "dict": "{}", "list": "[]"}.get(type(value).__name__, type(value).__name__),
        )


def _is_data(key: str) -> bool:
    return key in ("adam", "baker") or any(char.isdigit() for char in key)


def scenario(shapes: Shapes) -> None:
    """The commands of a day, in order, each where it has the most output."""
    fleet, run = shapes.fleet, shapes.run
    run("init", "--target", str(fleet.root), about="init")
    run("add", "adam", about="add WORKER")
    fleet.llmc("add", "baker")
    run("config", "get")
    run("config", "check")
    run("up", "--detach", "--no-patrol")
    run("start", "--worker", "adam", "--prompt", WORK, about="start")
    fleet.wait("adam", "needs_review")
    run("wait", "adam", "--status", "needs_review", about="wait")
    run("status")
    run("review", "adam", about="review")
    run("pick", "adam", about="pick")
    run("accept", "adam", about="accept")
    run("usage")
    run("undo", "--yes", about="undo")
    run("trash", "list")
    run("hold", "baker", about="hold")
    run("release", "baker", about="release")
    run("peek", "baker", about="peek")
    run("message", "baker", "hello", about="message")
    fleet.wait("baker", "idle,no_changes")
    run("reset", "baker", about="reset")
    run("tasks", "add", "A task", "-d", "Do it", "--verify", "true", about="tasks add")
    run("tasks", "list")
    run("tasks", "show", "1", about="tasks show")
    plan = fleet.dir / "plan.json"
    plan.write_text(json.dumps(goals.plan([[goals.leaf(1), goals.leaf(2)]])))
    goal = run("goal", "create", "--title", "Two files", "--from", str(plan), about="goal create")["goalId"]
    run("goal", "list")
    run("goal", "show", goal, about="goal show")
    run("goal", "handoff", goal, about="goal handoff")
    run("overseer", "why", goal, about="goal why")
    run("overseer", "events")
    run("overseer", "status")
    run("overseer", "inbox")
    run("overseer", "export")
    run("goal", "pause", goal, "--reason", "later", about="goal pause")
    run("digest")
    run("notify", "list")
    run("doctor", code=None)
    run("nuke", "baker", "--yes", about="nuke")
    run("down")
    run("accept", "adam", about="accept of an idle worker", code=3)
    run("accept", "nobody", about="accept of no worker", code=4)
    run("nothing", about="no command", code=2)
    run("status", "--root", str(fleet.dir / "none"), about="status of no root", code=2)


def test_json_shapes_are_as_they_were(scripted: Fleet) -> None:
    """Break: rename a key of any view, or write a number as text."""
    shapes = Shapes(scripted)
    scenario(shapes)
    if os.environ.get("WRITE_SHAPES"):
        SHAPES.write_text("\n".join(shapes.lines()) + "\n")
    assert shapes.differ_from(SHAPES.read_text()) == []
