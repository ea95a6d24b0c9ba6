"""Several machines land on one remote: each commit once or not at all, even if one dies, sleeps or lags."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.attention import raising
from llmc.auto import handover
from llmc.base import locks
from llmc.base.errors import ClaimLost, LlmcError, NotFound, Unreachable
from llmc.landing import accept_journal, remote, undo
from llmc.landing.accept import accept
from llmc.landing.default_branch import SourceBusy
from llmc.records.books import Claim
from llmc.records.landing_ledger import Entry
from llmc.records.worker import Status
from llmc.repo import fence, handed_work
from llmc.repo.rules.fenced_push import Outcome, Remote, Seen
from llmc.tasks.source import source_of
from tests.support.file_ledger import FileLedger
from tests.support.fleet import in_soak
from tests.support.ledgers import AnyLedger, PostgresLedger
from tests.support.nodes import WORKER, Node, task
from tests.support.remotes import BareRemote
from tests.support.waiting import wait_until

#: Python 3.12 warns of threads (the test runner has some); the children run git and exit
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

FIRST = "Add first.txt"


@pytest.fixture
def bare(tmp_path: Path) -> BareRemote:
    return BareRemote(tmp_path / "remote.git")


@pytest.fixture(params=["postgres", *in_soak("file")])
def ledger(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AnyLedger]:
    if request.param == "postgres":
        made = PostgresLedger(request.getfixturevalue("database"))
        yield made
        made.close()
    else:
        (tmp_path / "database").mkdir()
        yield FileLedger(tmp_path / "database/ledger.json")


@pytest.fixture
def one(bare: BareRemote, ledger: AnyLedger, tmp_path: Path) -> Node:
    return Node(tmp_path / "one", bare, ledger)


@pytest.fixture
def other(bare: BareRemote, ledger: AnyLedger, tmp_path: Path) -> Node:
    return Node(tmp_path / "other", bare, ledger)


def test_work_lands_on_the_remote_and_the_users_checkout_follows(bare: BareRemote, one: Node) -> None:
    one.work("One", task(1))
    landed = one.accept().commit
    assert bare.head("main") == landed
    assert bare.log() == ["One", FIRST]
    assert [entry.commit for entry in one.ledger.entered(task(1))] == [landed]
    assert one.source.head() == landed
    assert one.source.git("status", "--porcelain") == ""
    assert one.project.store.worker(WORKER).status is Status.IDLE
    assert one.worktree.head() == landed


def test_two_machines_land_in_turn_and_each_builds_on_the_other(
    bare: BareRemote, one: Node, other: Node
) -> None:
    one.work("One")
    other.work("Two")
    one.accept()
    assert other.accept().commit == bare.head("main")
    assert bare.log() == ["Two", "One", FIRST]
    assert bare.is_linear()


@pytest.mark.parametrize(
    "in_the_way", ["uncommitted changes", *in_soak("commits of their own", "another branch")]
)
def test_a_checkout_that_cannot_follow_is_left_alone_and_hinders_nobody(
    bare: BareRemote, one: Node, in_the_way: str
) -> None:
    """Break: check the user's checkout before landing elsewhere; or reset it to what landed."""
    one.work("One")
    match in_the_way:
        case "uncommitted changes":
            one.source.write("first.txt", "half done\n")
        case "commits of their own":
            one.source.commit("mine.txt")
        case _:
            one.source.git("checkout", "-q", "-b", "mine")
    before = one.source.head(), one.source.git("status", "--porcelain")
    landed = one.accept().commit
    assert bare.head("main") == landed
    assert (one.source.head(), one.source.git("status", "--porcelain")) == before
    behind = one.source.git("rev-parse", "main") != landed
    assert behind is (in_the_way != "another branch"), "a branch that is not checked out follows"


STEPS = ("remote.enter", "remote.push", "remote.follow", "accept.land", "accept.verify", "accept.complete")
EVERY = [f"{name}:{side}" for name in STEPS for side in ("before", "after")]
SOME = ["remote.enter:after", "remote.push:before", "remote.push:after", "remote.follow:before"]


@pytest.mark.parametrize("kill", [*SOME, *in_soak(*(kill for kill in EVERY if kill not in SOME))])
def test_kill_9_at_every_step_and_the_journal_goes_on(bare: BareRemote, one: Node, kill: str) -> None:
    """Break: push before the entry is written, make a new commit after a crash, or end the accept with it."""
    one.work("One", task(1))
    assert one.killed(f"{kill}:kill"), "the point was not reached"
    entered = [entry.commit for entry in one.ledger.entered(task(1))]
    if bare.log() != [FIRST]:
        assert entered == [bare.head("main")], "the ledger comes first"
    landed = one.accept().commit
    assert bare.log() == ["One", FIRST]
    assert bare.head("main") == landed
    assert [entry.commit for entry in one.ledger.entered(task(1))] == [landed]
    assert one.source.head() == landed
    assert one.project.store.worker(WORKER).status is Status.IDLE


@pytest.mark.parametrize("kill", ["remote.enter:after", "remote.push:after", *in_soak("remote.enter:before")])
def test_the_task_of_a_dead_machine_is_taken_over_and_lands_once(
    bare: BareRemote, one: Node, other: Node, kill: str
) -> None:
    """Break: do not check whether the ledger's commit landed; or check before the fence has moved (below)."""
    one.work("By one", task(1))
    assert one.killed(f"{kill}:kill")
    claim = other.ledger.claim(task(1))
    landed = remote.take_over(other.project, task(1), claim)
    if kill == "remote.push:after":
        assert landed == bare.head("main")
    else:
        assert landed == ""
        other.work("By other", task(1), claim)
        other.accept()
    with_work = bare.log()
    assert with_work == ["By one" if landed else "By other", FIRST]
    if not landed:  # it wakes up
        with pytest.raises(ClaimLost):
            one.accept()
        assert one.step() is None, "the accept is over"
    else:
        one.accept()
    assert bare.log() == with_work


def asleep_before_push(one: Node, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """The machine sleeps between its checks and its push, when `act` happens."""
    push, slept = fence.push, []

    def late(root: Path, where: Remote, seen: Seen, commit: str, *, removing: str) -> Outcome:
        if root == one.project.root.path and not slept:
            slept.append(True)
            act()
        return push(root, where, seen, commit, removing=removing)

    monkeypatch.setattr(fence, "push", late)


def test_a_machine_that_slept_past_its_lease_does_not_land(
    bare: BareRemote, one: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token was valid when it was checked. Break: no fence in the push; take over without moving it."""
    one.work("By one", task(1))
    claims: list[str] = []

    def taken_over() -> None:
        claims.append(other.ledger.claim(task(1)))
        assert remote.take_over(other.project, task(1), claims[0]) == ""

    asleep_before_push(one, monkeypatch, taken_over)
    with pytest.raises(ClaimLost):
        one.accept()
    assert bare.log() == [FIRST]
    assert one.project.store.worker(WORKER).status is Status.NEEDS_REVIEW
    stale = one.project.store.worker(WORKER)
    handover.hand_over(one.project, source_of(one.project), stale)
    assert handed_work.newest(other.project.root.path, bare.remote, task(1)) == stale.commit_sha
    assert str(stale.commit_sha) in handover.unfinished_work(other.project, task(1))

    other.work("By other", task(1), claims[0])
    other.accept()
    assert bare.log() == ["By other", FIRST]
    assert not [ref for ref in bare.refs() if ref.startswith(bare.remote.work)], "removed with the landing"


def test_a_machine_with_another_fence_takes_nothing_over_and_lands_nothing(
    bare: BareRemote, one: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: move the fence of one's own configuration; the push of the other machine moves another, and lands too."""
    other.share(replace(bare.remote, fence_ref="refs/llmc/other"))
    one.work("By one", task(1))
    claims: list[str] = []

    def taken_over() -> None:
        claims.append(other.ledger.claim(task(1)))
        said = r"fleet\.fence_ref is refs/llmc/other here, and refs/llmc/fence in the fleet"
        with pytest.raises(fence.NotUsable, match=said) as refused:
            remote.take_over(other.project, task(1), claims[0])
        assert "llmc config set fleet.fence_ref refs/llmc/fence" in refused.value.hint

    asleep_before_push(one, monkeypatch, taken_over)
    landed = one.accept().commit
    other.work("By other", task(1), claims[0])
    with pytest.raises(SourceBusy, match="lands apart from the others"):
        other.accept()
    assert bare.log() == ["By one", FIRST]
    other.share(bare.remote)
    assert remote.take_over(other.project, task(1), claims[0]) == landed


def test_work_that_is_offered_while_another_lands_the_task_is_withdrawn(bare: BareRemote, one: Node) -> None:
    """Break: withdraw everything; or only what was not sent."""
    one.work("By one", task(1))
    root, commit = one.project.root.path, str(one.project.store.worker(WORKER).commit_sha)
    for number in (1, 2):
        assert handed_work.offer(root, bare.remote, task(number), number, commit)
    handover.withdraw(one.project)
    assert len(handed_work.offered(root)) == 2
    source_of(one.project).write("completed", Claim("another", task(1), "other/w1"))
    handover.withdraw(one.project)
    left = [ref for ref in bare.refs() if ref.startswith(bare.remote.work)]
    assert left == [f"{handed_work.place_of(bare.remote, task(2))}/2"]
    assert handed_work.offered(root) == {handed_work.name_of(task(2))}


def test_sigstop_past_the_lease_and_sigcont(
    bare: BareRemote, one: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with a real process, which does not know that time has passed."""
    one.work("By one", task(1))
    asleep_before_push(one, monkeypatch, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    pid = one.started()
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    claim = other.ledger.claim(task(1))
    assert remote.take_over(other.project, task(1), claim) == ""
    other.work("By other", task(1), claim)
    os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, 0)
    assert (bare.log(), one.step()) == ([FIRST], None)
    other.accept()
    assert bare.log() == ["By other", FIRST]


def test_the_fence_is_read_before_the_token_is_checked(
    bare: BareRemote, one: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the other order, a task that is taken over in between would land. Break: read it after `_enter`."""
    one.work("By one", task(1))
    enter = one.ledger.enter
    slept: list[bool] = []

    def then_sleep(entry: Entry) -> None:
        enter(entry)
        if not slept:
            slept.append(True)
            claim = other.ledger.claim(task(1))
            assert remote.take_over(other.project, task(1), claim) == ""

    monkeypatch.setattr(one.ledger, "enter", then_sleep)
    with pytest.raises(ClaimLost):
        one.accept()
    assert bare.log() == [FIRST]


def test_a_push_that_outlives_its_process_is_refused_once_its_work_changed(
    bare: BareRemote, one: Node
) -> None:
    """kill -9 leaves git running. Break: conclude from one check that it did not land."""
    taken, go = bare.path / "taken", bare.path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.02; done; touch {go}.seen"
    bare.hook("pre-receive", f"[ -e {taken} ] || {{ touch {taken}; {wait}; }}")
    one.work("One", task(1))
    pid = one.started()
    wait_until(taken.exists)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    one.worktree.commit("more.txt", message="More")
    with pytest.raises(accept_journal.WorkChanged, match="nothing landed"):
        one.accept()
    assert one.step() is None
    go.touch()
    wait_until(Path(f"{go}.seen").exists)
    wait_until(lambda: not git_at_work(bare.path))
    assert bare.log() == [FIRST]


def git_at_work(place: Path) -> list[str]:
    """The programs that serve a repository."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace")
            if "receive-pack" in words and str(place) in words:
                found.append(words)
    return found


def test_the_fence_alone_may_move(
    bare: BareRemote, one: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task was taken over: the claim is checked again, and the same commit lands."""
    one.work("One", task(1))
    asleep_before_push(one, monkeypatch, lambda: fence.move(other.project.root.path, bare.remote))
    one.accept()
    assert bare.log() == ["One", FIRST]
    assert len(one.ledger.entered(task(1))) == 1


def test_a_remote_that_refuses_ends_the_accept_with_its_reason(bare: BareRemote, one: Node) -> None:
    bare.hook("pre-receive", "echo 'closed until Monday' >&2; exit 1")
    one.work("One")
    with pytest.raises(SourceBusy, match="closed until Monday"):
        one.accept()
    assert one.step() is None
    blocked = [item for item in raising.current(one.project) if item.kind == "source"]
    assert ["closed until Monday" in item.text for item in blocked] == [True], (
        "a clean checkout does not hide it"
    )
    bare.drop_hook("pre-receive")
    one.accept()
    assert bare.log() == ["One", FIRST]


def test_an_accept_waits_for_a_remote_that_is_gone_or_slow(bare: BareRemote, one: Node) -> None:
    """Break: end the accept although the push may land; or hold the worker while the remote is silent."""
    one.work("One", task(1))
    one.hurry(1)
    bare.hook("pre-receive", "sleep 30")
    with pytest.raises(accept_journal.Waiting, match="timed out"):
        one.accept()
    assert one.step() == "wait"
    away = bare.path.rename(bare.path.with_name("away.git"))
    with pytest.raises(accept_journal.Waiting, match="is not responding"):
        one.accept()
    away.rename(bare.path)
    bare.drop_hook("pre-receive")
    one.accept()
    assert bare.log() == ["One", FIRST]
    assert one.source.head() == bare.head("main")


def test_an_accept_that_waits_loses_its_claim(bare: BareRemote, one: Node, other: Node) -> None:
    """Break: keep the journal because it waited; the worker would never be free."""
    one.work("One", task(1))
    one.hurry(1)
    bare.hook("pre-receive", "sleep 30")
    with pytest.raises(accept_journal.Waiting):
        one.accept()
    bare.drop_hook("pre-receive")
    other.ledger.claim(task(1))
    with pytest.raises(ClaimLost):
        one.accept()
    assert one.step() is None
    assert bare.log() == [FIRST]


def test_an_accept_waits_for_the_ledger(bare: BareRemote, one: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: push without the entry."""
    one.work("One", task(1))
    with one.ledger.gone(), pytest.raises(Unreachable):
        one.accept()
    assert one.step() == "merge", "it continues from there"
    enter = one.ledger.enter

    def not_now(entry: Entry) -> None:
        with one.ledger.gone():
            enter(entry)

    with monkeypatch.context() as later:
        later.setattr(one.ledger, "enter", not_now)
        with pytest.raises(accept_journal.Waiting, match="is not responding"):
            one.accept()
    assert bare.log() == [FIRST]
    one.accept()
    assert bare.log() == ["One", FIRST]


def race(bare: BareRemote, nodes: list[Node], count: int) -> None:
    problems: list[BaseException] = []

    def land_all(node: Node) -> None:
        try:
            for number in range(count):
                node.work(f"{node.name} {number}", task(node.done + 1000 * nodes.index(node)))
                node.accept()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=land_all, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems
    wanted = [f"{node.name} {number}" for node in nodes for number in range(count)]
    assert sorted(bare.log()) == sorted([*wanted, FIRST])
    assert bare.is_linear()


def test_two_machines_land_at_the_same_time(bare: BareRemote, one: Node, other: Node) -> None:
    """Break: land what was merged with an older base."""
    race(bare, [one, other], 4)


@pytest.mark.soak
def test_a_slow_check_on_one_machine_is_not_starved_by_another(one: Node, other: Node) -> None:
    """After one lost race, no other work lands until it has. Break: order only the workers of one machine."""
    one.project = replace(
        one.project,
        config=replace(one.project.config, repo=replace(one.project.config.repo, validate="sleep 0.4")),
    )
    one.work("Slow", task(1))
    over = threading.Event()
    said: list[str] = []

    def land_on_and_on() -> None:
        number = 2
        while not over.is_set():
            other.work(f"Quick {number}", task(number))
            other.accept()
            number += 1

    quick = threading.Thread(target=land_on_and_on)
    quick.start()
    try:
        with one.project.worker_lock(WORKER):
            accept(one.project, WORKER, said.append)
    finally:
        over.set()
        quick.join()
    assert said.count("the default branch moved; retrying") <= 1, said


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_machines_land_fifty_each(bare: BareRemote, one: Node, other: Node) -> None:
    race(bare, [one, other], 50)


def test_any_machine_undoes_the_newest_landing(bare: BareRemote, one: Node, other: Node) -> None:
    """Break: read the machine's own event log; or take the ledger's order as the order of the branch."""
    one.work("One")
    one.accept()
    other.work("Two")
    other.accept()
    assert undo.target(one.project).prompt == "Write Two"
    done = one.undo()
    assert done.subject == "Two"
    assert bare.log()[0] == 'Revert "Two"'
    assert one.source.head() == bare.head("main")
    done = other.undo()
    assert done.subject == "One"
    assert bare.log()[:2] == ['Revert "One"', 'Revert "Two"']
    with pytest.raises(NotFound, match="nothing to undo"):
        one.undo()


def test_a_task_that_was_undone_is_done_again(bare: BareRemote, one: Node, other: Node) -> None:
    """Break: treat it as landed because its commit is on the branch, reverted or not."""
    one.work("One", task(1))
    landed = one.accept().commit
    assert remote.take_over(other.project, task(1), other.ledger.claim(task(1))) == landed
    one.undo()
    claim = other.ledger.claim(task(1))
    assert remote.take_over(other.project, task(1), claim) == ""
    other.work("One again", task(1), claim)
    other.accept()
    assert bare.log()[:2] == ["One again", 'Revert "One"']


@pytest.mark.parametrize("kill", ["remote.push:after", *in_soak("remote.enter:after", "remote.push:before")])
def test_an_undo_goes_on_after_kill_9_and_reverts_once(
    bare: BareRemote, one: Node, other: Node, kill: str
) -> None:
    other.work("One")
    other.accept()
    assert one.killed(f"{kill}:kill", "undo")
    one.undo()
    assert bare.log() == ['Revert "One"', "One", FIRST]


def test_two_machines_undo_the_same_landing_once(bare: BareRemote, one: Node, other: Node) -> None:
    one.work("One")
    one.accept()
    assert one.killed("remote.push:before:kill", "undo")
    other.undo()
    one.undo()  # its change is already gone
    assert bare.log() == ['Revert "One"', "One", FIRST]


def test_an_undo_waits_for_a_remote_that_is_gone(bare: BareRemote, one: Node) -> None:
    one.work("One")
    one.accept()
    one.hurry(1)
    bare.hook("pre-receive", "sleep 30")
    with pytest.raises(LlmcError, match="is not responding"):
        one.undo()
    bare.drop_hook("pre-receive")
    one.undo()
    assert bare.log() == ['Revert "One"', "One", FIRST]


@pytest.mark.parametrize("what", ["accept", "undo"])
def test_what_has_waited_lands_in_its_turn(
    bare: BareRemote, one: Node, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Break: push without the turn: the work lands while another node runs its post-accept command."""
    one.work("One", task(1))
    if what == "undo":
        one.accept()
    one.hurry(1)
    bare.hook("pre-receive", "if grep -q refs/heads/main; then sleep 30; fi")
    with pytest.raises(accept_journal.Waiting):
        getattr(one, what)()
    bare.drop_hook("pre-receive")
    one.hurry(60)
    push, in_turn = fence.push, []

    def pushed(*args: Any, **more: Any) -> Outcome:
        in_turn.append(locks.is_locked(one.project.root.lock("ticket")))
        return push(*args, **more)

    monkeypatch.setattr(fence, "push", pushed)
    getattr(one, what)()
    assert (in_turn, bare.log()[0]) == ([True], "One" if what == "accept" else 'Revert "One"')


@pytest.mark.soak
def test_the_fence_may_be_a_branch(bare: BareRemote, one: Node, other: Node) -> None:
    for node in (one, other):
        node.share(replace(bare.remote, fence_ref="llmc-fence"))
    bare.git("update-ref", "-d", bare.remote.fence)
    one.work("One", task(1))
    one.accept()
    other.work("Two", task(2))
    other.accept()
    assert bare.log() == ["Two", "One", FIRST]
    assert bare.refs() == ["refs/heads/llmc-fence", "refs/heads/main"]
