"""A review on the screen: what counts as seen, whose keys they are, and what Esc does to a comment."""

import threading

import pytest

from llmc.api import commenting
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project
from llmc.tui import frame
from tests.support.repos import worker_of
from tests.tools.tui.conftest import Driver, drive


def record(project: Project) -> WorkerRecord:
    return worker_of(project)[0]


def test_a_diff_that_was_never_shown_is_not_reviewed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: remember a diff without asking `_show_diff` whether it was drawn."""
    left, read = threading.Event(), commenting.page

    def late(project: Project, name: str, since: int) -> commenting.Page:
        assert left.wait(20)
        return read(project, name, since)

    monkeypatch.setattr(commenting, "page", late)

    async def look(screen: Driver) -> None:
        assert screen.app.store.go_to("w1")
        await screen.press("d", "escape")
        left.set()
        await screen.until(lambda: not screen.app.reads._open)
        assert record(project).reviewed_sha is None
        await screen.press("d")
        await screen.until(lambda: screen.app.diff is not None and not screen.app.reads._open)

    drive(project, look)
    assert record(project).reviewed_sha == worker_of(project)[1].head()


def test_the_keys_of_a_diff_act_on_its_worker(project: Project) -> None:
    """Break: ask the list's cursor, which a click or a new entry moves, for the worker."""

    async def act(screen: Driver) -> None:
        await screen.open_diff("w1")
        assert screen.app.store.go_to("take")
        screen.app.redraw()
        await screen.press("m")
        assert screen.app.form_title == "message to w1:"
        await screen.press("escape", "r")
        assert screen.app.form_title == "request changes from w1:"
        await screen.press("escape", "a")
        assert screen.app.said[-1].outcome.startswith("nothing to accept yet: w1 ")  # no agent is running
        await screen.press("escape", "m")
        assert screen.app.form_title == "message to take:"

    drive(project, act)


def test_a_diff_is_shown_even_if_the_cursor_has_moved_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: drop the diff of a worker that is not under the cursor: "loading" stays for ever."""
    moved, read = threading.Event(), commenting.page

    def late(project: Project, name: str, since: int) -> commenting.Page:
        assert moved.wait(20)
        return read(project, name, since)

    monkeypatch.setattr(commenting, "page", late)

    async def look(screen: Driver) -> None:
        assert screen.app.store.go_to("w1")
        await screen.press("d")
        assert screen.app.store.go_to("take")
        moved.set()
        await screen.until(lambda: screen.app.diff is not None)
        assert screen.app.diff is not None
        assert screen.app.diff.page.worker == "w1"

    drive(project, look)


async def to_code(screen: Driver) -> None:
    """Put the cursor on a line of code."""
    await screen.open_diff()
    diff = screen.app.diff
    assert diff is not None
    rows = diff.page.files[0].rows
    diff.cursor = next(
        at
        for at, one in enumerate(diff.lines)
        if one.kind == "row" and rows[one.row].kind is commenting.Kind.ADDED
    )


def test_esc_in_a_comment_leaves_a_draft_that_is_shown(project: Project) -> None:
    """Break: leave the draft to the timer, which saves without reading the diff again."""

    async def write(screen: Driver) -> None:
        await to_code(screen)
        await screen.press("c", *"bad", "escape", "r")
        assert screen.app.form_title.startswith("send 1 comment to w1")
        await screen.press("escape", "c")  # maybe before the diff was read again
        assert screen.app.form is not None
        assert screen.app.form.text == "bad"
        await screen.press("d", "escape")
        await screen.until(lambda: [one.text for one in screen.app.diff.page.drafts] == ["badd"])

    drive(project, write)
    assert [one.text for one in commenting.page(project, "w1").drafts] == ["badd"]


def test_esc_keeps_what_is_in_the_form(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: take the text of the first save for the last one, if it is what the form began with."""
    monkeypatch.setattr(frame, "SAVE_S", 0.01)

    async def write(screen: Driver) -> None:
        await to_code(screen)
        await screen.press("c", "a", "enter")
        await screen.until(lambda: screen.app.diff.page.drafts)
        await screen.press("c", "b")
        await screen.until(lambda: commenting.page(project, "w1").drafts[0].text == "ab")
        await screen.press("backspace", "escape")

    drive(project, write)
    assert [one.text for one in commenting.page(project, "w1").drafts] == ["a"]


def test_ctrl_c_in_a_comment_keeps_the_draft(project: Project) -> None:
    """Break: leave the draft to the timer, which ends with the screen."""

    async def write(screen: Driver) -> None:
        await to_code(screen)
        await screen.press("c", *"late", "ctrl+c")

    drive(project, write)
    assert [one.text for one in commenting.page(project, "w1").drafts] == ["late"]
