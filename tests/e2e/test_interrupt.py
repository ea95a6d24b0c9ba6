"""What fires no hook: Esc in a turn, an answered question, a queued message's own turn. On both agents."""

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


def has_said(text: str, fleet: Fleet) -> bool:
    """Whether the agent said it: its own line, not the prompt's. Before that, Esc would take the prompt back."""
    return text in (line.strip(" ●") for line in fleet.screen("adam").splitlines())


def test_an_interrupted_worker_waits_for_a_person(fleet: Fleet) -> None:
    """Break that fails it: do not read the status file; the worker would be `working` for ever."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    fleet.llmc(
        "start", "--prompt", "@say begun\n@sh python3 -c 'import time; time.sleep(60)'\n@say never said"
    )
    wait_until(lambda: has_said("begun", fleet) and fleet.client_status("adam") == "busy")
    assert fleet.status("adam")["status"] == "working"
    fleet.tmux("send-keys", "-t", fleet.session("adam"), "Escape")
    assert fleet.wait("adam", "needs_input")["reason"] == "interrupted"
    assert (
        fleet.llmc("message", "adam", f"@sh echo x > x; git add x; {COMMIT} 'X'", "--json").json["outcome"]
        == "acknowledged"
    )
    fleet.wait("adam", "needs_review")


def test_a_question_answered_by_a_person_is_work_again(fleet: Fleet) -> None:
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    work = f"@sh python3 -c 'import time; time.sleep(3)'; echo x > x; git add x; {COMMIT} 'X'"
    fleet.llmc("start", "--prompt", f"@ask Which colour?\n{work}")
    assert fleet.wait("adam", "needs_input")["reason"] == "question"
    fleet.answer_dialog("adam", "Enter")
    fleet.wait("adam", "working")
    fleet.wait("adam", "needs_review")
    moves = [event["to"] for event in fleet.events("status_changed")]
    assert moves == ["idle", "working", "needs_input", "working", "needs_review"]
