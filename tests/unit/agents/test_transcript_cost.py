"""The cost of a transcript that an agent wrote: bounded memory and time; a second read costs what is new."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmc.agents.claude import followed, transcripts
from llmc.agents.claude.json_lines import Budget
from llmc.agents.claude.transcripts import ClaudeTranscript
from llmc.records.worker import Tokens

HEADER = "[llmc t-1]"

ASKED: dict[str, Callable[[ClaudeTranscript], object]] = {
    "queued": lambda one: one.queued(),
    "prompts": lambda one: one.prompts(HEADER),
    "later prompts": lambda one: one.prompts(HEADER, 1),
    "answer": lambda one: one.answer_to("Which?", 0),
    "replies": lambda one: one.replies(0),
    "passage": lambda one: one.passage(0, "agent"),
    "last reply": lambda one: one.last_reply_id(2e9),
    "messages": lambda one: one.last_messages(5),
    "meter": lambda one: one.meter().read(),
}
FLOODS = {
    "newlines": b"\n",
    "queue rows": b'{"type":"queue-operation","operation":"enqueue","content":"a"}\n',
    "torn rows": f'{{"type" "queue-operation" "usage" "assistant" "answers" {HEADER}\n'.encode(),
    "one line": b" ",
}


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("asked", ASKED)
def test_no_file_of_an_agent_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, flood: str
) -> None:
    """Break: read the whole file and split it: 9 MB of newlines took more than 70 MB of memory."""
    for module in (transcripts, followed):
        monkeypatch.setattr(module, "Budget", lambda *_: Budget(most_rows=3000), raising=False)
    path, unit = tmp_path / "s.jsonl", FLOODS[flood]
    path.write_bytes(unit * ((9 << 20) // len(unit)))
    tracemalloc.start()
    try:
        ASKED[asked](ClaudeTranscript(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    most = 20 << 20 if flood == "one line" else 6 << 20  # a line may be as long as the longest row
    assert peak < most


def line(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def put(text: str) -> bytes:
    return line({"type": "queue-operation", "operation": "enqueue", "content": text})


def said(text: str, more: str = "") -> bytes:
    return line(
        {
            "type": "user",
            "message": {"content": [{"type": "text", "text": text}, *([{"data": more}] if more else [])]},
        }
    )


def used(message: str, output: int, model: str = "opus", more: str = "") -> bytes:
    usage = {"output_tokens": output}
    return line(
        {"type": "assistant", "message": {"id": message, "model": model, "usage": usage, "content": more}}
    )


def test_a_poll_reads_only_what_is_new(tmp_path: Path) -> None:
    """What was read is overwritten in place, and still known. Break: read from the start each time."""
    path, old = tmp_path / "s.jsonl", put("a") + said(f"{HEADER}\nDo it")
    path.write_bytes(old)
    assert ClaudeTranscript(path).queued() == ["a"]
    assert [one.text for one in ClaudeTranscript(path).prompts(HEADER)[0]] == [f"{HEADER}\nDo it"]
    with path.open("r+b") as file:
        file.write(b"x" * len(old))
        file.write(put("b") + said(f"{HEADER}\nAgain"))
    assert ClaudeTranscript(path).queued() == ["a", "b"]
    assert [one.text for one in ClaudeTranscript(path).prompts(HEADER)[0]] == [
        f"{HEADER}\nDo it",
        f"{HEADER}\nAgain",
    ]


@pytest.mark.parametrize("how", ["replaced", "cut", "gone"])
def test_another_file_in_its_place_is_read_from_its_beginning(tmp_path: Path, how: str) -> None:
    """Break: continue at the offset of the previous file."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(put("a") + put("b"))
    assert ClaudeTranscript(path).queued() == ["a", "b"]
    if how == "replaced":
        (tmp_path / "new").write_bytes(put("c") * 9)
        (tmp_path / "new").rename(path)
        assert ClaudeTranscript(path).queued() == ["c"] * 9
    elif how == "cut":
        path.write_bytes(put("c"))
        assert ClaudeTranscript(path).queued() == ["c"]
    else:
        path.unlink()
        assert ClaudeTranscript(path).queued() == []


def test_a_queue_that_is_not_read_to_its_end_is_unknown_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: treat the part that was read as all of it; or start over each time."""
    monkeypatch.setattr(followed, "Budget", lambda: Budget(most_rows=2))
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(put(text) for text in "abcde"))
    looks = [ClaudeTranscript(path).queued() for _ in range(4)]
    assert looks == [None, None, ["a", "b", "c", "d", "e"], ["a", "b", "c", "d", "e"]]


@pytest.mark.parametrize("rows", [put("a") * 3000, put("a" * (1 << 20)) * 3], ids=["many", "long"])
def test_a_queue_that_no_client_has_is_unknown(tmp_path: Path, rows: bytes) -> None:
    """Break: keep all of it, and search all of it for each message that leaves it."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(rows + line({"type": "queue-operation", "operation": "remove", "content": "z"}))
    assert ClaudeTranscript(path).queued() is None


def test_prompts_of_an_agent_that_never_end_are_not_kept(tmp_path: Path) -> None:
    """The latest ones are. Break: no limit in `Prompts`."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(said(f"{HEADER} {number} {'x' * 500_000}") for number in range(20)))
    found = [one.text[:13] for one in ClaudeTranscript(path).prompts(HEADER)[0]]
    assert found == [f"{HEADER} {number}" for number in (16, 17, 18, 19)]


IMAGE = "iVBORw0KGgo" * 450_000  # 5 MB, as pasted


def test_long_rows_with_images_are_read_and_counted(tmp_path: Path) -> None:
    """Break: treat a row of several MB as too long."""
    path = tmp_path / "s.jsonl"
    rows = [said(f"{HEADER}\nSee", IMAGE), used("m1", 3), used("m1", 7, more=IMAGE), put("a"), used("m2", 2)]
    path.write_bytes(b"".join(rows))
    found = ClaudeTranscript(path)
    assert len(found.prompts(HEADER)[0]) == 1
    assert (found.queued(), found.replies(0)) == (["a"], (3, path.stat().st_size))
    assert found.meter().read() == {"opus": Tokens(output_tokens=9)}
    assert found.last_reply_id(2e9) == ""


def test_a_meter_goes_on_with_what_was_too_much_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: start each read with a budget per file; or forget what was left."""
    monkeypatch.setattr(transcripts, "Budget", lambda: Budget(most_rows=3))
    path, inner = tmp_path / "s.jsonl", tmp_path / "s/subagents/agent-1.jsonl"
    inner.parent.mkdir(parents=True)
    path.write_bytes(b"".join(used(f"m{number}", 1) for number in range(4)))
    inner.write_bytes(b"".join(used(f"n{number}", 1) for number in range(4)))
    meter = ClaudeTranscript(path).meter()
    assert [meter.read()["opus"].output_tokens for _ in range(4)] == [3, 6, 8, 8]


def test_models_and_messages_without_end_are_counted_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: keep every model and message that an agent invents; each model would be in state.json, too."""
    monkeypatch.setattr(transcripts, "MOST_MESSAGES", 10)
    path, most = tmp_path / "s.jsonl", transcripts.MOST_MODELS
    path.write_bytes(b"".join(used(f"m{number}", 1, f"model-{number}") for number in range(most + 30)))
    meter = ClaudeTranscript(path).meter()
    totals = meter.read()
    assert (len(totals), totals["unknown"].output_tokens) == (most + 1, 30)
    assert len(meter._messages) == 10
    assert sum(one.output_tokens for one in totals.values()) == most + 30
