"""Take over a worker in the browser: type into its own pane and give it back."""

from playwright.sync_api import expect

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until
from tests.support.web_page import Visitor


def window(fleet: Fleet) -> str:
    return fleet.tmux(
        "display-message", "-p", "-t", fleet.session("adam"), "#{window_width}x#{window_height}"
    )


def test_a_line_is_typed_and_the_worker_given_back(fleet: Fleet, visitor: Visitor) -> None:
    """The agent gets the line; after leaving, no terminal is attached and the window has its size again.

    Break: leave out `hand_back`, let the client's size count, or use a terminal without UTF-8.
    """
    before = window(fleet)
    page = visitor.go("/w/adam")
    page.get_by_role("link", name="Take over").click()
    expect(page.locator("#state")).to_have_text("connected")
    wait_until(lambda: fleet.status("adam")["attached"])
    # The prompt's own character; a terminal without UTF-8 gets "_".
    expect(page.locator(".xterm-rows")).to_contain_text("❯")
    page.keyboard.type("Say hello from the browser")
    page.keyboard.press("Enter")
    wait_until(lambda: "Say hello from the browser" in fleet.user_turns(), story=fleet.story)
    assert window(fleet) == before
    page.get_by_role("link", name="Leave").click()
    expect(page.locator("#worker_head")).to_contain_text("adam")
    wait_until(lambda: not fleet.status("adam")["attached"])
    assert window(fleet) == before
    (row,) = fleet.events("web_ordered")
    assert row["command"] == "llmc attach adam"


def test_a_closed_tab_gives_the_worker_back(fleet: Fleet, visitor: Visitor) -> None:
    """Break: wait only for the pane."""
    tab = visitor.open()
    tab.goto(f"{visitor.url}/w/adam/take")
    expect(tab.locator("#state")).to_have_text("connected")
    wait_until(lambda: fleet.status("adam")["attached"])
    tab.close()
    wait_until(lambda: not fleet.status("adam")["attached"])


def test_a_worker_that_cannot_be_taken_is_not_held(fleet: Fleet, visitor: Visitor) -> None:
    """The page says so, and why. Break: claim it before the terminal exists, or after it ended."""
    page = visitor.page
    held = page.get_by_text("adam is on hold.")
    page.goto(f"{visitor.url}/w/adam/take")
    expect(held).to_be_visible()
    fleet.tmux("kill-server")
    expect(page.locator("#state")).to_contain_text("Given back")
    expect(held).to_be_hidden()
    page.reload()
    expect(page.locator("#state")).to_contain_text("Not taken: adam's agent is not running")
    expect(held).to_be_hidden()


def test_the_view_is_fitted_and_the_pane_keeps_its_size(fleet: Fleet, visitor: Visitor) -> None:
    """Break: resize the pane, or cut off the view."""
    before = window(fleet)
    page = visitor.page
    page.goto(f"{visitor.url}/w/adam/take")
    expect(page.locator("#state")).to_have_text("connected")
    fit = page.get_by_role("button", name="Fit")
    expect(fit).to_have_attribute("aria-pressed", "false")
    fit.click()
    expect(fit).to_have_attribute("aria-pressed", "true")
    room = (
        "(one) => one.scrollWidth <= one.clientWidth && one.getBoundingClientRect().bottom <= innerHeight + 1"
    )
    wait_until(lambda: page.locator("#terminal").evaluate(room))
    page.keyboard.type("typed while fitted")
    expect(page.locator(".xterm-rows")).to_contain_text("typed while fitted")
    assert window(fleet) == before
    fit.click()
    expect(fit).to_have_attribute("aria-pressed", "false")
