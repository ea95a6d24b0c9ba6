"""File changes, as reported by the kernel."""

import os
import select
from pathlib import Path

import pytest

from llmc.base.wake import open_watch
from llmc.hook_client import PORTABLE

pytestmark = pytest.mark.skipif(PORTABLE, reason="only on Linux")


def test_what_is_written_moved_and_removed_is_named(tmp_path: Path) -> None:
    """Break: leave _MOVED_TO out; a file written by rename, as all are here, goes unnoticed."""
    (tmp_path / "old").touch()
    watch = open_watch(tmp_path)
    assert watch.changed() == set()
    (tmp_path / "new.tmp").write_text("x")
    os.rename(tmp_path / "new.tmp", tmp_path / "new")
    (tmp_path / "old").unlink()
    assert select.select([watch], [], [], 5)[0]
    assert watch.changed() == {"new.tmp", "new", "old"}
    assert watch.changed() == set()
    with (tmp_path / "new").open("a") as file:
        file.write("more")
    assert watch.changed() == {"new"}
    (tmp_path / "ünï\n").touch()
    assert watch.changed() == {"ünï\n"}
    watch.close()


def test_more_than_the_kernel_keeps_is_unknown(tmp_path: Path) -> None:
    """Break: ignore _OVERFLOW; dropped changes would never be read."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    watch = open_watch(tmp_path)
    for _ in range(limit // 2 + 10):  # two writes with different events, so that the kernel cannot merge them
        for name in ("a", "b"):
            os.close(os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT))
    assert watch.changed() is None
    assert watch.changed() == set()
    watch.close()


def test_a_directory_that_goes_is_unknown(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    watch = open_watch(folder)
    folder.rmdir()
    assert watch.changed() is None
    watch.close()
    with pytest.raises(FileNotFoundError):
        open_watch(folder)
