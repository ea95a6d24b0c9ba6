"""What agents used, from their own transcripts to `llmc usage`."""

import json
import re
import time

import pytest

from llmc.auto.rules.costs import Level, limits, verdict
from llmc.auto.usage import Meters, Totals, record_usage
from llmc.base.names import TaskId
from llmc.config.model import Budget
from llmc.records.worker import Assignment
from llmc.repo.project import open_project
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

KINDS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def assign(fleet: Fleet, task: str) -> None:
    project = open_project(str(fleet.root))
    with project.store.transaction() as tx:
        claim = Assignment(task_id=TaskId(task), claim=f"claim-{task}", since_unix=time.time())
        tx.update("adam", assignment=claim)


def spent_by_now(fleet: Fleet, meters: Meters) -> int:
    project = open_project(str(fleet.root))
    with project.worker_lock("adam"):
        return record_usage(project, "adam", meters).tokens.output_tokens


def messages(fleet: Fleet) -> dict[str, dict[str, int]]:
    """Tokens by message, as recorded in the transcripts, the largest value of each message."""
    found: dict[str, dict[str, int]] = {}
    for row in fleet.transcript_rows():
        message = row.get("message") or {}
        if row.get("type") == "assistant" and message["model"] != "<synthetic>":
            before = found.get(message["id"], {})
            found[message["id"]] = {k: max(before.get(k, 0), message["usage"].get(k, 0)) for k in KINDS}
    return found


def output_of(fleet: Fleet, prompt: str) -> int:
    """The output tokens of the conversation that a prompt started."""
    rows = fleet.transcript_rows()
    (session,) = {
        row["sessionId"]
        for row in rows
        if row.get("type") == "user" and prompt in json.dumps(row["message"]["content"])
    }
    mine = {
        row["message"]["id"]
        for row in rows
        if row.get("sessionId") == session and row.get("type") == "assistant"
    }
    return sum(spent["output_tokens"] for name, spent in messages(fleet).items() if name in mine)


@pytest.mark.req("5-001", "5-005", "5-011")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_usage_is_what_the_transcripts_say_by_task_and_model(fleet: Fleet) -> None:
    """Break: count rows instead of messages, forget the first conversation, or give both to one task."""
    fleet.set_up("adam", config={"defaults.model": "claude-opus-4-8"})
    fleet.up()
    meters, totals = Meters(), Totals()
    for task, prompt in (("7", "@say First.\n@sh echo hi > a.txt\n@say One."), ("8", "@say Two.")):
        assign(fleet, task)  # before it starts: the daemon records usage, too
        fleet.llmc("start", "--worker", "adam", "--prompt", prompt)
        fleet.wait("adam", "needs_input")
        # A client writes the last row of a turn a moment after its Stop.
        wait_until(lambda: spent_by_now(fleet, meters))
        fleet.llmc("reset", "adam")
    project = open_project(str(fleet.root))
    with project.worker_lock("adam"):
        record_usage(project, "adam", meters)
    expected = {kind: sum(one[kind] for one in messages(fleet).values()) for kind in KINDS}

    by_task = fleet.llmc("usage", "--by", "task", "--json").json
    assert {kind: by_task["total"][kind] for kind in KINDS} == expected
    outputs = {"7": output_of(fleet, "@say First."), "8": output_of(fleet, "@say Two.")}
    assert all(outputs.values())
    assert expected["output_tokens"] == sum(outputs.values())
    assert {line["task"]: line["output_tokens"] for line in by_task["lines"]} == outputs
    (by_model,) = fleet.llmc("usage", "--by", "model", "--json").json["lines"]
    assert by_model["model"] == "claude-opus-4-8"
    assert by_model["unpriced"] == []
    cost = expected["input_tokens"] * 5 + expected["output_tokens"] * 25
    cost += expected["cache_creation_input_tokens"] * 6.25 + expected["cache_read_input_tokens"] * 0.5
    assert by_model["cost"] == pytest.approx(cost / 1e6, abs=1e-5), "right away, from the installed list"

    day, run = totals.read(project)
    assert day.tokens == run.tokens
    judged = verdict(limits(Budget(day_tokens=day.tokens.new)), day=day)
    assert judged.level is Level.HARD
    priced = fleet.llmc("usage", "--by", "day", "--since", "1h", "--json").json
    assert priced["total"]["cost"] == by_model["cost"]
    assert priced["lines"][0]["share"] == 1.0

    table = fleet.llmc("usage", "--by", "task").out.splitlines()
    assert re.split(r"\s{2,}", table[0]) == [
        *("task", "input", "output", "cache write", "cache read", "toward limit", "cost", "share")
    ]
    assert table[-1].startswith("total")
    assert table[-1].endswith("100%")
    assert fleet.llmc("usage", "--since", "soon", code=2).err.startswith("llmc: --since: invalid time 'soon'")
    assert fleet.llmc("usage", "--since", str(time.time() + 60)).out == ""
