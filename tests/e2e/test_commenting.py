"""Comments on lines: drafts are saved, sent as one request, and found again in the next round."""

import pytest

from llmc.api import commenting
from llmc.api.commenting import DiffFile
from llmc.base.errors import Refused
from llmc.repo.project import Project, open_project
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=W -c user.email=w@example.com commit -q"
FILE = "def greet():\\n    return 1\\n\\n\\ndef other():\\n    return 2\\n"


@pytest.fixture
def project(fleet: Fleet) -> Project:
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    redo = f"@on-reject sed -i 's/return 1/return 11/' g.py && git add -A && {COMMIT} --amend --no-edit"
    fleet.llmc(
        "start",
        "--worker",
        "adam",
        "--prompt",
        f"Do it\n{redo}\n@sh printf '{FILE}' > g.py; git add -A; {COMMIT} -m Work",
    )
    fleet.wait("adam", "needs_review")
    return open_project(str(fleet.root))


def row(file: DiffFile, text: str) -> int:
    return next(n for n, one in enumerate(file.rows) if one.text == text)


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_two_comments_are_one_request_and_the_next_round_shows_what_changed(
    fleet: Fleet, project: Project
) -> None:
    """Break: send each comment separately; forget the drafts at a restart; compare with the old base."""
    (file,) = commenting.page(project, "adam").files
    commenting.add(project, "adam", file, row(file, "    return 1"), "Make it 11, please")
    commenting.add(project, "adam", file, row(file, "    return 2"), "Why 2?")
    again = commenting.page(open_project(str(fleet.root)), "adam")  # another process sees the drafts
    assert [one.comment.text for one in again.comments] == ["Make it 11, please", "Why 2?"]
    assert again.round == 1

    receipt = commenting.send(project, "adam")
    assert receipt.outcome == "acknowledged"
    mark = f"[llmc {receipt.prompt_id}]"
    text = str(wait_until(lambda: next((turn for turn in fleet.user_turns() if mark in turn), None)))
    assert "[c1] g.py:2\n> def greet():\n>     return 1\nMake it 11, please" in text
    assert "[c2] g.py:6" in text
    assert len([turn for turn in fleet.user_turns() if "g.py:" in turn]) == 1

    wait_until(lambda: fleet.record("adam")["commit_sha"] != again.review.head)
    fleet.wait("adam", "needs_review")
    fleet.commit("base.txt", "moved\n", "The base moves")
    page = commenting.page(project, "adam", since=1)
    assert (page.round, [one.number for one in page.rounds], page.drafts) == (2, [1], [])
    assert [file.path for file in page.files] == ["g.py"]
    changed = [one for one in page.files[0].rows if one.kind in ("added", "removed")]
    assert [one.text for one in changed] == ["    return 1", "    return 11"]
    first, second = page.comments
    assert (first.lines_changed, second.lines_changed) == (True, False)
    assert second.anchor is not None
    assert (second.anchor.line, second.anchor.fit) == (6, "exact")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_a_request_that_is_refused_leaves_drafts(fleet: Fleet, project: Project) -> None:
    """Break: mark the comments as sent before the receipt."""
    (file,) = commenting.page(project, "adam").files
    commenting.add(project, "adam", file, None, "About the file")
    fleet.llmc("hold", "adam")
    assert commenting.send(project, "adam", "General remark").outcome == "refused"
    page = commenting.page(project, "adam")
    assert ([one.text for one in page.drafts], page.round) == (["About the file"], 1)
    fleet.llmc("release", "adam")
    assert commenting.send(project, "adam").outcome == "acknowledged"
    with pytest.raises(Refused, match="no comments"):
        commenting.send(project, "adam")


@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
@pytest.mark.soak
def test_comments_belong_to_their_task(fleet: Fleet, project: Project) -> None:
    """Break: keep the comments of the last task on the next one."""
    (file,) = commenting.page(project, "adam").files
    commenting.add(project, "adam", file, 2, "Never sent")
    fleet.llmc("accept", "adam")
    fleet.llmc(
        "start", "--worker", "adam", "--prompt", f"Next\n@sh echo 2 > h.py; git add -A; {COMMIT} -m Next"
    )
    fleet.wait("adam", "needs_review")
    assert commenting.page(project, "adam").comments == ()
    commenting.add(project, "adam", None, None, "Of the new task")
    kept = (fleet.root / ".llmc/reviews/adam.json").read_text()
    assert "Never sent" in kept  # the user's text is not lost


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("fleet", ["scripted"], indirect=True)
def test_a_kill_while_comments_are_sent(fleet: Fleet, project: Project, when: str) -> None:
    """Break: send a delivered comment again, or mark an undelivered one as sent."""
    (file,) = commenting.page(project, "adam").files
    commenting.add(project, "adam", file, row(file, "    return 1"), "Make it 11, please")
    killed = fleet.llmc("reject", "adam", "--comments", code=None, LLMC_FAULT=f"review.send:{when}:kill")
    assert killed.code == -9
    if when == "after":
        wait_until(lambda: any("[c1]" in turn for turn in fleet.user_turns()))
    assert (fleet.llmc("review", "adam", "--comments", "--json").json["comments"][0]["round"] == 1) == (
        when == "after"
    )
    if when == "before":
        fleet.llmc("reject", "adam", "--comments")
    wait_until(lambda: any("[c1]" in turn for turn in fleet.user_turns()))
    wait_until(
        lambda: fleet.record("adam")["status"] == "needs_review" and fleet.record("adam")["commit_sha"]
    )
    assert len([turn for turn in fleet.user_turns() if "[c1]" in turn]) == 1
