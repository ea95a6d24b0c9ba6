"""The goal drills, as users run them: the failure is found and fixed, and nothing is lost or done twice."""

import json

import pytest

from llmc.rehearsal.drills.table import DRILLS
from tests.support import zygote
from tests.support.fleet import SANDBOX, Fleet

_GOALS = [name for name in DRILLS if name.startswith("goal-")]


@pytest.mark.drill
@pytest.mark.req("3-030", "3-103")
@pytest.mark.parametrize("name", _GOALS)
def test_a_drill_of_goals(scripted: Fleet, name: str) -> None:
    """Break: whatever the drill is about; for goal-task-deleted: call a leaf with an unclaimed task alive."""
    env = {"TMPDIR": str(scripted.dir), zygote.COLD: "1"}
    done = scripted.llmc("drill", name, "--sandbox", SANDBOX, "--json", code=None, timeout=600, **env)
    (report,) = json.loads(done.out)
    assert report["outcome"] == "passed", report
    assert report["lost"] == []
