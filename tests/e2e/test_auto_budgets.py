"""Auto mode when a budget is nearly or fully used up: of the task, the run, the day, and --max-cost."""

import re
import time
from datetime import datetime

import pytest

from llmc.base.names import header_id
from tests.support import auto
from tests.support.auto import Daemon, add, commit, set_up, until
from tests.support.fleet import Fleet
from tests.support.plans import tasks_of

#: for a text, the scripted agent reports a quarter of its characters as tokens, and a little more
CHARS_PER_TOKEN = 4
LIMIT = 4000


def say(tokens: int) -> str:
    return "@say " + "x" * (tokens * CHARS_PER_TOKEN)


def told(fleet: Fleet) -> dict[str | None, str]:
    """What the agent was told about its budget, by prompt; a queued prompt is in the transcript twice."""
    texts = (text for text in fleet.prompts_in_transcripts() if "has nearly used up" in text)
    return {header_id(text): text for text in texts}


@pytest.mark.req("5-009", "5-012")
@pytest.mark.soak
def test_a_task_is_asked_to_finish_and_then_stopped(scripted: Fleet) -> None:
    """Break: leave `spent` out of the situation; or let the task's own budget not win."""
    fleet = set_up(
        scripted,
        **{
            "auto.budget.task_tokens": str(LIMIT),
            "auto.budget.soft": "0.5",
            "defaults.patrol_interval_secs": "1",
        },
    )
    go = fleet.marks / "go"
    add(fleet, 1, say(LIMIT * 6 // 10), f"@sh {until(go)}", commit(1))
    add(fleet, 2, "@sh echo half > half", say(LIMIT), "@hang")
    add(fleet, 3, say(LIMIT * 2), commit(3), llmc={"budget": {"tokens": LIMIT * 6}})
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: told(fleet))
    go.touch()
    auto.wait_completed(fleet, 2)
    assert sorted(auto.landed(fleet)) == [1, 3]
    (words,) = told(fleet).values()
    assert re.search(r"the task: 2,\d{3} of 4,000 tokens \(auto\.budget\.task_tokens\)", words)
    (parked,) = auto.wait_for(fleet, lambda: fleet.events("task_parked"))
    assert (parked["task_id"], parked["cause"]) == ("2", "budget")
    assert fleet.git("show", f"{parked['ref']}:half", cwd=fleet.root) == "half"
    assert not fleet.events("task_failed")
    assert auto.auto(fleet)["errors"] == 0
    assert tasks_of(fleet)["2"]["metadata"]["llmc"]["hold"] == "parked"
    assert "llmc tasks requeue 2" in fleet.llmc("digest").out
    assert daemon.stop() == 0


@pytest.mark.req("5-013")
def test_the_run_and_the_day_and_what_it_may_cost(scripted: Fleet) -> None:
    """Break: leave the drain, or the park, out of _heed_limits; or stay parked after a budget was raised."""
    fleet = set_up(
        scripted, **{"defaults.patrol_interval_secs": "1", "defaults.model": "claude-opus-5-5"}
    )  # no prices of its own: a list is installed
    add(fleet, 1, say(LIMIT), commit(1))
    add(fleet, 2, "@sh echo half > half", say(LIMIT), "@hang", after=(1,))
    daemon = Daemon(fleet, "--max-cost", "0.05")
    assert daemon.ends() == 0
    assert auto.landed(fleet) == [1]
    assert re.search(r"auto mode finished: spent \$0\.\d\d of \$0\.05 \(--max-cost\)", daemon.said)
    # It ended as requested: nothing needs the user.
    assert "waiting for you" not in daemon.said
    view = fleet.llmc("status", "--json").json
    assert view["attention"] == []
    assert "(--max-cost)" in view["auto"]["finished_reason"]

    fleet.llmc("config", "set", "auto.budget.run_tokens", str(LIMIT))
    daemon = Daemon(fleet)
    assert daemon.ends() == 0, "only this run's usage counts"
    assert "of 4,000 tokens (auto.budget.run_tokens)" in daemon.said
    (released,) = fleet.events("task_released")
    assert (released["task_id"], released["cause"]) == ("2", "budget")
    assert fleet.git("show", f"{released['ref']}:half", cwd=fleet.root) == "half"
    assert tasks_of(fleet)["2"]["status"] == "pending"
    assert not fleet.events("task_failed")

    add(fleet, 2, commit(2), after=(1,))
    fleet.llmc("config", "set", "auto.budget.run_tokens", "0")
    fleet.llmc("config", "set", "auto.budget.day_tokens", str(LIMIT))
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: fleet.events("fleet_parked"))
    view = fleet.llmc("status", "--json").json["auto"]
    midnight = datetime.fromtimestamp(view["parked_until_unix"])
    assert (midnight.hour, midnight.minute, midnight.second) == (0, 0, 0)
    assert view["parked_until_unix"] > time.time()
    assert auto.at_work(fleet) == {}
    fleet.llmc("config", "set", "auto.budget.day_tokens", str(LIMIT * 10))
    auto.wait_completed(fleet, 2)
    assert auto.landed(fleet) == [1, 2]
    assert [row["cause"] for row in fleet.events("fleet_resumed")] == ["budget"]
    assert daemon.stop() == 0
