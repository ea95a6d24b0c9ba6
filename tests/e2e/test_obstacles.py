"""What kept a prompt from its agent has a kind, which tells the user's doing from the agent's own."""

import os
import signal

import pytest

from llmc.base import processes
from llmc.base.clock import now_unix
from llmc.base.names import PromptId, WorkerName
from llmc.base.panes import Pane
from llmc.records.worker import Delivery, Obstacle, Outcome, Status
from llmc.repo.project import Project
from llmc.sessions import submit, typist
from llmc.sessions.rules.prompt_text import typed
from llmc.sessions.typist import Typist
from llmc.workers import start
from llmc.workers.patrol import finish_interrupted
from tests.e2e.test_delivery import in_process
from tests.support.fleet import CLIENTS_IN_SOAK, Fleet
from tests.support.waiting import wait_until


def obstacle(project: Project) -> Obstacle | None:
    refusal = typist.what_is_in_way(project, project.store.worker("adam"))
    return refusal.obstacle if refusal else None


@pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)
def test_the_agents_question_is_not_a_persons_dialog(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: treat every dialog as the user's; an auto worker whose agent asks would wait in vain."""
    fleet.set_up("adam")
    fleet.up()
    project = in_process(fleet, monkeypatch)
    record = project.store.worker("adam")
    wait_until(lambda: fleet.client_status("adam") == "idle")
    assert obstacle(project) is None
    fleet.tmux("send-keys", "-t", fleet.session("adam"), "/config", "Enter")
    wait_until(lambda: fleet.client_status("adam") == "waiting")
    assert obstacle(project) is Obstacle.DIALOG
    assert typist.person_in_way(project, record) is not None

    def is_closed() -> bool:
        fleet.tmux("send-keys", "-t", fleet.session("adam"), "Escape")
        return processes.wait_until(lambda: fleet.client_status("adam") == "idle", 1)

    wait_until(is_closed)
    fleet.llmc("message", "adam", "@ask Which colour?\n@say asked")
    wait_until(lambda: fleet.client_status("adam") == "waiting")
    assert obstacle(project) is Obstacle.QUESTION
    assert typist.person_in_way(project, record) is None


def test_our_own_text_in_the_box_is_nobodys_draft(scripted: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: treat our prompt that the client put back into its box as the user's; it would stay there."""
    scripted.set_up("adam")
    scripted.up()
    project = in_process(scripted, monkeypatch)
    scripted.tmux("send-keys", "-t", scripted.session("adam"), "-l", "[llmc task-1a2b3c]")
    wait_until(lambda: "[llmc task-1a2b3c]" in scripted.screen("adam"))
    assert obstacle(project) is Obstacle.LEFTOVER
    assert typist.person_in_way(project, project.store.worker("adam")) is None


def test_an_agent_that_ends_before_it_confirms(scripted: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed, but no proof: its process is gone.

    Break: ignore that it is dead; it would count as a failure.
    """
    scripted.set_up("adam")
    scripted.up()
    scripted.kill_daemon()
    project = in_process(scripted, monkeypatch)
    pane = project.pane(project.store.worker("adam"))
    assert isinstance(pane, Pane)

    def dies_instead(_: Typist) -> None:
        os.kill(pane.pid, signal.SIGKILL)
        wait_until(lambda: not processes.is_alive(pane.pid))

    monkeypatch.setattr(Typist, "_enter", dies_instead)
    with project.worker_lock("adam"):
        receipt = submit.submit(project, "adam", "message", "hello")
    assert (receipt.outcome, receipt.obstacle) == (Outcome.UNCONFIRMED, Obstacle.DEAD)


def test_nothing_is_typed_while_a_worker_waits_for_a_person(
    scripted: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave `person` out of finish_interrupted; a due prompt would be retried every second."""
    scripted.set_up("adam")
    scripted.up()
    scripted.kill_daemon()
    project = in_process(scripted, monkeypatch)
    due = Delivery(
        prompt_id=PromptId("message-1a"),
        outcome=Outcome.PENDING,
        at_unix=now_unix(),
        text=typed(PromptId("message-1a"), "@say hello"),
        then=Status.WORKING,
    )
    with project.store.transaction() as tx:
        tx.update("adam", delivery=due, person=Obstacle.DRAFT)
    with project.worker_lock("adam"):
        assert finish_interrupted(project, "adam").delivery == due
        with project.store.transaction() as tx:
            tx.update("adam", person=None)
        after = finish_interrupted(project, "adam").delivery
    assert after is not None
    assert after.outcome is Outcome.ACKNOWLEDGED


def test_a_worker_that_was_taken_since_it_was_chosen(
    scripted: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: do not check again under the lock; a caller a moment late is refused although baker is idle."""
    scripted.set_up("adam", "baker")
    scripted.up()
    project = in_process(scripted, monkeypatch)
    scripted.llmc("start", "--worker", "adam", "--prompt", "@say hello")
    scripted.wait("adam", "needs_input")
    monkeypatch.setattr(start, "idle_workers", lambda *_: [WorkerName("adam"), WorkerName("baker")])
    with start.idle_worker(project) as name:
        assert name == "baker"
