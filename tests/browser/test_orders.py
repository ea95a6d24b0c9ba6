"""Items that need the user, handled in the browser."""

import json
from typing import Any

import pytest
from playwright.sync_api import APIResponse, Browser, Route, expect

from tests.browser.conftest import write_code
from tests.support import goals
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until
from tests.support.web_page import DESKTOP, Visitor, Web, visiting


def test_a_question_is_answered(fleet: Fleet, web: Web, browser: Browser, visitor: Visitor) -> None:
    """With a button here; another browser sees the question disappear,
    and the event log says where the answer came from.

    Break: keep the item until a reload.
    """
    with visiting(web, browser, DESKTOP) as other:
        fleet.llmc("start", "--worker", "baker", "--prompt", "Pick one\n@ask Which colour?\n@say Fine.")
        for one in (visitor, other):
            expect(one.page.locator("#attention")).to_contain_text("Which colour?")
            expect(one.page).to_have_title("(1) llmc")
        visitor.page.get_by_role("button", name="Yes").click()
        expect(visitor.page.locator("#said")).to_contain_text("acknowledged")
        visitor.page.mouse.move(0, 0)
        for one in (visitor, other):
            expect(one.page.locator("#attention")).not_to_contain_text("Which colour?")
        assert other.complaints == []
    (row,) = fleet.events("web_ordered")
    assert (row["worker"], "127.0.0.1" in row["by"]) == ("baker", True)


def test_an_answer_stays_with_its_question(fleet: Fleet, visitor: Visitor) -> None:
    """A half-typed answer is not moved to another worker's card when the list changes above it.

    Break: number the items.
    """
    fleet.llmc("start", "--worker", "baker", "--prompt", "Pick one\n@ask Which colour?\n@say Fine.")
    page = visitor.page
    card = page.get_by_role("article", name="baker")
    card.get_by_label("Another answer").fill("dark gr")
    fleet.llmc("start", "--worker", "adam", "--prompt", "Pick another\n@ask Which size?\n@say Fine.")
    page.mouse.move(0, 0)
    expect(page.get_by_role("article")).to_have_count(2)
    expect(card.get_by_label("Another answer")).to_have_value("dark gr")
    expect(page.get_by_role("article", name="adam").get_by_label("Another answer")).to_have_value("")
    card.get_by_label("Another answer").press("End")
    page.keyboard.type("een")
    card.get_by_role("button", name="Send").click()
    expect(page.locator("#said")).to_contain_text("acknowledged")
    page.mouse.move(0, 0)
    expect(page.locator("#attention")).not_to_contain_text("Which colour?")
    expect(page.get_by_role("article", name="adam")).to_contain_text("Which size?")


def test_cards_do_not_move_under_the_pointer(fleet: Fleet, web: Web, browser: Browser) -> None:
    """They move once it leaves. Break: do not hold the list."""
    fleet.llmc("start", "--worker", "baker", "--prompt", write_code())
    fleet.wait("baker", "needs_review")
    with visiting(web, browser, DESKTOP) as visitor:
        page = visitor.page
        review = page.get_by_role("article", name="baker").get_by_role("link", name="Review")
        review.hover()
        before = review.bounding_box()
        fleet.llmc("start", "--worker", "adam", "--prompt", "Pick one\n@ask Which colour?")
        expect(page).to_have_title("(2) llmc")  # the page knows about it
        assert review.bounding_box() == before
        expect(page.get_by_role("article")).to_have_count(1)
        page.mouse.move(5, 5)
        expect(page.get_by_role("article")).to_have_count(2)
        # A card that was handled stays, grayed out, as long as the pointer is on it.
        card = page.locator(".card.review")
        card.hover()
        fleet.llmc("accept", "baker")
        expect(card).to_have_attribute("inert", "")
        expect(page).to_have_title("(1) llmc")
        page.mouse.move(5, 5)
        expect(card).to_have_count(0)
        assert visitor.complaints == []


def test_a_goals_question_is_answered(scripted: Fleet, browser: Browser, device: dict[str, Any]) -> None:
    """Break: do not settle after the answer, or do not update questions on the goals page."""
    fleet = goals.set_up(scripted, **{"auto.concurrency": "1"})
    asked = fleet.dir / "asked"
    question = f"@sh test -e {asked} || {{ touch {asked}; llmc report blocked 'Which colour?'; exit 1; }}"
    colour = goals.commit(1, f"test -e {asked}.again || {{ touch {asked}.again; exit 0; }}")
    made = goals.plan([[goals.leaf(1, question, colour)]])
    fleet.llmc("config", "set", "overseer.goals.planner.command", goals.planner(fleet, made))
    goals.create(fleet, "The goal")
    fleet.up("--auto")
    web = Web(fleet)
    with visiting(web, browser, device) as visitor:
        page = visitor.page
        expect(page.locator("#attention")).to_contain_text("Which colour?", timeout=60_000)
        visitor.go("/goals")
        card = page.locator(".card.asks")
        card.get_by_label("Another answer").fill("blue")
        card.get_by_role("button", name="Send").click()
        expect(page.locator("#said")).to_contain_text("answered")
        expect(page.locator(".card.asks")).to_have_count(0)
        expect(page.locator("#goals")).to_contain_text("100 %", timeout=60_000)
        assert visitor.complaints == []
    assert web.stop() == ""
    wait_until(lambda: any("blue" in text for text in fleet.prompts_in_transcripts()), 10, fleet.story)


def test_the_last_change_is_undone(fleet: Fleet, visitor: Visitor) -> None:
    """Break: skip the confirmation; update the list only on reload; keep the button on an undone change."""
    fleet.llmc("start", "--worker", "adam", "--prompt", write_code())
    fleet.wait("adam", "needs_review")
    fleet.llmc("accept", "adam")
    commit = fleet.events("accepted")[-1]["commit"]
    asked: list[str] = []
    page = visitor.page
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    page.locator("#landed").get_by_role("button", name="Undo").click()
    expect(page.locator("#said")).to_contain_text(f"reverted {commit[:9]}")
    assert [text.partition("?")[0] for text in asked] == [f"Revert {commit[:9]} from adam"]
    expect(page.locator("#landed")).to_contain_text("undone")
    expect(page.locator("#landed").get_by_role("button")).to_have_count(0)
    assert fleet.log()[0].startswith("Revert")


def test_a_task_is_added_and_approved(fleet: Fleet, visitor: Visitor) -> None:
    """Break: update tasks only on reload, or lose what is typed in the form."""
    page = visitor.go("/tasks")
    page.get_by_label("New task").fill("Half a task")
    page.reload()
    expect(page.get_by_label("New task")).to_have_value("Half a task")
    page.get_by_label("New task").fill("Index the orders\nby date")
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#said")).to_contain_text("added task")
    expect(page.get_by_label("New task")).to_have_value("")
    expect(page.locator("#tasks")).to_contain_text("Index the orders")
    (task,) = fleet.llmc("tasks", "list", "--json").json["tasks"]
    path = next(fleet.dir.rglob(f"tasks/*/{task['id']}.json"))
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "metadata": {"llmc": {"hold": "proposed"}}}) + "\n"
    )
    visitor.go("/tasks")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#said")).to_contain_text("approved task")
    row = page.locator(f"#task-{task['id']}")
    expect(row).to_contain_text("ready")
    row.get_by_label("Priority").select_option("0")
    row.get_by_role("button", name="Set").click()
    expect(page.locator("#said")).to_contain_text("has priority 0")
    assert fleet.llmc("tasks", "list", "--json").json["tasks"][0]["priority"] == 0


def test_a_refused_order_says_why(fleet: Fleet, visitor: Visitor) -> None:
    """And the next order works. Break: swap the error in over the place where orders are shown."""
    page = visitor.go("/w/adam")
    page.get_by_role("button", name="Hold").click()
    expect(page.locator("#said")).to_contain_text("on hold")
    page.get_by_label("Message to adam").fill("Hello")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#said .bad")).to_contain_text("hold")
    page.get_by_role("button", name="Release").click()
    expect(page.locator("#said")).to_contain_text("released")


def test_a_late_answer_does_not_undo_the_outcome(fleet: Fleet, visitor: Visitor) -> None:
    """The stream reported the end before the click was answered. Break: draw whatever arrives last."""
    page = visitor.go("/w/adam")
    held: list[tuple[Route, APIResponse]] = []
    page.route("**/w/adam/hold", lambda route: held.append((route, route.fetch())))
    button = page.locator("#worker_head form button").last
    button.click()
    expect(page.locator("#said")).to_contain_text("on hold")
    route, answer = held[0]
    route.fulfill(response=answer)
    expect(button).to_be_enabled()
    expect(page.locator("#said")).to_contain_text("on hold")


@pytest.mark.parametrize("name", ["", " "])
def test_an_order_that_the_server_does_not_take_is_told(fleet: Fleet, visitor: Visitor, name: str) -> None:
    """Break: no `htmx:response:error`."""
    page = visitor.go("/board")
    page.get_by_text("Start a task").click()
    page.get_by_label("Name of a new worker").evaluate("(field) => field.removeAttribute('required')")
    page.get_by_label("Name of a new worker").fill(name)
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#said .bad")).to_contain_text("name is empty")


def test_a_text_stays_until_it_has_arrived(fleet: Fleet, visitor: Visitor) -> None:
    """A refused message survives a reload; a delivered one is gone. Break: drop it with the answer."""
    fleet.llmc("hold", "adam")
    page = visitor.go("/w/adam")
    field = page.get_by_label("Message to adam")
    field.fill("Typed for ten minutes")
    field.press("Control+Enter")
    expect(page.locator("#said .bad")).to_contain_text("on hold")
    expect(field).to_have_value("Typed for ten minutes")
    page.reload()
    expect(field).to_have_value("Typed for ten minutes")
    page.get_by_role("button", name="Release").click()
    expect(page.locator("#said")).to_contain_text("released")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#said")).to_contain_text("acknowledged")
    expect(field).to_have_value("")
    page.reload()
    expect(field).to_have_value("")


def test_a_started_task_leaves_its_form(fleet: Fleet, visitor: Visitor) -> None:
    """And a task that has not started stays in it. Break: leave out `data-keep` on a field."""
    page = visitor.go("/board")
    page.get_by_text("Start a task").click()
    field = page.get_by_label("Task for the next idle worker")
    field.fill("Half a ta")
    page.reload()
    page.get_by_text("Start a task").click()
    expect(field).to_have_value("Half a ta")
    field.fill(write_code())
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#said")).to_contain_text("acknowledged")
    expect(field).to_have_value("")


def test_the_last_order_covers_nothing(fleet: Fleet, visitor: Visitor) -> None:
    """A long outcome does not hide the end of the page, and can be dismissed until there is another one.

    Break: fix the line over the page; or show it again after each change.
    """
    fleet.llmc("hold", "adam")
    page = visitor.go("/w/adam")
    said, send = page.locator("#said"), page.get_by_role("button", name="Send")
    page.get_by_label("Message to adam").fill("A message that is longer than a line of a phone " * 4)
    send.click()
    expect(said.locator(".bad")).to_contain_text("on hold")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    for last in (send, page.locator("#job p").last):
        assert last.evaluate(
            "(one) => one.getBoundingClientRect().bottom <= document.getElementById('said').getBoundingClientRect().top"
        )
    said.get_by_role("button", name="Hide").click()
    expect(said).to_be_hidden()
    fleet.llmc("release", "adam")
    expect(page.get_by_role("button", name="Hold")).to_be_visible()
    expect(said).to_be_hidden()
    page.reload()
    expect(said).to_be_hidden()
    page.get_by_role("button", name="Hold").click()
    expect(said).to_contain_text("on hold")


def test_a_question_is_answered_on_the_workers_page(fleet: Fleet, visitor: Visitor) -> None:
    """Also where a message is refused because of it. Break: show the question only in the list."""
    fleet.llmc("start", "--worker", "baker", "--prompt", "Pick one\n@ask Which colour?\n@say Fine.")
    page = visitor.go("/w/baker")
    head = page.locator("#worker_head")
    expect(head).to_contain_text("Which colour?")
    head.get_by_label("Another answer").fill("dark green")
    head.get_by_role("button", name="Send").click()
    expect(page.locator("#said")).to_contain_text("acknowledged")
    expect(head).not_to_contain_text("Which colour?")


def test_a_stale_page_orders_what_its_button_says(fleet: Fleet, visitor: Visitor) -> None:
    """Hold never means release, whatever happened in the meantime. Break: use one order for both."""
    page = visitor.go("/w/adam")
    page.locator("#live").evaluate("(one) => one.remove()")  # it receives no more updates
    fleet.llmc("hold", "adam")
    page.get_by_role("button", name="Hold").click()
    wait_until(lambda: fleet.events("web_ordered"))
    visitor.go("/w/adam")
    expect(page.locator("#said")).to_contain_text("already on hold")
    assert fleet.status("adam")["held"]
