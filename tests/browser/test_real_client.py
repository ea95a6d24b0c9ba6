"""Once with the real Claude Code client, in the browser: a task, a review round, a takeover and a landing."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import write_code
from tests.support.fleet import Fleet
from tests.support.loopback_api import LoopbackApi
from tests.support.npm_client import Unavailable
from tests.support.waiting import wait_until
from tests.support.web_page import DESKTOP, Web, visiting

pytestmark = pytest.mark.real_client


@pytest.fixture
def real(api: LoopbackApi) -> Iterator[Fleet]:
    try:
        made = Fleet("claude", api)
    except Unavailable as error:
        pytest.skip(str(error))
    made.set_up("adam")
    made.up("--no-patrol")
    yield made
    made.close()


def test_the_real_client_from_a_task_to_a_landed_commit(real: Fleet, browser: Browser) -> None:
    """Break: expect a screen that only the scripted agent draws, or a prompt that the client changes."""
    web = Web(real)
    with visiting(web, browser, DESKTOP) as visitor:
        page = visitor.go("/board")
        page.get_by_text("Start a task").click()
        page.get_by_label("Task for the next idle worker").fill(write_code())
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator("#said")).to_contain_text("acknowledged", timeout=60_000)
        expect(page.locator("#w-adam")).to_contain_text("review", timeout=60_000)
        visitor.go("/w/adam")
        expect(page.locator("pre.screen")).to_contain_text("❯")
        visitor.go("/w/adam/review")
        visitor.comment("f0r2", "Please change this")
        page.get_by_role("link", name="Send review (1)").click()
        prompt = page.locator("#request pre").inner_text()
        page.get_by_role("button", name="Send 1 comment").click()
        expect(page.locator("#said")).to_contain_text("acknowledged", timeout=60_000)
        sent = wait_until(
            lambda: [one for one in real.prompts_in_transcripts() if "Please change this" in one]
        )
        assert [one.partition("\n")[2].split() for one in sent] == [prompt.split()]
        page.get_by_role("link", name="Show it").click(timeout=60_000)
        expect(page.locator(".diff tr.added", has_text="# changed")).to_have_count(1)
        visitor.page.goto(f"{visitor.url}/w/adam/take")
        expect(page.locator("#state")).to_have_text("connected")
        page.keyboard.type("typed by hand")
        expect(page.locator(".xterm-rows")).to_contain_text("typed by hand")
        for _ in range(len("typed by hand")):
            page.keyboard.press("Backspace")
        page.get_by_role("link", name="Leave").click()
        wait_until(lambda: not real.status("adam")["attached"])
        visitor.go("/w/adam/review")
        page.get_by_role("button", name="Accept").click()
        expect(page.locator("#said")).to_contain_text("on main: Greet people", timeout=60_000)
        wait_until(lambda: real.log()[0] == "Greet people", 30, real.story)
        assert visitor.complaints == []
    assert web.stop() == ""
