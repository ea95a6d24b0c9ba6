"""The digest as text: what waits comes first, every line fits, and sixty tasks fit on a page."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.base.names import TaskId
from llmc.base.text import cells
from llmc.records.items import Item
from llmc.records.task import Task, TaskStatus
from llmc.reports.rules.digest_parts import Facts, digest
from llmc.reports.rules.digest_text import MOST_LINES, money, ranges, render, tokens
from tests.unit.reports.test_digest import Row, assigned, held, landed, row, task, used

NOW = 40_000.0


def page(rows: list[Row], width: int = 80, since: float = 0.0, **facts: Any) -> str:
    found = digest(rows, since, NOW, Facts(**facts))
    return render(found, width, lambda text, style: text, lambda at: f"{int(at) // 3600:02}:00")


def night(count: int) -> list[Row]:
    rows = [row(0, "auto_started", None)]
    for number in range(1, count + 1):
        at = number * 500.0
        rows += [assigned(at, str(number)), used(at + 1, str(number), 1_000_000, 0.5)]
        rows += landed(at + 100, str(number), f"{number:040x}")
    return rows


BAD = [
    assigned(35_000, "99"),
    row(
        35_100, "task_failed", "auto-1", "2 tests fail", task_id="99", cause="task", attempt=3, ref="refs/x/y"
    ),
    row(35_100, "task_quarantined", task_id="99", cause="task", attempt=3),
    row(35_200, "fleet_parked", None, cause="limit", until_unix=36_000),
    row(36_000, "auto_stopped", None, "llmc down"),
]


def test_a_short_night() -> None:
    """Break: put what landed before what waits; or leave out the command."""
    assert page(night(2) + BAD, items=[held(99)], tasks=[task(99), task(100, after=(99,))]) == (
        "00:00 to 11:00 (11h 6m)\n"
        "2 tasks landed in 10h (0.2 per hour excluding parked time), $1.00, 1 item\n"
        "waiting for you.\n"
        "Auto mode ended at 10:00: llmc down.\n"
        "\n"
        "Waiting for you (1)\n"
        "  llmc tasks requeue 99   blocks 1 task\n"
        "      task 99 waits for you: Do 99 (task: 2 tests fail)\n"
        "      to see its work: llmc trash show refs/x/y\n"
        "\n"
        "Landed (2)\n"
        "  1  000000000  auto-1  1m 40s  Do 1\n"
        "  2  000000000  auto-1  1m 40s  Do 2\n"
        "\n"
        "Did not land\n"
        "  1 attempt failed (task: 1)\n"
        "    task 99 (task): 2 tests fail\n"
        "  quarantined: 99 (task, 3 attempts)\n"
        "\n"
        "Spent\n"
        "  accepted  2.0M tokens, $1.00\n"
        "  $0.50 per landed task, all costs included\n"
        "\n"
        "Delays\n"
        "  parked (limit): 1 time, 13m 20s"
    )


@pytest.mark.parametrize("width", [60, 80, 200])
def test_sixty_tasks_fit_on_a_page(width: int) -> None:
    """Break: give each its own line."""
    items = [held(number) for number in range(100, 112)]
    lines = page(night(60) + BAD, width, items=items).splitlines()
    assert len(lines) <= MOST_LINES
    text = "\n".join(lines)
    assert "Landed (60)" in text
    assert "Waiting for you (12)" in text
    landed_part = text.partition("Landed (60)")[2].partition("Did not land")[0]
    assert re.findall(r"\d+", landed_part)[0] == "1"
    assert "60" in re.findall(r"\d+", landed_part)
    assert lines.index("Waiting for you (12)") < lines.index("Landed (60)")


def test_a_quiet_night_is_a_sentence() -> None:
    """Break: print the empty tables."""
    quiet = page([])
    assert quiet.splitlines() == [
        "00:00 to 11:00 (11h 6m)",
        "No tasks were started and nothing landed. Nothing is waiting for you.",
    ]
    waiting = page([], items=[held(9, "proposed")])
    assert "No tasks were started and nothing landed." in waiting
    assert "llmc tasks approve 9" in waiting


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [row(60, "auto_failed", "auto-1", "logged out", cause="auth", task_id="3")],
            "failed at 00:00 (auth) on",
        ),
        ([row(60, "auto_stopped", None, "signal")], "Auto mode ended at 00:00: signal."),
        ([], "Auto mode ended unexpectedly (last activity: 00:00)."),
        ([row(60, "undone", "adam", commit="0" * 40)], "Auto mode ended unexpectedly"),
    ],
    ids=["failed", "stopped", "killed", "killed later"],
)
def test_how_it_ended_is_said(rows: list[Row], words: str) -> None:
    """Break: report every end in the same words."""
    assert words in page([row(0, "auto_started", None), *rows])


def test_what_stands_out() -> None:
    """Break: leave the command, or a failed run, as plain as the rest."""
    rows = [
        *(row(0, "auto_started", None), *BAD[:3]),
        row(60, "auto_failed", None, "logged out", cause="auth"),
    ]
    found = digest(rows, 0.0, NOW, Facts(items=[held(99), held(98)]))
    text = render(found, 80, lambda text, style: f"<{style}>{text}</>", lambda at: "now")
    assert "<bold>Waiting for you (2)</>" in text
    assert "  <yellow>llmc tasks requeue 99</>\n" in text
    assert "<red>Auto mode failed at now (auth): logged out.</>" in text


def test_what_went_wrong_on_the_way_is_said_of_many_too() -> None:
    """Break: drop the notes where tasks are listed side by side."""
    rows = night(30)
    at = next(i for i, one in enumerate(rows) if one["action"] == "usage_recorded" and one["task_id"] == "17")
    rows.insert(at, row(8500, "rebase_resolved", "auto-1", ahead=1))
    assert "did not land on the first attempt: 17 (1 conflict)" in page(rows)


def test_what_comes_from_the_cache_is_said_apart() -> None:
    """Break: add the cache reads, most of every conversation, to the tokens; or treat no price as one."""
    rows = [assigned(10, "1"), {**used(11, "1", 2000, None), "cache_read_input_tokens": 3_000_000}]
    assert "  open  2.0k tokens (plus 3.0M from the cache)\n" in page(rows) + "\n"
    priced = page([*rows, used(12, "1", 500, 0.25)])
    assert "2.5k tokens (plus 3.0M from the cache), $0.25, plus 2.0k unpriced" in priced


def test_numbers_that_follow_each_other_are_one() -> None:
    """Break: join numbers that are not consecutive; or sort 10 before 9."""
    assert ranges(["9", "10", "11", "3", "c0ffee", "5", "12a"]) == ["3", "5", "9-11", "12a", "c0ffee"]
    assert ranges(["٣", "٤", "²"]) == ["²", "٣", "٤"]


def test_numbers_are_short() -> None:
    assert [tokens(n) for n in (0, 999, 1000, 12_345, 3_400_000, 2 * 10**9)] == [
        *("0", "999", "1.0k", "12k", "3.4M", "2.0G"),
    ]
    assert [money(n) for n in (0, 0.001, 0.5, 1234.5)] == ["$0.00", "less than a cent", "$0.50", "$1,234.50"]


WORDS = st.text(max_size=60)


@given(
    st.lists(
        st.tuples(WORDS, WORDS, st.sampled_from(["landed", "failed", "parked", "released", "open"])),
        max_size=15,
    )
)
def test_every_line_fits_and_nothing_acts_on_the_terminal(given_rows: list[tuple[str, str, str]]) -> None:
    """Break: print a subject or a reason as it is."""
    rows = [row(1, "auto_started", None)]
    tasks, items = [], []
    for number, (subject, reason, end) in enumerate(given_rows):
        name = str(number)
        rows.append({**assigned(10 + number, name, f"auto-{name}"), "subject": subject})
        if end == "landed":
            rows += landed(20 + number, name, f"{number:040x}", f"auto-{name}")
        elif end != "open":
            rows.append(row(20 + number, f"task_{end}", f"auto-{name}", reason, task_id=name, cause=reason))
        tasks.append(Task(TaskId(name), subject, "", TaskStatus.PENDING))
        items.append(Item(f"k{name}", "bug", "blocked", subject, 1.0, reason, subject))
    for width in (40, 80):
        text = page(rows, width, tasks=tasks, items=items)
        assert all(cells(line) <= width for line in text.split("\n"))
        assert "\033" not in text
        assert "\u202e" not in text
