"""pick: a worker's commits become a branch of the source, and everything else stays as it was."""

from tests.support.fleet import Fleet
from tests.support.repos import snapshot

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


def everything(fleet: Fleet) -> object:
    """The source's branches, checkout and files."""
    refs = fleet.git("for-each-ref", "--format=%(refname) %(objectname)")
    return refs, (fleet.source / ".git/HEAD").read_text(), snapshot(fleet.source)


def test_commits_become_a_branch(scripted: Fleet) -> None:
    """Break: rebase the worktree for it, check the branch out, or use new dates (picks would differ)."""
    scripted.set_up("adam", "baker")
    scripted.up()
    script = f"echo 1 > one.txt; git add -A; {COMMIT} One; echo 2 > two.txt; git add -A; {COMMIT} Two; echo x > rest.txt"
    scripted.llmc("start", "--worker", "adam", "--prompt", f"@sh {script}")
    tip = scripted.wait("adam", "needs_review")["commit_sha"]
    moved = scripted.commit("moved.txt", "m\n", "A person's")
    (scripted.source / "README.md").write_text("half done\n")
    before, row = snapshot(scripted.source), scripted.status("adam")
    picked = scripted.llmc("pick", "adam", "--json").json
    assert (picked["branch"], picked["commits"], picked["base"]) == ("llmc-pick/adam", 2, moved)
    assert picked["dirty"] == ["rest.txt"]
    log = scripted.git("log", "--format=%s by %an", "llmc-pick/adam").splitlines()
    assert log[:3] == ["Two by Worker", "One by Worker", "A person's by Person"]
    assert scripted.git("show", "llmc-pick/adam:two.txt") == "2"
    assert snapshot(scripted.source) == before
    assert scripted.log() == ["A person's", "First commit"]
    assert scripted.status("adam") == row
    assert scripted.git("rev-parse", "HEAD", cwd=scripted.worktree("adam")) == tip
    again = scripted.llmc("pick", "adam")
    assert f"llmc-pick/adam is at {picked['commit'][:12]}" in again.out
    assert "uncommitted files were not included: rest.txt" in again.err
    seen = everything(scripted)
    assert (
        "To land the work, run `llmc accept`" in scripted.llmc("pick", "adam", "--branch", "main", code=2).err
    )
    assert "is not a valid branch name" in scripted.llmc("pick", "adam", "--branch", "a..b", code=2).err
    assert "has no commits" in scripted.llmc("pick", "baker", code=3).err
    assert scripted.llmc("pick", "nobody", code=4).err
    scripted.git("branch", "taken")
    assert "branch taken: it already exists" in scripted.llmc("pick", "adam", "--branch", "taken", code=3).err
    scripted.git("branch", "-D", "taken")
    assert everything(scripted) == seen
    scripted.llmc("down")
    assert scripted.status("adam")["status"] == "offline"
    scripted.llmc("pick", "adam", "--branch", "from-offline")
    assert scripted.git("rev-parse", "from-offline") == picked["commit"]


def test_what_cannot_be_picked_changes_nothing(scripted: Fleet) -> None:
    """Break: create the branch before all commits were replayed, or pick from a busy agent."""
    scripted.set_up("adam")
    scripted.up()
    script = f"echo 1 > one.txt; git add -A; {COMMIT} One; echo mine > README.md; git add -A; {COMMIT} Two"
    scripted.llmc("start", "--prompt", f"@sh {script}\n@hang")
    scripted.wait("adam", "working")
    seen = everything(scripted)
    assert "its commits may still change" in scripted.llmc("pick", "adam", code=3).err
    assert everything(scripted) == seen
    scripted.llmc("reset", "adam")
    scripted.llmc("start", "--prompt", f"@sh {script}")
    scripted.wait("adam", "needs_review")
    scripted.commit("README.md", "theirs\n", "Theirs")
    seen = everything(scripted)
    refused = scripted.llmc("pick", "adam", code=3)
    assert "cannot pick adam: its commits conflict with main in README.md" in refused.err
    assert everything(scripted) == seen
    assert scripted.status("adam")["status"] == "needs_review"
