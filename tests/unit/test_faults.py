"""Fault points: every named one exists, and a wrong name is an error."""

import ast
import os
import signal
from pathlib import Path

import pytest

import llmc
from llmc.base import faults
from llmc.base.errors import Exit, UsageError
from llmc.base.faults import FaultInjected, point, step
from llmc.landing import accept_journal, undo

#: Python 3.12 warns of threads (the test runner has some); the children only use files
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

COMPUTED: dict[object, tuple[str, ...]] = {"accept.": accept_journal.STEPS, "undo.": undo.STEPS}
SOURCE = Path(llmc.__file__).parent


def named_in_the_code() -> tuple[set[str], set[tuple[str, str]]]:
    """The names given to step() and, with their side, to point(), anywhere in the package."""
    steps: set[str] = set()
    points: set[tuple[str, str]] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if called in ("fault_step", "step") and len(texts) == len(node.args) == 1:
                steps.add(str(texts[0]))
            elif called == "point" and len(texts) == 2:
                points.add((str(texts[0]), str(texts[1])))
            elif called == "fault_step" and isinstance(node.args[0], ast.JoinedStr):
                prefix = node.args[0].values[0]
                assert isinstance(prefix, ast.Constant)
                assert prefix.value in COMPUTED, f"{path}: a computed name this test does not know"
                steps |= {f"{prefix.value}{name}" for name in COMPUTED[prefix.value]}
    return steps, points


def test_every_step_in_the_table_is_in_the_code_and_the_other_way_round() -> None:
    """Break: a new fault_step("x.y") without a line in STEPS, or a line without a step."""
    steps, points = named_in_the_code()
    for name in {name for name, _ in points} - steps:
        assert {(name, "before"), (name, "after")} <= points, f"{name} has only one side"
    assert steps | {name for name, _ in points} == set(faults.STEPS)


@pytest.mark.parametrize(
    "spec",
    [
        "nonsense",
        "nowhere.at_all:before:kill",
        "state.write:sometime:kill",
        "state.write:before:explode",
        "state.write:before:kill:two",
        "state.write:before:kill:0",
        "state.write:before:kill:1:2",
        "accept.land:before:kill,rubbish",
    ],
)
def test_a_bad_fault_is_a_usage_error_at_the_first_point(monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    """A typo must not make a crash test pass. Break: check a fault only at its own step."""
    monkeypatch.setenv("LLMC_FAULT", spec)
    with pytest.raises(UsageError) as caught:
        point("intake.apply", "before")
    assert caught.value.exit_code == Exit.USAGE
    assert spec.rpartition(",")[2] in caught.value.message
    assert "state.write" in caught.value.hint


def test_fail_strikes_once_on_its_side_and_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: count once per fault of the list instead of once per pass."""
    monkeypatch.setenv(
        "LLMC_FAULT", "accept.land:after:fail:2,accept.land:after:fail:1,state.write:before:fail"
    )
    reached = []
    for number in (1, 2, 3):
        try:
            with step("accept.land"):
                reached.append(number)
        except FaultInjected:
            reached.append(-number)
    assert reached == [1, -1, 2, -2, 3]


def test_nothing_happens_without_the_variable() -> None:
    with step("accept.land"):
        pass


def test_a_step_that_failed_by_itself_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: put the point `after` into a finally."""
    monkeypatch.setenv("LLMC_FAULT", "accept.land:after:fail")
    with pytest.raises(ZeroDivisionError), step("accept.land"):
        _ = 1 / 0


def test_kill_is_a_real_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_FAULT", "accept.land:before:kill")
    pid = os.fork()
    if pid == 0:
        try:
            point("accept.land", "before")
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_a_point_that_is_not_in_the_table_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_FAULT", "accept.land:before:kill")
    with pytest.raises(AssertionError, match="not in STEPS"):
        point("no.such", "before")
