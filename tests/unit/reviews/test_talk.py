"""The outcome of a comment: what git shows, and what the agent says."""

import itertools

import pytest
from msgspec.structs import replace

from llmc.base.errors import Refused
from llmc.reviews.rules import anchors, talk
from llmc.reviews.rules.diff_rows import files_of
from llmc.reviews.rules.talk import Placed, Round, Save, Talk

BEFORE = """diff --git a/g.py b/g.py
new file mode 100644
--- /dev/null
+++ b/g.py
@@ -0,0 +1,3 @@
+one
+two
+three
"""
AFTER = BEFORE.replace("+two\n", "+2\n")


def sent(*places: int | None) -> Talk:
    """A round with a comment on each of these rows of the file; None: on the change; -1: on the file."""
    (file,) = files_of(BEFORE)
    said = Talk()
    for row in places:
        anchor = None if row is None else anchors.of_file(file) if row < 0 else anchors.anchor_at(file, row)
        said, _ = talk.drafted(said, anchor, "Change it", 1.0)
    begun = Round(number=1, base="b", head="h", ref="r", at_unix=10.0, prompt_id="p")
    return talk.arrived(talk.sending(said, begun))


@pytest.mark.parametrize(
    ("place", "diff", "said", "standing", "doubtful"),
    [
        (3, AFTER, "Addressed: c1", "marked as addressed by the agent · lines changed", False),
        (2, AFTER, "Addressed: c1", "marked as addressed by the agent · lines unchanged", True),
        (3, AFTER, "", "lines changed", False),
        (2, AFTER, "", "open", False),
        (-1, AFTER, "", "lines changed", False),
        (-1, BEFORE, "Addressed: c1", "marked as addressed by the agent · lines unchanged", True),
        (None, AFTER, "Addressed: c1", "marked as addressed by the agent", False),
        (None, AFTER, "", "open", False),
        (3, "", "", "lines changed", False),
    ],
)
def test_what_git_shows_and_what_the_agent_says(
    place: int | None, diff: str, said: str, standing: str, doubtful: bool
) -> None:
    """Break: trust the agent; or never count a comment on a file as changed."""
    (one,) = talk.placed_in(sent(place), files_of(diff), [(11.0, said)])
    assert (one.standing, one.is_doubtful) == (standing, doubtful)


def test_only_what_was_said_after_the_request_counts() -> None:
    """Break: let an earlier claim, about an earlier text, close the question."""
    (one,) = talk.placed_in(sent(2), files_of(AFTER), [(9.0, "Addressed: c1")])
    assert not one.claimed


def test_a_draft_and_a_closed_comment_say_so() -> None:
    said, _ = talk.drafted(sent(2), None, "More", 2.0)
    said = talk.closed(said, "c1")
    shown = talk.placed_in(said, files_of(AFTER), [(11.0, "Addressed: c1, c2")])
    assert [(one.standing, one.is_doubtful) for one in shown] == [("closed", False), ("draft", False)]
    assert Placed(said.comments[1], None).standing == "draft"


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Done.\n\nAddressed: c1, c12", {"c1", "c12"}),
        ("**Addressed:** [c1] and C2.", {"c1", "c2"}),
        ("- addressed: c3", {"c3"}),
        ("I have not addressed: c1 is wrong", set()),
        ("[c1] greeter.py:2", set()),
        ("Addressed: nothing, see docs/c1x", set()),
    ],
)
def test_a_claim_is_a_line_of_its_own(text: str, ids: set[str]) -> None:
    """Break: accept every id that the agent mentions: `c1 makes no sense` would count as handled."""
    assert talk.claimed_in([text]) == ids


def test_a_request_asks_for_the_claim() -> None:
    """Break: request other ids."""
    text = talk.request_text(sent(2, 3).comments)
    assert text.endswith("names the comments you addressed, for example:\nAddressed: c1, c2")
    assert "Addressed" not in talk.request_text(sent(None).comments)


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_saves_of_one_form_are_one_draft_whatever_order_they_arrive_in(order: tuple[int, ...]) -> None:
    """Break: make a draft for each; or let the one that arrives last win."""
    said, known = Talk(), ""
    for step in order:
        said, known = talk.drafted(said, None, f"text {step}", 1.0, Save("a", step))
    assert [one.text for one in said.comments] == ["text 3"]
    said = talk.edited(said, known, "text 4", 1.0, rev=1, save=Save("a", 4))
    assert said.comment(known).text == "text 4", "the form knows its own changes"
    said = talk.edited(said, known, "of another form", 1.0, save=Save("b", 1))
    with pytest.raises(Refused, match="changed elsewhere"):
        talk.edited(said, known, "text 5", 1.0, rev=1, save=Save("a", 5))
    said, another = talk.drafted(said, None, "text 6", 1.0, Save("a", 6))
    assert another != known


def test_a_viewed_file_is_viewed_as_it_is() -> None:
    """Break: compare changes without their place: the mark would stay on the same lines elsewhere."""
    seen = "diff --git a/m b/m\nindex 1..2 100644\n--- a/m\n+++ b/m\n@@ -1,2 +1,3 @@\n a\n+x\n b\n"
    (file,) = files_of(seen)
    said = talk.viewed(Talk(), file, is_viewed=True)
    assert talk.is_viewed(said, file)
    (moved,) = files_of(seen.replace("-1,2 +1,3", "-9,2 +9,3").replace("1..2", "1..3"))
    assert not talk.is_viewed(said, moved)
    assert not talk.is_viewed(talk.viewed(said, file, is_viewed=False), file)


def test_a_round_of_an_older_llmc() -> None:
    """Break: take a round of an older file for sent although its comments are not, or for open although they are."""
    old = Round(number=1, base="b", head="h", ref="r", at_unix=1.0, prompt_id="p")
    assert (old.is_open, replace(old, pending=("c1",)).is_open) == (False, True)


def test_one_request_at_a_time() -> None:
    """Break: drop a round that may still arrive."""
    said, _ = talk.drafted(Talk(), None, "Change it", 1.0)
    begun = Round(number=1, base="b", head="h", ref="r", at_unix=10.0, prompt_id="p")
    with pytest.raises(Refused, match="may still arrive"):
        talk.sending(talk.sending(said, begun), begun)
