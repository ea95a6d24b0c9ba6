"""What is true for every template."""

import itertools
import re
from pathlib import Path

import pytest

from llmc.api.views import Counts, Health
from llmc.web.html import HERE, render
from tests.support.web import Read

TEMPLATES = sorted((HERE / "templates").rglob("*.html"))


@pytest.mark.parametrize(
    ("daemon", "auto", "parked"),
    list(itertools.product([True, False], ["", "running", "stopped", "finished"], [None, 5.0, 90.0])),
)
def test_the_parts_of_a_line_stand_apart(daemon: bool, auto: str, parked: float | None) -> None:
    """Break: put a separator at the start of a line, after a line that ends with a tag."""
    health = Health(daemon, 1, "llmc up --auto --detach", auto, 1, parked, "usage limit")
    counts = Counts(need=0, working=1, idle=2, landed=0, offline=3)
    fleet = {"name": "root", "health": health, "counts": counts}
    text = Read(
        render(
            "parts/health.html",
            {"fleet": fleet, "trouble": "", "now": 50.0, "read_only": False, "with_root": str},
        )
    ).text
    assert not re.search(r"\S·|·\S", text), text
    said = " ".join(text.split())
    assert ("llmc up --auto --detach" in said) == (not daemon)
    assert ("parked until a retry succeeds (usage limit)" in said) == (parked == 5.0)
    assert "1 workers" not in said
    assert ("auto mode finished" in said) == (auto == "finished")


@pytest.mark.parametrize(
    ("daemon", "auto", "look"),
    [(False, "finished", "quiet"), (False, "stopped", "bad"), (True, "stopped", "quiet")],
)
def test_a_run_that_ended_as_requested_is_not_shown_as_trouble(daemon: bool, auto: str, look: str) -> None:
    """Break: show every fleet without a daemon as trouble."""
    fleet = {
        "name": "root",
        "health": Health(daemon, 1, "llmc up --detach", auto, 1, None, ""),
        "counts": Counts(0, 0, 0, 0),
    }
    about = {"fleet": fleet, "trouble": "", "now": 50.0, "read_only": False, "with_root": str}
    assert f'<div id="health" class="{look}">' in render("parts/health.html", about)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_typed_text_of_an_order_is_kept(path: Path) -> None:
    """Across a reload, and when the order is refused; a comment is a draft on the server.

    Break: a field without `data-keep`.
    """
    source = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", path.read_text(), flags=re.S)
    for form in re.findall(r"<form.*?</form>", source, re.S):
        fields = [one for tag, one in Read(form).tags if tag in ("input", "textarea")]
        typed = [one for one in fields if one.get("type", "text") == "text"]
        if "hx-post" in form:
            assert [one for one in typed if "data-keep" not in one] == []
