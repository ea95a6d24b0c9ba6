"""The task list from the command line, and shared with the agents."""

import json
from pathlib import Path

import pytest

from tests.support.fleet import SCRIPTED_IN_SOAK, Fleet
from tests.support.plans import auto_config, tasks_of
from tests.support.waiting import wait_until


@pytest.fixture
def listed(scripted: Fleet) -> Fleet:
    return scripted.set_up(
        config={"auto.task_list_id": "our list", "auto.tasks_root": str(scripted.dir / "tasks")}
    )


def files(fleet: Fleet) -> Path:
    return fleet.dir / "tasks/our-list"


def test_add_import_show_list_graph(listed: Fleet) -> None:
    """Break: resolve `after` of an import before its task has a number."""
    listed.llmc(
        "tasks", "add", "Add the model", "-d", "With care", "-p", "1", "-l", "db", "--verify", "make test"
    )
    plan = listed.dir / "plan"
    plan.mkdir()
    (plan / "a-docs.md").write_text("# Docs\n")
    (plan / "b-ui.md").write_text("---\nafter: c-api\nbefore: a-docs\n---\n# Add the UI\n")
    (plan / "c-api.md").write_text("---\nafter: 1\nlabel: api\n---\n# Add the API\nAll of it.\n")
    made = listed.llmc("tasks", "import", str(plan), "--json").json
    assert made == [
        {"id": "2", "subject": "Add the API"},
        {"id": "3", "subject": "Add the UI"},
        {"id": "4", "subject": "Docs"},
    ]
    assert json.loads((files(listed) / "3.json").read_text())["blockedBy"] == ["2"]
    shown = listed.llmc("tasks", "list", "--json").json
    assert [(row["id"], row["state"], row["after"]) for row in shown["tasks"]] == [
        ("1", "ready", []),
        ("2", "waits", ["1"]),
        ("3", "waits", ["2"]),
        ("4", "waits", ["3"]),
    ]
    assert listed.llmc("tasks", "list", "--state", "ready").out == "1  ready       p1 [db]  Add the model\n"
    assert listed.llmc("tasks", "graph").out.splitlines()[1] == "└─ 2 waits  Add the API"
    assert listed.llmc("tasks", "graph", "--mermaid").out.startswith("flowchart TD")
    assert listed.llmc("tasks", "graph", "--json").json["needs"]["4"] == ["3"]
    told = listed.llmc("tasks", "show", "1", LLMC_WORKER="adam").out
    assert "verify: make test" in told
    assert "With care" in told
    file = plan / "c-api.md"
    assert listed.llmc("tasks", "add", "--file", str(file), "-l", "web", "--json").json["id"] == "5"
    assert listed.llmc("tasks", "show", "5", "--json").json["label"] == "web"


def test_a_plan_that_is_imported_again_adds_only_what_is_new(listed: Fleet) -> None:
    """Break: no `by_key` in `import_all` (tasks/task_list.py); or forget the ids of earlier imports."""
    plan = listed.dir / "plan"
    plan.mkdir()
    (plan / "api.md").write_text("# Add the API\n")
    (plan / "ui.md").write_text("---\nafter: api\n---\n# Add the UI\n")
    listed.llmc("tasks", "import", str(plan))
    listed.llmc("tasks", "done", "1")
    (plan / "docs.md").write_text("---\nafter: ui\n---\n# Write the docs\n")
    assert listed.llmc("tasks", "import", str(plan)).out.splitlines() == [
        "added 3: Write the docs",
        "already imported as 1: Add the API",
        "already imported as 2: Add the UI",
        "to import them again, add --again",
    ]
    assert json.loads((files(listed) / "3.json").read_text())["blockedBy"] == ["2"]
    (plan / "docs.md").write_text("---\nafter: ui\n---\n# Write all the docs\n")
    assert listed.llmc("tasks", "import", str(plan), "--json").json == [
        {"id": "4", "subject": "Write all the docs"}
    ]
    again = listed.llmc("tasks", "import", "--again", str(plan), "--json").json
    assert [task["id"] for task in again] == ["5", "6", "7"]
    assert json.loads((files(listed) / "6.json").read_text())["blockedBy"] == ["5"]


def test_a_list_of_files_that_is_imported_only_in_part(listed: Fleet) -> None:
    """Break: exit with 0; a script would believe that all tasks are there."""
    mine = listed.dir / "mine"
    mine.mkdir()
    good = {
        "id": "1",
        "subject": "One",
        "description": "",
        "status": "pending",
        "blocks": [],
        "blockedBy": [],
    }
    (mine / "1.json").write_text(json.dumps(good))
    (mine / "2.json").write_text(json.dumps({**good, "id": "2", "subject": "Two", "blockedBy": ["3"]}))
    done = listed.llmc("tasks", "import", "--from-files", str(mine), "--json", code=1)
    assert done.json == [{"id": "1", "subject": "One"}]
    assert done.err == "warning: not imported: task 2 depends on tasks that were not imported: 3\n"
    (mine / "3.json").write_text(json.dumps({**good, "id": "3", "subject": "Three"}))
    done = listed.llmc("tasks", "import", "--from-files", str(mine))
    assert (done.out, done.err) == ("added 2: Three\nadded 3: Two\n", "")


@pytest.mark.req("4-011")
def test_what_cannot_be_is_refused_and_nothing_is_added(listed: Fleet) -> None:
    """Break: create before the links are checked."""
    listed.llmc("tasks", "add", "One")
    listed.llmc("tasks", "add", "Two", "--after", "1")
    assert "task 99 does not exist" in listed.llmc("tasks", "add", "X", "--after", "99", code=4).err
    assert "dependency cycle" in listed.llmc("tasks", "add", "X", "--after", "2", "--before", "1", code=2).err
    assert (
        "`llmc tasks add` is not available to agents"
        in listed.llmc("tasks", "add", "X", code=3, LLMC_WORKER="adam").err
    )
    assert "a subject or --file is required" in listed.llmc("tasks", "add", code=2).err
    assert "label" in listed.llmc("tasks", "add", "X", "--label", "a b", code=2).err
    (listed.dir / "a.md").write_text("---\nafter: b\n---\n# A\n")
    (listed.dir / "b.md").write_text("---\nafter: a\n---\n# B\n")
    both = [str(listed.dir / "a.md"), str(listed.dir / "b.md")]
    assert "dependency cycle" in listed.llmc("tasks", "import", *both, code=2).err
    assert "refers to task" in listed.llmc("tasks", "import", both[0], code=4).err
    assert "two tasks are named 'a'" in listed.llmc("tasks", "import", both[0], both[0], code=2).err
    for odd in ("7", "../our-list/1", ".", ""):
        listed.llmc("tasks", "show", odd, code=4)
    assert sorted(path.name for path in files(listed).glob("*.json")) == ["1.json", "2.json"]
    listed.llmc("config", "unset", "auto.task_list_id")
    assert "llmc config set auto.task_list_id" in listed.llmc("tasks", "list", code=2).err


def test_problems_of_the_list_are_said(listed: Fleet) -> None:
    assert listed.llmc("tasks", "list").out == "no tasks\n"
    files(listed).mkdir(parents=True)
    task = {"subject": "S", "description": "", "status": "pending", "blocks": [], "blockedBy": []}
    for number, waits in {"1": ["2"], "2": ["1"], "3": ["9"]}.items():
        (files(listed) / f"{number}.json").write_text(json.dumps({**task, "id": number, "blockedBy": waits}))
    (files(listed) / "4.json").write_text(json.dumps({**task, "id": "5"}))
    problems = wait_until(lambda: _problems(listed, 3))
    assert "4.json: `id` is '5'" in problems[0]
    assert problems[1] == "task 3 depends on task 9, which does not exist"
    assert "1, 2" in problems[2]
    assert "problem: task 3 depends" in listed.llmc("tasks", "graph", code=1).err


def _problems(fleet: Fleet, count: int) -> list[str]:
    found = list(fleet.llmc("tasks", "list", "--json", code=1).json["problems"])
    return found if len(found) == count else []


@pytest.mark.req("4-001", "4-005")
@pytest.mark.parametrize("fleet", SCRIPTED_IN_SOAK, indirect=True)
def test_agents_and_llmc_share_one_list(fleet: Fleet) -> None:
    """Break: launch without CLAUDE_CODE_TASK_LIST_ID."""
    fleet.set_up("adam", config={"auto.task_list_id": "our list"})
    fleet.llmc("config", "set", "defaults.env.CLAUDE_CODE_ENABLE_TODO_TOOLS", "1")
    fleet.llmc("tasks", "add", "By a person")
    fleet.up()
    fleet.llmc("message", "adam", "@task By the agent")
    wait_until(lambda: len(fleet.llmc("tasks", "list", "--json").json["tasks"]) == 2)
    rows = fleet.llmc("tasks", "list", "--json").json["tasks"]
    assert [(row["id"], row["subject"]) for row in rows] == [("1", "By a person"), ("2", "By the agent")]


def test_what_cannot_be_typed_is_written_out_when_it_is_added(scripted: Fleet) -> None:
    """Break: keep a pasted escape sequence in the file; or accept a command that no shell can run."""
    scripted.set_up(config=auto_config(scripted))
    scripted.llmc("tasks", "add", "A log", "-d", "\x1b[31mred\x1b[0m\tand\x07\nmore")
    assert tasks_of(scripted)["1"]["description"] == "\\x1b[31mred\\x1b[0m\tand\\x07\nmore"
    said = scripted.llmc("tasks", "add", "A check", "--verify", "make \x1b[A", code=2).err
    assert "the verify command must not contain control characters (U+001B)" in said
