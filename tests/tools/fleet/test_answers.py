"""A screen answers another node's worker: like `llmc answer`, and only the question that it showed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.api import orders
from llmc.api.said import BAD, GOOD
from llmc.config.model import Fleet
from llmc.config.paths import Root
from llmc.fleet import answers, statements
from llmc.fleet.database import Database
from llmc.fleet.nodes import Beating, Life, Membership
from llmc.fleet.rules import Need
from llmc.repo.project import Project, bare_project
from tests.support.waiting import wait_until

FIRST, SECOND = "Which color?", "Which size?"


@pytest.fixture
def here(database: str, tmp_path: Path) -> Project:
    root = Root(tmp_path / "here")
    root.state.parent.mkdir(parents=True)
    (root.path / ".llmc").mkdir(exist_ok=True)
    project = bare_project(root)
    project.store.create()
    return replace(project, config=replace(project.config, fleet=Fleet(database=database, node="here")))


@pytest.fixture
def far(database: str) -> Iterator[Membership]:
    db = Database(database)
    db.migrate()
    own = Membership(db, "far", "id-of-far", "host:/far", 60.0)
    db.rows(statements.JOIN, own.values)
    yield own
    db.close()


def asks(own: Membership, question: str) -> None:
    beating = Beating(own, "plan")
    beating.start()
    need = Need("blocked", "auto-1", question, "llmc answer auto-1", kind="question")
    beating.beat(Life(workers={"auto-1": "needs_input"}, attention=[need]))


@pytest.mark.parametrize(("typed", "outcome"), [(False, "refused"), (True, "unconfirmed")])
def test_an_answer_that_its_node_began_to_type_is_never_called_refused(
    here: Project, far: Membership, typed: bool, outcome: str
) -> None:
    """Break: forget the id until the receipt; nobody could tell whether the agent has the answer."""
    asks(far, FIRST)
    node, question = answers.open_question(far, "far", "auto-1")
    down = replace(node, state="down")
    sent = answers.send(far, down, "auto-1", question, "blue")
    if typed:
        assert answers.begin(far, sent.id, "answer-1")
        (again,) = answers.waiting(far)
        assert (again.prompt_id, again.outcome) == ("answer-1", "pending"), (
            "for a daemon that is started again"
        )
    far.database.rows(statements.REFUSE_ANSWERS, {"node": "far"})
    assert answers.recent(far)[0].outcome == outcome
    assert not answers.begin(far, sent.id, "answer-2"), "it has a receipt"


def test_an_answer_goes_to_the_question_that_was_shown(here: Project, far: Membership) -> None:
    """Break: leave out `seen`; an answer to the first question would go to the second."""
    asks(far, FIRST)
    command, act = orders.answer(here, "far/auto-1", "2", FIRST)
    assert command == "llmc answer far/auto-1 2"
    got: list[tuple[str, str]] = []

    def deliver() -> None:
        (one,) = wait_until(lambda: answers.waiting(far))
        got.append((one.question, one.text))
        answers.end(far, one.id, "acknowledged", "", "answer-1", 12)

    delivering = threading.Thread(target=deliver)
    delivering.start()
    said = act(lambda step: None)
    delivering.join()
    assert (said.tone, got) == (GOOD, [(FIRST, "2")])
    assert "far/auto-1: acknowledged" in said.outcome
    asks(far, SECOND)
    late = act(lambda step: None)
    assert (late.tone, answers.waiting(far)) == (BAD, [])
    assert "far/auto-1 is now asking a different question" in late.outcome
