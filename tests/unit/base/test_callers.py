"""Who ran a command, from its parent processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmc import hook_client
from llmc.base import callers
from llmc.base.callers import Mark, Server
from llmc.hook_client import Kin
from llmc.sessions.caller import Kind, caller


def kin(*rows: tuple[int, bytes, dict[bytes, bytes]], terminal: int = 5) -> list[Kin]:
    """Processes, nearest first: pid, name and marks."""
    parents = [pid for pid, _, _ in rows[1:]] + [0]
    return [
        (pid, parent, rows[0][0], terminal, 100 - n, name, marks)
        for n, ((pid, name, marks), parent) in enumerate(zip(rows, parents, strict=True))
    ]


def marks(worker: bytes, instance: bytes = b"i") -> dict[bytes, bytes]:
    return {b"LLMC_WORKER": worker, b"LLMC_INSTANCE": instance, b"LLMC_ROOT": b"/r"}


def test_the_outermost_mark_counts() -> None:
    """Break: use the first mark found, which an agent can put on a program it starts."""
    chain = kin(
        (9, b"llmc", {}), (8, b"sh", marks(b"overseer")), (7, b"claude", marks(b"baker")), (1, b"init", {})
    )
    assert callers.mark(chain, {"LLMC_WORKER": "adam"}) == Mark(7, "baker", "i", "/r")


@pytest.mark.parametrize("one", [{b"LLMC_WORKER": b"adam"}, {b"LLMC_INSTANCE": b"i"}])
def test_one_mark_is_enough(one: dict[bytes, bytes]) -> None:
    """A validation has no instance. Break: require both."""
    found = callers.mark(kin((9, b"llmc", {}), (8, b"sh", one)), {})
    assert found is not None
    assert found.pid == 8


def test_our_own_variables_count_where_nobody_above_has_a_mark() -> None:
    """Break: check only ancestors: an older llmc's agent, abandoned by its parent, would count as a user."""
    chain = kin((9, b"llmc", {}), (1, b"init", {}))
    assert callers.mark(chain, {}) is None
    assert callers.mark(chain, {"LLMC_WORKER": "", "LLMC_INSTANCE": ""}) is None
    found = callers.mark(chain, {"LLMC_WORKER": "adam"})
    assert found is not None
    assert found.worker == "adam"


def test_a_server_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: accept any tmux; a user's own runs llmc from its key bindings."""
    lines = {5: b"tmux\0-L\0llmc-r-1\0-f\0", 6: b"tmux\0-L\0default\0", 7: b"tmux\0new\0"}
    monkeypatch.setattr(callers, "read_file", lambda path: lines[int(path.split("/")[2])])
    for pid in (6, 7):
        assert callers.server(kin((9, b"llmc", {}), (8, b"sh", {}), (pid, b"tmux: server", {}))) is None
    ours = kin((9, b"llmc", {}), (8, b"sh", {}), (5, b"tmux: server", {}))
    assert callers.server(ours) == Server("llmc-r-1", 8, is_job=False)
    job = kin((9, b"llmc", {}), (8, b"sh", {}), (5, b"tmux: server", {}), terminal=0)
    assert callers.server(job) == Server("llmc-r-1", 8, is_job=True)


def test_we_come_from_the_processes_that_the_kernel_knows() -> None:
    found = callers.processes()
    assert [one[0] for one in found[:2]] == [os.getpid(), os.getppid()]
    assert found[-1][1] == 0 or found[-1][0] == 1


def test_the_leader_of_a_session_is_looked_at_when_the_parent_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Break: check only the ancestors."""
    known = {9: (9, 1, 7, 5, 3, b"llmc", {}), 7: (7, 2, 7, 5, 1, b"claude", marks(b"adam"))}
    monkeypatch.setattr(callers, "lineage", lambda pid: [known[9 if pid == os.getpid() else pid]])
    assert [one[0] for one in callers.processes()] == [9, 7]


def proc_files(monkeypatch: pytest.MonkeyPatch, looks: list[dict[int, tuple[int, int]]]) -> None:
    """What /proc says at each walk: pid -> (parent, start)."""
    at = iter(looks)
    now: list[dict[int, tuple[int, int]]] = []
    walk = hook_client._walk

    def walked(pid: int) -> list[Kin]:
        now[:] = [next(at)]
        return walk(pid)

    def read(path: str) -> bytes:
        pid, what = int(path.split("/")[2]), path.rpartition("/")[2]
        if pid not in now[0]:
            raise FileNotFoundError(path)
        parent, start = now[0][pid]
        return b"" if what == "environ" else b"%d (a) b) S %d 0 9 5 %s%d 0" % (pid, parent, b"0 " * 14, start)

    monkeypatch.setattr(hook_client, "_walk", walked)
    monkeypatch.setattr(hook_client, "read_file", read)


def test_a_parent_that_ends_meanwhile_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an agent could end one at the right moment and pass as a user. Break: walk only once."""
    proc_files(monkeypatch, [{9: (8, 5)}, {9: (7, 5), 7: (0, 1)}])
    assert [one[0] for one in hook_client.lineage(9)] == [9, 7]


def test_a_number_that_was_used_again_is_no_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: do not compare the start times."""
    proc_files(monkeypatch, [{9: (8, 5), 8: (0, 6)}, {9: (7, 5), 7: (0, 1)}])
    assert [one[0] for one in hook_client.lineage(9)] == [9, 7]


def test_processes_that_are_hidden_from_us_end_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc mounted with hidepid. Break: retry without a limit."""
    proc_files(monkeypatch, [{9: (8, 5), 8: (1, 2)}] * 5)
    assert [one[0] for one in hook_client.lineage(9)] == [9, 8]


def test_the_sender_believes_its_ancestors(tmp_path: Path) -> None:
    """Break: prefer LLMC_INSTANCE of the sender's own variables."""
    inbox = tmp_path / "adam"
    sender = [sys.executable, "-I", "-S", hook_client.__file__, str(inbox), "/none", "Stop"]
    argv = ["/bin/sh", "-c", 'env LLMC_WORKER=adam LLMC_INSTANCE=stolen "$@"; true', "sh", *sender]
    subprocess.run(argv, env={"PATH": os.defpath, "LLMC_WORKER": "baker", "LLMC_INSTANCE": "own"}, check=True)
    (file,) = inbox.iterdir()
    assert file.read_bytes().startswith(b'{"worker":"baker","instance":"own",')


def test_without_proc_nobody_is_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown is not empty. Break: do not check whether there are any processes."""
    monkeypatch.setattr(callers, "processes", list)
    assert caller().kind is Kind.UNKNOWN
