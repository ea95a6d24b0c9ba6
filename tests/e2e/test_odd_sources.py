"""Unusual sources: each lands correctly, or is refused with the fix; nothing of the user's is touched."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base import locks
from tests.support.fleet import Fleet, Result, in_soak
from tests.support.repos import snapshot
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q"


@pytest.fixture(scope="module")
def odd() -> Iterator[Fleet]:
    """One worker, and a validation that leaves a mark each time it runs; every test leaves adam idle."""
    fleet = Fleet("scripted")
    fleet.commit(".gitignore", "*.cache\n*.env\n", "Ignore")
    fleet.set_up("adam", config={"repo.validate": f"echo v >> {fleet.dir}/validated"})
    fleet.up()
    yield fleet
    fleet.close()


def work(fleet: Fleet, script: str, message: str, worker: str = "adam") -> str:
    """A task that commits everything the script did; returns the commit that waits for review."""
    fleet.llmc("start", "--worker", worker, "--prompt", f"@sh {script}; git add -A; {COMMIT} -m '{message}'")
    return str(fleet.wait(worker, "needs_review")["commit_sha"])


def validations(fleet: Fleet) -> int:
    path = fleet.dir / "validated"
    return len(path.read_text().splitlines()) if path.exists() else 0


def person_sees(fleet: Fleet) -> object:
    """Everything in the source that the user could notice."""
    state = fleet.git("status", "--porcelain=v1", "-uall", "--ignored")
    refs = fleet.git("for-each-ref", "--format=%(refname) %(objectname)")
    return refs, (fleet.source / ".git/HEAD").read_text(), state, snapshot(fleet.source)


def refused(fleet: Fleet, code: int = 3) -> Result:
    """The accept is refused before the validation, and leaves the source and the worker unchanged."""
    before, runs = person_sees(fleet), validations(fleet)
    result = fleet.llmc("accept", "adam", code=code)
    assert person_sees(fleet) == before
    assert validations(fleet) == runs, "it was validated in vain"
    row = fleet.status("adam")
    assert (row["status"], row["accept_step"]) == ("needs_review", None)
    return result


def landed(fleet: Fleet, subject: str) -> None:
    """Accepted: one commit on the branch, the worker idle and clean on it."""
    before = fleet.log()
    fleet.llmc("accept", "adam")
    assert fleet.log() == [subject, *before]
    assert fleet.status("adam")["status"] == "idle"
    assert fleet.git("status", "--porcelain", cwd=fleet.worktree("adam")) == ""
    assert fleet.git("rev-parse", "HEAD", cwd=fleet.worktree("adam")) == fleet.git("rev-parse", "main")


@pytest.mark.req("1-113")
@pytest.mark.soak
def test_uncommitted_changes_and_files_in_the_way(odd: Fleet) -> None:
    """Break: leave refuse_files_in_the_way out of the check: validation runs before git finds the files."""
    work(
        odd,
        "mkdir -p way && echo 1 > way/new.txt && echo 2 > plain && echo 3 > x.cache && git add -f x.cache",
        "Way",
    )
    (odd.source / "README.md").write_text("half done\n")
    assert "uncommitted changes: README.md" in refused(odd).err
    odd.git("checkout", "-q", "README.md")
    for name in ("plain", "x.cache", "way", "way/new.txt"):
        path = odd.source / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("a person's only copy\n")
        said = refused(odd)
        assert f"would be overwritten: {name}" in said.err
        assert "Move or commit them" in said.err
        path.unlink()
    (odd.source / "notes.txt").write_text("beside it\n")
    landed(odd, "Way")
    assert (odd.source / "notes.txt").read_text() == "beside it\n"
    assert (odd.source / "x.cache").read_text() == "3\n", "an ignored file that a worker commits lands"
    (odd.source / "notes.txt").unlink()


@pytest.mark.req("1-113")
@pytest.mark.parametrize("where", ["detached", *in_soak("another branch")])
def test_the_branch_is_not_checked_out(odd: Fleet, where: str) -> None:
    """Break: check the branch out to land, or look for changes in an unrelated checkout."""
    odd.git("checkout", "-q", *(["--detach"] if where == "detached" else ["-B", "feature"]))
    (odd.source / "README.md").write_text("half done elsewhere\n")
    work(odd, f"echo x > '{where}.txt'", f"From {where}")
    head, files = (odd.source / ".git/HEAD").read_text(), snapshot(odd.source)
    landed(odd, f"From {where}")
    assert ((odd.source / ".git/HEAD").read_text(), snapshot(odd.source)) == (head, files)
    odd.git("checkout", "-q", "README.md")
    odd.git("checkout", "-q", "main")


def test_a_stale_index_lock(odd: Fleet) -> None:
    """Break: leave the lock out of check_source: git itself would blame files that are not in the way."""
    work(odd, "echo x > locked.txt", "Locked")
    lock = odd.source / ".git/index.lock"
    lock.touch()
    said = refused(odd)
    assert "a git command is running there" in said.err
    assert f"rm {lock}" in said.err
    lock.unlink()
    landed(odd, "Locked")


def hook(directory: Path, name: str, script: str) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_hooks_that_fail(odd: Fleet) -> None:
    """Break: leave _take_back out: a hook that refuses the branch leaves the landed files in the checkout.

    Or let the clone's hooks run, which any agent can write.
    """
    hooks = odd.source / ".git/hooks"
    for name in ("pre-commit", "pre-merge-commit", "commit-msg", "post-checkout"):
        hook(hooks, name, "echo the source says no >&2; exit 1")
    hook(hooks, "post-merge", f"echo merged >> {odd.dir}/post-merge; exit 1")
    for name in (
        "pre-rebase",
        "post-checkout",
        "post-rewrite",
        "pre-commit",
        "reference-transaction",
        "pre-push",
    ):
        hook(odd.root / ".git/hooks", name, f"echo {name} >> {odd.dir}/clone-hooks; exit 1")
    try:
        # The worker's own commit would run them too.
        skip = "git -c core.hooksPath=/dev/null -c user.name=W -c user.email=w@example.com commit -q"
        odd.llmc("start", "--prompt", f"@sh echo x > README.md; git add -A; {skip} -m Hooks")
        odd.wait("adam", "needs_review")
        (odd.dir / "clone-hooks").unlink(missing_ok=True)
        policy = 'test "$1" != prepared || ! grep -q refs/heads/main || { echo not on a Friday >&2; exit 1; }'
        refusing = hook(hooks, "reference-transaction", policy)
        before = person_sees(odd)
        said = odd.llmc("accept", "adam", code=3)
        assert "not on a Friday" in said.err
        assert "Fix the error that git or the hook reported" in said.err
        assert person_sees(odd) == before
        refusing.unlink()
        landed(odd, "Hooks")
        assert (odd.dir / "post-merge").read_text() == "merged\n", "the user's own hook runs, once"
        assert not (odd.dir / "clone-hooks").exists(), "hooks that agents can write ran in llmc's name"
    finally:
        shutil.rmtree(hooks)
        shutil.rmtree(odd.root / ".git/hooks")


def test_names_modes_links_and_line_endings(odd: Fleet) -> None:
    """Break: squash from a diff instead of the tree, or land through a patch: modes, links and bytes would change."""
    odd.git("config", "core.autocrlf", "true")
    attributes = "*.bat text eol=crlf\n*.raw -text\n"
    (odd.source / "to-link").write_text("a file\n")
    (odd.source / "to-file").symlink_to("README.md")
    (odd.source / "Case.txt").write_text("case\n")
    (odd.source / "tool.sh").write_text("#!/bin/sh\n")
    (odd.source / "run.bat").write_bytes(b"one\r\n")
    (odd.source / "data.raw").write_bytes(b"a\r\nb\n")
    odd.commit(".gitattributes", attributes, "Attributes")
    odd.git("add", "-A")
    odd.git("commit", "-q", "-m", "Odd files")
    script = (
        "git mv Case.txt case.txt && chmod +x tool.sh && rm to-link to-file && ln -s tool.sh to-link"
        " && echo now a file > to-file && printf 'two\\r\\n' >> run.bat && printf 'c\\r\\n' >> data.raw"
    )
    work(odd, script, "Odd changes")
    landed(odd, "Odd changes")
    assert odd.git("status", "--porcelain") == ""
    names = {path.name for path in odd.source.iterdir()}
    assert "case.txt" in names
    assert "Case.txt" not in names
    assert os.readlink(odd.source / "to-link") == "tool.sh"
    assert not (odd.source / "to-file").is_symlink()
    assert (odd.source / "tool.sh").stat().st_mode & stat.S_IXUSR
    assert (odd.source / "run.bat").read_bytes() == b"one\r\ntwo\r\n"
    assert odd.git("show", "main:run.bat") == "one\ntwo"
    assert (odd.source / "data.raw").read_bytes() == b"a\r\nb\nc\r\n"
    odd.git("config", "--unset", "core.autocrlf")


def test_line_endings_that_no_checkout_can_have(odd: Fleet) -> None:
    """Break: leave the hint out: the worker could never start again, without an explanation."""
    (odd.source / "bad.dos").write_bytes(b"crlf in the repository\r\n")
    odd.git("add", "bad.dos")
    odd.git("commit", "-q", "-m", "CRLF")
    odd.commit(".gitattributes", "*.dos text\n", "Now it is text")
    said = odd.llmc("start", "--prompt", "@say hello", code=1)
    assert "is not clean after a reset (bad.dos)" in said.err
    assert "git add --renormalize ." in said.err
    odd.git("add", "--renormalize", ".")
    odd.git("commit", "-q", "-m", "Renormalized")
    work(odd, "echo x > after-crlf.txt", "After CRLF")
    landed(odd, "After CRLF")


def test_a_message_of_a_megabyte(odd: Fleet) -> None:
    """Break: pass the message to git as an argument."""
    big = "seq -f 'line %g of a message that goes on' 1 30000"
    script = f"echo x > big.txt; git add -A; (echo Big; echo; {big}) | {COMMIT} -F -"
    odd.llmc("start", "--prompt", f"@sh {script}")
    odd.wait("adam", "needs_review")
    landed(odd, "Big")
    message = odd.git("show", "-s", "--format=%B", "main")
    assert len(message) > 1_000_000
    assert message.endswith("line 30000 of a message that goes on")


@pytest.mark.req("1-101")
def test_work_that_is_on_the_branch_already(odd: Fleet) -> None:
    """Break: refuse instead, as a failure: the worker would wait forever with work that cannot land."""
    (odd.source / "key.env").write_text("1\n")
    odd.llmc("config", "set", "repo.copy", '["*.env"]')
    tip = work(odd, "cp key.env same.txt", "The same")
    odd.commit("same.txt", "1\n", "A person was faster")
    before = odd.log()
    said = odd.llmc("accept", "adam", "--json")
    assert said.json["commit"] is None
    assert odd.log() == before
    assert odd.status("adam")["status"] == "idle"
    assert len(odd.events("accepted_nothing")) == 1
    assert odd.git("for-each-ref", "--contains", tip, "refs/llmc/trash", cwd=odd.root), "its commit is lost"
    odd.llmc("config", "unset", "repo.copy")
    work(
        odd,
        "echo y > there-and-back && git add -A && git -c user.name=W -c user.email=w@e commit -qm 1 && rm there-and-back",
        "2",
    )
    assert "nothing to land" in odd.llmc("accept", "adam").out
    assert odd.log() == before


@pytest.mark.parametrize("kind", ["url", *in_soak("bare")])
def test_a_source_without_files(scripted: Fleet, kind: str) -> None:
    """Break: look for a checkout, or for files to copy, where there is none; or resume what was refused."""
    bare = scripted.dir / "bare.git"
    scripted.git("clone", "-q", "--bare", str(scripted.source), str(bare))
    source = str(bare) if kind == "bare" else f"file://{bare}"
    scripted.llmc("init", "--source", source, "--target", str(scripted.root))
    scripted.env["LLMC_ROOT"] = str(scripted.root)
    scripted.llmc("config", "set", "repo.copy", '["*.env"]')
    scripted.llmc("add", "adam")
    scripted.up()
    work(scripted, "echo x > x.txt", "To the bare one")
    scripted.llmc("accept", "adam")
    assert scripted.git("log", "--format=%s", "main", cwd=bare).splitlines() == [
        "To the bare one",
        "First commit",
    ]
    assert scripted.status("adam")["status"] == "idle"
    assert scripted.log() == ["First commit"]
    work(scripted, "echo y > y.txt", "Refused")
    name = "reference-transaction" if kind == "bare" else "pre-receive"
    hook(bare / "hooks", name, 'test "$1" = committed || { echo closed >&2; exit 1; }')
    said = scripted.llmc("accept", "adam", code=3)
    assert "closed" in said.err
    assert scripted.status("adam")["accept_step"] is None, "refused is final: nothing lands it later"
    shutil.rmtree(bare / "hooks")
    scripted.llmc("accept", "adam")
    assert scripted.git("log", "-1", "--format=%s", "main", cwd=bare) == "Refused"


@pytest.mark.req("2-003")
@pytest.mark.skipif(
    shutil.which("git-lfs") is None,
    reason="git-lfs IS NOT INSTALLED: landing LFS files was NOT checked; scripts/setup --client installs it",
)
@pytest.mark.soak
def test_submodules_and_large_files(scripted: Fleet) -> None:
    """Break: do not update submodules after a rebase, or land before the large files are in the source's store."""
    library = scripted.dir / "library"
    library.mkdir()
    scripted.git("init", "-q", "-b", "main", cwd=library)
    (library / "lib.c").write_text("1\n")
    scripted.git("add", ".", cwd=library)
    scripted.git("commit", "-q", "-m", "Library", cwd=library)
    scripted.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    scripted.git("lfs", "install", "--local")
    scripted.git("lfs", "track", "*.bin")
    (scripted.source / "a.bin").write_text("large\n")
    scripted.git("add", "-A")
    scripted.git("commit", "-q", "-m", "Submodule and large file")
    scripted.set_up(
        "adam", config={"repo.validate": "test $(cat lib/lib.c) = 2 && test $(cat a.bin) = larger"}
    )
    scripted.up()
    work(scripted, "test $(cat lib/lib.c) = 1 && test $(cat a.bin) = large && echo larger > a.bin", "Larger")
    (library / "lib.c").write_text("2\n")
    scripted.git("commit", "-q", "-a", "-m", "Newer", cwd=library)
    scripted.git("fetch", "-q", cwd=scripted.source / "lib")
    scripted.git("checkout", "-q", "origin/main", cwd=scripted.source / "lib")
    scripted.git("commit", "-q", "-a", "-m", "Newer library")
    landed(scripted, "Larger")
    assert (scripted.source / "a.bin").read_text() == "larger\n"
    assert scripted.git("status", "--porcelain") == ""
    script = "cd lib && echo 3 > lib.c && git -c user.name=W -c user.email=w@e commit -qam Own && cd .."
    work(scripted, script, "Own library commit")
    said = scripted.llmc("accept", "adam", code=3)
    assert "which the source repository does not have" in said.err
    fetch = said.err.split("Run `git ")[1].partition("`")[0]
    scripted.git(*fetch.split())
    scripted.llmc("config", "set", "repo.validate", "test $(cat lib/lib.c) = 3")
    scripted.llmc("accept", "adam")
    assert scripted.log()[0] == "Own library commit"


def test_objects_behind_a_symlink(scripted: Fleet) -> None:
    """Break: let init give up when git refuses to link objects behind a symlink, as during `git gc`."""
    objects = scripted.source / ".git/objects"
    objects.rename(scripted.dir / "objects")
    objects.symlink_to(scripted.dir / "objects")
    scripted.set_up("adam")
    scripted.up()
    work(scripted, "echo 1 > one.txt", "One")
    landed(scripted, "One")


@pytest.mark.parametrize("folders", [10, *in_soak(100)])
def test_many_files(scripted: Fleet, folders: int) -> None:
    """Ten thousand of them in `make soak`. Break: one git call per file."""
    for number in range(folders):
        folder = scripted.source / f"d{number}"
        folder.mkdir()
        for other in range(100):
            (folder / f"f{other}.txt").write_text(f"{number} {other}\n")
    scripted.git("add", "-A")
    scripted.git("commit", "-q", "-m", "Many")
    scripted.set_up("adam")
    scripted.up()
    work(
        scripted,
        "rm -r d1 && for d in d2 d3 d4; do echo x >> $d/f1.txt; done; mkdir new && cp -r d5 new/d5",
        "Many changes",
    )
    landed(scripted, "Many changes")
    assert scripted.git("status", "--porcelain") == ""
    assert not (scripted.source / "d1").exists()
    assert len(list((scripted.source / "new/d5").iterdir())) == 100


def test_a_landing_of_somebody_else_is_no_person_at_work(odd: Fleet) -> None:
    """Break: trust the first check of the source. Auto mode would wait a minute, up to ten times."""
    work(odd, "echo mine > mine.txt", "Mine")
    with locks.lock(odd.root / ".llmc/locks/merge.lock", locks.Rank.MERGE):
        before = (odd.source / "README.md").read_text()
        (odd.source / "README.md").write_text("half of what lands\n")
        accept = odd.spawn("accept", "adam")
        wait_until(lambda: odd.status("adam")["accept_step"] == "check")
        with pytest.raises(subprocess.TimeoutExpired):
            accept.wait(1.5)
        (odd.source / "README.md").write_text(before)
    assert accept.wait(60) == 0
    assert odd.log()[0] == "Mine"
