"""The page stays correct while the daemon, the server or the connection goes down and comes back."""

import os
import re
import signal
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from playwright.sync_api import Browser, Route, expect

from tests.browser.conftest import write_code
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until
from tests.support.web_page import DESKTOP, Visitor, Web, visiting


def test_a_killed_daemon_is_told_and_a_new_one(fleet: Fleet, visitor: Visitor) -> None:
    """Break: leave the daemon out of the health check."""
    page = visitor.go("/board")
    expect(page.locator("#health")).to_contain_text("daemon running")
    fleet.kill_daemon()
    expect(page.locator("#health")).to_contain_text("daemon not running")
    fleet.up("--no-patrol")
    expect(page.locator("#health")).to_contain_text("daemon running")
    fleet.llmc("start", "--worker", "adam", "--prompt", write_code())
    expect(page.locator("#w-adam")).to_contain_text("review")


def test_a_lost_connection_is_told_and_caught_up(fleet: Fleet, visitor: Visitor) -> None:
    """Ages stop while the connection is down; what happened in the meantime shows up afterwards.

    Break: do not send the whole page at each connect, or hide the loss.
    """
    page = visitor.go("/")
    field = page.locator("#health p.lost")
    expect(field).to_be_hidden()
    visitor.web.stop()
    expect(field).to_be_visible()
    expect(field).to_contain_text("Connection lost")
    fleet.llmc("start", "--worker", "adam", "--prompt", write_code())
    fleet.wait("adam", "needs_review")
    expect(page.locator("#attention")).to_contain_text("Nothing needs you")
    visitor.web.start_again()
    expect(field).to_be_hidden()
    expect(page.get_by_role("article", name="adam")).to_be_visible()
    visitor.complaints = [text for text in visitor.complaints if "ERR_" not in text and "sse" not in text]


def test_a_comment_written_without_a_connection_is_saved_later(
    fleet: Fleet, web: Web, visitor: Visitor
) -> None:
    """Break: do not save when the connection is back."""
    fleet.llmc("start", "--worker", "adam", "--prompt", write_code())
    fleet.wait("adam", "needs_review")
    page = visitor.go("/w/adam/review")
    visitor.begin_comment("f0r3")
    web.stop()
    page.keyboard.type("Typed in a tunnel")
    expect(page.locator("form.comment [data-note]")).to_contain_text("not saved")
    web.start_again()
    expect(page.locator("form.comment [data-note]")).to_have_text("saved as a draft")
    visitor.complaints = [text for text in visitor.complaints if "ERR_" not in text and "sse" not in text]


def test_a_browser_that_was_signed_out_is_told(fleet: Fleet, visitor: Visitor) -> None:
    """Immediately, in every tab, while nothing happens; signing in leads back to the page.

    Break: keep `trying` forever; or end the stream only with its next message.
    """
    page, other, taken = visitor.go("/board"), visitor.open(), visitor.open()
    other.goto(f"{visitor.url}/events")
    taken.goto(f"{visitor.url}/w/adam/take")
    expect(taken.locator("#held")).to_be_visible()
    fleet.llmc("web", "--sign-out")
    for tab in (page, other):
        expect(tab.locator("#health p.lost")).to_contain_text("signed out", timeout=5_000)
    expect(taken.locator("#held")).to_be_hidden(timeout=5_000)
    wait_until(lambda: not fleet.status("adam")["attached"])
    page.reload()
    expect(page).to_have_url(f"{visitor.web.url}/login?next=/board&out=yes")
    page.get_by_label("Or paste the code").fill(visitor.web.new_link().partition("link=")[2])
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(re.compile(rf"{visitor.web.url}/[\w-]{{43}}/board$"))
    visitor.complaints = [
        text for text in visitor.complaints if not any(word in text for word in ("ERR_", "sse", "401"))
    ]


def test_a_page_on_a_slow_line_is_live(fleet: Fleet, visitor: Visitor) -> None:
    """No matter how late its scripts arrive. Break: put `defer` on the scripts of the page."""
    waiting: list[Route] = []
    page = visitor.open()
    page.route("**/hx-sse.min.js", lambda route: waiting.append(route))
    page.goto(f"{visitor.url}/board", wait_until="commit")
    expect(page.locator("#w-adam")).to_be_visible()
    wait_until(lambda: page.evaluate("typeof htmx !== 'undefined'") and waiting)
    page.evaluate("new Promise((done) => setTimeout(done))")  # where htmx would start without its extension
    for route in waiting:
        route.continue_()
    fleet.llmc("start", "--worker", "adam", "--prompt", write_code())
    expect(page.locator("#w-adam")).to_contain_text("review")


def test_a_line_that_is_cut_on_its_way_is_told(fleet: Fleet, web: Web, browser: Browser) -> None:
    """It looks open, but nothing arrives. Break: trust a connection until it closes."""
    with visiting(web, browser, DESKTOP) as visitor:
        visitor.page.clock.install()
        page = visitor.go("/board")
        lost = page.locator("#health p.lost")
        page.clock.fast_forward(30_000)
        expect(lost).to_be_hidden()
        os.kill(web.pid, signal.SIGSTOP)
        try:
            page.clock.fast_forward(60_000)
            expect(lost).to_contain_text("Connection lost")
        finally:
            os.kill(web.pid, signal.SIGCONT)
        expect(lost).to_be_hidden()
        fleet.llmc("hold", "adam")
        expect(page.locator("#w-adam")).to_contain_text("held")
        visitor.context.set_offline(True)
        expect(lost).to_contain_text("Connection lost")
        visitor.context.set_offline(False)
        expect(lost).to_be_hidden()


class Thief(BaseHTTPRequestHandler):
    """Another server on this machine: it wants our cookies, and sets its own with our names."""

    taken: list[str] = []

    def do_GET(self) -> None:
        self.taken.append(self.headers.get("cookie", ""))
        self.send_response(200)
        for port in range(8765, 8770):
            self.send_header("Set-Cookie", f"llmc-{port}=theirs; Path=/")
        self.send_header("Set-Cookie", "theirs=1; Path=/")
        self.end_headers()
        self.wfile.write(b"<img src='/board'><img src='/login'>")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_another_server_of_this_machine_gets_no_sign_in(web: Web, browser: Browser) -> None:
    """Nor can it end one; the short address leads to the page. Break: set the cookie for `/`; no login.js."""
    server = HTTPServer(("127.0.0.1", 0), Thief)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        with visiting(web, browser, DESKTOP) as visitor:
            page, port = visitor.page, web.url.rpartition(":")[2]
            for path in ("/", "/board", "/w/adam"):
                page.goto(f"http://127.0.0.1:{server.server_port}{path}")
            page.evaluate(f"document.cookie = 'llmc-{port}=theirs; path=/'")
            assert any("theirs=1" in one for one in Thief.taken)  # cookies are sent there
            mine = [
                one["value"] for one in visitor.context.cookies(f"{visitor.url}/") if len(one["value"]) == 43
            ]
            assert len(mine) == 1
            assert not [one for one in Thief.taken if mine[0] in one]
            page.goto(f"{web.url}/board")
            expect(page).to_have_url(f"{visitor.url}/board")
            expect(page.locator("#w-adam")).to_be_visible()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
