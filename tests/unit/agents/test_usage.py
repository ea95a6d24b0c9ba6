"""Tokens are counted once per message, and a second read costs only what is new."""

import json
from pathlib import Path

from llmc.agents.claude.transcripts import ClaudeTranscript
from llmc.records.worker import Tokens


def row(message_id: str, output: int, model: str = "opus") -> str:
    usage = {
        "input_tokens": 10,
        "output_tokens": output,
        "cache_read_input_tokens": 5,
        "service_tier": "standard",
    }
    message = {"id": message_id, "model": model, "role": "assistant", "content": [], "usage": usage}
    return json.dumps({"type": "assistant", "message": message}) + "\n"


def test_a_message_of_several_blocks_counts_once(tmp_path: Path) -> None:
    """Break: add up rows instead of messages."""
    transcript = tmp_path / "s.jsonl"
    transcript.write_text(row("m1", 1) + row("m1", 7) + row("m2", 3))
    assert ClaudeTranscript(transcript).meter().read() == {
        "opus": Tokens(input_tokens=20, output_tokens=10, cache_read_input_tokens=10)
    }


def test_it_goes_on_where_it_stopped_and_waits_for_whole_lines(tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    transcript.write_text(row("m1", 1) + row("m2", 2)[:20])
    meter = ClaudeTranscript(transcript).meter()
    assert meter.read()["opus"].output_tokens == 1
    transcript.write_text(row("m1", 1) + row("m2", 2))
    assert meter.read()["opus"].output_tokens == 3
    assert meter.read()["opus"].output_tokens == 3


def test_subagents_and_models_are_told_apart(tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    transcript.write_text(row("m1", 1) + row("x", 9, "<synthetic>") + "not json\n" + '{"type":"user"}\n')
    folder = tmp_path / "s" / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-1.jsonl").write_text(row("m9", 4, "haiku"))
    totals = ClaudeTranscript(transcript).meter().read()
    assert totals["opus"].output_tokens == 1
    assert totals["haiku"].output_tokens == 4
    assert "<synthetic>" not in totals


def test_no_transcript_yet_is_nothing_used(tmp_path: Path) -> None:
    assert ClaudeTranscript(tmp_path / "none.jsonl").meter().read() == {}
