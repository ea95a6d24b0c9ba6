"""The web page of a fleet in real browsers: `llmc web` in its own process, and Debian's Chromium."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, expect

from tests.support.fleet import Fleet

CHROMIUM = "/usr/bin/chromium"
#: how long a page may take to show what happened
EXPECT_MS = 20_000
expect.set_options(timeout=EXPECT_MS)
#: no traffic of the browser's own; no sandbox as root
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: the devices that users view the page on
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


def chromium(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))


class Web:
    """The server of a fleet."""

    def __init__(self, fleet: Fleet, *options: str, port: int = 0) -> None:
        self.fleet, self.options = fleet, options
        #: works once
        self.link = self._start(port)
        self.url = self.link.partition("/login")[0]

    def _start(self, port: int) -> str:
        argv = [sys.executable, "-m", "llmc", "web", "--port", str(port), "--json", *self.options]
        self._process = subprocess.Popen(
            argv,
            cwd=self.fleet.source,
            env=self.fleet.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"llmc web did not start: {self._process.communicate()[1]}")
        return str(json.loads(line)["url"])

    def new_link(self) -> str:
        """A link for another browser."""
        return str(self.fleet.llmc("web", "--link", "--json").json["url"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> str:
        """Stop the server; returns the errors that it logged."""
        self._process.terminate()
        return self._process.communicate(timeout=20)[1]

    def start_again(self) -> None:
        """On the same port, where the browsers look for it."""
        self._start(int(self.url.rpartition(":")[2]))


class Visitor:
    """A user's browser, signed in; it notes every console message."""

    def __init__(self, web: Web, context: BrowserContext, link: str) -> None:
        self.web, self.context = web, context
        self.complaints: list[str] = []
        self.page = self.open()
        self.page.goto(link)
        self.page.get_by_role("button", name="Sign this browser in").click()
        self.page.wait_for_url(re.compile(rf"{web.url}/[\w-]{{43}}/$"))
        #: the address of the page for this browser
        self.url = self.page.url.rstrip("/")

    def open(self) -> Page:
        """Another tab."""
        page = self.context.new_page()
        page.set_default_timeout(EXPECT_MS)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: dialog.accept())
        return page

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def go(self, path: str) -> Page:
        """Open a page, and wait until it is live."""
        target = f"{self.url}{path}"
        with self.page.expect_response(lambda one: "/stream?" in one.url and one.frame.url == target):
            self.page.goto(target)
        return self.page

    @property
    def is_phone(self) -> bool:
        return bool(self.page.evaluate("matchMedia('(pointer: coarse)').matches"))

    def comment(self, row: str, text: str) -> None:
        """Write a comment on a row of the diff, as on this device, and close the form."""
        self.begin_comment(row)
        self.page.keyboard.type(text)
        self.page.locator("form.comment").get_by_role("button", name="Done").click()
        self.page.locator(".file .comment", has_text=text).wait_for()

    def begin_comment(self, row: str) -> None:
        """Open the form under a row; the keys go there."""
        line = self.page.locator(f"tr#{row}")
        if self.is_phone:
            line.locator("td.code").last.tap()
        else:
            line.hover()
            line.locator(".plus").last.click()
        expect(self.page.locator("form.comment textarea")).to_be_focused()


@contextlib.contextmanager
def visiting(web: Web, browser: Browser, device: dict[str, Any], **more: Any) -> Iterator[Visitor]:
    context = browser.new_context(**device, **more)
    try:
        yield Visitor(web, context, web.new_link())
    finally:
        context.close()
