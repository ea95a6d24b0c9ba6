"""The parent's summary follows from its children's: bounded, and the same for the same facts."""

from msgspec.structs import replace

from llmc.goals.drive.liveness import Merged
from llmc.goals.drive.updates import Claim, Update
from llmc.goals.drive.words import (
    MAX_ENTRIES,
    MAX_SUMMARY,
    joined_evidence,
    of_merge,
    of_parts,
    of_report,
)
from llmc.goals.model import Decision, Evidence, NodeStatus
from llmc.goals.model import Tested as Ran
from tests.support.goal_world import START, goal, plan
from tests.unit.goals.test_policy import assignment

NODES = plan(1, 1, 2)
ONE = assignment("auto", "auto-1", session_id="s-1", run_id="17")


def test_a_merged_leaf_is_its_commit_and_what_was_told() -> None:
    """Break: leave `told` out of the evidence in `of_merge`."""
    told = of_report(
        "C_1",
        ONE,
        NODES["S1.1.1"],
        Update(
            status=Claim.DONE,
            summary="Parser written",
            evidence=Evidence(tests_run=(Ran(command="make test"),), files_touched=("a.py", "c.py")),
        ),
        START,
    )
    assert told.current_state == "reported as done, but not landed yet"
    told = replace(told, decisions=(Decision(decision="by hand", rationale="no grammar"),))
    merged = Merged(
        "1a2b3c4d5e6f7890",
        START + 5,
        Evidence(files_touched=("a.py", "b.py"), tests_run=(Ran(command="make test", result="ok"),)),
    )
    found = of_merge("C_2", ONE, NODES["S1.1.1"], merged, told, START + 9)
    assert found.summary == "Parser written"
    assert found.current_state == "landed as 1a2b3c4d5e6f"
    assert found.evidence.commits == ("1a2b3c4d5e6f7890",)
    assert found.evidence.files_touched == ("a.py", "b.py", "c.py")
    assert found.evidence.tests_run == (Ran(command="make test", result="ok"),)
    assert found.decisions == told.decisions
    assert (found.anchors[0].session_id, found.anchors[0].run_ids) == ("s-1", ("17",))
    assert found.level == "subtask"


def test_the_whole_is_what_its_parts_are() -> None:
    """Each child once, in plan order; one without a summary shows its status."""
    first = of_merge("C_1", ONE, NODES["S1.1.1"], Merged("aaa", START), None, START)
    parts = [
        (replace(NODES["S1.1.1"], status=NodeStatus.DONE), first),
        (replace(NODES["S1.1.2"], status=NodeStatus.CANCELLED), None),
    ]
    task = of_parts("C_2", goal(), NODES["T1.1"], parts, START)
    assert task.summary.splitlines() == [
        "Part T1.1",
        "S1.1.1 Part S1.1.1: landed as aaa",
        "S1.1.2 Part S1.1.2: cancelled",
    ]
    assert task.current_state == "1 of 2 children done"
    assert (task.level, task.work_node_id, task.evidence.commits) == ("task", "T1.1", ("aaa",))
    whole = of_parts("C_3", goal(), None, [(replace(NODES["P1"], status=NodeStatus.DONE), task)], START)
    assert (whole.level, whole.work_node_id, whole.evidence.commits) == ("goal", "", ("aaa",))
    # A child with its own children is counted: its first one alone would stand for all of them.
    assert of_parts("C_4", goal(), NODES["P1"], [(NODES["T1.1"], task)], START).summary.splitlines() == [
        "Part P1",
        "T1.1 Part T1.1: 1 of 2 children done",
    ]
    assert whole == of_parts(
        "C_3", goal(), None, [(replace(NODES["P1"], status=NodeStatus.DONE), task)], START
    )


def test_nothing_grows_without_end() -> None:
    much = Evidence(files_touched=tuple(f"{number}" * 600 for number in range(500)))
    assert len(joined_evidence([much, much]).files_touched) == MAX_ENTRIES
    assert all(len(entry) <= 500 for entry in joined_evidence([much]).files_touched)
    said = of_report("C", ONE, NODES["S1.1.1"], Update(summary="x" * 4000, blockers=("y" * 500,) * 50), START)
    assert said.known_blockers == ("y" * 500,)
    parts = [(NODES["S1.1.1"], said)] * 300
    assert len(of_parts("C", goal(), NODES["T1.1"], parts, START).summary.encode()) <= MAX_SUMMARY
