"""What `llmc demo` prints while it runs."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from llmc.rehearsal import demo, fleet_demo, sample
from llmc.rehearsal.show import Show

SUBJECT = "A task"


def event(seq: int, worker: str, action: str, **more: object) -> dict[str, object]:
    return {"seq": seq, "ts": 1000.0 + seq, "worker": worker, "action": action, **more}


def landing(seq: int, worker: str, task: int, *between: dict[str, object]) -> list[dict[str, object]]:
    """The events of a landing: the worker is reset after its task is completed, and what waited for it starts meanwhile."""
    about = {"task_id": str(task), "subject": SUBJECT}
    return [
        event(seq, worker, "accept_step", step="land"),
        event(seq + 1, worker, "accept_step", step="complete"),
        *between,
        event(seq + 7, worker, "accept_step", step="finish"),
        event(seq + 8, worker, "task_completed", commit="c0ffee", **about),
    ]


def assigned(seq: int, worker: str, task: int) -> dict[str, object]:
    return event(seq, worker, "task_assigned", task_id=str(task), subject=SUBJECT)


class Recorded(Show):
    """A demo whose log grows by a few events between two looks."""

    def __init__(self, place: Path, events: list[dict[str, object]], step: int) -> None:
        super().__init__(place / "source", place / "root")
        self._events, self._step, self._shown = events, step, 0

    def output(self, *args: str) -> str:
        assert args == ("events", "--json")
        self._shown += self._step
        return "\n".join(json.dumps(one) for one in self._events[: self._shown])


@pytest.mark.parametrize("step", [1, 3, 100])
def test_a_task_starts_below_the_line_of_what_it_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Break: print the events in the order of the log; or print the landing of a task twice."""
    monkeypatch.setattr(demo, "REDRAW_S", 0.0)
    first = [assigned(1, "auto-1", 1), *landing(2, "auto-1", 1, assigned(4, "auto-2", 2))]
    rest = [
        one
        for task in range(2, len(sample.TASKS) + 1)
        for one in landing(
            20 * task, f"auto-{task}", task, assigned(20 * task + 2, f"auto-{task + 1}", task + 1)
        )
    ]
    demo.watch(Recorded(tmp_path, first + rest, step), 30.0)
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines[:4] == [
        f"auto-1  started task 1: {SUBJECT}",
        f"auto-1  landed task 1: {SUBJECT}",
        f"auto-2  started task 2: {SUBJECT}",
        f"auto-2  landed task 2: {SUBJECT}",
    ]
    assert len(lines) == len(set(lines))
    assert len([line for line in lines if "landed" in line]) == len(sample.TASKS)


def test_the_machines_of_a_fleet_are_told_in_one_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: tell all that one machine did, then all that the next did."""
    monkeypatch.setattr(fleet_demo, "LOOK_S", 0.0)
    laptop, server = machines = [fleet_demo.Machine(tmp_path, name) for name in fleet_demo.MACHINES[:2]]
    write(laptop.root, [assigned(4, "auto-1", 2), *landing(20, "auto-1", 2)])
    write(server.root, [assigned(1, "auto-1", 1), *landing(2, "auto-1", 1)])
    fleet_demo._watch(machines, 2)
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        f"server-1/auto-1  started task 1: {SUBJECT}",
        f"server-1/auto-1  landed task 1: {SUBJECT}",
        f"laptop/auto-1  started task 2: {SUBJECT}",
        f"laptop/auto-1  landed task 2: {SUBJECT}",
    ]
    assert (laptop.landed, server.landed) == (["2"], ["1"])


def test_what_another_machine_may_have_caused_is_told_with_the_next_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Break: take all that is in the log; what caused it may not have been read yet."""
    machine = fleet_demo.Machine(tmp_path, "laptop")
    write(machine.root, [assigned(1, "auto-1", 1), assigned(9, "auto-2", 2)])
    assert [event["task_id"] for event in machine.news(1005.0)] == ["1"]
    assert [event["task_id"] for event in machine.news(1010.0)] == ["2"]


def write(root: Path, events: list[dict[str, object]]) -> None:
    (root / "logs").mkdir(parents=True)
    (root / "logs/events.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in events))


def test_a_task_that_needed_no_changes_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: tell landings by their accept alone."""
    monkeypatch.setattr(demo, "REDRAW_S", 0.0)
    events = [
        event(task, "auto-1", "task_completed", task_id=str(task), subject=SUBJECT, commit=None)
        for task in range(1, len(sample.TASKS) + 1)
    ]
    demo.watch(Recorded(tmp_path, events, 2), 30.0)
    assert capsys.readouterr().out.count("landed task ") == len(sample.TASKS)


@pytest.mark.parametrize(("mode", "worker"), [((), "auto-1"), (("--by-hand",), "adam")])
def test_what_to_try_next_names_a_worker_of_the_demo(
    monkeypatch: pytest.MonkeyPatch, mode: tuple[str, ...], worker: str
) -> None:
    """Break: name an auto worker in both modes."""
    for story in ("tell_auto", "tell_by_hand"):
        monkeypatch.setattr(demo, story, lambda show: None)
    done = CliRunner().invoke(demo.demo, [*mode, "--keep"])
    assert f"llmc attach {worker} " in done.output
    shutil.rmtree(shlex.split(done.output.strip().splitlines()[-1])[-1])
