"""The probe of a remote: finds what its host refuses before a machine relies on it; leaves nothing behind."""

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.repo import remote_probe
from llmc.repo.fence import NotUsable, RemoteGone
from llmc.repo.remote_probe import probe
from tests.support.remotes import BareRemote, Machine

#: Python 3.12 warns of threads (the test runner has some); the child only runs git
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def bare(tmp_path: Path) -> BareRemote:
    return BareRemote(tmp_path / "remote.git")


@pytest.fixture
def machine(bare: BareRemote, tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine", bare.remote)


def look_at(bare: BareRemote) -> object:
    return bare.git("for-each-ref")


@pytest.mark.parametrize("fence_ref", ["refs/llmc/fence", "llmc-fence"])
def test_a_usable_remote_is_left_as_it_was(bare: BareRemote, machine: Machine, fence_ref: str) -> None:
    """Break: land the probe's commit; or leave a ref."""
    before = look_at(bare)
    probe(machine.path, replace(machine.remote, fence_ref=fence_ref))
    assert look_at(bare) == before


def test_the_branch_may_have_moved_since_the_clone(
    bare: BareRemote, machine: Machine, tmp_path: Path
) -> None:
    other = Machine(tmp_path / "other", bare.remote)
    other.push(other.look(), other.on_top("Later"))
    probe(machine.path, machine.remote)


#: for each refusal: how the remote is set up, and what llmc says about it
REFUSALS = {
    "protected branch": (
        ("update", '[ "$1" != refs/heads/main ] || { echo "GH006: Protected branch" >&2; exit 1; }'),
        "the branch main is protected: GH006: Protected branch",
    ),
    "protected branch, at once": (
        (
            "pre-receive",
            'while read -r _ _ ref; do [ "$ref" != refs/heads/main ] || { echo No >&2; exit 1; }; done',
        ),
        "the branch main is protected: No",
    ),
    "custom refs": (
        ("update", 'case "$1" in refs/heads/*) ;; *) echo "only branches here" >&2; exit 1;; esac'),
        "the remote rejects refs like .*: only branches here",
    ),
    "deletion": (
        ("update", 'case "$3" in *[!0]*) ;; *) echo "nothing is deleted here" >&2; exit 1;; esac'),
        "does not let pushes delete refs: nothing is deleted here",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_the_host_refuses_is_said_with_its_reason(bare: BareRemote, machine: Machine, case: str) -> None:
    """Break: check only the end of the probe; or treat the deliberate failure as a refusal."""
    hook, said = REFUSALS[case]
    before = look_at(bare)
    bare.hook(*hook)
    with pytest.raises(NotUsable, match=said):
        probe(machine.path, machine.remote)
    assert case == "deletion" or look_at(bare) == before
    bare.drop_hook(hook[0])
    probe(machine.path, machine.remote)
    assert look_at(bare) == before, "the next probe removes what the previous one could not"


def test_a_branch_as_the_fence_where_the_host_allows_branches_only(
    bare: BareRemote, machine: Machine
) -> None:
    bare.hook(*REFUSALS["custom refs"][0])
    with pytest.raises(NotUsable) as refused:
        probe(machine.path, machine.remote)
    assert "fleet.fence_ref" in refused.value.hint
    probe(machine.path, replace(machine.remote, fence_ref="llmc-fence"))


@pytest.mark.parametrize("name", ["main", "develop", "main/fence", "refs/llmc/work/x"])
def test_a_fence_that_is_or_hides_other_work_is_refused(
    bare: BareRemote, machine: Machine, name: str
) -> None:
    """Break: try only the probe's own refs."""
    bare.git("branch", "develop", "main")
    before = look_at(bare)
    with pytest.raises(NotUsable, match=r"fleet\.fence_ref is not usable"):
        probe(machine.path, replace(machine.remote, fence_ref=name))
    assert look_at(bare) == before


def test_a_host_without_atomic_pushes(bare: BareRemote, machine: Machine) -> None:
    before = look_at(bare)
    bare.git("config", "receive.advertiseAtomic", "false")
    with pytest.raises(NotUsable, match="rejected an atomic push"):
        probe(machine.path, machine.remote)
    assert look_at(bare) == before


def test_a_fence_branch_that_may_not_be_rewritten(bare: BareRemote, machine: Machine) -> None:
    bare.git("config", "receive.denyNonFastForwards", "true")
    probe(machine.path, machine.remote)  # only for branches
    with pytest.raises(NotUsable, match="non-fast-forward"):
        probe(machine.path, replace(machine.remote, fence_ref="llmc-fence"))


def test_a_remote_that_is_gone(bare: BareRemote, machine: Machine) -> None:
    bare.path.rename(bare.path.with_name("away.git"))
    with pytest.raises(RemoteGone):
        probe(machine.path, machine.remote)


@pytest.mark.parametrize("side", ["before", "after"])
def test_what_a_killed_probe_left_is_removed_by_the_next(
    bare: BareRemote, machine: Machine, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """Break: use a new name for each probe; the old ref could not be recognized."""
    before = look_at(bare)
    pid = os.fork()
    if pid == 0:
        try:
            os.environ["LLMC_FAULT"] = f"probe.made:{side}:kill"
            probe(machine.path, machine.remote)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert look_at(bare) != before
    probe(machine.path, machine.remote)
    assert look_at(bare) == before


def test_the_probe_of_another_machine_is_left_alone(
    bare: BareRemote, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Machine(tmp_path / "other", bare.remote)
    theirs = f"{bare.remote.probe}-{remote_probe._name(other.path)}"
    bare.git("update-ref", theirs, "main")
    probe(machine.path, machine.remote)
    assert theirs in bare.refs()
