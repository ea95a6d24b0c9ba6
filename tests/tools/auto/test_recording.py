"""Tokens in transcripts become events, each exactly once, wherever llmc is killed; and their sums."""

import itertools
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.auto import usage as service
from llmc.auto.usage import Meters, Totals, day_start, record_usage
from llmc.base import faults
from llmc.base.names import SessionName, TaskId, WorkerName
from llmc.base.tmux import Tmux
from llmc.config.model import Config, Price, Repo
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.records.worker import Assignment, Spent, Tokens, WorkerRecord
from llmc.repo.project import Project

#: Python 3.12 warns of threads (the test runner has some); the children only use files
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")


class Desk:
    """A root without agents: the test writes the transcripts."""

    def __init__(self, directory: Path) -> None:
        self.root = Root(directory)
        self.store = Store(self.root)
        self.store.create()
        config = Config(
            repo=Repo(source="/none"), prices={"claude-opus": Price(input=10.0, output=50.0, cache_read=1.0)}
        )
        self.project = Project(self.root, config, self.store, Tmux("llmc-t-none"))
        self._numbers = itertools.count()
        self.used: dict[str, int] = {}
        with self.store.transaction() as tx:
            tx.put(
                WorkerRecord(
                    name=WorkerName("auto-1"),
                    worktree_path="/w",
                    branch="b",
                    session_id=SessionName("s"),
                    created_at_unix=1.0,
                )
            )

    def converse(self, session: str, task: str | None = None) -> None:
        """What a SessionStart and an assignment leave in the state."""
        claim = Assignment(task_id=TaskId(task), claim=f"claim-{task}", since_unix=1.0) if task else None
        with self.store.transaction() as tx:
            tx.update("auto-1", transcript_path=str(self.transcript(session)), assignment=claim)
            tx.emit("session_started", worker="auto-1", source="clear", claude_session_id=session)

    def transcript(self, session: str) -> Path:
        return self.root.path / "projects" / f"{session}.jsonl"

    def say(self, session: str, output: int, model: str = "claude-opus-4-8", subagent: str = "") -> None:
        """A message in the client's format, one row for each of its two blocks."""
        path = self.transcript(session)
        if subagent:
            path = path.with_suffix("") / "subagents" / f"agent-{subagent}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        counts = {"input_tokens": 3, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 20_000}
        usage = {**counts, "output_tokens": output, "service_tier": "standard", "cache_creation": {}}
        message = {"id": f"msg_{next(self._numbers)}", "role": "assistant", "model": model, "usage": usage}
        row = json.dumps({"type": "assistant", "isSidechain": bool(subagent), "message": message}) + "\n"
        with path.open("a") as file:
            file.write(row * 2)
        self.used[model] = self.used.get(model, 0) + output

    def rows(self) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.root.events.read_text().splitlines())
        return [row for row in lines if row["action"] == "usage_recorded"]

    def told(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for row in self.rows():
            found[row["model"]] = found.get(row["model"], 0) + row["output_tokens"]
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """In memory if possible: a kill does not care, and fsync costs 10 ms."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(tmp_path)
    with tempfile.TemporaryDirectory(prefix="llmc-t-", dir=memory) as directory:
        yield Desk(Path(directory))


@pytest.mark.req("5-001")
def test_an_event_for_each_model_with_what_is_new(desk: Desk) -> None:
    """Break: leave the subagents out, or emit the totals instead of the difference."""
    desk.converse("c1", "7")
    assert record_usage(desk.project, "auto-1") == Spent()
    assert desk.rows() == []
    desk.say("c1", 100)
    desk.say("c1", 30, "claude-haiku-9", subagent="x")
    first = record_usage(desk.project, "auto-1")
    assert first.tokens == Tokens(
        input_tokens=6, output_tokens=130, cache_creation_input_tokens=4, cache_read_input_tokens=40_000
    )
    assert list(first.unpriced) == ["claude-haiku-9"]
    haiku, opus = desk.rows()
    assert (haiku["model"], haiku["output_tokens"], haiku["cost"]) == ("claude-haiku-9", 30, None)
    assert opus["cost"] == pytest.approx((3 * 10 + 100 * 50 + 2 * 12.5 + 20_000 * 1) / 1e6)
    assert (opus["worker"], opus["task_id"], opus["claude_session_id"]) == ("auto-1", "7", "c1")
    assert {key: opus[key] for key in Tokens.__struct_fields__} == {
        "input_tokens": 3,
        "output_tokens": 100,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 20_000,
    }
    assert record_usage(desk.project, "auto-1") == first
    desk.say("c1", 5)
    assert record_usage(desk.project, "auto-1").tokens.output_tokens == 135
    assert [row["output_tokens"] for row in desk.rows()] == [30, 100, 5]


@pytest.mark.req("5-001", "5-003")
def test_a_new_task_is_a_new_conversation_with_a_sum_of_its_own(desk: Desk) -> None:
    """Break: return the sum of the previous conversation, or leave its last message out."""
    meters = Meters()
    desk.converse("c1", "7")
    desk.say("c1", 10)
    record_usage(desk.project, "auto-1", meters)
    desk.say("c1", 11)  # after the last check
    desk.converse("c2", "8")
    assert record_usage(desk.project, "auto-1", meters) == Spent()
    desk.say("c2", 12)
    assert record_usage(desk.project, "auto-1", meters).tokens.output_tokens == 12
    assert [(row["task_id"], row["output_tokens"]) for row in desk.rows()] == [
        ("7", 10),
        ("7", 11),
        ("8", 12),
    ]


@pytest.mark.req("5-004")
def test_a_look_at_nothing_new_reads_no_file_and_writes_none(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: open the transcript without checking its size, or start a transaction each time."""
    meters = Meters()
    desk.converse("c1", "7")
    desk.say("c1", 10)
    desk.say("c1", 10, subagent="x")
    before = record_usage(desk.project, "auto-1", meters)
    written = desk.root.state.stat().st_ino
    opened: list[str] = []
    real = Path.open

    def watched(path: Path, *args: Any, **kwargs: Any) -> Any:
        opened.append(path.name)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", watched)
    assert record_usage(desk.project, "auto-1", meters) == before
    assert not [name for name in opened if name.endswith(".jsonl")]  # no transcript, and not the event log
    assert desk.root.state.stat().st_ino == written
    desk.say("c1", 10)
    record_usage(desk.project, "auto-1", meters)
    assert "c1.jsonl" in opened


@pytest.mark.req("5-002")
def test_transcripts_that_are_gone_or_were_replaced_count_nothing_twice(desk: Desk) -> None:
    """Break: continue at the old offset of a replaced file."""
    meters = Meters()
    desk.converse("c1", "7")
    desk.say("c1", 10)
    record_usage(desk.project, "auto-1", meters)
    path = desk.transcript("c1")
    kept = path.read_text()
    path.unlink()
    for cache in (meters, None):
        record_usage(desk.project, "auto-1", cache)
    desk.say("c1", 5)
    copy = path.with_name("copy")
    copy.write_text(path.read_text() + kept)  # the new message comes first
    copy.rename(path)
    for cache in (meters, None):
        assert record_usage(desk.project, "auto-1", cache).tokens.output_tokens == 15
    path.write_text("")
    for cache in (meters, None):
        record_usage(desk.project, "auto-1", cache)
    assert [row["output_tokens"] for row in desk.rows()] == [10, 5]


@pytest.mark.req("5-001")
def test_conversations_that_came_and_went_unseen_are_counted_when_the_next_is(desk: Desk) -> None:
    """No daemon ran while the user cleared twice. Break: `skipped` is always empty, or forgets the task."""
    desk.converse("c1")
    desk.say("c1", 1)
    record_usage(desk.project, "auto-1")
    for session, output, action in (
        ("c2", 2, "task_assigned"),
        ("c3", 4, "task_completed"),
        ("c4", 8, "held"),
    ):
        with desk.store.transaction() as tx:
            tx.emit(action, worker="auto-1", task_id="7")
        desk.converse(session)
        desk.say(session, output)
    record_usage(desk.project, "auto-1")
    told = [(row["claude_session_id"], row["task_id"]) for row in desk.rows()]
    assert told == [("c1", None), ("c2", "7"), ("c3", None), ("c4", None)]
    desk.converse("c2")  # resumed
    desk.say("c2", 16)
    record_usage(desk.project, "auto-1")
    assert desk.rows()[-1]["output_tokens"] == 16
    assert desk.told() == desk.used


@pytest.mark.req("5-002")
def test_a_first_conversation_that_nobody_saw_is_counted_too(desk: Desk) -> None:
    """Each check was killed before it was done. Break: skip nothing where no conversation is known yet."""
    for session, output in (("c1", 1), ("c2", 2), ("c3", 4)):
        desk.converse(session, "7")
        desk.say(session, output)
    record_usage(desk.project, "auto-1")
    assert desk.told() == desk.used


@pytest.mark.req("5-002")
def test_a_rebuilt_record_counts_nothing_again(desk: Desk) -> None:
    """`doctor --rebuild` makes records without usage. Break: do not read the log in record_usage."""
    desk.converse("c1", "7")
    desk.say("c1", 10)
    record_usage(desk.project, "auto-1")
    with desk.store.transaction() as tx:
        tx.update("auto-1", metered=None, assignment=None)
    record_usage(desk.project, "auto-1")
    desk.say("c1", 5)
    record_usage(desk.project, "auto-1")
    assert [row["output_tokens"] for row in desk.rows()] == [10, 5]


def killed(act: Callable[[], Any], after_s: float | None = None) -> int | None:
    """The exit code of a child that does this, and is killed after a while unless it was before."""
    process = FORK.Process(target=act, daemon=True)
    process.start()
    assert process.pid is not None
    if after_s is not None:
        time.sleep(after_s)  # the random moment itself, not a wait for anything
        os.kill(process.pid, signal.SIGKILL)
    process.join(20)
    return process.exitcode


@pytest.mark.req("5-002")
@pytest.mark.parametrize("point", ["usage.record", "state.write", "state.replace"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_kill_at_each_point_tells_every_token_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, point: str, side: str
) -> None:
    """Break: use two transactions, one for the events and one for the counts."""
    desk.converse("c1", "7")
    desk.say("c1", 10)
    record_usage(desk.project, "auto-1")
    desk.say("c1", 20)
    desk.say("c1", 30, "claude-haiku-9")
    desk.converse("c2", "8")
    desk.say("c2", 40)

    def act() -> None:
        faults._passed.clear()
        record_usage(desk.project, "auto-1")

    monkeypatch.setenv("LLMC_FAULT", f"{point}:{side}:kill")
    assert killed(act) == -signal.SIGKILL
    monkeypatch.delenv("LLMC_FAULT")
    assert record_usage(desk.project, "auto-1").tokens.output_tokens == 40
    with desk.store.transaction():  # the next run copies events that the kill left out
        pass
    told = [(row["task_id"], row["model"][:11], row["output_tokens"]) for row in desk.rows()]
    assert sorted(told) == [
        ("7", "claude-haik", 30),
        ("7", "claude-opus", 10),
        ("7", "claude-opus", 20),
        ("8", "claude-opus", 40),
    ]


@pytest.mark.req("5-002")
def test_kills_at_random_tell_every_token_once(desk: Desk) -> None:
    """Break: write the event log beside the transaction instead of in it."""
    chance = random.Random(20261115)
    desk.converse("c1", "7")
    deaths = number = 0
    while number < 60 or deaths <= 10:  # on a slow machine, a kill may come too late
        assert number < 600
        if number % 10 == 9:
            desk.converse(f"c{number}", str(number))
        session = desk.store.worker("auto-1").transcript_path.rpartition("/")[2].removesuffix(".jsonl")
        desk.say(session, chance.randrange(1, 1000))
        code = killed(lambda: record_usage(desk.project, "auto-1"), chance.uniform(0, 0.02))
        deaths += code == -signal.SIGKILL
        number += 1
    desk.say(session, 1)
    record_usage(desk.project, "auto-1")
    assert desk.told() == desk.used


def write_log(desk: Desk, *rows: tuple[float, str, int]) -> None:
    """Events as they are in the log: time, action, output tokens."""
    with desk.root.events.open("a") as file:
        for ts, action, output in rows:
            row = {"seq": 1, "ts": ts, "action": action, "worker": "w", "reason": "", "task_id": None}
            file.write(
                json.dumps({**row, "model": "claude-opus-1", "output_tokens": output, "cost": None}) + "\n"
            )


@pytest.mark.req("5-010")
def test_the_day_and_the_run_are_summed_from_the_log(desk: Desk) -> None:
    """Break: forget `auto_started`, or use the last 24 hours as the day."""
    desk.root.events.parent.mkdir(exist_ok=True)
    noon = datetime(2026, 11, 15, 12).timestamp()
    midnight = day_start(noon)
    totals = Totals()
    assert totals.read(desk.project, noon) == (Spent(), Spent())
    write_log(
        desk,
        (midnight - 60, "auto_started", 0),
        (midnight - 1, "usage_recorded", 1),
        (midnight, "usage_recorded", 2),
    )
    day, run = totals.read(desk.project, noon)
    assert (day.tokens.output_tokens, run.tokens.output_tokens) == (2, 3)
    assert day.cost == pytest.approx(2 * 50 / 1e6)
    write_log(desk, (noon, "auto_started", 0), (noon, "usage_recorded", 4))
    day, run = totals.read(desk.project, noon)
    assert (day.tokens.output_tokens, run.tokens.output_tokens) == (6, 4)
    tomorrow = noon + 86_400
    write_log(desk, (tomorrow, "usage_recorded", 8))
    day, run = totals.read(desk.project, tomorrow)
    assert (day.tokens.output_tokens, run.tokens.output_tokens) == (8, 12)
    assert totals.read(replace_config(desk.project), tomorrow)[0].unpriced.keys() == {"claude-opus-1"}


def replace_config(project: Project) -> Project:
    """The same root without prices, as after a change of config.toml."""
    return Project(project.root, replace(project.config, prices={}), project.store, project.tmux)


@pytest.mark.req("5-010")
def test_a_long_log_is_read_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn line waits for its rest. Break: start at offset 0 each time."""
    desk.root.events.parent.mkdir(exist_ok=True)
    now = time.time()
    write_log(desk, *((now, "usage_recorded" if n % 10 == 0 else "held", 1) for n in range(20_000)))
    totals = Totals()
    assert totals.read(desk.project, now)[0].tokens.output_tokens == 2000
    parsed: list[bytes] = []
    real = service._row
    monkeypatch.setattr(service, "_row", lambda line: parsed.append(line) or real(line))
    write_log(desk, (now, "usage_recorded", 5))
    with desk.root.events.open("ab") as file:
        file.write(b'{"seq": 9, "action": "usage_reco')
    assert totals.read(desk.project, now)[0].tokens.output_tokens == 2005
    assert len(parsed) == 1
    with desk.root.events.open("ab") as file:
        file.write(b"\n")
    write_log(desk, (now, "usage_recorded", 1))
    assert totals.read(desk.project, now)[0].tokens.output_tokens == 2006
