"""At the start of auto mode, a claim whose work may have landed: the remote may not answer, or refuse."""

from pathlib import Path

import pytest

from llmc.attention import raising
from llmc.auto import attend
from llmc.auto.auto_run import Run
from llmc.auto.usage import Spending
from llmc.base.clock import now_unix
from llmc.landing.accept_journal import POLL_S
from llmc.tasks.queue import TaskQueue
from llmc.tasks.rules.draft import Draft
from llmc.tasks.task_list import add
from llmc.workers.rules import Clock
from tests.support.file_ledger import FileLedger
from tests.support.memory_tasks import MemoryTasks
from tests.support.nodes import WORKER, Node
from tests.support.remotes import BareRemote


@pytest.fixture
def bare(tmp_path: Path) -> BareRemote:
    return BareRemote(tmp_path / "remote.git")


@pytest.fixture
def node(tmp_path: Path, bare: BareRemote) -> Node:
    (tmp_path / "database").mkdir()
    return Node(tmp_path / "one", bare, FileLedger(tmp_path / "database/ledger.json"))


@pytest.mark.parametrize("trouble", ["refuses", "is gone"])
@pytest.mark.parametrize("of_run", [True, False])
def test_it_starts_and_says_why_a_worker_waits(
    bare: BareRemote, node: Node, trouble: str, of_run: bool
) -> None:
    """Break: let `settle` raise, so that `up` fails; or let the worker continue before the remote answers.

    Or forget the claim of a worker that is not part of this run.
    """
    source, away, waits = MemoryTasks(), bare.path.with_name("away.git"), list[float]()
    key = source.key(add(source, Draft("One", "Do one")).id)
    claim = source.claim(key, WORKER if of_run else "auto-9", "One")
    assert claim is not None
    source.about_to_land(claim, node.worktree.commit("one.txt", "one\n", "One"))
    run = Run(
        queue=TaskQueue(source),
        workers=(WORKER,),
        on_change=lambda: None,
        look_again=lambda _, wait_s: waits.append(wait_s),
        say=lambda _: None,
        spending=Spending(),
    )
    with node.project.store.transaction() as tx:
        tx.update(WORKER, held=True)  # only what is left is settled
    if trouble == "refuses":
        bare.hook("pre-receive", "echo 'closed until Monday' >&2; exit 1")
    else:
        bare.path.rename(away)
    attend.settle(run, node.project)

    def told() -> list[tuple[str, str]]:
        items = raising.current(node.project)
        return [(item.who, item.text) for item in items if item.kind == "unsettled"]

    def look() -> None:
        with node.project.worker_lock(WORKER):
            attend.attend(run, node.project, WORKER, Clock(now_unix()))

    why = "closed until Monday" if trouble == "refuses" else "is not responding"
    ((who, text),) = told()
    assert (who, why in text, "task 1" in text) == (claim.worker, True, True)
    look()
    assert (len(told()), waits, source.books().holds(claim.id)) == (1, [POLL_S], True)
    bare.drop_hook("pre-receive") if trouble == "refuses" else away.rename(bare.path)
    look()
    assert (told(), run.unsettled) == ([], {})
    assert not source.books().holds(claim.id), "it had not landed, and is free again"
