"""What `llmc status` prints for people: the next command works, every line fits, and the layout is right."""

import re
import shlex
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.api.status_view import Page, overseer_view
from llmc.attention.rules import next_command, worker_items, worker_view
from llmc.base.text import cells, printable, shortened, wrap, wrap_command
from llmc.cli.overview import age, auto_summary, goals_lines, group_of, render, why, with_items
from llmc.records.items import Facts, Raw, Registration, Seen
from llmc.records.worker import Cause, Outcome, Status

AT_WORK = ("working", "reviewing", "rejected", "rebasing")
RESTING = ("idle", "no_changes", "offline")
NOW = 1_000_000.0


def row(name: str = "adam", status: str = "idle", ago: float = 9, **fields: Any) -> Raw:
    """A worker as in `status --json`, with what the text shows in addition."""
    view = worker_view({"name": name, "status": status, "since_unix": NOW - ago}, False)
    if status == "needs_review":
        view["commit_sha"] = "8243c5bc742f39adaeec1dcc728ca0bc528ed3b1"
    assert fields.keys() <= view.keys() | {"subject", "dialog", "acting"}
    return {**view, "subject": "", "dialog": False, "acting": False, **fields}


def facts(*workers: Raw, running: bool = True, auto: bool = False) -> Facts:
    """What was observed; a client with a status file reports an open dialog."""
    seen = {
        w["name"]: Seen(w["attached"], "dialog open" if w["dialog"] else "", not w["dialog"], w["acting"])
        for w in workers
    }
    return Facts(NOW, running=running, daemon=Registration(auto=auto), workers=seen)


def command_for(worker: Raw, daemon: bool) -> str:
    known = facts(worker, running=daemon)
    return next_command(worker, known.seen(worker["name"]), known)


def expected(worker: Raw, daemon: bool) -> str:
    """The command's verb by status alone, then what blocks it, in the order in which it is refused."""
    status = worker["status"]
    by_status = {
        "needs_review": "accept" if worker["reviewed"] or worker["accept_step"] else "review",
        "needs_input": "message",
        "error": "message",
        **dict.fromkeys(AT_WORK, "peek"),
        **dict.fromkeys(RESTING, "start"),
    }
    going_on = worker["acting"] or daemon
    verb = by_status[status]
    if worker["delivery"] == "unconfirmed" and status not in ("needs_review", "error"):
        verb = "peek"
    if worker["attached"] and (status == "error" or verb in ("accept", "message", "start")):
        verb = "detach"
    if worker["delivery"] == "pending":
        verb = "" if going_on else "up"
    if worker["accept_step"] and going_on:
        verb = ""
    if worker["held"]:
        verb = "release"
    if worker["dialog"]:
        verb = "attach"
    return "up" if status == "offline" else verb


FLAGS = [False, True]
DELIVERIES = [None, "acknowledged", "pending", "unconfirmed"]


@pytest.mark.parametrize("status", list(Status))
def test_the_next_command_can_be_run(status: Status) -> None:
    """Every status with everything that can block a command.

    Break: leave any `if` of `next_command` out.
    """
    cases = product(FLAGS, FLAGS, FLAGS, FLAGS, [None, "rebase"], DELIVERIES, FLAGS, FLAGS)
    for held, dialog, attached, reviewed, accept_step, delivery, daemon, acting in cases:
        worker = row(
            status=str(status),
            held=held,
            dialog=dialog,
            attached=attached,
            reviewed=reviewed,
            accept_step=accept_step if status == "needs_review" else None,
            delivery=delivery,
            acting=acting,
        )
        command = command_for(worker, daemon)
        verb = command.removeprefix("llmc ").partition(" ")[0]
        assert verb == expected(worker, daemon), worker
        assert verb in ("up", "start", "") or "adam" in command or verb == "detach"


@pytest.mark.parametrize("cause", ["", *Cause])
def test_the_ways_out_of_an_error(cause: str) -> None:
    """Break: offer only a reset although there is work; or a message where the cause would come back."""
    command = command_for(row(status="error", cause=cause, error_reason="x"), daemon=True)
    assert command.endswith("llmc message adam, or llmc reset adam")
    assert command.startswith("llmc message adam") == (cause not in ("auth", "config", "disk"))


def test_conflicts_can_be_resolved_by_hand() -> None:
    command = command_for(row(status="error", cause="git", conflicted_files=["a.txt"]), daemon=True)
    assert (
        command == "llmc console adam (resolve the conflicts there), or llmc message adam, or llmc reset adam"
    )


def test_every_outcome_of_a_delivery_was_thought_of() -> None:
    assert {outcome for outcome in Outcome if outcome.open} == {"pending", "typed"}


@pytest.mark.parametrize("status", list(Status))
def test_every_status_is_in_a_group(status: Status) -> None:
    """Break: leave a status out of AT_WORK; it would be listed as idle, whatever it does."""
    (worker,) = with_items(fleet(row(status=str(status))))["workers"]
    group = group_of(worker)
    assert (group == "Active") == (status in AT_WORK)
    assert (group == "Inactive") == (status in RESTING)


def test_a_crashed_agent_with_a_task_does_not_rest() -> None:
    """Break: group by the status alone."""
    crashed = row(status="offline", reason="crashed", prompt="Sort it", error_reason="code 137")
    text = render(fleet(crashed), NOW, 80, plain)
    assert "Needs you\n  adam  [offline]  9s  Sort it\n        agent crashed (code 137): Sort it\n" in text
    assert "next: llmc up --detach" in text
    assert "Inactive" not in text


@pytest.mark.parametrize(
    ("daemon", "acting", "held", "group"),
    [
        (True, False, False, "Active"),
        (False, True, False, "Active"),
        (False, False, False, "Needs you"),
        (True, False, True, "Needs you"),
    ],
)
def test_an_accept_goes_on_by_itself_or_needs_a_person(
    daemon: bool, acting: bool, held: bool, group: str
) -> None:
    """Break: group by the status alone."""
    worker = row(status="needs_review", accept_step="validate", acting=acting, held=held)
    (shown,) = with_items(fleet(worker, running=daemon))["workers"]
    assert group_of(shown) == group


def marked(text: str, style: str) -> str:
    """Colors that are readable in a test."""
    return f"<{style}>{text}</>"


def plain(text: str, style: str) -> str:
    return text


def fleet(*workers: Raw, running: bool = True, auto: bool = False) -> Raw:
    daemon = {"running": running, "pid": 18613 if running else None, "auto": auto, "instance_id": None}
    known = facts(*workers, running=running, auto=auto)
    items = [item for worker in workers for item in worker_items({}, worker, known)]
    return {
        "root": "/home/you/llmc",
        "daemon": daemon,
        "workers": [{**w, "next": next_command(w, known.seen(w["name"]), known)} for w in workers],
        "auto": None,
        "overseer": None,
        "attention": [item._asdict() for item in items],
    }


FLEET = fleet(
    row(
        "adam",
        "needs_review",
        240,
        prompt="Let greet() take a name, and keep greeting the world without one\n@sh x",
        reason="self-review done",
        subject="Greet by name",
    ),
    row("baker", "needs_input", 12, prompt="Pick a colour", reason="question", dialog=True),
    row("charlie", "working", 3700, prompt="日本語の説明を README に書いてください。とても長い文章です。"),
    row("dora", "idle", 200_000),
    row("edward", "error", 5, prompt="Move it", reason="model_not_found", error_reason="no such model"),
    row("frank", "rebasing", 61, prompt="Sort the list", conflicted_files=["a.txt", "b.txt"]),
    row("george", "needs_review", 3, prompt="Rename it", reviewed=True, held=True, subject="Rename it"),
    row("harriet", "idle", 30, delivery="unconfirmed", prompt_id="task-1"),
)

GOLDEN_80 = """\
/home/you/llmc  daemon 18613 running  5 need you, 2 active, 1 inactive

Needs you
  adam     [needs_review]   4m  Let greet() take a name, and keep greeting the…
           8243c5bc Greet by name
           self-review done
           next: llmc review adam
  baker    [needs_input]   12s  Pick a colour
           a dialog is open and needs an answer
           next: llmc attach baker
  edward   [error]          5s  Move it
           model_not_found: no such model
           next: llmc message edward, or llmc reset edward
  george   [needs_review]   3s  (held) (reviewed) Rename it
           8243c5bc Rename it
           on hold: llmc leaves this worker alone until you release it
           next: llmc release george
  harriet  [idle]          30s
           delivery of task-1 is unconfirmed
           next: llmc peek harriet

Active
  charlie  [working]        1h  日本語の説明を README に書い…  llmc peek charlie
  frank    [rebasing]       1m  Sort the list                  llmc peek frank
           conflicts in a.txt, b.txt

Inactive
  dora     [idle]           2d  llmc start --worker dora"""

GOLDEN_46 = """\
/home/you/llmc  daemon not running  1 active

Active
  charlie  [working]  1h  日本語の説明を READ…
           next: llmc peek charlie"""


def test_it_looks_as_it_should() -> None:
    """Break: any change of the layout; check it on a terminal before you change this text."""
    assert render(FLEET, NOW, 80, plain) == GOLDEN_80


def test_it_fits_a_narrow_terminal() -> None:
    assert render(fleet(FLEET["workers"][2], running=False), NOW, 46, plain) == GOLDEN_46


@pytest.mark.parametrize(
    ("width", "head"),
    [
        (70, "/home/you/llmc  daemon 18613 running  5 need you, 2 active, 1 inactive"),
        (68, "…me/you/llmc  daemon 18613 running  5 need you, 2 active, 1 inactive"),
        (66, "/home/you/llmc  daemon running  5 need you, 2 active, 1 inactive"),
        (52, "daemon running  5 need you, 2 active, 1 inactive"),
        (40, "daemon running  5 need you, 2 active"),
    ],
)
def test_the_title_leaves_out_what_says_least(width: int, head: str) -> None:
    """Break: cut the line at its end, where the counts are."""
    assert render(FLEET, NOW, width, plain).splitlines()[0] == head


def test_the_goals_fit() -> None:
    """Break: print them on one line."""
    tick = {"active": 2, "paused": 1, "completed": 0, "total": 12, "done": 7, "percent": 58, "ok": False}
    page = Page(FLEET, NOW, False, True, {**tick, "problem": "x" * 20 + " y" * 20, "ended_at": NOW - 60})
    lines = goals_lines(page, 80)
    assert len(lines) > 1
    assert max(map(cells, lines)) <= 80
    assert lines[0].startswith("Goals: 2 active, 1 paused; 7 of 12 plan items done (58%); ")


def test_it_shows_more_on_a_wide_one() -> None:
    """Break: ignore the width."""
    wide = render(FLEET, NOW, 160, plain)
    assert "keep greeting the world without one …\n" in wide
    assert "とても長い文章です。  llmc peek charlie\n" in wide


def test_colours_say_what_the_words_say() -> None:
    """Break: paint before the text is shortened or padded, or not at all."""
    text = render(FLEET, NOW, 80, marked)
    assert "<yellow>[needs_review]</>" in text
    assert "<red>model_not_found: no such model</>" in text
    assert "<bold>next: llmc review adam</>" in text
    assert "<dim>llmc peek charlie</>" in text
    assert re.sub(r"<\w+>|</>", "", text) == GOLDEN_80


def test_an_empty_fleet() -> None:
    text = render(fleet(running=False), NOW, 80, plain)
    assert (
        text == "/home/you/llmc  daemon not running (llmc up --detach)\nno workers yet; next: llmc add adam"
    )


TEXTS = st.text(max_size=120)


@given(
    workers=st.lists(
        st.builds(
            row,
            name=st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True),
            status=st.sampled_from([str(status) for status in Status]),
            ago=st.floats(-10, 1e7),
            prompt=TEXTS,
            reason=TEXTS,
            subject=TEXTS,
            error_reason=TEXTS,
            held=st.booleans(),
            delivery=st.sampled_from(DELIVERIES),
        ),
        max_size=4,
    ),
    width=st.sampled_from([40, 46, 80, 100, 160, 400]),
)
def test_every_line_fits(workers: list[Raw], width: int) -> None:
    """Whatever agents and git print: no line is too wide, and nothing in it acts on the terminal.

    Break: count characters instead of cells, or print a text as it is.
    """
    text = render(fleet(*workers), NOW, width, plain)
    for line in text.split("\n"):
        assert cells(line) <= width, line
        assert line.isprintable() or printable(line) == line


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
        ("a b c", 3, "a…"),
    ],
)
def test_shortened_by_cells(text: str, width: int, short: str) -> None:
    """Break: len() instead of cells()."""
    assert shortened(text, width) == short
    assert cells(short) <= width


def test_small_things() -> None:
    assert [age(s) for s in (-5, 0, 59, 60, 3599, 3600, 86399, 86400)] == [
        *("0s", "0s", "59s", "1m", "59m", "1h", "23h", "1d")
    ]
    assert printable("a\x1b[31m\u202eb\tc\n") == "a[31mb c "
    assert wrap("one two three four", 9, 2) == ["one two", "three fo…"]
    assert wrap("", 9, 2) == []


def test_a_wrapped_command_is_still_one_command() -> None:
    """Break: break it without a backslash: pasted, its first line runs without the limits of the second."""
    command = "llmc up --auto --post-accept-command 'make  the docs' --max-cost 5"
    lines = wrap_command(command, 40)
    assert lines == ["llmc up --auto --post-accept-command \\", "'make  the docs' --max-cost 5"]
    assert shlex.split("\n".join(lines).replace("\\\n", " ")) == shlex.split(command)
    assert wrap_command("", 40) == []
    choice = "next: llmc console adam (resolve it there), or llmc reset adam"
    assert wrap_command(choice, 44) == ["next: llmc console adam (resolve it there),", "or llmc reset adam"]
    assert wrap_command("llmc status", 8) == ["llmc \\", "status"]
    assert why(row(status="needs_input", reason="stopped_clean")) == "stopped without a commit"
    assert why(row(status="needs_review", reason="commits found", self_review="due")) == (
        "commits found: self-review is due"
    )
    assert "  1 needs you" in render(fleet(row(status="error", error_reason="x")), NOW, 80, plain)


AUTO = {
    "running": True,
    "wanted": True,
    "workers": 2,
    "tasks_completed": 7,
    "errors": 1,
    "parked_until_unix": None,
    "parked_cause": None,
    "start": "llmc up --auto --detach",
    "finished_unix": None,
    "finished_reason": None,
}


@pytest.mark.req("0-023", "0-024")
def test_auto_workers_stand_by_themselves() -> None:
    """Break: give them no group of their own, show the prompt instead of the task,
    or a command that would be refused.
    """
    text = render(
        {
            **fleet(
                row("adam", "needs_review", 60, prompt="Greet people"),
                row("auto-1", "working", 125, auto=True, task_id="4", task_subject="Write the parser"),
                row("auto-2", "idle", 9, auto=True),
                auto=True,
            ),
            "daemon": {"running": True, "pid": 18613, "auto": True, "instance_id": None},
            "auto": AUTO,
        },
        NOW,
        80,
        plain,
    )
    assert text.splitlines()[-5:] == [
        "Auto Workers",
        "  auto-1  [working]       2m  4: Write the parser  llmc peek auto-1",
        "  auto-2  [idle]          9s",
        "",
        "Auto Mode: 2 workers, 7 tasks completed, 1 error",
    ]
    assert command_for(row("auto-2", "idle", auto=True), False) == "llmc up --auto --detach"


def test_an_auto_worker_beyond_the_concurrency_is_not_used() -> None:
    """Break: show it as stopped."""
    workers = [row(f"auto-{number}", "offline", 9, auto=True, reason="down") for number in (1, 2)]
    view = {**fleet(*workers, auto=True), "auto": {**AUTO, "workers": 1}}
    lines = render(view, NOW, 80, plain).splitlines()
    assert "not used (concurrency is 1)" in lines[lines.index("  auto-2  [offline]  9s") + 1]
    assert "not used" not in lines[lines.index("  auto-1  [offline]  9s") + 1]


def test_auto_mode_that_does_not_run_is_not_shown_as_if_it_did() -> None:
    """Break: let the footer keep counting, or leave auto workers to a daemon that does nothing for them."""
    plain_daemon = {**fleet(row("auto-1", "idle", 9, auto=True)), "auto": {**AUTO, "running": False}}
    text = render(plain_daemon, NOW, 80, plain)
    assert "Auto Mode: not running; 2 workers, 7 tasks completed\n  next: llmc up --auto --detach" in text
    assert "auto-1  [idle]  9s\n" in text, "the command stands below, once for all"


def test_an_agent_that_did_not_start_says_what_helps() -> None:
    """Break: offer `llmc up` for what would fail in the same way again."""
    untrusted = (
        "Claude Code does not trust /r yet and would stop at its trust dialog. Run `llmc init --trust`."
    )
    assert command_for(row(status="offline", error_reason=untrusted), True) == (
        "llmc init --trust, then llmc up --detach"
    )
    assert (
        command_for(row(status="offline", error_reason="run `llmc up --detach` again"), True)
        == "llmc up --detach"
    )
    assert command_for(row(status="offline", error_reason="no space"), False) == "llmc up --detach"


def test_a_parked_fleet_says_so() -> None:
    """Break: show only the counters."""
    parked = {**AUTO, "parked_until_unix": NOW + 240, "parked_cause": "limit"}
    assert "parked for 4m more (usage limit)" in auto_summary(parked, NOW)
    assert auto_summary({**AUTO, "running": False}, NOW).startswith("Auto Mode: not running")
    assert "until a retry succeeds" in auto_summary(parked, NOW + 241)


def test_a_run_that_ended_as_requested_is_not_shown_as_trouble() -> None:
    """Break: say only that auto mode and the daemon are not running, in red."""
    done = {
        "running": False,
        "wanted": False,
        "finished_unix": NOW - 300,
        "finished_reason": "--max-tasks 7 reached",
    }
    view = {**fleet(row("auto-1", "offline", 9, auto=True)), "auto": {**AUTO, **done}}
    view["daemon"] = {"running": False, "pid": None, "auto": False, "instance_id": None}
    text = render(view, NOW, 120, lambda text, style: f"<{style}>{text}</>" if style else text)
    assert "Auto Mode: finished 5m ago: --max-tasks 7 reached; 2 workers, 7 tasks completed\n" in text
    assert text.endswith("\n  next: llmc up --auto --detach")
    assert "<red>" not in text
    assert "daemon not running" in text
    view["auto"] = {**view["auto"], "finished_unix": None, "finished_reason": None}
    text = render(view, NOW, 120, lambda text, style: f"<{style}>{text}</>" if style else text)
    assert "<red>daemon not running" in text


OVERSEER = {
    "state": "remediating",
    "pid": 40,
    "daemon": {"pid": 41, "start_time_unix": NOW - 7300},
    "attempt": 2,
    "events": [{"ts": NOW - 61, "action": "overseer_failure", "text": "process failure:\x1b[2J gone"}],
    "why": "",
}


@pytest.mark.req("0-165")
def test_the_supervisor_is_shown() -> None:
    """Break: trust overseer.json although its lock is free, or print escapes from a log."""

    def shown(record: Raw, running: bool) -> list[str]:
        view = {**fleet(), "overseer": overseer_view(record, running, NOW)}
        return render(view, NOW, 80, plain).splitlines()[2:]

    assert shown(OVERSEER, running=True) == [
        "",
        "Overseer  Remediating  pid 40  daemon 41 up 2h  remediation attempt 2",
        "    1m ago  process failure:[2J gone",
    ]
    assert shown({**OVERSEER, "state": "running", "attempt": None}, running=True)[1] == (
        "Overseer  Running  pid 40  daemon 41 up 2h"
    )
    assert shown(OVERSEER, running=False)[:3] == ["", "Overseer  Terminated", "  the supervisor was killed"]
    ended = {**OVERSEER, "state": "terminated", "why": "failure spiral: again"}
    assert shown(ended, running=False)[2] == "  failure spiral: again"
    # Stopped on request, or finished: one line; why it failed, and what led to it, stay.
    stopped = {**ended, "why": "stopped on request", "code": 0, "ended_unix": NOW - 7300}
    assert shown(stopped, running=False) == ["", "Overseer  Terminated  2h ago: stopped on request"]
    assert len(shown({**stopped, "code": 11}, running=False)) > 2
    assert overseer_view(None, False, NOW) is None
