"""Review in the browser: saved comments, rounds, and the landed commit."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.conftest import write_code
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until
from tests.support.web_page import DESKTOP, Visitor, Web, visiting


def drafts(fleet: Fleet, worker: str = "adam") -> list[str]:
    """The texts that the server has."""
    shown = fleet.llmc("review", worker, "--comments", "--json").json
    return [one["text"] for one in shown["comments"] if not one["round"]]


def in_review(fleet: Fleet) -> None:
    fleet.llmc("start", "--worker", "adam", "--prompt", write_code())
    fleet.wait("adam", "needs_review")


def test_from_a_task_to_a_landed_commit(fleet: Fleet, visitor: Visitor) -> None:
    """A task started here, two rounds with four comments on lines, and the commit on main.

    Break: leave `notes` out of the parts of the review's stream, or show Accept for work that was not drawn.
    """
    page = visitor.go("/board")
    page.get_by_text("Start a task").click()
    page.get_by_label("Task for the next idle worker").fill(write_code())
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#said")).to_contain_text("acknowledged")
    worker = page.locator(".card.review").get_by_role("link").first
    expect(worker).to_be_visible()
    name = worker.inner_text()
    visitor.go("/")
    page.get_by_role("link", name="Review").click()
    page.wait_for_url(f"**/w/{name}/review")
    for number, rows in ((1, ("f0r2", "f0r3")), (2, ("f0r7", "f0r8"))):
        for row in rows:
            visitor.comment(row, f"Round {number}, {row}: please change this")
        page.get_by_role("link", name="Send review (2)").click()
        prompt = page.locator("#request pre").inner_text()
        assert all(f"Round {number}, {row}: please change this" in prompt for row in rows)
        page.get_by_role("button", name="Send 2 comments").click()
        expect(page.locator("#said")).to_contain_text("acknowledged")
        # What was sent is no longer a draft, without a reload.
        expect(page.locator(".file .comment", has_text=f"Round {number}, ")).to_contain_text(
            [f"round {number}"] * 2
        )
        expect(page.get_by_role("button", name="Accept")).to_have_count(0)
        page.get_by_role("link", name="Show it").click()
        expect(page.locator("#review_head")).to_contain_text(f"round {number + 1}")
        expect(page.locator(".diff tr.added", has_text="# changed")).to_have_count(number)
    page.get_by_role("link", name="since round 2").click()
    expect(page.locator(".diff tr.added")).to_have_count(1)
    expect(page.locator(".comment:visible", has_text="Round 1, f0r2")).to_have_count(1)
    page.get_by_role("link", name="all", exact=True).click()
    expect(page.locator(".file .comment")).to_have_count(4)
    page.get_by_role("button", name="Accept").click()
    expect(page.locator("#said")).to_contain_text("on main: Greet people")
    wait_until(lambda: fleet.log()[0] == "Greet people", 30, fleet.story)
    told = [text for text in fleet.user_turns() if "Address each one" in text]
    assert len(told) == 2
    assert all(f"Round {number}, " in told[number - 1] for number in (1, 2))
    assert all("greeter.py:" in text and "> " in text for text in told)
    ordered = fleet.events("web_ordered")
    assert {"start", "reject", "accept"} <= {row["command"].split()[1] for row in ordered}


def test_a_half_written_comment_survives_a_reload(fleet: Fleet, web: Web, visitor: Visitor) -> None:
    """It is on the server half a second after the last key. Break: save only on submit."""
    in_review(fleet)
    page = visitor.go("/w/adam/review")
    visitor.begin_comment("f0r2")
    page.keyboard.type("Half a sen")
    expect(page.locator("form.comment [data-note]")).to_have_text("saved as a draft")
    assert drafts(fleet) == ["Half a sen"]
    page.reload()
    kept = page.locator("tr#f0r2 + tr.notes .comment", has_text="Half a sen")
    expect(kept).to_be_visible()
    kept.get_by_role("button", name="Edit").click()
    field = page.locator("form.comment textarea")
    expect(field).to_have_value("Half a sen")
    field.press("End")
    page.keyboard.type("tence.")
    page.get_by_role("button", name="Done").click()
    expect(page.locator(".file .comment")).to_contain_text(["Half a sentence."])
    assert drafts(fleet) == ["Half a sentence."]
    page.locator(".file .comment").get_by_role("button", name="Delete").click()
    expect(page.locator(".file .comment")).to_have_count(0)
    assert drafts(fleet) == []


def test_a_line_has_one_form_and_escape_closes_it(fleet: Fleet, visitor: Visitor) -> None:
    """A second click goes to the open form; the field is above what covers the page; nothing typed is lost.

    Break: open a form for each click; or drop a draft in which nothing was changed.
    """
    in_review(fleet)
    fleet.llmc("hold", "baker")
    page = visitor.go("/w/baker")
    page.get_by_role("button", name="Release").click()  # an order's line at the bottom
    expect(page.locator("#said")).to_contain_text("released")
    visitor.go("/w/adam/review")
    forms, field = page.locator("form.comment"), page.locator("form.comment textarea")
    visitor.begin_comment("f0r2")
    assert field.evaluate(
        "(one) => one.getBoundingClientRect().bottom <= document.getElementById('said').getBoundingClientRect().top"
    )
    page.locator("tr#f0r2 .plus").evaluate("(one) => { one.click(); one.click(); }")
    page.get_by_role("button", name="Comment on the whole change").dblclick()
    expect(forms).to_have_count(2)
    page.keyboard.press("Escape")
    expect(forms).to_have_count(1)
    field.fill("Kept by Escape")
    field.press("Escape")
    expect(forms).to_have_count(0)
    comment = page.locator("tr#f0r2 + tr.notes .comment", has_text="Kept by Escape")
    expect(comment).to_be_visible()
    assert drafts(fleet) == ["Kept by Escape"]
    for key in ("Escape", "Control+Enter"):
        comment.get_by_role("button", name="Edit").click()
        expect(field).to_be_focused()
        field.press(key)
        expect(forms).to_have_count(0)
        expect(comment).to_be_visible()
    assert drafts(fleet) == ["Kept by Escape"]


def test_a_text_typed_just_before_leaving_is_kept(fleet: Fleet, visitor: Visitor) -> None:
    """The last keys are sent when the page closes. Break: leave out `pagehide`."""
    in_review(fleet)
    page = visitor.go("/w/adam/review")
    visitor.begin_comment("f0r2")
    page.keyboard.type("Typed and gone")
    page.goto("about:blank")
    wait_until(lambda: drafts(fleet) == ["Typed and gone"])


def test_a_text_typed_while_a_save_is_on_its_way_is_kept(fleet: Fleet, visitor: Visitor) -> None:
    """Break: make the next save wait for this one; or create a second draft from it."""
    in_review(fleet)
    page = visitor.go("/w/adam/review")
    on_its_way: list[Route] = []
    page.route("**/drafts", lambda route: route.continue_() if on_its_way else on_its_way.append(route))
    visitor.begin_comment("f0r2")
    page.keyboard.type("Typed")
    wait_until(lambda: page.wait_for_timeout(20) or on_its_way)
    page.keyboard.type(" and gone")
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide'))")
    wait_until(lambda: page.wait_for_timeout(20) or drafts(fleet) == ["Typed and gone"])
    on_its_way[0].continue_()
    page.goto("about:blank")
    assert drafts(fleet) == ["Typed and gone"]


@pytest.mark.parametrize("view", ["unified", "split"])
def test_two_browsers_share_drafts_and_jobs(
    fleet: Fleet, web: Web, browser: Browser, device: dict[str, Any], view: str
) -> None:
    """What one writes appears in the other; a draft that both change becomes two; one order is one job.

    Break: leave the revision out of the request, or draw a comment only in its own browser.
    """
    in_review(fleet)
    with visiting(web, browser, device) as one, visiting(web, browser, DESKTOP) as other:
        for visitor in (one, other):
            visitor.go(f"/w/adam/review?view={view}")
        one.comment("f0r2", "Say hi")
        expect(other.page.locator(".file .comment", has_text="Say hi")).to_be_visible()
        expect(other.page.get_by_role("link", name="Send review (1)")).to_be_visible()
        for visitor in (one, other):
            visitor.page.locator(".file .comment").get_by_role("button", name="Edit").click()
            visitor.page.locator("form.comment textarea").wait_for()
        one.page.locator("form.comment textarea").fill("Say hi from one")
        one.page.get_by_role("button", name="Done").click()
        expect(one.page.locator(".file article.comment")).to_have_count(1)
        other.page.locator("form.comment textarea").fill("Say hi from the other")
        expect(other.page.locator("form.comment [data-note]")).to_contain_text("another draft")
        other.page.get_by_role("button", name="Done").click()
        for visitor in (one, other):
            expect(visitor.page.locator(".file article.comment")).to_have_count(2)
        assert sorted(drafts(fleet)) == ["Say hi from one", "Say hi from the other"]
        other.complaints = [text for text in other.complaints if "409" not in text]  # the conflict
        one.page.get_by_role("link", name="Send review (2)").click()
        one.page.get_by_role("button", name="Send 2 comments").click()
        for visitor in (one, other):
            expect(visitor.page.locator("#said")).to_contain_text("acknowledged")
            expect(visitor.page.get_by_role("link", name="Show it")).to_be_visible()
            visitor.page.get_by_role("link", name="Show it").click()
        for visitor in (one, other):
            visitor.page.get_by_role("button", name="Accept").wait_for()
        for visitor in (one, other):
            visitor.page.get_by_role("button", name="Accept").click(no_wait_after=True)
        for visitor in (one, other):
            expect(visitor.page.locator("#said")).to_contain_text("llmc accept adam")
            expect(visitor.page.locator("#said")).to_contain_text("on main: Greet people")
        wait_until(lambda: fleet.log()[0] == "Greet people", 30, fleet.story)
        assert one.complaints + other.complaints == []


def test_the_lines_of_a_diff_fit_a_phone(fleet: Fleet, visitor: Visitor) -> None:
    """Only code scrolls sideways. Break: let a table column grow."""
    in_review(fleet)
    for view in ("unified", "split"):
        page = visitor.go(f"/w/adam/review?view={view}")
        visitor.comment("f0r2", f"A comment in the {view} view")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        code = page.locator("tr#f0r2 td.code").last.bounding_box()
        note = page.locator(".file .comment").first.bounding_box()
        assert code is not None
        assert note is not None
        assert note["width"] > 250
        assert code["width"] > 120
    page.get_by_role("checkbox", name="viewed").check()
    expect(page.locator("tr#f0r2")).to_be_hidden()
    expect(page.locator("#review_head")).to_contain_text("1 viewed")
