"""Comments that change while a request with them is being sent. Only the typing is simulated."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llmc.api import commenting
from llmc.base.errors import LlmcError, Refused
from llmc.doctor.rebuild import rebuild
from llmc.landing import review
from llmc.records.transitions import step
from llmc.records.worker import Delivery, Obstacle, Outcome, Status, WorkerRecord
from llmc.repo.project import Project
from llmc.reviews import comments
from llmc.reviews.rules.talk import Save, Talk
from llmc.sessions import submit
from llmc.sessions.typist import Refusal
from tests.support.repos import Mold, Repo, add_worker, make_project, project_at


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt", "a\n")
    project = make_project(str(source.path), place / "root")
    _, worktree = add_worker(project, "adam")
    commit = worktree.commit("g.py", "x\n")
    with project.store.transaction() as tx:
        tx.move("adam", step(Status.NEEDS_REVIEW, "done", commit_sha=commit))
        tx.update("adam", task_prompt="task 1", current_prompt="task 1")


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


def said(project: Project) -> Talk:
    return comments.read(project, project.store.worker("adam"))


class Typed:
    """A typist for which something happens elsewhere while it types."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
        self.texts: list[str] = []
        self.meanwhile = meanwhile
        monkeypatch.setattr(submit, "Typist", self)

    def __call__(self, project: Project, record: WorkerRecord, delivery: Delivery) -> "Typed":
        self.texts.append(delivery.text)
        return self

    def deliver(self) -> tuple[Outcome, str, Obstacle | None]:
        self.meanwhile()
        return Outcome.ACKNOWLEDGED, "", None


def elsewhere(act: Callable[[], object]) -> list[LlmcError]:
    """Run something in another thread, which does not hold this one's locks; returns how it failed."""
    failed: list[LlmcError] = []

    def run() -> None:
        try:
            act()
        except LlmcError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return failed


def test_the_text_of_a_comment_is_the_one_that_was_sent(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: accept a new text, or a deletion, for a comment that is being typed: the agent never sees it."""
    refused: list[LlmcError] = []

    def meanwhile() -> None:
        save = Save("form", 2)
        refused.extend(elsewhere(lambda: commenting.edit(project, "adam", "c1", "Use 11", save=save)))
        refused.extend(elsewhere(lambda: commenting.add(project, "adam", None, None, "Use 11", save)))
        refused.extend(elsewhere(lambda: commenting.delete(project, "adam", "c1")))

    typed = Typed(monkeypatch, meanwhile)
    commenting.add(project, "adam", None, None, "Use 10", Save("form", 1))
    commenting.send(project, "adam")
    assert ["Use 10" in text for text in typed.texts] == [True]
    assert [error.message for error in refused] == ["cannot change comment c1: it is being sent"] * 3
    assert [(one.text, one.round) for one in said(project).comments] == [("Use 10", 1)]


@pytest.mark.parametrize("log_is_lost", [False, True])
def test_comments_stay_when_the_state_is_rebuilt(project: Project, log_is_lost: bool) -> None:
    """Break: rebuild no `task_prompt` (False), or take a task without an id for another one (True)."""
    with project.store.transaction() as tx:
        tx.emit("prompt_pending", worker="adam", prompt_id="task-1")
        tx.update("adam", task_prompt="task-1")
    commenting.add(project, "adam", None, None, "Use 10")
    project.root.state.write_text("{")
    project.root.state_backup.unlink(missing_ok=True)
    if log_is_lost:
        project.root.events.unlink()
    rebuild(project)
    assert project.store.worker("adam").task_prompt == ("" if log_is_lost else "task-1")
    assert [one.text for one in said(project).comments] == ["Use 10"]
    commenting.add(project, "adam", None, None, "Why?")
    assert [one.text for one in said(project).comments] == ["Use 10", "Why?"]
    with project.store.transaction() as tx:
        tx.update("adam", task_prompt="task-2")
    assert said(project).comments == (), "another task"


@pytest.mark.parametrize("when", ["before it is recorded", "while it is typed"])
def test_a_change_elsewhere_does_not_end_a_request_that_is_being_sent(
    project: Project, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Break: take a request without a result for one that a crash interrupted, while its sender is alive."""

    def think() -> None:
        assert not elsewhere(lambda: commenting.add(project, "adam", None, None, "Another thought"))

    if when == "while it is typed":
        Typed(monkeypatch, think)
    else:
        Typed(monkeypatch, lambda: None)
        look, looks = review.look, iter((False, True, False))

        def looked(project: Project, record: WorkerRecord) -> review.Review:
            if next(looks):
                think()
            return look(project, record)

        monkeypatch.setattr(review, "look", looked)
    commenting.add(project, "adam", None, None, "Use 10")
    assert commenting.send(project, "adam").outcome is Outcome.ACKNOWLEDGED
    now = said(project)
    assert [(one.text, one.round) for one in now.comments] == [("Use 10", 1), ("Another thought", 0)]
    assert (len(now.rounds), now.round) == (1, 2)


def test_a_request_that_a_crash_interrupted_is_delivered_before_the_next_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: replace a request that may still arrive by the next one: its comments would be sent twice."""

    def die() -> None:
        raise SystemExit

    Typed(monkeypatch, die)
    commenting.add(project, "adam", None, None, "Use 10")
    with pytest.raises(SystemExit):
        commenting.send(project, "adam")
    typed = Typed(monkeypatch, lambda: None)
    with pytest.raises(Refused, match="its status is rejected"):
        commenting.send(project, "adam")
    assert ["Use 10" in text for text in typed.texts] == [True]
    assert [(one.id, one.round) for one in said(project).comments] == [("c1", 1)]


def test_a_refused_request_without_comments_is_no_round(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: take a request without comments for one that has arrived."""

    def refuse() -> None:
        raise Refusal(Obstacle.HELD, "adam is on hold")

    Typed(monkeypatch, refuse)
    assert commenting.send(project, "adam", "General remark").outcome is Outcome.REFUSED
    assert (said(project).rounds, said(project).round) == ((), 1)
    Typed(monkeypatch, lambda: None)
    assert commenting.send(project, "adam", "General remark").outcome is Outcome.ACKNOWLEDGED
    assert ([one.number for one in said(project).rounds], said(project).round) == ([1], 2)
