"""A browser for the tests, and a fleet with its web page. `make test-web` runs them."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.fleet import Fleet
from tests.support.plans import COMMIT
from tests.support.web_page import DESKTOP, PHONE, Visitor, Web, chromium, visiting

#: two lines that the user comments on, and a long one
WORK = 'def greet():\\n    return "Hello"\\n\\n\\ndef main():\\n    print(greet())\\n    print("one line that is longer than a phone is wide, and wraps")\\n'


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = chromium(playwright)
        yield made
        made.close()


@pytest.fixture(params=["desktop", "phone"])
def device(request: pytest.FixtureRequest) -> dict[str, Any]:
    return DESKTOP if request.param == "desktop" else PHONE


@pytest.fixture
def fleet(scripted: Fleet) -> Fleet:
    """Two workers and a daemon."""
    scripted.set_up("adam", "baker")
    scripted.up("--no-patrol")
    return scripted


@pytest.fixture
def web(fleet: Fleet) -> Iterator[Web]:
    """Its page; an error logged by the server fails the test."""
    made = Web(fleet)
    yield made
    assert made.stop() == ""


@pytest.fixture
def visitor(web: Web, browser: Browser, device: dict[str, Any]) -> Iterator[Visitor]:
    """A user on the page; any console output fails the test."""
    with visiting(web, browser, device) as made:
        yield made
        assert made.complaints == []


def write_code(subject: str = "Greet people", path: str = "greeter.py") -> str:
    """A task that ends in review, and changes its work at each request."""
    amend = f"git add -A && {COMMIT} '{subject}' --amend"
    return (
        f"{subject}\n@on-reject echo '# changed' >> {path} && {amend}\n"
        f"@sh printf '{WORK}' > {path}; git add -A; {COMMIT} '{subject}'"
    )
