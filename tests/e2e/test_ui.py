"""The terminal screen, driven by keys in a real terminal."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc.api.subscription import Subscription
from llmc.repo.project import open_project
from llmc.tui.drawing import Brush
from llmc.tui.fleet_app import FleetApp
from llmc.tui.theme import THEMES
from llmc.tui.typed import Typed
from tests.support.fleet import REAL_IN_SOAK, Fleet, in_soak
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=W -c user.email=w@example.com commit -q"
CODE = "def greet():\\n    return 1\\n\\n\\ndef other():\\n    return 2\\n"
REDO = f"@on-reject sed -i 's/return 1/return 11/' g.py && git add -A && {COMMIT} --amend --no-edit"
WORK = (
    f"Greet people\n{REDO}\n@say On it\n@sh printf '{CODE}' > g.py; git add -A; {COMMIT} -m 'Greet by name'"
)

Open = Callable[..., Terminal]


@pytest.fixture
def screen(fleet: Fleet) -> Iterator[Open]:
    opened: list[Terminal] = []

    def start(*args: str, columns: int = 120, rows: int = 36, **env: str) -> Terminal:
        opened.append(Terminal(fleet, "ui", *args, columns=columns, rows=rows, **env))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def review(fleet: Fleet, worker: str = "adam") -> None:
    fleet.llmc("start", "--worker", worker, "--prompt", WORK)
    fleet.wait(worker, "needs_review")


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_from_a_task_to_a_landed_commit_with_two_rounds(fleet: Fleet, screen: Open) -> None:
    """Break: send the comments one by one; lose the drafts at a restart; land on Enter."""
    fleet.set_up("adam", "baker")
    fleet.up("--no-patrol")
    ui = screen()
    ui.sees("NEEDS YOU 0", "nothing needs you", "IDLE 2", "adam baker")
    ui.press("s")
    ui.sees("task for the next idle worker")
    ui.type("Hello")
    ui.press("Escape")  # not this way: the prompt has several lines
    review(fleet)
    ui.sees("NEEDS YOU 1", "adam", "+6 -0")
    ui.press("Space", "d")
    ui.sees("1 file +6 -0", "Author: W <w@example.com>", "    Greet by name", "def greet():", "round 1")
    ui.press(*["j"] * 6, "c")  # past author and message, which land, too
    ui.sees("comment on g.py:2:")
    ui.type("Make it 11")
    ui.press("Enter")
    ui.sees("draft Make it 11")
    ui.press("q", "q")
    ui.sees("BACK AT THE PROMPT")
    assert ui.exit_code == 0

    again = screen()
    again.sees("NEEDS YOU 1")
    again.press("Space", "d")
    again.sees("draft Make it 11", "1 draft")
    again.press("G", ">", "c")
    again.type("Why 2?")
    again.press("Enter")
    again.sees("2 drafts")
    again.press("r")
    again.sees("2 comments to adam")
    again.press("Enter")
    again.sees("reject adam", "acknowledged")
    wait_until(lambda: any("[c1]" in turn and "[c2]" in turn for turn in fleet.user_turns()))
    fleet.wait("adam", "needs_review")
    again.sees("round 2", "return 11", "NEEDS YOU 1")
    again.press("i")
    again.sees("since round 1")
    again.press("a")
    again.sees("Land adam on main?", "llmc undo", "y land")
    again.press("Enter", "a")  # neither confirms
    again.sees("Land adam on main?")
    assert fleet.record("adam")["status"] == "needs_review"
    again.press("y")
    again.sees("on main: Greet by name", "LANDED TODAY 1")
    again.sees("nothing to review (status: idle)", "no changes")
    assert fleet.git("log", "-1", "--format=%s", "main") == "Greet by name"
    again.press("Escape")
    again.sees("s start")
    again.press("u")
    again.sees("Revert", "?  Greet by name", "y revert")
    again.press("y")
    again.until(lambda _: "Revert" in fleet.git("log", "-1", "--format=%s", "main"))
    again.sees("reverted", "LANDED TODAY 0 (1 undone)", "undone: Greet")


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_answer_message_hold_and_what_cannot_be_done(fleet: Fleet, screen: Open) -> None:
    """Break: do nothing, without a message, when a key cannot act."""
    fleet.set_up("adam", "baker")
    fleet.up("--no-patrol")
    fleet.llmc("start", "--worker", "baker", "--prompt", "Pick\n@ask Which colour?")
    fleet.wait("baker", "needs_input")
    ui = screen()
    ui.sees("NEEDS YOU 1", "Which colour?")
    ui.press("Space", "a")
    ui.sees("nothing to accept yet: baker is asking a question")
    ui.press("A")
    ui.sees("baker asks: Which colour?", "[1] Yes")
    ui.type("1")
    ui.press("Enter")
    ui.sees("llmc answer baker 1", "acknowledged")
    ui.press("m")
    ui.sees("message to baker")
    ui.type("@say Thank you")
    ui.press("Enter")
    wait_until(lambda: fleet.record("baker")["delivery"]["prompt_id"].startswith("message-"))
    wait_until(lambda: fleet.record("baker")["delivery"]["outcome"] in ("acknowledged", "queued"))
    ui.sees("llmc message baker '@say Thank you'  baker: ")
    ui.press("h")
    ui.sees("baker: on hold")
    wait_until(lambda: fleet.record("baker")["held"])
    ui.until(lambda shown: shown.count("(held)") >= 2)  # in the row and in the title of the pane
    ui.press("h")
    wait_until(lambda: not fleet.record("baker").get("held"))


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_attach_and_back_to_the_same_place(fleet: Fleet, screen: Open) -> None:
    """Break: lose the cursor or the display after handing over the terminal."""
    fleet.set_up("adam", "baker", "carol")
    fleet.up("--no-patrol")
    ui = screen()
    ui.sees("IDLE 3")
    ui.press("Right", "j")
    ui.sees("baker · idle")
    ui.press("Enter")
    wait_until(lambda: fleet.status("baker")["attached"])
    ui.sees_no("NEEDS YOU")
    ui.press("C-b", "d")
    ui.sees("NEEDS YOU 0", "baker · idle", "> ○ baker")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_typing_and_pasting_goes_nowhere(fleet: Fleet, screen: Open) -> None:
    """Break: run what a pasted paragraph spells."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    ui = screen()
    ui.sees("IDLE 1")
    ui.paste("a long answer: undo, nuke and quit are in here\nyes\n")
    ui.sees("cannot type here")
    assert ui.exit_code is None


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_keys_before_the_first_frame_are_kept(fleet: Fleet, screen: Open) -> None:
    """Break: open a form that is not mounted yet; drop keys until the form is there."""
    fleet.set_up("adam")
    ui = screen()
    ui.press(":")
    ui.type("doctor")
    ui.sees("doctor", "Enter submits")
    ui.press("Escape")
    ui.sees("IDLE 1", "adam")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_it_says_what_is_wrong_and_goes_on(fleet: Fleet, screen: Open) -> None:
    """Break: end with a traceback when the daemon or the tmux server goes away, or the terminal shrinks."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    ui = screen()
    ui.sees("daemon up", "IDLE 1")
    fleet.kill_daemon()
    ui.sees("daemon not running")
    ui.resize(20, 5)
    ui.sees("1 needs you")
    ui.resize(40, 12)
    ui.sees("NEEDS YOU", "daemon not running")
    ui.resize(120, 36)
    ui.sees("NEEDS YOU", "daemon not running", "IDLE 1  adam")
    fleet.tmux("kill-server")
    ui.press("Right")
    ui.sees("the agent is not running")
    ui.press(":")
    ui.type("up --detach")
    ui.press("Enter")
    ui.sees("daemon up", timeout_s=40)


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_hostile_text_draws_nothing(fleet: Fleet, screen: Open) -> None:
    """Break: send a task's text to the terminal as it is, or as markup."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    nasty = r"[red]bold[/red] \x1b[2J\x1b]0;owned\x07 \u202egnp <script>"
    say = f"git -c user.name=W -c user.email=w@e.com commit -q -m $'{nasty}'"
    fleet.llmc(
        "start", "--worker", "adam", "--prompt", f"@sh echo $'{nasty}' | tee a; git add -A; bash -c \"{say}\""
    )
    fleet.wait("adam", "needs_review")
    ui = screen()
    ui.sees("NEEDS YOU 1")
    ui.press("d")
    assert "\u202e" not in ui.sees("[red]bold[/red]", "<script>", "NEEDS YOU")
    ui.press("Escape")
    ui.sees("s start")
    ui.press("a")
    ui.sees("[red]bold[/red]", "y land", "NEEDS YOU")


@pytest.mark.parametrize("before", [(), *in_soak(("m",), ("d",))])
@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_ctrl_c_leaves_from_everywhere(fleet: Fleet, screen: Open, before: tuple[str, ...]) -> None:
    """Break: treat the key as text, or ignore it: a terminal in raw mode sends no signal."""
    fleet.set_up("adam")
    ui = screen()
    ui.sees("IDLE 1")
    ui.press("Right", *before)
    if before:
        ui.sees({"m": "message to adam", "d": "no changes"}[before[0]])
    ui.press("C-c")
    ui.sees("BACK AT THE PROMPT")
    assert ui.exit_code == 0


@pytest.mark.parametrize("end", [signal.SIGINT, *in_soak(signal.SIGTERM, signal.SIGHUP)])
@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_it_leaves_the_terminal_clean(fleet: Fleet, screen: Open, end: signal.Signals) -> None:
    """Break: exit without restoring the terminal."""
    fleet.set_up("adam")
    ui = screen()
    ui.sees("NEEDS YOU")
    os.kill(ui.pid, end)
    shown = ui.sees("BACK AT THE PROMPT")
    assert "NEEDS YOU" not in shown
    assert " -echo " not in ui.sees("speed")


@pytest.mark.parametrize(
    ("columns", "rows", "env"),
    [
        (80, 24, {"NO_COLOR": "1"}),
        pytest.param(40, 20, {"LC_ALL": "C"}, marks=pytest.mark.soak),
        pytest.param(120, 36, {"LC_ALL": "POSIX"}, marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_small_plain_and_without_colour(
    fleet: Fleet, screen: Open, columns: int, rows: int, env: dict[str, str]
) -> None:
    """Break: show a status only by its color, or draw characters that the terminal does not have."""
    fleet.set_up("adam", "baker")
    fleet.up("--no-patrol")
    review(fleet)
    ui = screen(columns=columns, rows=rows, **env)
    ui.sees("NEEDS YOU 1", "> R adam" if "LC_ALL" in env else "> ◆ adam")
    if columns == 80:
        ui.sees("s start", ": command", "? help")
        ui.sees("bypass permissions on")  # the last line of the agent's screen


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_the_status_line_of_an_attached_session(fleet: Fleet) -> None:
    """Break: set it only at the start; expand formats in a task's text; match a session by a name prefix."""
    fleet.set_up("adam", "baker", "carol")
    fleet.up("--no-patrol")
    fleet.llmc("start", "--worker", "adam", "--prompt", "Say #(touch owned) #[fg=red]hi\n@sh sleep 300")
    terminal = Terminal(fleet, "attach", "adam", columns=140)
    try:
        terminal.sees("adam · Say #(touch owned) #[fg=red]hi · working", "nothing needs you", "C-b d back")
        review(fleet, "carol")
        terminal.sees("carol · 1 needs you")
        terminal.press("C-b", "Space")
        terminal.sees("carol · Greet people · needs_review", "1 needs you")
        assert fleet.status("carol")["attached"]
        terminal.press("C-b", "Space")
        terminal.sees("nothing else is waiting for you")
        fleet.llmc("start", "--worker", "baker", "--prompt", "Pick\n@ask Which colour?")
        terminal.sees("baker · 2 need you")
        terminal.press("C-b", "d")
        terminal.sees("BACK AT THE PROMPT")
        assert terminal.exit_code == 0
    finally:
        terminal.close()
    assert not list(fleet.dir.rglob("owned"))


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_any_command_with_completion(fleet: Fleet, screen: Open) -> None:
    """Break: run the input in a shell, or lose its output."""
    fleet.set_up("adam")
    ui = screen()
    ui.sees("IDLE 1")
    ui.press(":")
    ui.sees("Tab completes")
    ui.type("ho")
    ui.press("Tab")
    ui.sees("hold  hook")
    ui.type("l")
    ui.press("Tab")
    ui.type("ad")
    ui.press("Tab", "Enter")
    ui.sees("llmc hold adam")
    wait_until(lambda: fleet.record("adam").get("held"))
    ui.press(":")
    ui.sees("Tab completes")
    ui.type("config get")
    ui.press("Enter")
    ui.sees("This session's commands")
    ui.until(lambda shown: "llmc config get" in shown.splitlines()[2])
    ui.press(":")
    ui.sees("Tab completes")
    ui.type("config get ui")
    ui.press("Enter")
    ui.until(lambda shown: "llmc config get ui" in shown.rpartition(" $ llmc")[0])
    for _ in range(3):
        fleet.llmc("release", "adam")
        fleet.llmc("hold", "adam")
    ui.resize(120, 10)
    ui.until(lambda shown: "? help" in shown.splitlines()[9])
    ui.press("e")
    newest = fleet.events()[-1]
    ui.until(lambda shown: newest["action"] in shown.splitlines()[-4])


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_lines_for_a_screen_reader(fleet: Fleet, screen: Open) -> None:
    """Break: draw over lines that were already read."""
    fleet.set_up("adam", "baker")
    fleet.up("--no-patrol")
    ui = screen("--plain")
    ui.sees("Type the number", "0 need you", "2 idle")
    review(fleet)
    ui.sees("1. adam: ready for review")
    ui.type("1")
    ui.press("Enter")
    ui.sees("next: llmc review adam")
    ui.type("accept adam")
    ui.press("Enter")
    ui.sees("accepted adam", "resolved: adam: ready for review")
    ui.type("quit")
    ui.press("Enter")
    ui.sees("BACK AT THE PROMPT")
    assert ui.exit_code == 0


@pytest.mark.soak
@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_a_full_disk_is_said(fleet: Fleet, screen: Open, tmp_path: Path) -> None:
    """Break: lose a comment that cannot be saved, or do not say so."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    review(fleet)
    drafts = fleet.root / ".llmc/reviews"
    with small_disk(drafts):
        ui = screen()
        ui.sees("NEEDS YOU 1")
        ui.press("d")
        ui.sees("def greet():")
        with (drafts / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(b"x" * 4096):
                pass
        ui.press("j", "c")
        ui.type("This is not saved")
        ui.press("Enter")
        ui.sees("disk is full")
        (drafts / "filler").unlink()
        ui.press("c")
        ui.sees("Enter submits", "This is not saved")
        ui.type(" at first")
        ui.press("Enter")
        ui.sees("draft This is not saved at first")


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of 64 KB at this place."""
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"NO SMALL DISK: mounting a tmpfs failed: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_the_mouse_selects(fleet: Fleet) -> None:
    """Break: count the lines of the list without the scrolled ones."""
    fleet.set_up("adam", "baker", "carol")

    async def click() -> str:
        typed = Typed(lambda line: [], lambda line, stopping: (0, ""), lambda line: False, lambda line: [])
        project = open_project(str(fleet.root))
        app = FleetApp(project, Subscription(project).start(), Brush(THEMES["dark"]), typed, [])
        async with app.run_test(size=(120, 36)) as pilot, asyncio.timeout(30):
            while app.store.fleet is None:
                await pilot.pause(0.05)
            app.store.fold(folded=False)
            app.store.go_to("adam")
            app.redraw()
            await pilot.pause()
            line = next(n for n, one in enumerate(app._list) if one.spot and one.spot.id == "carol")
            await pilot.click("#list", offset=(10, line))
            return app.store.worker

    assert asyncio.run(click()) == "carol"


@pytest.mark.soak
@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_another_root_is_counted_live_and_opened(fleet: Fleet, screen: Open) -> None:
    """Break: count the other roots only once, at the start; or open the root that was selected before."""
    fleet.set_up("adam")
    ui = screen()
    ui.sees("IDLE 1")
    ui.press("}")
    ui.sees("there are no other roots to switch to")
    other = fleet.dir / "zoo"
    fleet.llmc("init", "--target", str(other))
    for args in (("add", "zelda"), ("up", "--detach", "--no-patrol")):
        fleet.llmc("--root", str(other), *args)
    try:
        ui.sees(f"[{fleet.root.name}] · zoo ·")  # the screen was open before the other root existed
        fleet.llmc("--root", str(other), "start", "--worker", "zelda", "--prompt", "Pick\n@ask Which colour?")
        ui.sees("zoo 1", "NEEDS YOU 0")
        ui.press("R")
        ui.sees("Your roots", "1 needs you")
        ui.press("j", "Enter")
        ui.sees("[zoo 1]", "zelda", "Which colour?")
        ui.press("{")
        ui.sees(f"[{fleet.root.name}] · zoo 1", "adam")
    finally:
        fleet.llmc("--root", str(other), "nuke", "--all", "--yes", code=None)
        fleet.llmc("--root", str(other), "down", code=None)


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_unchanged_lines_of_a_diff_open(fleet: Fleet, screen: Open) -> None:
    """Break: read the lines from the source's worktree, which does not have the change."""
    fleet.plant({"long.txt": "".join(f"line {number}\n" for number in range(1, 41))})
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    work = f"sed -i -e '1iadded' -e 's/line 30/changed/' long.txt; git add -A; {COMMIT} -m 'Two places'"
    fleet.llmc("start", "--worker", "adam", "--prompt", f"Edit\n@sh {work}")
    fleet.wait("adam", "needs_review")
    ui = screen()
    ui.sees("NEEDS YOU 1")
    ui.press("d")
    ui.sees("23 unchanged lines (f unfolds)")
    ui.press("n", "n", "f")
    ui.sees("line 12", "line 20")
    ui.press("f")
    ui.sees_no("line 12")
    ui.press("}")
    ui.sees("13 unchanged lines", "line 8", "line 22")
    ui.press("{")
    ui.sees("23 unchanged lines")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_every_character_of_a_long_line_is_shown(fleet: Fleet, screen: Open) -> None:
    """Break: cut a diff line at the edge of the pane; use the full width only in the list."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    words = " ".join(f"word{number:03}" for number in range(400))
    long = f"echo '{words}' > a-name-{'x' * 90}.txt"
    fleet.llmc("start", "--worker", "adam", "--prompt", f"Edit\n@sh {long}; git add -A; {COMMIT} -m 'Long'")
    fleet.wait("adam", "needs_review")
    ui = screen()
    ui.sees("NEEDS YOU 1")
    ui.press("d")
    shown = ui.sees("word000", "↪", "+1 -0")
    assert sum(line.count("x") for line in shown.splitlines()) >= 90
    ui.press("+")
    ui.sees_no("NEEDS YOU")
    ui.sees("word010", "↪")
    seen = ui.screen()
    for _ in range(60):
        ui.press("j")
        seen += ui.screen()
    ui.sees("word399")
    seen = "".join(line[14:].rstrip() for line in (seen + ui.screen()).splitlines())
    assert not [word for word in words.split() if word not in seen.replace(" ", "")]
    ui.press("c")
    ui.type("Too long")
    ui.press("Enter")
    ui.sees("draft Too long")
    ui.press("+")
    ui.sees("NEEDS YOU 1")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_a_text_that_was_not_sent_is_there_again(fleet: Fleet, screen: Open) -> None:
    """Break: forget a form's text at Esc, or when it was refused; show it for another worker."""
    fleet.set_up("adam", "baker")  # no daemon: no agent is running, and every text is refused
    ui = screen()
    ui.sees("IDLE 2")
    ui.press("Right", "m")
    ui.sees("message to adam")
    ui.type("Look at the tests")
    ui.press("Escape")
    ui.sees_no("Look at the tests")
    ui.press("m")
    ui.sees("message to adam", "Look at the tests")
    ui.press("Enter")
    ui.sees("(exit ")
    ui.press("m")
    ui.sees("Enter submits", "Look at the tests")
    ui.press("Escape")
    ui.sees("? help")
    ui.press("j", "m")
    assert "Look at" not in ui.sees("message to baker").rpartition("message to baker")[2]
    ui.press("Escape")
    ui.sees("? help")
    ui.press("s")
    ui.sees("task for")
    ui.type("Draw a map")
    ui.press("Escape")
    ui.sees_no("Draw a map")
    ui.press("s")
    ui.sees("task for", "Draw a map")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_the_keys_agree_about_what_a_worker_waits_for(fleet: Fleet, screen: Open) -> None:
    """Break: treat every worker that waits for the user as one that asks a question."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    fleet.llmc("start", "--worker", "adam", "--prompt", "Edit\n@sh echo x > new.txt")
    fleet.wait("adam", "needs_input")
    ui = screen()
    ui.sees("NEEDS YOU 1")
    ui.press("a")
    told = ui.sees("nothing to accept yet: adam has status needs_input: ", "(press m to send a message)")
    assert "press A" not in told
    ui.press("A")
    ui.sees("nothing to answer: adam has status needs_input: ", "(press m to send a message)")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_a_title_counts_what_is_under_it(fleet: Fleet, screen: Open) -> None:
    """Break: count what the filter hides, or count an offline worker as idle."""
    fleet.set_up("adam", "baker")
    ui = screen()
    ui.sees("IDLE 2 (2 offline)", "0 idle · 2 offline")
    fleet.up("--no-patrol")
    review(fleet)
    ui.sees("NEEDS YOU 1", "IDLE 1  baker", "1 idle  ")
    ui.press("/")
    ui.type("bak")
    ui.sees("NEEDS YOU 0", "IDLE 1")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_every_key_says_something_and_accept_names_what_lands(fleet: Fleet, screen: Open) -> None:
    """Break: ignore a key without an action; name only the latest of several commits."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    fleet.llmc(
        "start", "--worker", "adam", "--prompt", f"{WORK}; echo > b.txt; git add -A; {COMMIT} -m 'Drop bye'"
    )
    fleet.wait("adam", "needs_review")
    ui = screen()
    ui.sees("NEEDS YOU 1")
    ui.press("!")
    ui.sees("! does nothing here; press ? to see the keys")
    ui.press("d")
    ui.sees("def greet():")
    ui.press("Tab")
    ui.sees("Tab works in the list, not in a review; press Esc to go back to the list")
    ui.press("a")
    ui.sees("Land adam on main?  Greet by name (2 commits, newest: Drop bye)", "y land")
    ui.press("y")
    ui.sees("on main: Greet by name")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_news_do_not_cover_the_last_result(fleet: Fleet, screen: Open) -> None:
    """Break: show news above the line with the last result."""
    fleet.set_up("adam", "baker")
    fleet.up("--no-patrol")
    ui = screen()
    ui.sees("IDLE 2")
    ui.press("Right", "d")
    ui.sees("no changes")
    ui.press("h")
    said = "h works in the list, not in a review; press Esc to go back to the list"
    ui.sees(said)
    fleet.llmc("start", "--worker", "baker", "--prompt", "Pick\n@ask Which colour?")
    ui.sees("baker needs you", said)
