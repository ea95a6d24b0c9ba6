"""Large files from the repository of a contained worker: an agent wrote that store."""

import hashlib
import os
from pathlib import Path

from llmc.repo import own_large_files


def put(store: Path, content: bytes, name: str = "") -> Path:
    name = name or hashlib.sha256(content).hexdigest()
    path = store / "lfs/objects" / name[:2] / name[2:4] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def taken(clone: Path) -> list[bytes]:
    return [path.read_bytes() for path in (clone / "lfs/objects").rglob("*") if path.is_file()]


def test_only_what_is_named_by_its_content_is_taken(tmp_path: Path) -> None:
    """Break: leave out the comparison of the hash, or follow links."""
    clone, own, theirs = tmp_path / "clone", tmp_path / "own", tmp_path / "theirs"
    good = put(own, b"large")
    put(own, b"a lie", "0" * 64)
    private = put(theirs, b"private")
    link = put(own, b"", private.name)
    link.unlink()
    link.symlink_to(private)
    pipe = put(own, b"", "1" * 64)
    pipe.unlink()
    os.mkfifo(pipe)
    own_large_files.take(clone, own)
    assert taken(clone) == [b"large"]
    before = next((clone / "lfs/objects").rglob(good.name)).stat().st_ino
    assert before != good.stat().st_ino, "the agent can still write its own"
    own_large_files.take(clone, own)
    assert next((clone / "lfs/objects").rglob(good.name)).stat().st_ino == before


def test_a_store_that_is_a_link_is_none(tmp_path: Path) -> None:
    clone, own, theirs = tmp_path / "clone", tmp_path / "own", tmp_path / "theirs"
    put(theirs, b"private")
    own.mkdir()
    own_large_files.take(clone, own)
    (own / "lfs").symlink_to(theirs / "lfs")
    own_large_files.take(clone, own)
    assert taken(clone) == []
