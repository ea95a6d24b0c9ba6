"""What the user left on an agent's screen: llmc types only into a plain, empty box; the rest is refused."""

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from llmc.records import inbox
from llmc.records.worker import Obstacle, Outcome
from llmc.repo.project import Project
from llmc.sessions import submit
from llmc.workers.start import start_task
from tests.e2e.test_delivery import in_process, process_of
from tests.e2e.test_delivery_faults import at_rest, mark_prompt, marks, turns_with
from tests.support import late_screen
from tests.support.fleet import CLIENTS_IN_SOAK, REAL_IN_SOAK, Fleet
from tests.support.loopback_api import LoopbackApi
from tests.support.npm_client import Unavailable
from tests.support.real_client import seed_config
from tests.support.waiting import wait_until

#: consecutive screens that must be the same
STABLE = 12


@pytest.fixture(scope="module", params=CLIENTS_IN_SOAK)
def shared(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """One fleet for everything that leaves the agent alive."""
    server: LoopbackApi | None = None if request.param == "scripted" else request.getfixturevalue("api")
    try:
        fleet = Fleet(request.param, server)
    except Unavailable as error:
        pytest.skip(str(error))
    fleet.set_up("adam")
    fleet.up()
    # A first turn provides a conversation, a history and something to rewind to.
    fleet.llmc("message", "adam", "@say hello")
    fleet.wait("adam", "idle")  # after the prompt arrived, a client may report idle for a moment
    at_rest(fleet)
    yield fleet
    fleet.close()


def press(fleet: Fleet, *keys: str) -> None:
    fleet.tmux("send-keys", "-t", fleet.session("adam"), *keys)


def cursor(fleet: Fleet) -> tuple[int, ...]:
    shown = fleet.tmux("display-message", "-p", "-t", fleet.session("adam"), "#{cursor_x} #{cursor_y}")
    return tuple(map(int, shown.split()))


def foot(fleet: Fleet) -> str:
    """Everything from the box down; what is above it scrolls with the conversation."""
    lines = fleet.screen("adam").rstrip().split("\n")
    rules = [at for at, line in enumerate(lines) if line.startswith("─" * 20)]
    if len(rules) < 2:
        return "\n".join(line[:60] for line in lines[-4:-1])  # the last one shows hints
    # Below the box, a client shows hints that come and go; a search appears there, too.
    below = [line[:20] for line in lines[rules[-1] + 1 :] if "search" in line[:20]]
    return "\n".join([*lines[rules[-2] : rules[-1] + 1], *below])


def settled(fleet: Fleet) -> str:
    """The same, once it has stopped changing."""
    seen: list[str] = []

    def is_stable() -> bool:
        seen.append(foot(fleet))
        return len(seen) > STABLE and len(set(seen[-STABLE:])) == 1

    wait_until(is_stable)
    return seen[-1]


def holds_ours(fleet: Fleet) -> bool:
    """Whether our prompt is in the box. Not while the screen is redrawn: an earlier prompt may be where the box will be."""
    lines = fleet.screen("adam").rstrip().split("\n")
    rules = [at for at, line in enumerate(lines) if line.startswith("─" * 20)]
    box = "\n".join(lines[rules[-2] : rules[-1]]) if len(rules) > 1 else ""
    return "[llmc message-" in box or "[Pasted text #" in box


def clear(fleet: Fleet) -> None:
    """Empty the box as a user does, line by line: a prompt that stays in it would be taken for the next one."""

    def is_empty() -> bool:
        if "\n❯\u00a0\n" in foot(fleet):
            return True
        press(fleet, "C-u")
        return False

    wait_until(is_empty, story=fleet.story)


def blanks_in_the_box_are_nobodys_text(shared: Fleet, blanks: str = " ") -> None:
    """Break: treat a box with blanks as empty: the prompt starts with them, and `  /clear` is a prompt."""
    at_rest(shared)
    before = cursor(shared)
    press(shared, "-l", blanks)
    wait_until(lambda: cursor(shared)[0] == before[0] + len(blanks))
    name = f"blank{len(blanks)}"
    sent = shared.llmc("message", "adam", mark_prompt(shared, name), "--json").json
    assert sent["outcome"] == "acknowledged"
    wait_until(lambda: marks(shared, name) == 1)
    at_rest(shared)
    assert turns_with(shared, sent["prompt_id"]) == 1
    assert any(text.startswith(f"[llmc {sent['prompt_id']}]") for text in shared.user_turns())


def a_task_behind_blanks_begins_a_new_conversation(shared: Fleet) -> None:
    """Break: type /clear after blanks; 2.1.197 takes it as a prompt, and the task is refused after 15 s."""
    shared.llmc("reset", "adam")
    at_rest(shared)
    press(shared, "-l", "   ")
    sent = shared.llmc("start", "--worker", "adam", "--prompt", mark_prompt(shared, "task"), "--json").json
    assert (sent["outcome"], sent["elapsed_ms"] < 10_000) == ("acknowledged", True)
    wait_until(lambda: marks(shared, "task") == 1)
    at_rest(shared)
    assert not [text for text in shared.user_turns() if text.strip() == "/clear"]


STATES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # how a user opens it, and leaves it again
    "history search": (("C-r",), ("Escape",)),
    "a history search with words": (("C-r", "hello"), ("Escape",)),
    "shell mode": (("!",), ("BSpace",)),
    "the menu of commands": (("/",), ("BSpace",)),
    "the menu of files": (("@",), ("BSpace",)),
    "an earlier prompt": (("Up",), ("Down",)),
    "the transcript": (("C-o",), ("C-o",)),
    "a list of models": (("/model", "Enter"), ("Escape",)),
    "rewind": (("Escape Escape",), ("Escape",)),
}
#: these run in `make test`, the others in `make soak`
SHORT = ("history search", "a list of models")
#: those that the scripted agent supports
SCRIPTED = (
    "history search",
    "a history search with words",
    "the menu of commands",
    "a list of models",
    "rewind",
)


def what_is_open_is_refused_and_stays(shared: Fleet, state: str) -> None:
    """Break: paste wherever an empty box is visible; the text goes into the search, which is then gone."""
    opens, leaves = STATES[state]
    at_rest(shared)
    plain = foot(shared)
    for key in opens:
        press(shared, *key.split())
        settled(shared)
    was = settled(shared)
    assert was != plain
    name = state.replace(" ", "-")
    sent = shared.llmc("message", "adam", mark_prompt(shared, name), "--json", code=3).json
    assert sent["outcome"] == "refused", shared.story()
    assert sent["elapsed_ms"] < 5000
    assert "llmc attach adam" in sent["reason"]
    assert foot(shared) == was
    for key in leaves:
        press(shared, key)
        settled(shared)
    press(shared, "C-k")  # a search leaves what it found
    clear(shared)
    wait_until(lambda: shared.client_status("adam") == "idle", story=shared.story)
    again = shared.llmc("message", "adam", mark_prompt(shared, name), "--json").json
    assert again["outcome"] == "acknowledged", shared.story()
    wait_until(lambda: marks(shared, name) == 1)
    at_rest(shared)
    assert turns_with(shared, again["prompt_id"]) == 1


def later(fleet: Fleet, ready: Callable[[], bool], *keys: tuple[str, ...]) -> threading.Thread:
    """A user's keys, once something is visible."""

    def press_then() -> None:
        wait_until(ready)
        for key in keys:
            press(fleet, *key)

    thread = threading.Thread(target=press_then)
    thread.start()
    return thread


def enter_is_not_repeated_without_our_text_in_the_box(shared: Fleet) -> None:
    """The first Enter is lost; then the user clears the box and types into it.

    Break: press Enter again without checking whose text is there; the user's half sentence is sent.
    """
    at_rest(shared)
    words = "not yet finished"
    thread = later(shared, lambda: holds_ours(shared), *[("C-u",)] * 4, ("-l", words))
    sent = shared.llmc(
        "message",
        "adam",
        mark_prompt(shared, "own"),
        "--json",
        code=1,
        LLMC_FAULT="submit.enter:before:fail:1",
    ).json
    thread.join()
    assert sent["outcome"] == "unconfirmed"
    assert words in foot(shared), "the user's text was sent, or removed"
    assert not [text for text in shared.user_turns() if words in text]
    clear(shared)
    assert marks(shared, "own") == 0


def enter_is_not_repeated_into_a_dialog(shared: Fleet) -> None:
    """The first Enter is lost, then the agent asks a question. Break: press Enter again; that answers it."""
    at_rest(shared)
    go = shared.dir / "ask"
    wait = f"while ! test -e {go}; do sleep 0.05; done"
    shared.llmc("message", "adam", f"@sh {wait}\n@ask Which colour?\n@say asked")
    wait_until(lambda: shared.client_status("adam") == "busy")
    thread = threading.Thread(target=lambda: (wait_until(lambda: holds_ours(shared)), go.touch()))
    thread.start()
    sent = shared.llmc(
        "message",
        "adam",
        mark_prompt(shared, "ask"),
        "--json",
        code=1,
        LLMC_FAULT="submit.enter:before:fail:1",
    ).json
    thread.join()
    assert sent["outcome"] == "unconfirmed"
    assert shared.client_status("adam") == "waiting", "the dialog was answered"
    shared.answer_dialog("adam", "Escape")
    at_rest(shared)
    clear(shared)
    assert marks(shared, "ask") == 0


def test_what_a_person_left_on_the_screen(shared: Fleet) -> None:
    """One case after another, on one agent: each starts and ends with an empty box, and names its break."""
    blanks_in_the_box_are_nobodys_text(shared)
    for state in SHORT:
        what_is_open_is_refused_and_stays(shared, state)
    a_task_behind_blanks_begins_a_new_conversation(shared)


@pytest.mark.soak  # it takes as long as llmc looks for the prompt
def test_enter_is_not_repeated_into_a_dialog(shared: Fleet) -> None:
    enter_is_not_repeated_into_a_dialog(shared)


@pytest.mark.soak
def test_enter_is_not_repeated_without_our_text(shared: Fleet) -> None:
    enter_is_not_repeated_without_our_text_in_the_box(shared)


@pytest.mark.soak
def test_many_blanks(shared: Fleet) -> None:
    blanks_in_the_box_are_nobodys_text(shared, "    ")


@pytest.mark.soak
@pytest.mark.parametrize("state", [name for name in STATES if name not in SHORT])
def test_what_else_a_person_may_have_opened(shared: Fleet, state: str) -> None:
    if shared.agent == "scripted" and state not in SCRIPTED:
        pytest.skip("the scripted agent has no such view")
    what_is_open_is_refused_and_stays(shared, state)


@pytest.mark.soak
def test_enter_is_not_repeated_into_a_dialog_that_is_not_drawn_yet(scripted: Fleet) -> None:
    """The screen still shows our text in the box, but the client says that a dialog is open.

    Break: let `_is_safe_to_press` check only the screen.
    """
    fleet, frozen, go = scripted, scripted.dir / "frozen", scripted.dir / "go"
    late_screen.write(fleet.dir / "agent", frozen)
    fleet.env |= {"LLMC_AGENT": str(fleet.dir / "agent"), "CLAUDE_CONFIG_DIR": str(fleet.config_dir)}
    fleet.config_dir.mkdir()
    seed_config(fleet.config_dir, [fleet.root])
    fleet.set_up("adam")
    fleet.up()
    wait = f"while ! test -e {go}; do sleep 0.02; done"
    fleet.llmc("message", "adam", f"@sh {wait}\n@ask Which colour?\n@say asked")
    wait_until(lambda: fleet.client_status("adam") == "busy")

    def freeze() -> None:
        wait_until(lambda: holds_ours(fleet))
        frozen.touch()
        go.touch()

    thread = threading.Thread(target=freeze)
    thread.start()
    sent = fleet.llmc(
        "message",
        "adam",
        mark_prompt(fleet, "late"),
        "--json",
        code=1,
        LLMC_FAULT="submit.enter:before:fail:1",
    ).json
    thread.join()
    assert holds_ours(fleet), "the screen was not late"
    assert (sent["outcome"], fleet.client_status("adam")) == ("unconfirmed", "waiting")
    frozen.unlink()


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_a_start_that_met_a_dead_agent_keeps_no_task(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: clear the task only if the worker is still idle when the refusal is recorded."""
    fleet.set_up("adam")
    fleet.up()
    fleet.kill_daemon()
    project = in_process(fleet, monkeypatch)
    real = submit.deliver

    def deliver_too_late(project: Project, name: str) -> submit.Receipt:
        os.kill(process_of(project, name), signal.SIGKILL)
        # tmux itself may need another check to notice.
        wait_until(
            lambda: project.tmux.panes() and any("PaneDied" in str(e) for e in inbox.read(project.root, name))
        )
        return real(project, name)

    monkeypatch.setattr(submit, "deliver", deliver_too_late)
    with project.worker_lock("adam"):
        receipt = start_task(project, "adam", "@say hello")
    assert (receipt.outcome, receipt.obstacle) == (Outcome.REFUSED, Obstacle.DEAD)
    fleet.up()
    after = fleet.wait("adam", "idle")
    assert (after["prompt"], after["reason"]) == ("", "ready")
