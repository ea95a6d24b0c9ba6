"""What an auto worker needs is done step by step, and never over and over."""

import pytest

from llmc.names import TaskId
from llmc.services import auto, task_queue
from llmc.services.auto_run import BEGINS, Run
from llmc.services.hard_failure import HardFailure
from llmc.services.parks import Parks
from llmc.services.project import open_project
from llmc.services.spending import Spending
from llmc.tools.clock import now_unix
from llmc.workers.causes import Cause
from llmc.workers.model import Assignment
from llmc.workers.patrol import Clock
from tests.support.fleet import Fleet


def test_a_step_that_changes_nothing_is_put_off_and_ends_as_a_bug(
    scripted: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave the comparison with the step before out of `attend`; it never returns."""
    scripted.set_up("adam", config={"auto.task_list_id": "plan"})
    project = open_project(str(scripted.root))
    with project.store.transaction() as tx:
        tx.update("adam", assignment=Assignment(task_id=TaskId("1"), claim="nobodys", since_unix=now_unix()))
    later: list[float] = []
    run = Run(
        queue=task_queue.open_queue(project),
        workers=("adam",),
        on_change=lambda: None,
        look_again=lambda _, delay_s: later.append(delay_s),
        say=lambda _: None,
        spending=Spending(),
        parks=Parks(lambda _, __: None, lambda _: None),
    )
    done = []
    monkeypatch.setattr(auto, "_do", lambda *_: done.append(1) or True)
    clock = Clock(now_unix())
    for _ in range(BEGINS):
        auto.attend(run, project, "adam", clock)
    assert len(done) == BEGINS
    assert later == sorted(set(later)), "each wait is longer"
    with pytest.raises(HardFailure) as failed:
        auto.attend(run, project, "adam", clock)
    assert failed.value.cause is Cause.BUG
