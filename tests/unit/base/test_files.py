"""Files: the old content or the new, and a full disk is an error with a fix."""

import ast
import errno
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmc
from llmc.base import files
from llmc.base.errors import LlmcError
from llmc.base.files import DiskFull, append_line, private_dir, second_name, write_atomic

#: Python 3.12 warns of threads (the test runner has some); the children only use files
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB and 40 names; if it cannot be mounted, only the ENOSPC test below runs."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=40", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"NO SMALL DISK: mounting a tmpfs failed: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.req("1-044")
def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    """Break: open the file itself for writing: a reader's open file changes."""
    path = tmp_path / "a"
    write_atomic(path, b"old")
    with path.open("rb") as reader:
        write_atomic(path, b"newer")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"newer"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_the_mode_is_the_one_asked_for(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"", mode=0o700)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_data_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: no fsync in replace_in (a power cut then leaves an empty state.json)."""
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b, **at: (order.append("rename"), replace(a, b, **at)))
    write_atomic(tmp_path / "a", b"x")
    assert order == ["fsync", "rename"]


def test_a_short_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: call os.write only once in replace_in."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
    write_atomic(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_full_disk_keeps_the_old_file_and_names_the_fix(small_disk: Path) -> None:
    """Break: do not unlink the temp file in write_atomic: the disk stays full."""
    path = small_disk / "state.json"
    write_atomic(path, b"old")
    with pytest.raises(DiskFull, match=r"state\.json: the disk is full") as caught:
        write_atomic(path, b"x" * 300_000)
    assert "Free some space" in caught.value.hint
    assert path.read_bytes() == b"old"
    assert os.listdir(small_disk) == ["state.json"]
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_line_that_did_not_fit_is_an_error(small_disk: Path) -> None:
    """The kernel writes a part and reports success. Break: ignore the result of os.write in append_line."""
    path = small_disk / "events.jsonl"
    append_line(path, b"first")
    with pytest.raises(DiskFull, match=r"events\.jsonl: the disk is full"):
        append_line(path, b"x" * 300_000)


def test_a_directory_on_a_full_disk_is_a_clear_error(small_disk: Path) -> None:
    """Break: let mkdir's OSError out of private_dir."""
    with pytest.raises(DiskFull):
        private_dir(small_disk.joinpath(*"abcdefgh" * 6))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_and_no_quota_are_the_same_to_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    write_atomic(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskFull):
        write_atomic(tmp_path / "a", b"new")
    with pytest.raises(DiskFull):
        append_line(tmp_path / "log", b"line")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_file_size_limit_is_an_error_too(tmp_path: Path) -> None:
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, old_limit[1]))
        with pytest.raises(LlmcError, match="File too large"):
            write_atomic(tmp_path / "a", b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert os.listdir(tmp_path) == []


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(LlmcError, match=r"cannot write .*/none/a"):
        write_atomic(tmp_path / "none/a", b"x")


def test_lines_of_many_writers_are_whole(tmp_path: Path) -> None:
    """Break: open without O_APPEND."""
    path = tmp_path / "log"
    children = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                for _ in range(200):
                    append_line(path, bytes([65 + number]) * 500)
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    lines = path.read_bytes().splitlines()
    assert len(lines) == 800
    assert {len(set(line)) for line in lines} == {1}
    assert {len(line) for line in lines} == {500}


def test_directories_are_private_all_the_way(tmp_path: Path) -> None:
    """Break: Path.mkdir(parents=True), which creates the parents with the default mode."""
    private_dir(tmp_path / ".llmc/inbox/adam")
    for part in (".llmc", ".llmc/inbox", ".llmc/inbox/adam"):
        assert (tmp_path / part).stat().st_mode & 0o777 == 0o700, part
    private_dir(tmp_path / ".llmc/inbox/adam")


def test_a_second_name_is_a_copy_only_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: copy after any error of `os.link`, and so replace an existing file."""
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("x")
    path.chmod(0o644)
    second_name(path, other)
    assert other.samefile(path)
    with pytest.raises(FileExistsError):
        second_name(path, other)

    def fails(code: int) -> None:
        def link(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(files.os, "link", link)

    for code in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV):
        other.unlink()
        fails(code)
        second_name(path, other)
        assert (other.samefile(path), other.read_text(), other.stat().st_mode & 0o777) == (False, "x", 0o600)
    fails(errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        second_name(path, other)


def test_explain_names_permissions(tmp_path: Path) -> None:
    error = files.explain(PermissionError(errno.EACCES, "Permission denied"), "cannot read /x")
    assert error.message == "cannot read /x: Permission denied"
    assert "permissions" in error.hint


#: the name that 4-040 requires; the list's lock keeps other threads out
NAMED_BY_SPEC = "agents/claude/task_files.py: f'{name}.tmp.{os.getpid()}'"


def test_no_file_is_named_after_its_process_alone() -> None:
    """Break: `f".{name}.{os.getpid()}"` for a temporary file: two threads write the same one."""
    source = Path(llmc.__file__).parent
    found = []
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.unparse(node) if isinstance(node, ast.JoinedStr) else ""
            is_name = "getpid()" in text and " " not in text  # a text for people has spaces
            if is_name and "urandom(" not in text and "time_ns(" not in text:
                found.append(f"{path.relative_to(source)}: {text}")
    assert found == [NAMED_BY_SPEC]
