"""A text is a plan, or every problem with it is reported with its place."""

import copy
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.goals.model import MAX_PHASES, MAX_SUBTASKS, MAX_TASKS, NodeKind, NodeStatus
from llmc.goals.plan.plan import Limits, Plan
from llmc.goals.plan.plan_check import Problem, check_plan, check_split, completed, plan_schema
from tests.support.goal_plans import (
    Json,
    all_nodes,
    fits,
    has_circle,
    leaf_graph,
    node,
    nodes_of,
    plan,
    plans,
    small_plan,
)

LIMITS = Limits()


def problems_of(value: Any, limits: Limits = LIMITS) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value)
    found = check_plan(text, limits)
    return [] if isinstance(found, Plan) else [str(problem) for problem in found]


#: as in the document that plans follow, letter by letter
EXAMPLE = (Path(__file__).parents[2] / "cases/goals/example-plan.json").read_text()


@pytest.mark.req("3-080", "3-081")
def test_the_documents_own_example_is_a_plan() -> None:
    """What it leaves out follows from the rest; what does not follow is still required.

    Break: leave `completed` out of `check_value`, or let it fill in the criteria of a leaf.
    """
    found = check_plan(EXAMPLE, LIMITS)
    assert isinstance(found, Plan), found
    phase, subtask = found.phases[0], found.phases[0].children[0].children[0]
    assert phase.acceptance_criteria == ("All its tasks are done.",)
    assert subtask.objective == subtask.name == "Define schemas + migrations"
    value = json.loads(EXAMPLE)
    task = value["phases"][0]["tasks"][0]
    del task["outcome"], task["acceptance"], task["subtasks"][0]["acceptance"]
    assert problems_of(value) == [
        "$.phases[0].tasks[0]: `acceptance` is missing",
        "$.phases[0].tasks[0]: `objective` or `outcome` is missing",
        "$.phases[0].tasks[0].subtasks[0]: `acceptance` is missing",
    ]


@pytest.mark.req("3-078", "3-135")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "$: the text is empty; expected JSON"),
        (f"```json\n{json.dumps(small_plan())}\n```", "$: the text is wrapped in a Markdown fence"),
        (f"Here is the plan:\n{json.dumps(small_plan())}", "$: the text does not start with JSON"),
        (f"{json.dumps(small_plan())}\nGood luck!", "$: there is text after the JSON (line 2, column 1)"),
        (json.dumps(small_plan())[:-1], "$: the text is not valid JSON"),
        (
            json.dumps(small_plan()).replace("1,", "NaN,", 1),
            "$: the text is not valid JSON: NaN is not a JSON number",
        ),
        (
            json.dumps(small_plan()).replace("1,", '1, "planVersion": 1,', 1),
            '$: duplicate key "planVersion"',
        ),
        ("[" * 100_000, "$: the text is not valid JSON"),
        ("[1]", "$: must be an object, not an array"),
        ('"a plan"', "$: must be an object, not a string"),
    ],
)
def test_only_json_alone_is_a_plan(text: str, said: str) -> None:
    """Break: strip a fence in `parse`, or let json.loads accept NaN and duplicate keys."""
    assert problems_of(text)[0].startswith(said)


@pytest.mark.req("3-078", "3-080", "3-081", "3-135")
def test_every_problem_is_listed_with_its_path() -> None:
    """Break: return after the first problem, or leave a keyword of the schema out."""
    value = small_plan()
    value["planVersion"] = 2
    value["extra"] = 1
    value["goal"]["succesCriteria"] = value["goal"].pop("successCriteria")
    first = value["phases"][0]
    first["tasks"][0]["subtasks"][0] |= {"id": "1 bad", "acceptance": []}
    first["tasks"][0]["subtasks"][1] |= {
        "acceptance": ["ok", " \n"],
        "deps": ["nobody", "nobody"],
        "name": "two\nlines",
    }
    del first["tasks"][1]["objective"]
    first["tasks"][1]["riskLevel"] = "medium"
    value["phases"][1]["tasks"][0]["acceptance"] = "It works"
    value["phases"][1]["id"] = "P1"
    bad_id = "a letter followed by letters, digits, `.`, `_` or `-`"
    expected = [
        '$: unknown key "extra"',
        "$.planVersion: must be 1, not 2",
        "$.goal: `successCriteria` is missing",
        '$.goal: unknown key "succesCriteria"; did you mean `successCriteria`?',
        f'$.phases[0].tasks[0].subtasks[0].id: "1 bad" is invalid; expected {bad_id}',
        "$.phases[0].tasks[0].subtasks[0].acceptance: must not be empty",
        '$.phases[0].tasks[0].subtasks[1].name: "two\\nlines" is invalid; expected a single line',
        "$.phases[0].tasks[0].subtasks[1].acceptance[1]: must not be blank",
        '$.phases[0].tasks[0].subtasks[1].deps: duplicate entry "nobody"',
        "$.phases[0].tasks[1]: `objective` or `outcome` is missing",
        '$.phases[0].tasks[1].riskLevel: must be one of low, med, high, not "medium"',
        "$.phases[1].tasks[0].acceptance: must be an array, not a string",
        "$.phases[1].id: duplicate id P1, already used at $.phases[0]",
        "$.phases[0].tasks[0].subtasks[1].deps[0]: no phase, task or subtask has the id nobody",
        "$.phases[1].deps[0]: P1 cannot depend on itself",
    ]
    assert sorted(problems_of(value)) == sorted(expected)


@pytest.mark.req("3-079", "3-135")
def test_a_plan_that_is_too_large_is_refused_and_not_cut() -> None:
    """Break: leave a `maxItems` out of the schema, or use larger limits than the model's."""
    parts = [node(f"S{n}") for n in range(MAX_SUBTASKS)]
    full = node("P0", tasks=[node(f"T{n}") for n in range(MAX_TASKS - 1)] + [node("TX", subtasks=parts)])
    others = [node(f"P{n}", tasks=[node(f"T{n}.1")]) for n in range(1, MAX_PHASES)]
    assert isinstance(check_plan(json.dumps(plan(full, *others)), Limits(50, 70, 70)), Plan)

    full["tasks"][-1]["subtasks"].append(node("S7"))
    full["tasks"].append(node("T7"))
    assert problems_of(plan(full, *others, node("P5", tasks=[node("T5.1")])), Limits(50, 70, 70)) == [
        "$.phases: must have at most 5 entries, not 6",
        "$.phases[0].tasks: must have at most 7 entries, not 8",
        "$.phases[0].tasks[6].subtasks: must have at most 7 entries, not 8",
    ]
    assert problems_of(small_plan(), Limits(phases=1)) == ["$.phases: must have at most 1 entries, not 2"]
    assert problems_of(plan()) == ["$.phases: must not be empty"]
    assert problems_of(plan(node("P1", tasks=[]))) == ["$.phases[0].tasks: must not be empty"]


@pytest.mark.req("3-081")
def test_who_waits_for_whom_has_no_circle() -> None:
    """A cycle through groups is found, and named by its leaves; so is each of several.

    Break: expand only dependencies between leaves, or stop at the first cycle.
    """
    value = small_plan()
    value["phases"][0]["tasks"][0]["subtasks"][0]["deps"] = ["P2"]  # P2 waits for P1, which contains this
    value["phases"][1]["tasks"] += [node("A", deps=["B"]), node("B", deps=["A"])]
    assert problems_of(value) == [
        "$.phases[1].deps: dependency cycle: S1.1.1 -> T2.1 -> S1.1.1",
        "$.phases[1].tasks[2].deps: dependency cycle: A -> B -> A",
    ]

    value = small_plan()
    value["phases"][0]["deps"] = ["S1.1.1"]
    value["phases"][0]["tasks"][0]["subtasks"][0]["deps"] = ["T1.1"]
    assert problems_of(value) == [
        "$.phases[0].deps[0]: P1 cannot depend on S1.1.1, which is part of it",
        "$.phases[0].tasks[0].subtasks[0].deps[0]: S1.1.1 cannot depend on T1.1, which contains it",
    ]


@pytest.mark.req("3-081")
@given(plans(), st.randoms(use_true_random=False))
def test_circles_are_those_of_the_leaves(value: Json, dice: random.Random) -> None:
    """Add any dependency to a plan without cycles; the check agrees with the spelled-out leaves.

    Break: forget that a group ends after its children in `_moments`.
    """
    nodes = all_nodes(value)
    above = {item["id"]: ids for item, ids in nodes}
    for _ in range(3):
        one, other = dice.choice(nodes)[0], dice.choice(nodes)[0]["id"]
        related = other == one["id"] or other in above[one["id"]] or one["id"] in above[other]
        if not related and other not in one["deps"]:
            one["deps"].append(other)
    found = problems_of(value)
    assert bool(found) == has_circle(leaf_graph(value))
    assert all(": dependency cycle: " in problem for problem in found)


@pytest.mark.req("3-081")
@pytest.mark.parametrize("version", [1, 1.0, True, "1", 2, None])
def test_the_version_is_one(version: object) -> None:
    """JSON has one kind of number. Break: let `True` pass as 1."""
    value = {**small_plan(), "planVersion": version}
    assert (problems_of(value) == []) == (version in (1, 1.0) and version is not True)
    assert fits(completed(value), plan_schema(LIMITS)) == (problems_of(value) == [])


def test_only_a_leaf_is_verified() -> None:
    """Break: leave `_of_groups` out: the command would never run."""
    value = small_plan()
    value["phases"][0]["tasks"][0]["verify"] = "make"
    assert problems_of(value) == [
        "$.phases[0].tasks[0].verify: not allowed on a task with subtasks; set it on the subtasks"
    ]


def mutate(value: Json, dice: random.Random) -> None:
    """Something is missing, extra, of another type or too long, anywhere."""
    places: list[tuple[Any, Any]] = []

    def collect(item: Any) -> None:
        for key in item if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ():
            places.append((item, key))
            collect(item[key])

    collect(value)
    holder, key = dice.choice(places)
    odd: list[Any] = [
        None,
        True,
        1,
        1.0,
        1.5,
        "",
        " ",
        "\n",
        "x" * 130,
        "x\n",
        "A\n",
        "med",
        [],
        {},
        ["x"] * 51,
    ]
    match dice.randrange(5):
        case 0:
            del holder[key]
        case 1:
            holder[key] = dice.choice(odd)
        case 2 if isinstance(holder[key], list) and holder[key]:
            holder[key] *= dice.randint(2, 8)
        case 3 if isinstance(holder, dict):
            holder[dice.choice(["verify", "status", "riskLevel", "requiredTools", "subtasks"])] = dice.choice(
                odd
            )
        case _:
            holder[key] = copy.deepcopy(dice.choice(places)[0])


@pytest.mark.req("3-078", "3-135")
@given(plans(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_check_and_the_schema_agree(value: Json, dice: random.Random, changes: int) -> None:
    """The client's schema refuses what the check calls a problem of shape, and nothing else,
    except for what the check fills in.

    Break: compare a maximum with `>=`.
    """
    for _ in range(changes):
        mutate(value, dice)
    found = check_plan(json.dumps(value), LIMITS)
    listed: tuple[Problem, ...] = () if isinstance(found, Plan) else found
    assert fits(completed(value), plan_schema(LIMITS)) == (not any(problem.of_shape for problem in listed)), (
        listed
    )


@pytest.mark.req("3-080")
@given(plans())
def test_the_nodes_say_both_ways_who_waits(value: Json) -> None:
    """Break: leave `with_blocks` out, or use the position in the whole plan."""
    checked = check_plan(json.dumps(value), LIMITS)
    assert isinstance(checked, Plan)
    nodes = {found.node_id: found for found in nodes_of(checked, "goal_1", 7.0)}
    assert nodes.keys() == {item["id"] for item, _ in all_nodes(value)}
    for item, above in all_nodes(value):
        made = nodes[item["id"]]
        assert made.parent_id == (above[-1] if above else "")
        assert made.kind is (NodeKind.PHASE, NodeKind.TASK, NodeKind.SUBTASK)[len(above)]
        assert made.depends_on == tuple(item["deps"])
        assert made.acceptance_criteria == ("It works",)
        assert (made.status, made.created_at, made.goal_id) == (NodeStatus.TODO, 7.0, "goal_1")
        assert all(made.node_id in nodes[needed].blocks for needed in made.depends_on)
        assert all(made.node_id in nodes[later].depends_on for later in made.blocks)
    for parent in {found.parent_id for found in nodes.values()}:
        positions = [found.position for found in nodes.values() if found.parent_id == parent]
        assert sorted(positions) == list(range(len(positions)))


def test_a_split_uses_no_id_again() -> None:
    """Break: forget `taken` in check_split."""
    parts = [node("S1"), node("S2", deps=["S1", "T9"])]
    found = check_split(json.dumps({"planVersion": 1, "subtasks": parts}), 7, ["T9"])
    assert not isinstance(found, tuple)
    assert [part.id for part in found.subtasks] == ["S1", "S2"]
    again = check_split(json.dumps({"planVersion": 1, "subtasks": parts}), 1, ["S1", "T9"])
    assert isinstance(again, tuple)
    assert [str(problem) for problem in again] == [
        "$.subtasks: must have at most 1 entries, not 2",
        "$.subtasks[0].id: id S1 is already used in the plan",
    ]


@pytest.mark.req("3-137")
def test_the_rules_of_goals_reach_no_program_and_no_network() -> None:
    """Every rule of goals/ is imported, and with it no module that can start or reach anything.

    Break: import llmc.base.proc or anything of llmc.agents in a module of llmc.goals.plan.
    """
    source = Path(__file__).resolve().parents[3] / "src"
    files = [
        path for room in ("plan", "drive", "report") for path in (source / "llmc/goals" / room).glob("*.py")
    ]
    names = [
        ".".join(path.relative_to(source).with_suffix("").parts) for path in files if path.stem != "__init__"
    ]
    assert "llmc.goals.plan.replan" in names
    code = (
        f"import sys, importlib\nfor name in {names!r}: importlib.import_module(name)\n"
        "print([name for name in sys.modules if name.startswith(('llmc.base.proc', 'llmc.agents', 'llmc.repo',"
        " 'llmc.goals.store', 'subprocess', 'socket', 'http'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_node_without_an_id_is_a_problem_of_its_shape() -> None:
    """Break: let "" be an id in graph_problems: it is also a phase's parent, which leads to StopIteration."""
    parts = [node("", deps=[""], tasks=[node("T1", deps=["", "T1.1"]), node("")])]
    for value in ({"phases": [{"id": "", "tasks": [0]}]}, plan(*parts)):
        found = check_plan(json.dumps(value), Limits())
        assert not isinstance(found, Plan)
        assert "phases[0].id" in str(found)
