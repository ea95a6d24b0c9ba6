"""Every name of the package is reached from something that a user or an agent can run. Tests do not count."""

from pathlib import Path

import llmc
from llmc.agents.kinds import AGENTS
from llmc.cli.commands import COMMANDS, PLACES
from llmc.tui.keys import KEYS
from tests.support.reach import BODY, Name, Package, words_of

SOURCE = Path(llmc.__file__).parent

#: what runs by itself; daemon and supervisor are reached through `llmc up` and `llmc overseer`
PROGRAMS = (
    "llmc.__main__",
    "llmc.hook_client",
    "llmc.launch",
    "llmc.sandbox.box_entry",
    "llmc.sandbox.proxy",
)

#: names that nothing in the package reads, and why they stay
ALLOWED = {
    # read by `f"{scope}_{unit}"` in auto/rules/costs.py
    *(
        f"llmc.config.model.Budget.{scope}_{unit}"
        for scope in ("task", "day", "run")
        for unit in ("cost", "tokens")
    ),
    # compared as a whole, with a new one
    "llmc.records.task_ledger._Sum.inode",
    "llmc.records.task_ledger._Sum.rules",
    # fields of documented files, for their readers: state.json, and the digest's JSON
    "llmc.records.state.State.active_task_ids",
    "llmc.records.state.State.overseer_active",
    "llmc.records.state.State.patrol_last_run_unix",
    "llmc.reports.rules.digest_parts.Ended.began_unix",
    # a value that a planner may return
    "llmc.goals.plan.plan.RiskLevel.MED",
    # scripts/make-docs prints it
    "llmc.rehearsal.drills.model.Drill.instead_of",
    # says which problems the schema must find, too: the two are compared with each other
    "llmc.goals.plan.plan_check.Problem.of_shape",
    # the values of --reply-thread and --reply-account: stored with the goal, for its readers
    "llmc.goals.model.DeliveryContext.account",
}


#: what textual calls or reads by name
TEXTUAL = {
    *("on_event", "on_lines_clicked"),
    *("DEFAULT_CSS", "AUTO_FOCUS", "BINDINGS", "CSS_PATH", "ENABLE_COMMAND_PALETTE"),
}


def test_every_name_is_reached_from_a_command() -> None:
    """A rule that only tests call keeps no promise, however well they prove it.

    Seen to fail for: a new function that nothing calls; `digest` out of COMMANDS; `notify.retry` out of daemon/chores.py; a
    field that is set and never read; a rule that only its marked test called (whose report it is).
    """
    commands = [Name(PLACES[name], name) for name in COMMANDS]
    # loaded by the name of the agent: agents/kinds.py, agents/glance.py
    faces = (("kind", "KIND"), ("glance", "glance"))
    commands += [Name(f"llmc.agents.{name}.{module}", face) for name in AGENTS for module, face in faces]
    unreached = Package(SOURCE).unreached(
        [*(Name(program, BODY) for program in PROGRAMS), *commands],
        words_of(SOURCE) | TEXTUAL | {f"do_{key.action}" for key in KEYS},
    )
    dead, stale = set(unreached) - ALLOWED, ALLOWED - set(unreached)
    assert not dead, f"only tests reach these; connect or remove them: {sorted(dead)}"
    assert not stale, f"reached, or gone; remove them from ALLOWED: {sorted(stale)}"


def test_what_nothing_reaches_is_found(tmp_path: Path) -> None:
    """Break: count a use by dead code, by a local variable of that name, or by an import alone."""
    package = tmp_path / "p"
    package.mkdir()
    files = {
        "__init__": "",
        "main": """
            from p import door
            from p.table import group
            from p.rules import Kind, Shape, imported_only, used

            def run(shape: "Shape") -> object:
                dead = used()  # a local variable
                door.handed_on()
                door.table.by_door()
                return dead, shape.area(), Kind.ROUND, shape.name, group

            @group.command()
            def registered() -> None: ...

            run(Shape())
            """,
        "door": "from p import table as table\nfrom p.rules import handed_on as handed_on, not_called as not_called",
        "table": """
            ROWS = {"a": by_row}
            group = object()
            @group.command()
            def also_registered(): return by_command
            def by_command(): ...
            def by_row(): ...
            def by_door(): ...
            def by_no_door(): ...
            """,
        "rules": """
            from enum import Enum
            from p.table import ROWS

            LIMIT = 1
            UNUSED = 2

            class Kind(Enum):
                ROUND = 1
                FLAT = 2

            class Shape:
                name: str
                colour: str
                def area(self): return LIMIT
                def edge(self): return self.area()

            def used(): return lambda: ROWS
            def dead(): return helper()
            def helper(): return dead()
            def imported_only(): ...
            def handed_on(): ...
            def not_called(): ...
            """,
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text.replace("\n            ", "\n"))
    assert Package(package).unreached([Name("p.main", BODY)]) == [
        *("p.rules.Kind.FLAT", "p.rules.Shape.colour", "p.rules.Shape.edge", "p.rules.UNUSED"),
        *("p.rules.dead", "p.rules.helper", "p.rules.imported_only", "p.rules.not_called"),
        "p.table.by_no_door",
    ]
