"""A worker's structured report: read strictly, merged, attributed, or refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.goals.drive import words
from llmc.goals.drive.updates import (
    Claim,
    Update,
    claims_done,
    fingerprint,
    flags,
    from_report,
    is_blocked,
    last_json_block,
    merged,
    not_about,
    parse,
)
from llmc.goals.drive.words import of_report
from llmc.goals.model import Decision, Evidence
from llmc.goals.model import Tested as Ran
from tests.support.goal_world import START, goal, plan
from tests.unit.goals.test_policy import assignment

NODE = plan(1, 1, 1)["S1.1.1"]


def block(fields: dict[str, Any], fence: str = "```", key: str = "overseerUpdate") -> str:
    return f"{fence}json\n{json.dumps({key: fields})}\n{fence}"


FULL = {
    "goalId": "goal_1",
    "workNodeId": "S1.1.1",
    "status": "in_progress",
    "summary": "wrote the parser",
    "next": "test it",
    "blockers": [],
    "evidence": {
        "filesTouched": ["a.py"],
        "testsRun": ["make test", {"command": "pytest", "result": "ok"}],
        "commits": ["1a2b"],
    },
}


@pytest.mark.req("3-090")
def test_the_last_block_counts() -> None:
    """The last of several blocks; the text around it does not matter.

    Break: return the first in `last_json_block`.
    """
    text = f"Hello\n{block({'summary': 'first'})}\nand then\r\n{block(FULL)}\r\nThat is all."
    found = parse(text).update
    assert found == Update(
        goal_id="goal_1",
        work_node_id="S1.1.1",
        status=Claim.IN_PROGRESS,
        summary="wrote the parser",
        next=("test it",),
        blockers=(),
        evidence=Evidence(
            files_touched=("a.py",),
            tests_run=(Ran(command="make test"), Ran(command="pytest", result="ok")),
            commits=("1a2b",),
        ),
    )
    assert parse(text.replace("\r\n", "\n").replace("\n", "\r\n")).update == found
    later = text + '\n```json\n{"other": 1}\n```\n'
    assert parse(later).update is None, "the last block is not an update: nothing is taken from earlier ones"


@pytest.mark.req("3-090")
@pytest.mark.parametrize(
    "text",
    [
        f"````markdown\n{block(FULL)}\n````",
        f"~~~\n{block(FULL)}\n~~~",
        block(FULL).replace("```json", "```python"),
        block(FULL).replace("```json", "```"),
        block(FULL)[:-3],
        json.dumps({"overseerUpdate": FULL}),
        "DONE. I finished everything, commit 1a2b3c.",
        "",
    ],
)
def test_what_is_no_block_is_nothing(text: str) -> None:
    """A quoted block, another language, an open fence, plain text: no update, and no problem either.

    Break: let an inner fence of the same kind open a block in `last_json_block`.
    """
    assert parse(text) == parse("nothing")


def test_a_longer_fence_holds_a_shorter_one() -> None:
    text = '````json\n{"overseerUpdate": {"summary": "see ```json below"}}\n````'
    assert parse(text).update == Update(summary="see ```json below")


@pytest.mark.req("3-091")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({**FULL, "extra": 1}, "unknown key extra"),
        ({"status": "finished"}, "overseerUpdate.status"),
        ({"status": "cancelled"}, "overseerUpdate.status"),
        ({"status": ["done"]}, "overseerUpdate.status"),
        ({"summary": 3}, "overseerUpdate.summary: must be a string"),
        ({"summary": "x" * 4001}, "at most 4000"),
        ({"next": "x" * 1001}, "at most 1000"),
        ({"blockers": "none"}, "must be a list"),
        ({"blockers": ["x"] * 51}, "at most 50"),
        ({"blockers": [None]}, "must be a string"),
        ({"evidence": []}, "must be an object"),
        ({"evidence": {"files": ["a"]}}, "unknown key files"),
        ({"evidence": {"testsRun": [{"name": "x"}]}}, "a test must have the key `command`"),
        ({"goalId": "goal_1"}, "is empty"),
        ({}, "is empty"),
    ],
)
def test_a_bad_block_is_refused_whole(fields: dict[str, Any], problem: str) -> None:
    """Strict keys, bounded strings: one bad field refuses the whole block.

    Break: skip unknown keys in `_checked`.
    """
    found = parse(block(fields))
    assert found.update is None
    assert any(problem in said for said in found.problems), found.problems


@pytest.mark.req("3-091")
@pytest.mark.parametrize(
    "body",
    [
        '{"overseerUpdate": {"status": "done",}}',
        '{"overseerUpdate": {"summary": "a", "summary": "b"}}',
        '{"overseerUpdate": {"summary": NaN}}',
        '{"overseerUpdate": []}',
        '{"overseerUpdate": {"summary": "a"}, "more": 1}',
        '{"overseerUpdate": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"overseerUpdate": {"summary": "' + "x" * 70_000 + '"}}',
        "{\"overseerUpdate\": {'status': 'done'}}",
    ],
)
def test_a_broken_block_is_refused(body: str) -> None:
    found = parse(f"```json\n{body}\n```")
    assert found.update is None
    assert found.problems


def test_odd_bytes_and_sizes() -> None:
    """Invalid UTF-8 and lone surrogates are replaced; an endless text is not searched."""
    assert parse(b'```json\n{"overseerUpdate": {"summary": "a\xff"}}\n```').update == Update(summary="a�")
    assert parse('```json\n{"overseerUpdate": {"summary": "a\\ud800"}}\n```').update == Update(summary="a?")
    assert parse("x" * 1_000_001).problems
    assert parse("x\n" * 400_000 + block(FULL)).update is not None


@given(st.text(alphabet='`~json \n\r{}:"ovrsUpdate', max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    parse(text)
    parse(text.encode())


@given(st.lists(st.sampled_from(["```json", "```", "~~~", "````", "x", "~~~json"]), max_size=12))
def test_a_block_is_what_stands_between_two_fences(lines: list[str]) -> None:
    found = last_json_block("\n".join(lines))
    assert found is None or all(line in lines for line in found.split("\n") if line)


@pytest.mark.req("3-092")
def test_what_a_report_leaves_out_stays() -> None:
    """Status and summary alone are a report; the rest keeps its value.

    Break: return the update as it is in `merged`.
    """
    first = parse(block({**FULL, "blockers": ["no key"], "status": "blocked"})).update
    assert first is not None
    former = of_report("C_1", assignment("auto", "auto-1"), NODE, first, START)
    second = parse(block({"status": "blocked", "summary": "still waiting"})).update
    assert second is not None
    full = merged(second, former)
    assert (full.summary, full.next, full.blockers) == ("still waiting", ("test it",), ("no key",))
    assert full.evidence == first.evidence
    assert merged(Update(summary="on"), None) == Update(summary="on")
    going_on = merged(Update(status=Claim.IN_PROGRESS), former)
    assert going_on.blockers == ()
    assert going_on.summary == "wrote the parser"


@pytest.mark.req("3-075", "3-092")
def test_what_was_decided_and_asked_adds_up() -> None:
    """The options of `llmc report`, as the fields of a block.

    Break: take `former.decisions` out of `merged`.
    """
    said, problems = flags(
        progress="half of it",
        decisions=("by hand | two formats", "no cache"),
        questions=("Tabs too?",),
        steps=("docs", "release"),
        evidence=("test:make test = passed", "commit:1a2b", "pr:12", "https://example.com/x", "file: a.py"),
    )
    assert not problems
    first = from_report("progress", "halfway", said)
    assert first.decisions == (
        Decision(decision="by hand", rationale="two formats"),
        Decision(decision="no cache"),
    )
    assert (first.current_state, first.next) == ("half of it", ("docs", "release"))
    assert first.evidence == Evidence(
        tests_run=(Ran(command="make test", result="passed"),),
        commits=("1a2b",),
        prs=("12",),
        external_refs=("https://example.com/x",),
        files_touched=("a.py",),
    )
    former = of_report("C_1", assignment("auto", "auto-1"), NODE, first, START, "m-1")
    assert former.anchors[0].message_ids == ("m-1",)
    more = {"decisions": [{"decision": "no cache"}, "xml"], "openQuestions": ["BOM?"]}
    both = of_report(
        "C_2", assignment("auto", "auto-1"), NODE, merged(from_report("progress", "on", more), former), START
    )
    assert [one.decision for one in both.decisions] == ["by hand", "no cache", "xml"]
    assert (both.open_questions, both.next_actions) == (("Tabs too?", "BOM?"), ("docs", "release"))


@pytest.mark.req("3-091")
def test_options_that_cannot_be_taken() -> None:
    """The user sees why; an agent's invalid options are dropped, and its text counts.

    Break: no `problems` in `from_report`.
    """
    assert flags(decisions=("x" * 501,)) == (
        {"decisions": [{"decision": "x" * 501}]},
        ["decisions: must be at most 500 characters long"],
    )
    assert flags(questions=["?"] * 51)[1] == ["openQuestions: must have at most 50 entries"]
    for odd in ({"decisions": [1]}, {"nonsense": "x"}, {"evidence": {"files": []}}, "text", [1]):
        assert from_report("progress", "halfway", odd) == from_report("progress", "halfway")
    sly = {"goalId": "goal_2", "status": "done", "summary": "another", "blockers": [], "next": "go on"}
    assert from_report("blocked", "no key", sly) == replace(from_report("blocked", "no key"), next=("go on",))


@pytest.mark.req("3-X12")
def test_a_report_is_the_same_to_an_older_llmc() -> None:
    """A report that was heard is not heard again after an update.

    Break: encode the update itself in `fingerprint`.
    """
    said = Update(
        goal_id="goal_1",
        work_node_id="S1.1.1",
        status=Claim.IN_PROGRESS,
        summary="wrote it",
        next=("test it",),
        blockers=(),
        evidence=Evidence(commits=("1a2b",)),
    )
    assert fingerprint(said) == "111d0bd3a4da1796680d9cb7f524fc3a"
    assert fingerprint(from_report("blocked", "no key")) == "0d055830847c982c0e348176138e2bd9"
    assert fingerprint(replace(said, decisions=(Decision(decision="x"),))) != fingerprint(said)


@pytest.mark.req("3-093", "3-X13")
def test_whose_report_it_is() -> None:
    """Missing ids: the only possible assignment, or none. Another's ids: refused. Break: `candidates > 2`."""
    one = assignment("auto", "auto-1")
    said = Update(summary="x")
    assert not_about(said, one, 1) == ""
    assert "working on 2 plan items" in not_about(said, one, 2)
    assert "working on 2 plan items" in not_about(replace(said, goal_id=one.goal_id), one, 2)
    assert not_about(replace(said, work_node_id=one.work_node_id), one, 2) == ""
    assert "S1.1.2" in not_about(replace(said, work_node_id="S1.1.2"), one, 1)
    assert "goal_2" in not_about(replace(said, goal_id="goal_2"), one, 1)


def test_the_same_words_are_the_same_report() -> None:
    assert fingerprint(Update(summary="a")) == fingerprint(Update(summary="a"))
    assert fingerprint(Update(summary="a")) != fingerprint(Update(summary="b"))


def test_what_a_report_says() -> None:
    """Blockers count whatever the status; done needs evidence."""
    assert is_blocked(Update(status=Claim.IN_PROGRESS, blockers=("a key",)))
    assert not is_blocked(Update(status=Claim.IN_PROGRESS, blockers=()))
    assert not claims_done(Update(status=Claim.DONE))
    assert not claims_done(Update(status=Claim.DONE, evidence=Evidence()))
    assert claims_done(Update(status=Claim.DONE, evidence=Evidence(commits=("1a2b",))))
    assert not claims_done(
        Update(status=Claim.DONE, blockers=("a key",), evidence=Evidence(commits=("1a2b",)))
    )


def test_llmc_report_says_the_same() -> None:
    assert from_report("blocked", "needs a key") == Update(
        status=Claim.BLOCKED, summary="needs a key", blockers=("needs a key",)
    )
    assert from_report("progress", "half way") == Update(status=Claim.IN_PROGRESS, summary="half way")
    assert from_report("done", "", Evidence(commits=("1a",))).summary is None


@pytest.mark.req("3-X2")
@pytest.mark.parametrize("text", ["nudge", "work", "answer"])
def test_our_own_words_are_no_report(text: str) -> None:
    """Our own request, echoed by an agent word for word, is refused. Break: a valid status in the example."""
    said = {
        "nudge": words.nudge_text(goal(), NODE),
        "work": words.work_text(goal(), NODE),
        "answer": words.answer_text(goal(), NODE, "Take A."),
    }[text]
    assert '"overseerUpdate"' in said
    assert parse(said).update is None
    assert parse(f"You asked:\n{said}").update is None
