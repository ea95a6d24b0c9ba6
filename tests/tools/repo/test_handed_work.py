"""Unfinished work goes to the next holder through the remote, and is gone once the task has landed."""

from pathlib import Path

import pytest

from llmc.base.names import TaskId, TaskKey
from llmc.repo import fence, handed_work
from llmc.repo.rules.fenced_push import Landed, Remote
from tests.support.remotes import BareRemote, Machine

TASK = TaskKey("plan/ä *", TaskId("7"))
OTHER = TaskKey("plan/ä *", TaskId("8"))


def offer(machine: Machine, task: TaskKey, token: int, commit: str) -> bool:
    return handed_work.offer(machine.path, machine.remote, task, token, commit)


def newest(machine: Machine, task: TaskKey) -> str | None:
    return handed_work.newest(machine.path, machine.remote, task)


@pytest.mark.parametrize("fence_ref", ["refs/llmc/fence", "llmc-fence"])
def test_the_next_holder_gets_the_newest(bare: BareRemote, tmp_path: Path, fence_ref: str) -> None:
    """Break: compare tokens as text: 9 would be newer than 10."""
    remote = Remote(bare.remote.address, "main", fence_ref=fence_ref)
    one, other = Machine(tmp_path / "one", remote), Machine(tmp_path / "other", remote)
    assert newest(other, TASK) is None
    old, new, apart = (one.on_top(subject) for subject in ("Old", "New", "Apart"))
    assert offer(one, TASK, 9, old)
    assert offer(one, TASK, 10, new)
    assert offer(one, OTHER, 11, apart)
    assert newest(other, TASK) == new
    assert other.git("show", "-s", "--format=%s", new) == "New"
    other.git("gc", "-q", "--prune=now")
    assert other.git("cat-file", "-t", new) == "commit"

    place = handed_work.place_of(remote, TASK)
    commit = other.on_top("Landed")
    assert fence.push(other.path, remote, other.look(), commit, removing=place) == Landed()
    handed_work.forget(other.path, TASK)
    assert newest(one, TASK) is None
    assert newest(one, OTHER) == apart
    assert other.git("for-each-ref", "refs/llmc") == ""
    assert bare.log() == ["Landed", "Add first.txt"]
    left = [ref for ref in bare.refs() if ref.startswith(remote.work)]
    assert left == [f"{handed_work.place_of(remote, OTHER)}/11"]


def test_what_the_remote_does_not_take_is_kept_and_sent_later(
    bare: BareRemote, one: Machine, other: Machine
) -> None:
    """Break: remove the ref here before the remote has it."""
    commit = one.on_top("Unsent")
    away = bare.path.rename(bare.path.with_name("away.git"))
    assert not offer(one, TASK, 3, commit)
    one.git("gc", "-q", "--prune=now")
    away.rename(bare.path)
    assert handed_work.send_unsent(one.path, one.remote)
    assert newest(other, TASK) == commit
    assert one.git("for-each-ref", "refs/llmc/unsent") == ""


def test_a_holder_that_goes_on_replaces_what_it_handed_over(one: Machine, other: Machine) -> None:
    assert offer(one, TASK, 3, one.on_top("First"))
    commit = one.on_top("Second")
    assert offer(one, TASK, 3, commit)
    assert newest(other, TASK) == commit


def test_what_is_offered_while_its_task_lands_is_withdrawn(
    bare: BareRemote, one: Machine, other: Machine
) -> None:
    """Break: forget what was offered once it is sent."""
    commit = other.on_top("Landed")
    place = handed_work.place_of(other.remote, TASK)
    assert fence.push(other.path, other.remote, other.look(), commit, removing=place) == Landed()
    for task in (TASK, OTHER):
        assert offer(one, task, 3, one.on_top("Late"))
    names = {handed_work.name_of(task) for task in (TASK, OTHER)}
    assert handed_work.offered(one.path) == names
    handed_work.withdraw(one.path, one.remote, {handed_work.name_of(TASK)})
    assert handed_work.offered(one.path) == {handed_work.name_of(OTHER)}
    left = [ref for ref in bare.refs() if ref.startswith(one.remote.work)]
    assert left == [f"{handed_work.place_of(one.remote, OTHER)}/3"]
    handed_work.withdraw(one.path, one.remote, names)  # one of them is already gone
    assert one.git("for-each-ref", "refs/llmc") == ""
    assert [ref for ref in bare.refs() if ref.startswith(one.remote.work)] == []


def test_a_remote_that_does_not_answer_keeps_what_is_to_be_withdrawn(bare: BareRemote, one: Machine) -> None:
    assert offer(one, TASK, 3, one.on_top("Late"))
    bare.path.rename(bare.path.with_name("away.git"))
    handed_work.withdraw(one.path, one.remote, {handed_work.name_of(TASK)})
    assert handed_work.offered(one.path) == {handed_work.name_of(TASK)}
