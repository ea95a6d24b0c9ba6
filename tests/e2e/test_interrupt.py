"""What sends no hook: Esc in a turn, an answered question, a queued message's own turn. On both agents."""

import pytest

from llmc.records.worker import Obstacle
from llmc.sessions import typist
from tests.e2e.test_delivery import in_process
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


def has_said(text: str, fleet: Fleet) -> bool:
    """Whether the agent said it: its own line, not the prompt's. Before that,
    Esc would put the prompt back into the box.
    """
    return text in (line.strip(" ●") for line in fleet.screen("adam").splitlines())


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_esc_in_a_turn_and_a_question_that_a_person_answers(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: do not read the status file; the worker would be `working` forever.

    Or treat every dialog as the user's; an auto worker whose agent asks a question would wait in vain.
    """
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    fleet.llmc(
        "start", "--prompt", "@say begun\n@sh python3 -c 'import time; time.sleep(60)'\n@say never said"
    )
    wait_until(lambda: has_said("begun", fleet) and fleet.client_status("adam") == "busy")
    assert fleet.status("adam")["status"] == "working"
    fleet.tmux("send-keys", "-t", fleet.session("adam"), "Escape")
    assert fleet.wait("adam", "needs_input")["reason"] == "interrupted"
    # The next message is work again; it asks a question.
    work = f"@sh python3 -c 'import time; time.sleep(3)'; echo x > x; git add x; {COMMIT} 'X'"
    sent = fleet.llmc("message", "adam", f"@ask Which colour?\n{work}", "--json").json
    assert sent["outcome"] == "acknowledged"
    wait_until(lambda: fleet.client_status("adam") == "waiting")
    assert fleet.wait("adam", "needs_input")["reason"] == "question"
    project = in_process(fleet, monkeypatch)
    record = project.store.worker("adam")
    refusal = typist.what_is_in_way(project, record)
    assert refusal is not None
    assert refusal.obstacle is Obstacle.QUESTION
    assert typist.person_in_way(project, record) is None
    fleet.answer_dialog("adam", "Enter")
    fleet.wait("adam", "working")
    fleet.wait("adam", "needs_review")
    moves = [event["to"] for event in fleet.events("status_changed")]
    assert moves == ["idle", *["working", "needs_input"] * 2, "working", "needs_review"]
