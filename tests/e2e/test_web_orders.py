"""Orders from a browser to real agents: a task, a review in two rounds, a landing, and the terminal."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect

from llmc.api import commenting
from llmc.repo.project import open_project
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until
from tests.support.web import Place, Read, Web

COMMIT = "git -c user.name=W -c user.email=w@example.com commit -q"
REDO = f"@on-reject sed -i s/one/two/ g.py && git add -A && {COMMIT} --amend --no-edit"
WORK = f"Do it\n{REDO}\n@sh printf 'one\\nkept\\n' > g.py; git add -A; {COMMIT} -m Work"


@pytest.fixture
def web(scripted: Fleet) -> Iterator[Web]:
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    with Place(open_project(str(scripted.root))).served() as made:
        yield made


def field(page: str, action: str, name: str) -> str:
    """The value of a hidden field of the form whose address ends with this."""
    read = Read(page)
    at = next(n for n, (tag, one) in enumerate(read.tags) if tag == "form" and one["action"].endswith(action))
    return next(one["value"] for tag, one in read.tags[at:] if tag == "input" and one.get("name") == name)


def field_or(page: str, action: str, name: str) -> str:
    """The same; "" while there is no such form."""
    return field(page, action, name) if f'{action}" hx-post' in page else ""


def test_a_task_a_review_in_two_rounds_and_a_landing(scripted: Fleet, web: Web) -> None:
    """Break: mark a change as seen when the stream of a page redraws its head; accept what was not seen."""
    started = web.order("/w/adam/start", text=WORK.replace("\n", "\r\n"))
    assert "acknowledged" in started.said.outcome
    scripted.wait("adam", "needs_review")
    wait_until(lambda: "/w/adam/accept" in web.get("/").text)
    first = field(web.get("/w/adam/review").text, "/w/adam/accept", "commit")
    said = "Make it two\n@say Addressed: c1, c3"
    drafts = (
        {"path": "g.py", "row": "2", "text": said},
        {"text": "And tell me why"},
        {"path": "g.py", "row": "3", "text": "Keep this"},
    )
    diff = next(
        one["data-diff"] for _, one in Read(web.get("/w/adam/review").text).tags if "data-diff" in one
    )
    for fields in ({**one, "diff": diff} for one in drafts[:2]):
        assert web.post("/w/adam/review/drafts", data=fields).status_code == 200
    assert 'id="request"' not in web.get("/w/adam/review").text
    seen = field(web.get("/w/adam/review?send=yes").text, "/w/adam/reject", "seen")
    assert web.post("/w/adam/review/drafts", data={**drafts[2], "diff": diff}).status_code == 200
    stale = web.order("/w/adam/reject", seen=seen)
    assert "nothing was sent: the request to" in stale.said.outcome
    page = web.get("/w/adam/review?send=yes").text
    prompt = commenting.request(web.place.project, commenting.page(web.place.project, "adam"))
    assert prompt is not None
    assert prompt.text in Read(page).text
    sent = web.order("/w/adam/reject", seen=field(page, "/w/adam/reject", "seen"))
    assert "acknowledged" in sent.said.outcome, sent.said
    # The hook confirms it; the row of the transcript may be a moment later.
    wait_until(lambda: any("Make it two" in turn for turn in scripted.user_turns()))
    (turn,) = [turn for turn in scripted.user_turns() if "Make it two" in turn]
    assert turn.partition("\n")[2].strip() == prompt.text
    wait_until(lambda: scripted.record("adam")["commit_sha"] != first)
    scripted.wait("adam", "needs_review")

    # An open page has the new commit in its button, but still the old diff.
    again = wait_until(lambda: stream_commit(web, first))
    unseen = web.order("/w/adam/accept", commit=again)
    assert "differs from the one you reviewed" in unseen.said.outcome, unseen.said
    stale = web.order("/w/adam/accept", commit=first)
    assert "before you confirmed" in stale.said.outcome
    assert scripted.log() == ["First commit"]

    shown = Read(web.get("/w/adam/review?send=yes").text).text
    assert "two" in shown
    assert "gets this prompt" not in shown  # nothing is left to send
    for number, standing in (
        (1, "marked as addressed by the agent · lines changed"),
        (2, "open"),
        (3, "marked as addressed by the agent · lines unchanged"),
    ):
        one = commenting.page(web.place.project, "adam").comments[number - 1]
        assert (one.standing, f"round 1 · {standing}" in shown) == (standing, True)
    landed = web.order("/w/adam/accept", commit=again)
    assert landed.said.tone == "good", landed.said
    assert scripted.log() == ["Work", "First commit"]
    commit = scripted.events("accepted")[-1]["commit"]
    assert web.post("/fleet/undo", data={"commit": first}).status_code == 400
    assert web.order("/fleet/undo", commit=commit).said.tone == "good"
    ordered = [(row["command"].split()[1], row["by"]) for row in scripted.events("web_ordered")]
    assert [verb for verb, _ in ordered] == [
        "start",
        "reject",
        "reject",
        "accept",
        "accept",
        "accept",
        "undo",
    ]
    assert {by for _, by in ordered} == {"browser, testclient"}


def stream_commit(web: Web, before: str) -> str:
    """The commit that the streamed head of a review would accept, once it has changed."""
    found = field_or(web.streamed("/stream?page=review&about=adam"), "/w/adam/accept", "commit")
    return found if found != before else ""


def shown_until(socket: Any, text: bytes) -> None:
    seen = b""
    while text not in seen:
        seen += socket.receive_bytes()


def test_a_terminal_is_typed_in_and_given_back(scripted: Fleet, web: Web) -> None:
    """Break: do not record who took over; keep the socket of a signed-out browser."""
    with web.websocket_connect("/w/adam/terminal") as socket:
        size = json.loads(socket.receive_text())
        assert size["columns"] > 20
        assert scripted.events("web_ordered")[-1]["command"] == "llmc attach adam"
        socket.send_text("typed-by-hand")
        shown_until(socket, b"typed-by-hand")
        wait_until(lambda: "typed-by-hand" in scripted.screen("adam"))
        assert scripted.tmux("list-clients").strip()
        web.place.sign_ins.sign_out()
        socket.send_text("-and-more")
        with pytest.raises(WebSocketDisconnect):
            shown_until(socket, b"more than is ever shown")
    wait_until(lambda: not scripted.tmux("list-clients").strip())
    assert "-and-more" not in scripted.screen("adam")


def test_terminals_that_are_not_there_or_do_not_read(scripted: Fleet, web: Web) -> None:
    """Break: print a traceback for an early error; let a thread wait for the pane forever."""
    for path, closes in (("/w/nobody/terminal", 1011), ("/r/nowhere/w/adam/terminal", 1008)):
        with pytest.raises(WebSocketDisconnect) as ended, web.websocket_connect(path) as socket:
            socket.receive_text()
        assert ended.value.code == closes
    assert scripted.events("web_ordered") == []
    with web.websocket_connect("/w/adam/terminal") as socket:
        socket.receive_text()
        for _ in range(4):
            socket.send_bytes(b"y" * 90_000)
    wait_until(lambda: not scripted.tmux("list-clients").strip())
    assert web.get("/board").status_code == 200


def test_an_answer_is_for_the_question_that_was_shown(scripted: Fleet, web: Web) -> None:
    """Break: answer whatever the worker asks by then."""
    web.order("/w/adam/start", text="Choose\n@ask Which colour?\n@ask Which size?")
    wait_until(lambda: "/w/adam/answer" in web.get("/").text)
    key = field(web.get("/").text, "/w/adam/answer", "asked")
    assert web.order("/w/adam/answer", text="1", asked=key).said.tone == "good"
    wait_until(lambda: field_or(web.get("/").text, "/w/adam/answer", "asked") not in ("", key))
    stale = web.post("/w/adam/answer", data={"text": "1", "asked": key})
    assert stale.status_code == 409
    assert "is now asking a different question" in stale.text
    assert web.order("/w/adam/answer", text="1", asked=field(web.get("/").text, "/w/adam/answer", "asked"))
