"""Plans that users wrote: Markdown or JSON, and the line of every problem."""

import inspect
import json
import re
import textwrap
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmc.cli.goal import plan as plan_command
from llmc.goals.drive.moves import commands
from llmc.goals.model import NodeStatus
from llmc.goals.plan.plan import Limits, Plan
from llmc.goals.plan.plan_check import check_plan, json_lines
from llmc.goals.plan.plan_text import read_plan
from tests.support.goal_plans import Json, nodes_of, plans, small_plan

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "goals.md"
LIMITS = Limits()


def read(text: str) -> Plan:
    found = read_plan(text, LIMITS)
    assert isinstance(found, Plan), [str(problem) for problem in found]
    return found


def problems(text: str, limits: Limits = LIMITS) -> list[str]:
    found = read_plan(text, limits)
    assert isinstance(found, tuple)
    return [str(problem) for problem in found]


def test_the_plans_that_a_newcomer_copies_are_plans() -> None:
    """Those in README and in `goal plan --help`. Break: remove an `accept:` line from one."""
    readme = (GUIDE.parents[2] / "README.md").read_text()
    (shown,) = re.findall(r"\$ cat \S*plan\.md\n(# .*?)\n\$ ", readme, re.DOTALL)
    assert [phase.name for phase in read(shown).phases] == ["Read files", "Show them"]
    explained = inspect.cleandoc(plan_command.help or "").replace("\b", "")
    assert read(textwrap.dedent(explained[explained.index("  # ") :])).title == "Import CSV files"


def test_the_example_of_the_guide_is_a_plan() -> None:
    """Break: let a box without an id use its number in the whole plan, or forget `[x]`."""
    whole, example = re.findall(r"```markdown\n(# .*?)```", GUIDE.read_text(), re.DOTALL)
    assert read(whole).title == "Import CSV files"
    plan = read(example)
    assert plan.title == "Orders can be paid by card"
    assert plan.problem_statement == "Customers ask for it every week; today they can only pay by invoice."
    assert plan.success_criteria == ("An order can be paid with the provider's test card",)
    assert plan.constraints == ("No new dependency",)
    assert [node.id for node, *_ in plan.walk()] == [
        *("P1", "T1.1", "S1.1.1", "S1.1.2", "T1.2", "P2", "T2.1"),
    ]
    nodes = {node.node_id: node for node in nodes_of(plan, "g", 5.0)}
    assert nodes["S1.1.1"].status is NodeStatus.DONE
    assert nodes["S1.1.1"].ended_at == 5.0
    assert {node.status for id, node in nodes.items() if id != "S1.1.1"} == {NodeStatus.TODO}
    assert nodes["S1.1.2"].depends_on == ("S1.1.1",)
    assert nodes["S1.1.2"].acceptance_criteria == (
        "A payment that is begun twice is one payment",
        "A payment that was refused can be tried again, with another card if the customer wants",
    )
    assert nodes["T1.2"].verify == "make test-refunds"
    assert nodes["T1.2"].acceptance_criteria == ("`make test-refunds` passes.",)
    assert nodes["P1"].acceptance_criteria == ("All its tasks are done.",)
    assert nodes["P2"].depends_on == ("P1",)
    assert nodes["T2.1"].objective == "A form, and the page that says what became of it."


def test_every_problem_names_its_line() -> None:
    """Break: number lines from 0, or look a problem up only by its path."""
    text = """# Goal: Ship it
sucess: it ships
## P1: Store
- [ ] A box without a task
### T1: Schema
accept: it loads
deps: T9
risk: huge
- [?] Neither open nor done
  accept: x
- [ ] Nobody says when it is done
  verify:
#### Too deep
## P1: Store again
# Another goal
"""
    assert problems(text) == [
        "line 2: unknown key `sucess:`; did you mean `success:`?",
        "line 4: a subtask must be under a `### task` heading",
        "line 7: deps: no phase, task or subtask has the id T9",
        'line 8: risk: must be one of low, med, high, not "huge"',
        "line 9: a checkbox must be `[ ]` (open) or `[x]` (done), not `[?]`",
        "line 11: `accept:` is missing",
        "line 12: verify: must not be blank",
        "line 13: headings deeper than `###` are not allowed; write subtasks as checkboxes (`- [ ] name`)",
        "line 14: a phase must have at least one task (a `###` heading)",
        "line 14: duplicate id P1, already used at line 3",
        "line 15: a plan must have only one `#` heading, at the top",
    ]
    assert problems("Just words\n") == ["a plan must have at least one phase (a `##` heading)"]
    assert problems("# G\n## A\n### [x] B\naccept: y\n- [ ] C\n  accept: z\n") == [
        "line 3: T1.1 is checked, but not all of its children are"
    ]
    eight = "## A\n" + "".join(f"### T{n}: B\naccept: y\n" for n in range(8))
    assert problems(eight) == [
        "the goal must have a one-line title (a `#` heading)",
        "line 1: must have at most 7 entries, not 8",
    ]


def test_a_verify_command_may_be_written_as_code() -> None:
    """Break: leave `bare` out of `_node_of`; or let `criterion` put backticks around backticks."""
    plan = read("# G\nverify: `make test`\n## P\n### T\nverify: `make t`\n")
    assert commands(plan.success_criteria) == ("make test",)
    (task,) = plan.phases[0].children
    assert (task.verify, task.acceptance_criteria) == ("make t", ("`make t` passes.",))
    assert problems("# G\nverify: make\nverify:\nverify: ``\n## P\n### T\naccept: x\n") == [
        "line 3: the verify command is empty",
        "line 4: the verify command is empty",
    ]


@pytest.mark.parametrize(
    "prose",
    [
        "```make test```",
        "```\n## not a heading\n- [ ] not a box\n```",
        "````\n```\n### not a heading\n````",
        "~~~\n```\n### not a heading\n~~~",
        "    ```sh\n    - [ ] not a box\n    ```",
        "~~~ sh `x`\n- [ ] not a box\n~~~",
    ],
)
def test_a_fence_hides_nothing_but_its_code(prose: str) -> None:
    """Break: let any line that starts with three backticks open or close a fence."""
    plan = read(f"# G\n## A\n### One\naccept: a\n{prose}\n### Two\naccept: b\n## B\n### Three\naccept: c\n")
    assert [node.name for node, *_ in plan.walk()] == ["A", "One", "Two", "B", "Three"]


def test_a_fence_that_stays_open_is_a_problem() -> None:
    """Everything below would be its code. Break: do not look at the fence that is open at the end."""
    assert problems("# G\n## A\n### One\naccept: a\n````\n```\n### Two\naccept: b\n") == [
        "line 5: this code fence is not closed; close it with a line that contains only ````"
    ]
    assert problems("# G\n~~~ sh\n## A\n### One\naccept: a\n") == [
        "line 2: this code fence is not closed; close it with a line that contains only ~~~",
        "a plan must have at least one phase (a `##` heading)",
    ]


def test_json_is_taken_too_and_its_problems_name_lines() -> None:
    """Break: read JSON as Markdown, or count lines of strings that contain brackets."""
    value = small_plan()
    assert read(json.dumps(value)) == check_plan(json.dumps(value), LIMITS)
    value["phases"][0]["tasks"][1]["acceptance"] = ["a { b [ c", ""]
    value["phases"][1]["colour"] = "red"
    text = json.dumps(value, indent=1)
    lines = text.split("\n")
    blank = next(n for n, line in enumerate(lines, 1) if line.strip() == '""')
    second = next(n for n, line in enumerate(lines, 1) if '"P2"' in line) - 1
    assert problems(text) == [
        f"line {blank}: $.phases[0].tasks[1].acceptance[1]: must not be blank",
        f'line {second}: $.phases[1]: unknown key "colour"',
    ]
    assert problems(text[:-1])[0].startswith("line 1: $: the text is not valid JSON")


@given(plans(most=3), st.sampled_from([None, 1, "\t"]))
def test_lines_of_json_are_where_things_stand(value: Json, indent: int | str | None) -> None:
    """Break: do not count the entries of an array in `json_lines`."""
    text = json.dumps(value, indent=indent)
    found = json_lines(text)
    lines = text.split("\n")
    for p, phase in enumerate(value["phases"]):
        assert f'"{phase["id"]}"' in lines[found[f"$.phases[{p}].id"] - 1]
        for t, task in enumerate(phase["tasks"]):
            assert f'"{task["id"]}"' in lines[found[f"$.phases[{p}].tasks[{t}].id"] - 1]
    assert "planVersion" in lines[found["$.planVersion"] - 1]


LINES = (
    *(
        "# Goal",
        "## P1: Phase",
        "## Phase 2: Two",
        "### Task",
        "### [x] T9: Task",
        "- [ ] Box",
        "- [x] S1: Box",
        "* [?] Odd",
    ),
    *("accept: it works", "deps: P1, T9", "deps:", "verify: make", "risk: low", "success: yes", "typo: no"),
    *("text", "    deeper", "```", "", "#### Deep", "- [ ]", "##"),
)


@given(st.lists(st.sampled_from(LINES), max_size=25))
@example(["### Task", "verify: make", "# Goal", "    deeper"])
@example(["success: yes", "### Task", "    deeper"])
def test_no_text_breaks_the_reader(lines: list[str]) -> None:
    """Break: let a field continue below the next heading, or use `self._open[-1]` without checking."""
    found = read_plan("\n".join(lines), LIMITS)
    assert isinstance(found, Plan) or found
    if isinstance(found, Plan):
        assert nodes_of(found, "g", 1.0)
    else:
        assert all(0 <= problem.line <= len(lines) for problem in found)
