"""A fenced push on real remotes: stale work never lands, current work does; every answer has one meaning."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc.base.errors import LlmcError
from llmc.repo import fence
from llmc.repo.fence import NotUsable, RemoteGone, RemoteRefused
from llmc.repo.rules.fenced_push import (
    Declined,
    Landed,
    NotFastForward,
    Outcome,
    Remote,
    Said,
    Seen,
    Stale,
    Unknown,
)
from tests.support.git_daemon import GitDaemon, serving
from tests.support.remotes import BareRemote, Machine
from tests.support.waiting import wait_until


@pytest.fixture
def server(bare: BareRemote) -> Iterator[GitDaemon]:
    with serving(bare.path.parent) as daemon:
        yield daemon


def at_the_last_moment(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """`act` happens after all checks on this side, and before the push is sent."""
    send = fence.send
    acted: list[bool] = []

    def late(root: Path, remote: Remote, *args: str) -> Said:
        if not acted:
            acted.append(True)
            act()
        return send(root, remote, *args)

    monkeypatch.setattr(fence, "send", late)


def take_over(machine: Machine) -> None:
    fence.move(machine.path, machine.remote)


def test_the_branch_and_the_fence_move_together(bare: BareRemote, one: Machine) -> None:
    before = one.look()
    assert before.fence == ""
    assert one.push(before, one.on_top("One")) == Landed()
    after = one.look()
    assert (bare.log()[0], after.fence != "") == ("One", True)
    assert one.push(after, one.on_top("Two")) == Landed()
    assert one.look().fence not in ("", after.fence)
    assert bare.log()[:2] == ["Two", "One"]


def test_a_stale_push_is_refused(
    bare: BareRemote, one: Machine, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave the fence out of the push, or send it with its current value. Both are shown below."""
    take_over(other)
    seen, commit = one.look(), one.on_top("Stale")
    at_the_last_moment(monkeypatch, lambda: take_over(other))
    assert one.push(seen, commit) == Stale()
    assert bare.log() == ["Add first.txt"]
    assert one.push(one.look(), commit) == Landed()  # checked again


def without_the_fence(send: Callable[..., Said], seen: Seen) -> Callable[..., Said]:
    def mutant(root: Path, remote: Remote, *args: str) -> Said:
        return send(root, remote, *(word for word in args if remote.fence not in word))

    return mutant


def with_the_same_value(send: Callable[..., Said], seen: Seen) -> Callable[..., Said]:
    def mutant(root: Path, remote: Remote, *args: str) -> Said:
        old = f"{seen.fence}:{remote.fence}"
        return send(root, remote, *(old if word.endswith(f":{remote.fence}") else word for word in args))

    return mutant


@pytest.mark.parametrize("mutation", [without_the_fence, with_the_same_value])
def test_what_the_fence_is_for(
    bare: BareRemote,
    one: Machine,
    other: Machine,
    monkeypatch: pytest.MonkeyPatch,
    mutation: Callable[[Callable[..., Said], Seen], Callable[..., Said]],
) -> None:
    """Proof of the test above: without the fence, or with a value that is not new, the stale commit lands.

    A ref that already has the value is not sent, so its lease is compared with what git saw when the
    connection opened. The takeover comes after that, in git's own hook, just before the push is sent.
    """
    take_over(other)
    seen, commit = one.look(), one.on_top("Stale")
    one.git("fetch", "-q", "origin", bare.remote.fence)
    script = f"unset GIT_DIR; git -C {other.path} push -q -f origin {fresh(other)}:{bare.remote.fence}"
    one.write(".git/hooks/pre-push", f"#!/bin/sh\n{script}\n").chmod(0o755)
    monkeypatch.setattr(fence.git, "NO_HOOKS", ("core.hooksPath", ".git/hooks"))
    with monkeypatch.context() as mutated:
        mutated.setattr(fence, "send", mutation(fence.send, seen))
        assert one.push(seen, commit) == Landed()
    assert bare.log()[0] == "Stale", "the mutation lands what the fence must stop"

    bare.git("update-ref", "refs/heads/main", seen.tip)
    bare.git("update-ref", bare.remote.fence, seen.fence)
    script = script.replace(script.split(" ")[-1], f"{fresh(other)}:{bare.remote.fence}")
    one.write(".git/hooks/pre-push", f"#!/bin/sh\n{script}\n")
    assert one.push(seen, commit) == Stale()
    assert bare.log() == ["Add first.txt"]


def fresh(machine: Machine) -> str:
    return fence.new_value(machine.path, machine.head())


def test_other_work_that_landed_first_is_not_overwritten(
    bare: BareRemote, one: Machine, other: Machine
) -> None:
    """Break: force the branch, too."""
    seen, commit = one.look(), one.on_top("Late")
    assert other.push(other.look(), other.on_top("First")) == Landed()
    assert one.push(seen, commit) == NotFastForward()
    assert one.push(one.look(), commit) == NotFastForward(), "made on an old base, whatever the fence is"
    assert bare.log() == ["First", "Add first.txt"]


def test_a_branch_that_people_push_to_moves_without_the_fence(one: Machine, other: Machine) -> None:
    seen, commit = one.look(), one.on_top("Late")
    person = other.on_top("A person's")
    other.git("push", "-q", "origin", f"{person}:main")
    assert one.push(seen, commit) == NotFastForward()


@pytest.mark.parametrize("hook", ["pre-receive", "update"])
def test_a_remote_that_refuses_is_quoted(bare: BareRemote, one: Machine, hook: str) -> None:
    """Break: treat a refusal as a lost race, and retry forever."""
    bare.hook(hook, "echo 'main is closed until Monday' >&2; exit 1")
    outcome = one.push(one.look(), one.on_top("One"))
    assert isinstance(outcome, Declined)
    assert "main is closed until Monday" in outcome.reason
    with pytest.raises(RemoteRefused, match="main is closed until Monday"):
        take_over(one)
    assert bare.log() == ["Add first.txt"]


def test_a_remote_that_is_gone(bare: BareRemote, one: Machine) -> None:
    seen, commit = one.look(), one.on_top("One")
    bare.path.rename(bare.path.with_name("away.git"))
    with pytest.raises(RemoteGone, match="is not responding"):
        one.look()
    with pytest.raises(RemoteGone):
        take_over(one)
    assert isinstance(one.push(seen, commit), Unknown)


def test_a_remote_without_the_branch(bare: BareRemote, one: Machine) -> None:
    with pytest.raises(LlmcError, match="has no branch 'gone'"):
        fence.look(one.path, Remote(bare.remote.address, "gone"))


def slowly(bare: BareRemote) -> tuple[Path, Path]:
    """The remote takes a push, then waits for `go` before it moves a ref; `taken` confirms the push."""
    taken, go = bare.path / "taken", bare.path / "go"
    bare.hook("pre-receive", f"touch {taken}; while [ ! -e {go} ]; do sleep 0.02; done")
    return taken, go


def test_a_slow_remote_is_given_up_and_what_it_does_later_is_refused(
    bare: BareRemote, server: GitDaemon, tmp_path: Path
) -> None:
    """The push is still pending when we stop waiting.

    Break: treat no answer as no landing, without moving the fence.
    """
    one = Machine(tmp_path / "one", Remote(server.url("remote.git"), "main", limit_s=1))
    taken, go = slowly(bare)
    seen, commit = one.look(), one.on_top("One")
    assert isinstance(one.push(seen, commit), Unknown)
    assert taken.exists()
    assert bare.log() == ["Add first.txt"]
    bare.drop_hook("pre-receive")  # the next push is not slow
    take_over(one)
    go.touch()
    wait_until(lambda: all(child.poll() is not None for child in server.children))
    assert bare.log() == ["Add first.txt"], "the old push came too late"
    assert one.push(one.look(), commit) == Landed()
    assert bare.log() == ["One", "Add first.txt"]


@pytest.mark.parametrize("beyond", [False, True], ids=["the newest", "others landed on top"])
def test_a_connection_that_breaks_after_the_push_is_found_out(
    bare: BareRemote, server: GitDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beyond: bool
) -> None:
    """Break: report a failure because git failed."""
    one = Machine(tmp_path / "one", Remote(server.url("remote.git"), "main", limit_s=30))
    other = Machine(tmp_path / "other", bare.remote)
    taken, go = slowly(bare)
    seen, commit = one.look(), one.on_top("One")
    send = fence.send

    def broken(root: Path, remote: Remote, *args: str) -> Said:
        breaks = threading.Thread(target=lambda: (wait_until(taken.exists), server.cut()))
        breaks.start()
        said = send(root, remote, *args)
        breaks.join()
        monkeypatch.setattr(fence, "send", send)
        go.touch()
        wait_until(lambda: bare.log()[0] == "One")
        if beyond:
            assert other.push(other.look(), other.on_top("Two")) == Landed()
        assert not said.ok
        return said

    monkeypatch.setattr(fence, "send", broken)
    assert one.push(seen, commit) == Landed()


def test_the_fence_may_be_a_branch(bare: BareRemote, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "m", Remote(bare.remote.address, "main", fence_ref="llmc-fence"))
    assert machine.push(machine.look(), machine.on_top("One")) == Landed()
    take_over(machine)
    assert bare.refs() == ["refs/heads/llmc-fence", "refs/heads/main"]


FOREIGN = {
    "a branch with work": ["branch", "develop", "main"],
    "an empty first commit of somebody": ["update-ref", "refs/heads/develop"],
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_ref_that_llmc_did_not_make_is_never_replaced(
    bare: BareRemote, one: Machine, other: Machine, case: str
) -> None:
    """Break: replace the fence whatever it is; a lease proves only that it has not changed since."""
    command = FOREIGN[case]
    if command[0] == "update-ref":
        tree = bare.git("hash-object", "-t", "tree", "-w", "/dev/null")
        command = [*command, bare.git("commit-tree", tree, "-m", "llmc fence of mine")]
    bare.git(*command)
    before = bare.git("for-each-ref")
    remote = Remote(bare.remote.address, "main", fence_ref="develop", limit_s=30)
    seen = fence.look(one.path, remote)
    for act in (
        lambda: fence.move(one.path, remote),
        lambda: fence.push(one.path, remote, seen, one.on_top("One")),
        lambda: fence.fetch_seen(one.path, remote),
    ):
        with pytest.raises(NotUsable, match="llmc did not create refs/heads/develop") as refused:
            act()
        assert "llmc config set fleet.fence_ref" in refused.value.hint
    assert bare.git("for-each-ref") == before


def test_a_fence_that_another_machine_made_is_replaced(one: Machine, other: Machine) -> None:
    """Break: replace only a value whose commit this machine happens to have."""
    take_over(other)
    assert one.push(one.look(), one.on_top("One")) == Landed()
    take_over(other)
    take_over(one)


def test_a_fence_that_moves_before_it_is_looked_at_is_a_lost_race(one: Machine, other: Machine) -> None:
    """Break: call a value that is gone by now somebody else's."""
    take_over(other)
    seen, commit = one.look(), one.on_top("One")
    take_over(other)
    assert one.push(seen, commit) == Stale()


@pytest.mark.soak
def test_two_machines_race_and_everything_lands_once(bare: BareRemote, one: Machine, other: Machine) -> None:
    """Break: count a push as landed that only may have; or overwrite what landed in between."""
    race(bare, [one, other], 12)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_two_machines_race_200_landings_each(bare: BareRemote, one: Machine, other: Machine) -> None:
    race(bare, [one, other], 200)


def race(bare: BareRemote, machines: list[Machine], count: int) -> None:
    problems: list[BaseException] = []
    lost: list[Outcome] = []

    def land_all(machine: Machine) -> None:
        try:
            for number in range(count):
                subject = f"{machine.path.name} {number}"
                while (outcome := machine.push(machine.look(), machine.on_top(subject))) != Landed():
                    lost.append(outcome)
                    assert isinstance(outcome, Stale | NotFastForward), outcome
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=land_all, args=(machine,)) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems
    wanted = [f"{machine.path.name} {number}" for machine in machines for number in range(count)]
    assert sorted(bare.log()) == sorted([*wanted, "Add first.txt"])
    assert bare.is_linear()
    assert lost, "they never raced"
