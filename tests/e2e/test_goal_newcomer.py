"""Goals as somebody meets them who has only read the guide: on a terminal, with slips, and with nobody at work yet."""

import re

from tests.e2e.test_goal_commands import created, planned
from tests.support.fleet import Fleet

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_goal_on_a_narrow_terminal(scripted: Fleet) -> None:
    """Break: hand an empty colour to click in `paint`."""
    fleet = scripted.set_up()
    goal_id = created(fleet, "Import CSV files", "--budget", "20")
    planned(fleet, goal_id)
    for words in (("goal", "list"), ("overseer", "status"), ("overseer", "why", goal_id), ("status",)):
        shown = fleet.on_terminal(*words, columns=40)
        assert "bug in llmc" not in shown, (words, shown)
    shown = fleet.on_terminal("goal", "show", goal_id, columns=40)
    assert COLOUR.search(shown), shown
    tree = COLOUR.sub("", shown).splitlines()
    assert tree[0].startswith("Import CSV"), tree
    drawn = tree[: next(at for at, line in enumerate(tree) if line.startswith("work:"))]
    assert max(map(len, drawn)) <= 40, drawn
