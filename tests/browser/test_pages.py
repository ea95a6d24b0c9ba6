"""Every page: accessible, usable by keyboard, safe with hostile names, and with the digest's numbers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import write_code
from tests.support.fleet import Fleet
from tests.support.npm_client import Unavailable, find_axe
from tests.support.plans import COMMIT
from tests.support.web_page import DESKTOP, PHONE, Visitor, Web, visiting

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"' onclick=alert(3) {{7*7}}"
PAGES = (
    "/",
    "/board",
    "/tasks",
    "/goals",
    "/night?since=1h",
    "/events",
    "/w/adam",
    "/w/adam?tab=talk",
    "/w/adam?tab=task",
    "/w/adam?tab=log",
    "/w/adam/review",
    "/w/adam/review?view=split",
    "/jobs/none",
)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Fleet]:
    """A fleet in the middle of its work; every name and text is an attack."""
    fleet = Fleet("scripted")
    fleet.set_up("adam", "baker", "carol", "dora")
    fleet.up("--no-patrol")
    land = f"@sh echo 1 > landed; git add -A; {COMMIT} 'Landed {HOSTILE.replace(chr(39), '')}'"
    fleet.llmc("start", "--worker", "dora", "--prompt", f"{HOSTILE}\n{land}")
    fleet.wait("dora", "needs_review")
    fleet.llmc("accept", "dora")
    path = "<script>alert(4)</script>&amp;.py".replace("/", "")
    write = f"""@sh printf '%s\\n' "<script>alert(5)</script>" "</table><b>" > '{path}'; git add -A; {COMMIT} 'Change'"""
    fleet.llmc("start", "--worker", "adam", "--prompt", f"{HOSTILE}\n@say {HOSTILE}\n{write}")
    fleet.llmc("start", "--worker", "baker", "--prompt", f"{HOSTILE}\n@ask {HOSTILE}")
    fleet.llmc("start", "--worker", "carol", "--prompt", f"{HOSTILE}\n@say {HOSTILE}\n@hang")
    fleet.wait("adam", "needs_review")
    fleet.wait("baker", "needs_input")
    fleet.llmc("tasks", "add", HOSTILE)
    fleet.llmc("tasks", "add", "After it", "--after", "1")
    fleet.llmc("tasks", "add", "W" * 60, "--after", "1")
    plan = fleet.dir / "plan.md"
    plan.write_text("# Goal\n\n## P1: Read\n### T1.1: Parser\n- [ ] Read rows\n  accept: two rows\n")
    fleet.llmc("goal", "create", "--title", HOSTILE, "--criterion", "it works", "--from", str(plan))
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def hostile_web(hostile: Fleet) -> Iterator[Web]:
    made = Web(hostile)
    yield made
    assert made.stop() == ""


def each_page(visitor: Visitor) -> Iterator[tuple[str, Page]]:
    for path in PAGES:
        if path.startswith("/jobs/"):
            visitor.page.goto(f"{visitor.url}{path}")
        else:
            visitor.go(path)
        yield path, visitor.page


def test_hostile_text_is_text(hostile_web: Web, browser: Browser, device: dict[str, Any]) -> None:
    """Nothing runs, nothing breaks out of its element, the policy is not violated, and nothing scrolls sideways.

    Break: use `| safe` on any text, an inline style, or a table that may grow.
    """
    with visiting(hostile_web, browser, device) as visitor:
        shown = 0
        visitor.page.on("dialog", lambda dialog: visitor.complaints.append(f"dialog: {dialog.message}"))
        for path, page in each_page(visitor):
            assert page.locator("img, b:text-is('Landed')").count() == 0, path
            assert page.locator("script:not([src])").count() == 0, path
            shown += "<script>alert(" in page.locator("body").inner_text()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert shown >= 8
        assert [text for text in visitor.complaints if "404" not in text] == []  # a job that does not exist


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    hostile_web: Web, browser: Browser, device: dict[str, Any], scheme: Any
) -> None:
    """Break: use a muted color that is too pale, a field without a label, or an element without a name."""
    try:
        script = find_axe().read_text()
    except Unavailable as error:
        pytest.skip(f"no accessibility check: {error}")
    found: dict[str, list[str]] = {}
    with visiting(hostile_web, browser, device, color_scheme=scheme) as visitor:
        for path, page in each_page(visitor):
            if path.endswith("/review"):
                visitor.begin_comment("f0r2")
            page.evaluate(script)
            result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            serious = [one for one in result["violations"] if one["impact"] in ("serious", "critical")]
            if serious:
                found[path] = [
                    f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
                    for one in serious
                    for node in one["nodes"][:3]
                ]
        for more in (f"{hostile_web.url}/login?out=yes", f"{visitor.url}/w/carol/take"):
            visitor.page.goto(more)
            if more.endswith("/take"):
                expect(visitor.page.locator("#state")).to_have_text("connected")
            visitor.page.evaluate(script)
            result = visitor.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            serious = [one for one in result["violations"] if one["impact"] in ("serious", "critical")]
            assert [(one["id"], one["nodes"][0]["html"][:200]) for one in serious] == [], more
    assert found == {}


def test_a_task_stays_in_its_box(hostile_web: Web, browser: Browser, device: dict[str, Any]) -> None:
    """No matter how wide its letters are. Break: cut the text by its number of letters."""
    left = """(all) => all.flatMap((box) => [...box.querySelectorAll("text, p")].filter((one) =>
        one.getBoundingClientRect().right > box.querySelector("rect").getBoundingClientRect().right
        || getComputedStyle(one).overflow !== "hidden").map((one) => one.textContent))"""
    with visiting(hostile_web, browser, device) as visitor:
        boxes = visitor.go("/tasks").locator(".picture .box")
        expect(boxes).to_have_count(3)
        assert boxes.evaluate_all(left) == []


def test_a_thumb_hits_what_it_aims_at(hostile_web: Web, browser: Browser) -> None:
    """Buttons, fields and navigation links are 44 px high. Break: use a smaller padding."""
    with visiting(hostile_web, browser, PHONE) as visitor:
        for path, page in each_page(visitor):
            heights = page.locator(
                "button:visible:not(.plus), .button:visible, nav a:visible, .tabs a, .views a, summary, textarea, "
                "input:not([type=hidden]):not([type=checkbox]):visible, label.check:visible"
            ).evaluate_all(
                "(all) => all.map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect().height])"
            )
            assert [one for one in heights if one[1] < 43.5] == [], path


def test_a_review_is_sent_by_keyboard_alone(fleet: Fleet, web: Web, browser: Browser) -> None:
    """From the list to a sent review, without a pointer; the letter shortcuts can be switched off.

    Break: show a button only under the pointer, or lose the focus.
    """
    fleet.llmc("start", "--worker", "adam", "--prompt", write_code())
    fleet.wait("adam", "needs_review")
    with visiting(web, browser, DESKTOP) as visitor:
        page = visitor.page
        expect(page.get_by_role("article", name="adam")).to_be_visible()
        page.keyboard.press("Space")
        expect(page.get_by_role("article", name="adam").get_by_role("link", name="adam")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Review")).to_be_focused()
        with page.expect_navigation():
            page.keyboard.press("Enter")
        plus = page.get_by_role("button", name="Comment on line 2 of greeter.py")
        for _ in range(60):
            page.keyboard.press("Tab")
            if plus.evaluate("(one) => one === document.activeElement"):
                break
        expect(plus).to_be_focused()
        expect(plus).to_have_css("opacity", "1")
        page.keyboard.press("Enter")
        expect(page.locator("form.comment textarea")).to_be_focused()
        page.keyboard.type("better, please")  # b and t do not go to another page
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator(".file .comment").get_by_role("button", name="Edit")).to_be_focused()
        for send in (
            page.get_by_role("link", name="Send review (1)"),
            page.get_by_role("button", name="Send 1 comment"),
        ):
            send.focus()
            page.keyboard.press("Enter")
        expect(page.locator("#said")).to_contain_text("acknowledged")
        page.keyboard.press("Escape")
        page.locator("#main").focus()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.get_by_role("checkbox", name="single-letter keys").uncheck()
        page.keyboard.press("Escape")
        page.keyboard.press("t")
        expect(page).to_have_url(re.compile("/review"))
        page.keyboard.press("?")
        page.get_by_role("checkbox", name="single-letter keys").check()
        page.keyboard.press("Escape")
        page.locator("#main").focus()
        page.keyboard.press("t")
        expect(page).to_have_url(f"{visitor.url}/tasks")
        assert visitor.complaints == []


def test_the_night_has_the_digests_numbers(hostile: Fleet, hostile_web: Web, browser: Browser) -> None:
    """Titles, tables and lanes add up to `llmc digest --json`. Break: count something twice in a chart."""
    with visiting(hostile_web, browser, DESKTOP) as visitor:
        page = visitor.go("/night?since=1h")
        digest = hostile.llmc("digest", "--since", "1h", "--json").json
        landed = [int(text) for text in page.locator("figure.landed td").all_text_contents()]
        assert sum(landed) == len(digest["accepted"]) == 1
        expect(page.locator("figure.landed figcaption")).to_contain_text(f"Landed: {len(digest['accepted'])}")
        expect(page.get_by_role("heading", name="Landed 1")).to_be_visible()
        cost = [float(text.lstrip("$")) for text in page.locator("figure.cost td").all_text_contents()]
        total = digest["total_spend"]["cost"]
        assert sum(cost) == pytest.approx(total, abs=0.005 * len(cost))
        expect(page.locator("figure.cost figcaption")).to_have_text(f"Cost: ${total:.2f}")
        outcomes = page.locator("figure.outcomes li").all_text_contents()
        ends = {end: row for end, row in digest["spend"].items() if row["attempts"] or row["spend"]["cost"]}
        assert len(outcomes) == len(ends)
        for text, (end, row) in zip(outcomes, ends.items(), strict=True):
            assert f"{end} ({row['attempts']})" in text
            assert f"${row['spend']['cost'] or 0:.2f}" in text
        lanes = page.locator("figure .lanes li svg[role=img]").count()
        assert lanes == 4
        assert visitor.complaints == []


def test_a_read_only_page_has_no_forms(hostile: Fleet, hostile_web: Web, browser: Browser) -> None:
    """Break: draw a form without checking for read-only."""
    assert hostile_web.stop() == ""  # a root has one server
    web = Web(hostile, "--read-only")
    try:
        with visiting(web, browser, DESKTOP) as visitor:
            for path, page in each_page(visitor):
                forms = page.locator(
                    "form:not([method=get]):not([method=dialog]), [hx-post], [hx-delete], .plus"
                )
                assert forms.count() == 0, path
    finally:
        assert web.stop() == ""
        hostile_web.start_again()


def test_the_sheet_is_the_pages_only_style() -> None:
    """The policy forbids inline styles and scripts, and no template has one. Break: use `style=` in one."""
    templates = Path(__file__).parents[2] / "src/llmc/web/templates"
    for path in templates.rglob("*.html"):
        assert not re.search(r"\sstyle=|hx-on|\bjs:|\son[a-z]+=", path.read_text()), path
