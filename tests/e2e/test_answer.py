"""`llmc answer`: answer a question without attaching, with proof; refuse anything else and type nothing."""

import pytest

from tests.support.fleet import NEW_CLIENT, REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until


def asked(fleet: Fleet) -> dict[str, str]:
    (item,) = [one for one in fleet.llmc("status", "--json").json["attention"] if one["kind"] == "question"]
    return dict(item)


def answers(fleet: Fleet) -> dict[str, str]:
    """What the client recorded, by question."""
    results = [row.get("toolUseResult") for row in fleet.transcript_rows()]
    found = [
        one["answers"] for one in results if isinstance(one, dict) and isinstance(one.get("answers"), dict)
    ]
    return {question: answer for one in found for question, answer in one.items()}


@pytest.mark.req("7-044")
@pytest.mark.parametrize("fleet", NEW_CLIENT, indirect=True)
def test_a_question_is_answered_by_number_and_in_words(fleet: Fleet) -> None:
    """Break: press Enter, or a number, without checking the line; trust a closed dialog; type into another question's."""
    fleet.set_up("adam")
    fleet.up()
    assert "has no open question" in fleet.llmc("answer", "adam", "1", code=3).err
    fleet.llmc("start", "--worker", "adam", "--prompt", "@ask Which colour?\n@ask Which size?\n@say thanks")
    fleet.wait("adam", "needs_input")
    item = asked(fleet)
    assert (item["severity"], item["text"], item["next"]) == (
        *("blocked", "Which colour? [1] Yes [2] No", "llmc answer adam"),
    )
    assert "Which colour? [1] Yes [2] No\n        next: llmc answer adam" in fleet.llmc("status").out
    shown = fleet.llmc("answer", "adam", code=2)
    assert shown.out == "Which colour?\n  1. Yes\n  2. No\n"
    assert "no option 3" in fleet.llmc("answer", "adam", "3", code=2).err
    assert answers(fleet) == {}
    if fleet.agent != "scripted":  # it has no cursor in an empty line
        wait_until(lambda: "Enter to select" in fleet.screen("adam"))
        fleet.tmux("send-keys", "-t", fleet.session("adam"), "3")
        wait_until(lambda: fleet.free_line("adam") == "❯ 3. Type something.")
    done = fleet.llmc("answer", "adam", "2", "--json").json
    assert (done["outcome"], answers(fleet)) == ("acknowledged", {"Which colour?": "No"})
    wait_until(
        lambda: fleet.status("adam")["status"] == "needs_input" and "Which size?" in asked(fleet)["text"]
    )
    assert fleet.llmc("answer", "adam", "as big as it gets").out.startswith("adam: acknowledged")
    assert answers(fleet)["Which size?"] == "as big as it gets"
    wait_until(lambda: fleet.status("adam")["reason"] == "stopped_clean")
    assert [row["outcome"] for row in fleet.events("question_answered")] == ["acknowledged"] * 2
    assert sum("[llmc " in turn for turn in fleet.user_turns()) == 1, "no prompt was sent for it"


def test_what_a_worker_reports_as_blocked_is_answered_by_a_message(scripted: Fleet) -> None:
    """Break: type the answer to `report blocked` into a dialog; or refuse it."""
    scripted.set_up("adam")
    scripted.up()
    scripted.llmc("start", "--worker", "adam", "--prompt", "@sh llmc report blocked 'Which database?'")
    scripted.wait("adam", "needs_input")
    item = asked(scripted)
    assert (item["text"], item["next"]) == ("Which database?", "llmc answer adam")
    assert scripted.llmc("answer", "adam", code=2).out == "Which database?\n"
    assert "acknowledged" in scripted.llmc("answer", "adam", "the second one").out
    wait_until(lambda: "the second one" in scripted.user_turns()[-1])  # the hook comes before the transcript


@pytest.mark.req("7-044")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_nothing_is_typed_into_a_dialog_that_is_not_the_question(fleet: Fleet) -> None:
    """The user holds it, another dialog is open, or the screen differs. Break: trust the hook alone."""
    fleet.set_up("adam")
    fleet.up()
    fleet.llmc("start", "--worker", "adam", "--prompt", "@ask Which colour?\n@say thanks")
    fleet.wait("adam", "needs_input")
    inbox = fleet.llmc("inbox")
    assert (inbox.out.splitlines()[1:], inbox.err) == (
        ["    Which colour?", "    1. Yes", "    2. No", '    llmc answer adam "..."'],
        "",
    )
    (row,) = fleet.llmc("inbox", "--json").json["questions"]
    assert (row["id"], row["worker"], row["next"]) == ("adam", "adam", "llmc answer adam")
    assert (row["question"], row["options"], row["goalId"]) == ("Which colour?", ["Yes", "No"], "")
    fleet.llmc("hold", "adam")
    assert asked(fleet)["next"] == "llmc attach adam"
    assert "    Which colour? [1] Yes [2] No\n    llmc attach adam\n" in fleet.llmc("inbox").out
    assert "is on hold" in fleet.llmc("answer", "adam", "1", code=3).err
    fleet.llmc("release", "adam")
    # The user's draft is in the line for another answer: it is theirs, and must not become the answer.
    draft = fleet.leave_draft("adam", "my own")
    assert draft.startswith("❯ 3. my own")
    for words in ("1", "neither of them"):
        assert "the agent did not confirm the answer" in fleet.llmc("answer", "adam", words, code=1).err
        assert answers(fleet) == {}
        assert fleet.free_line("adam") == draft


@pytest.mark.req("7-044")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_a_draft_with_the_words_of_the_hint_is_a_draft(fleet: Fleet) -> None:
    """Break: take the line for empty when it begins like the client's hint."""
    fleet.set_up("adam")
    fleet.up()
    fleet.llmc("start", "--worker", "adam", "--prompt", "@ask Which colour?\n@say thanks")
    fleet.wait("adam", "needs_input")
    draft = fleet.leave_draft("adam", "Type something else")
    for words in ("1", "neither of them"):
        assert "the agent did not confirm the answer" in fleet.llmc("answer", "adam", words, code=1).err
        assert answers(fleet) == {}
        assert fleet.free_line("adam") == draft
