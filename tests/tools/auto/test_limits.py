"""From an agent's message about a limit to the end of the park, with clocks that are behind or set."""

import json
import time
from pathlib import Path
from typing import cast

import pytest

from llmc.auto import parks
from llmc.auto.auto_run import Run
from llmc.base.names import TaskId
from llmc.config.paths import Root
from llmc.records.transitions import step
from llmc.records.worker import Assignment, Cause, Status, WorkerRecord
from llmc.repo.project import Project, bare_project
from llmc.sessions import intake
from tests.support.records import worker


class Limited:
    """A root with one worker, whose agent a limit stops."""

    def __init__(self, folder: Path) -> None:
        root = Root(folder / "root")
        root.state.parent.mkdir(parents=True)
        self.project: Project = bare_project(root)
        self.project.store.create()
        self.said = ""
        task = Assignment(task_id=TaskId("1"), claim="c1", since_unix=1.0)
        record = worker(Status.WORKING, assignment=task, worktree_path=str(root.worktree("w1")), branch="")
        with self.project.store.transaction() as tx:
            tx.put(record)

    def say(self, text: str) -> None:
        self.said = text

    @property
    def run(self) -> Run:
        return cast(Run, self)

    @property
    def record(self) -> WorkerRecord:
        return self.project.store.worker("w1")

    def stop(self, words: str, ago_s: float = 0.0) -> None:
        """The hook of an agent that was stopped then, applied now."""
        payload = {"hook_event_name": "StopFailure", "error": "rate_limit", "last_assistant_message": words}
        inbox = self.project.root.path / ".llmc/inbox/w1"
        inbox.mkdir(parents=True, exist_ok=True)
        file = inbox / f"{int((time.time() - ago_s) * 1e9)}-1.json"
        file.write_text(json.dumps({"worker": "w1", "instance": "i1", "payload": payload}))
        intake.apply_pending(self.project, "w1")
        parks.park(self.run, self.project, self.record, Cause.LIMIT, self.record.error_reason)

    def continue_(self) -> bool:
        with self.project.store.transaction() as tx:
            tx.move("w1", step(Status.WORKING, "prompt arrived"))
        return parks.end_if_over(self.run, self.project)

    @property
    def left_s(self) -> float:
        return self.project.store.read().auto.parked_until_unix - time.time()


@pytest.fixture
def limited(tmp_path: Path) -> Limited:
    return Limited(tmp_path)


@pytest.mark.parametrize("stopped_s_ago", [0, 3 * 3600])
def test_a_limit_that_was_to_end_a_moment_ago(limited: Limited, stopped_s_ago: float) -> None:
    """The server's clock is behind; or no daemon was running when the agent was stopped.

    Break: read "resets 3pm" as the next 3pm, at 3pm and a second; the fleet would be parked for a day.
    """
    words = time.strftime("You've hit your session limit · resets %I:%M%p", time.gmtime()).lower()
    limited.stop(f"{words} (UTC)", stopped_s_ago)
    assert limited.record.cause == Cause.LIMIT
    assert time.time() - limited.record.since_unix == pytest.approx(stopped_s_ago, abs=60)
    assert 0 < limited.left_s <= limited.project.config.auto.limit_backoff_secs
    assert limited.said.startswith("parked until ")


def test_a_limit_after_the_clock_was_set_back(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: compare the time of a failure with that of the last resume: the older one never parks the fleet."""
    real, limit = time.time, "You've hit your session limit"
    limited.stop(limit)
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert limited.continue_()
    monkeypatch.setattr(time, "time", lambda: real() - 6 * 3600)
    limited.stop(limit)
    assert 0 < limited.left_s <= limited.project.config.auto.limit_backoff_secs
    monkeypatch.setattr(time, "time", lambda: real() - 12 * 3600)
    assert limited.continue_(), "set back again, while it was parked"
