"""What `goal show` prints, and the handoff of a goal."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.base.text import cells, printable
from llmc.goals.drive.words import of_parts
from llmc.goals.model import GoalView
from llmc.goals.plan.repo_summary import RepoFacts, snapshot
from llmc.goals.report.draw import LEAST_WIDTH, MOST_WIDTH, Line, mermaid, plan_tree
from llmc.goals.report.handoff import MAX_CHARS, MAX_LIST, code, escaped, handoff
from tests.support.goal_views import PERCENT, crystallizations, half_done


def plain(lines: Sequence[Line]) -> str:
    """Without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


GOLDEN = Path(__file__).resolve().parents[2] / "cases" / "goals"


def test_the_tree_shows_progress_owners_blockers_and_who_waits() -> None:
    """Break: show a finished assignment, or a dependency that is done."""
    assert plain(plan_tree(half_done(), PERCENT, 100)) == (GOLDEN / "tree.txt").read_text().rstrip("\n")
    styles = {text.strip(): style for line in plan_tree(half_done(), PERCENT, 100) for text, style in line}
    assert (styles["✓"], styles["●"], styles["!"], styles["·"]) == ("green", "blue", "red", "dim")
    assert styles["(stalled)"] == "yellow"
    assert styles["Which provider?"] == "red"


def test_a_long_name_gives_way_to_what_became_of_it() -> None:
    """Break: cut a line at its end, whatever is there."""
    view = half_done()
    nodes = {id: replace(node, name="n" * 200) for id, node in view.nodes.items()}
    text = plain(plan_tree(GoalView(view.goal, nodes, view.assignments), PERCENT, 80))
    assert "n…  [in_progress]  auto-2 (stalled)\n" in text
    assert "n…  waits for T1.2, S1.1.2" in text


def test_a_goal_without_a_plan_says_so() -> None:
    """Break: draw nothing below the bar."""
    assert plain(plan_tree(GoalView(half_done().goal), {}, 80)).endswith("\nno plan yet")


@given(st.integers(0, 250), st.text(max_size=200), st.text(max_size=200))
def test_every_line_fits_and_is_one_line(width: int, title: str, name: str) -> None:
    """Break: leave `_fitted` out, or print a name as it was written."""
    view = half_done()
    nodes = {id: replace(node, name=name) for id, node in view.nodes.items()}
    lines = plan_tree(GoalView(replace(view.goal, title=title), nodes, view.assignments), PERCENT, width)
    for line in plain(lines).split("\n"):
        assert cells(line) <= max(LEAST_WIDTH, min(width, MOST_WIDTH))
        assert "\x1b" not in line
    assert len(lines) == 2 + len(nodes)
    assert len(plain(lines).splitlines()) == len(lines)


def test_the_diagram_has_groups_leaves_and_arrows() -> None:
    """Break: leave the escapes out of `_mermaid_text`, or reverse the arrows."""
    assert mermaid(half_done()) == (GOLDEN / "plan.mmd").read_text()


@given(st.text(max_size=80))
def test_no_name_ends_a_label_of_the_diagram(name: str) -> None:
    """Break: escape only quotes."""
    view = half_done()
    nodes = {id: replace(node, name=name) for id, node in view.nodes.items()}
    for line in mermaid(GoalView(view.goal, nodes)).splitlines():
        assert line.count('"') in (0, 2)
        assert not re.search(r"[`<>]", line.partition("-->")[0])


def test_a_handoff_has_everything_to_go_on_with() -> None:
    """Break: show next actions of finished items, or an older report beside a newer one of the same node."""
    text = handoff(half_done(), crystallizations(), PERCENT)
    assert text == (GOLDEN / "handoff.md").read_text()
    assert text == handoff(half_done(), reversed(crystallizations()), PERCENT)


def test_a_handoff_has_each_part_and_each_fact_on_its_line() -> None:
    """Break: put all lines of a summary on one line; or print `1 files`."""
    facts = RepoFacts(
        commit="c0ffee" * 7, branch="main", files=("a.py",), readme="# One\n\n# Two", validate="true"
    )
    view = half_done()
    goal = replace(view.goal, repo_context_snapshot=snapshot(facts))
    whole = of_parts("C_9", goal, None, [(node, None) for node in view.nodes.values()][:2], 9e9)
    text = handoff(replace(view, goal=goal), [*crystallizations(), whole], PERCENT)
    parts = [f"{node.node_id} {node.name}: {node.status}" for node in list(view.nodes.values())[:2]]
    assert "\n".join(["", escaped(goal.title), "", *(f"- {escaped(part)}" for part in parts), ""]) in text
    assert "\n- Branch main at c0ffeec0ffee, 1 file.\n- Languages (files): Python (1)\n" in text
    assert "\n- Commands: `true` (validation)\n" in text
    assert "\n- README (start): # One # Two\n" in text


def test_a_handoff_is_bounded() -> None:
    """Break: print every entry of every list."""
    view = half_done()
    many = tuple("x" * 10_000 for _ in range(1000))
    goal = replace(view.goal, success_criteria=many, constraints=many, problem_statement="y" * 1_000_000)
    text = handoff(GoalView(goal, view.nodes, view.assignments), crystallizations() * 1000, PERCENT)
    assert f"- and {1000 - MAX_LIST} more" in text
    assert len(text) <= MAX_CHARS + 100
    assert "(paragraphs omitted: " in text.splitlines()[-1]


@given(st.text(max_size=60))
@example("# a heading")
@example("12. an entry")
@example("- an entry")
def test_text_of_others_is_no_markdown(text: str) -> None:
    """Break: leave out a character of the class in `escaped`, or the one at the start."""
    line = escaped(text)
    assert "\n" not in line
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_<>\[\]|]", line)
    assert not re.match(r"#|[+-]|\d+[.)]", line)
    assert re.sub(r"\\([^\w\s]|_)", r"\1", line) == " ".join(printable(text).split())


@pytest.mark.parametrize("text", ["ls", "a `b` c", "``", "`x", "x``y`z", ""])
def test_a_command_is_code_whatever_it_holds(text: str) -> None:
    """Break: always use one backtick."""
    made = code(text)
    fence = re.match("`+", made)
    assert fence is not None
    assert made.endswith(fence[0])
    inner = made[len(fence[0]) : -len(fence[0])]
    assert not re.search(rf"(?<!`){fence[0]}(?!`)", inner)
    assert inner.strip() == text
