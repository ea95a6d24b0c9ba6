"""The user chooses the root: a directory with the right files does not choose itself, and runs nothing."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.fleet import Fleet

IDENTITY = "git -c user.name=W -c user.email=w@example.com"
NOBODY = 65534


def plant(directory: Path, mark: Path) -> None:
    """A root in which every command leaves a mark."""
    program = directory / "evil.sh"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    (directory / ".llmc").mkdir()
    (directory / ".llmc/x").write_text("")
    (directory / "config.toml").write_text(
        f'[repo]\nsource = "{directory}"\nsetup = "{program}"\nvalidate = "{program}"\n'
        f'[defaults]\nagent = "claude"\nagent_command = "{program}"\n[notify]\ncommand = "{program}"\n'
    )
    (directory / "state.json").write_text('{"version": 1, "workers": {}}')


COMMANDS = (
    ("doctor",),
    ("status",),
    ("status", "--json"),
    ("up", "--detach"),
    ("notify", "test"),
    ("start", "--new", "--prompt", "x"),
    ("add", "adam"),
    ("events",),
    ("goal", "list"),
    ("down",),
    ("config", "get", "repo.source"),
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_below_a_directory_of_another_user(scripted: Fleet) -> None:
    """Break: use whatever encloses the working directory."""
    theirs, mark = scripted.dir / "theirs", scripted.dir / "mark"
    (theirs / "sub").mkdir(parents=True)
    plant(theirs, mark)
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    env = {"LLMC_AGENT": ""}
    for command in COMMANDS:
        done = scripted.llmc(*command, cwd=theirs / "sub", code=None, **env)
        assert done.code == 3, command
        assert "belongs to user nobody" in done.err
        done = scripted.llmc("--root", str(theirs), *command, code=None, **env)
        assert done.code == 3, command
    assert not mark.exists()
    assert sorted(path.name for path in (theirs / ".llmc").iterdir()) == ["x"]


def test_files_that_an_agent_landed_choose_nothing(scripted: Fleet) -> None:
    """In the user's checkout, in a worktree, and in another user's clone. Break: as above."""
    fleet, mark = scripted.set_up("adam"), scripted.dir / "mark"
    plant(fleet.source, mark)
    fleet.git("add", "-Af")
    fleet.git("commit", "-qm", "Landed")
    env = {"LLMC_AGENT": ""}
    for command in (("doctor",), ("status",), ("status", "--json"), ("events",)):
        fleet.llmc(*command, cwd=fleet.source, code=None, **env)
    assert fleet.llmc("status", "--json", cwd=fleet.source).json["root"] == str(fleet.root)
    fleet.llmc("reset", "adam")
    assert (fleet.worktree("adam") / ".llmc").is_dir()
    assert fleet.llmc("status", "--json", cwd=fleet.worktree("adam")).json["root"] == str(fleet.root)
    other = fleet.dir / "other"
    fleet.git("clone", "-q", str(fleet.source), str(other))
    for command in COMMANDS:
        done = fleet.llmc(*command, cwd=other, code=None, **env)
        assert done.code == 3, command
        assert "not registered" in done.err
    assert not mark.exists()


def test_an_old_root_is_registered_by_up(scripted: Fleet) -> None:
    """From inside it was used without a question; now llmc asks once. Break: register in any command."""
    fleet = scripted.set_up("adam")
    (fleet.root / ".llmc/root-id").unlink()
    (fleet.home / ".local/state/llmc/roots.json").unlink()
    assert fleet.llmc("status", "--json", cwd=fleet.source).json["root"] == str(fleet.root)
    done = fleet.llmc("status", "--json", cwd=fleet.worktree("adam"), code=3)
    assert f"llmc --root {fleet.root} up" in done.err
    fleet.llmc("--root", str(fleet.root), "doctor", code=None)
    fleet.llmc("status", "--json", cwd=fleet.worktree("adam"), code=3)
    fleet.llmc("--root", str(fleet.root), "up", "--detach")
    assert fleet.llmc("status", "--json", cwd=fleet.worktree("adam")).json["root"] == str(fleet.root)


def test_an_agent_in_its_session_is_told_its_root(scripted: Fleet) -> None:
    """LLMC_ROOT is ours. Break: require a registration there, too."""
    fleet = scripted.set_up("adam")
    fleet.up()
    (fleet.home / ".local/state/llmc/roots.json").unlink()
    report = "llmc report progress half; "
    fleet.llmc(
        "start", "--prompt", f"@sh {report} echo x > x; git add x; {IDENTITY} commit -qm X", cwd=fleet.source
    )
    fleet.llmc("wait", "adam", "--status", "needs_review", "--timeout", "30", cwd=fleet.source)
    assert fleet.events("agent_reported")


def test_what_init_makes_is_private(scripted: Fleet) -> None:
    """Regardless of the umask. Break: let git create the directory."""
    before = os.umask(0o002)
    try:
        scripted.set_up("adam")
    finally:
        os.umask(before)
    assert stat.S_IMODE(scripted.root.stat().st_mode) == 0o700
    scripted.root.chmod(0o775)
    (scripted.root / "config.toml").chmod(0o664)
    found = scripted.llmc("doctor", "--json", code=1).json["findings"]
    assert [row["kind"] for row in found] == ["permissions", "permissions"]
    assert "is writable by other users" in found[0]["text"]
    assert "is writable by other users" in scripted.llmc("up", "--detach").err
    scripted.llmc("doctor", "--repair", "--yes")
    assert stat.S_IMODE(scripted.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((scripted.root / "config.toml").stat().st_mode) == 0o600


def test_a_line_break_in_the_path_is_refused(scripted: Fleet) -> None:
    """git stores worktree paths in lines. Break: leave it to `add`, which fails."""
    done = scripted.llmc("init", "--target", str(scripted.dir / "a\nb"), code=2)
    assert "line break" in done.err
    assert not list(scripted.dir.glob("*a*b*"))


def test_a_moved_root_is_named_again(scripted: Fleet) -> None:
    fleet = scripted.set_up()
    moved = fleet.dir / "moved"
    shutil.move(fleet.root, moved)
    done = fleet.llmc("status", "--json", cwd=moved, code=3)
    assert f"--root {moved}" in done.err
    assert fleet.llmc("--root", str(moved), "status", "--json").json["root"] == str(moved)


CHANGES = (
    ("reset", "adam"),
    ("nuke", "adam", "--yes"),
    ("start", "--worker", "adam", "--prompt", "x"),
    ("up", "--detach"),
    ("add", "baker"),
)
#: what writes neither state.json nor a worktree first
OTHER_CHANGES = (
    ("config", "set", "auto.concurrency", "4"),
    ("tasks", "add", "x"),
    ("tasks", "done", "1"),
    ("tasks", "approve", "1"),
    ("tasks", "edit", "1", "--priority", "0"),
    ("tasks", "import", "plan.md"),
    ("goal", "create", "--title", "x", "--from", "plan.md"),
    ("goal", "update", "GOAL", "--priority", "high"),
    ("goal", "cancel", "GOAL", "--yes"),
    ("work", "block", "T1.1", "--reason", "x"),
)


def test_a_copy_of_a_root_does_not_touch_the_original(scripted: Fleet) -> None:
    """Break: do not compare the worktrees in state.json with the root's own; the copy resets the original's worktree.
    Or compare them when the change is reported: task files can be the original's, too.
    """
    fleet = scripted.set_up()
    fleet.llmc("add", "adam")
    (fleet.source / "plan.md").write_text("# X\n\n## P1: One\n### T1.1: One\naccept: done\n")
    for words in (
        ("config", "set", "auto.task_list_id", "ours"),
        ("config", "set", "overseer.goals.enabled", "true"),
        ("tasks", "add", "One"),
        ("goal", "create", "--title", "x", "--from", "plan.md"),
    ):
        fleet.llmc(*words)
    fleet.up()
    copy = fleet.dir / "copy"
    shutil.copytree(
        fleet.root, copy, symlinks=True, ignore=lambda place, names: [n for n in names if n.endswith("sock")]
    )
    (fleet.worktree("adam") / "work.txt").write_text("hours of work\n")
    link, before = (fleet.worktree("adam") / ".git").read_text(), fleet.record("adam")
    tasks = fleet.llmc("tasks", "list", "--json").json["tasks"]
    goals = fleet.llmc("--root", str(copy), "goal", "export", "--json").json
    kept = [(copy / name).read_bytes() for name in ("state.json", "config.toml")]
    (goal,) = goals["goals"]
    for command in (*CHANGES, *OTHER_CHANGES):
        words = [goal if word == "GOAL" else word for word in command]
        refused = fleet.llmc("--root", str(copy), *words, code=3).err
        assert f"{copy} is a copy of the root at {fleet.root}" in refused, command
    assert [(copy / name).read_bytes() for name in ("state.json", "config.toml")] == kept
    assert fleet.llmc("tasks", "list", "--json").json["tasks"] == tasks
    assert fleet.llmc("--root", str(copy), "goal", "export", "--json").json["goals"] == goals["goals"]
    assert "is a copy of the root" in fleet.llmc("--root", str(copy), "doctor", code=1).out
    fleet.llmc("--root", str(copy), "doctor", "--repair", "--yes", code=None)
    fleet.llmc("--root", str(copy), "down", code=None)
    fleet.llmc("--root", str(copy), "status")
    assert (fleet.worktree("adam") / "work.txt").exists()
    assert (fleet.worktree("adam") / ".git").read_text() == link
    assert fleet.record("adam")["instance"] == before["instance"]
    assert fleet.llmc("status", "--json").json["daemon"]["running"]


def test_a_moved_root_works_again_once_it_is_back(scripted: Fleet) -> None:
    """Break: act on the paths in state.json, which may be those of another root by now."""
    fleet = scripted.set_up()
    fleet.llmc("add", "adam")
    moved = fleet.dir / "moved"
    shutil.move(fleet.root, moved)
    for command in CHANGES:
        refused = fleet.llmc("--root", str(moved), *command, code=3).err
        assert f"was moved there from {fleet.root}; nothing was changed" in refused
        assert f"mv {moved} {fleet.root}" in refused
    fleet.root.symlink_to(moved)
    fleet.llmc("--root", str(moved), "hold", "adam")
    fleet.llmc("--root", str(moved), "release", "adam")
    fleet.root.unlink()
    shutil.move(moved, fleet.root)
    fleet.llmc("reset", "adam")


def test_a_repository_without_a_root_does_not_act_on_another_one(scripted: Fleet) -> None:
    """Break: fall back to ~/llmc for a command, or do not note which root was read."""
    fleet = scripted
    fleet.llmc("init", "--target", str(fleet.home / "llmc"))
    other = fleet.dir / "other"
    fleet.git("init", "-q", str(other))
    for command in (("start", "--new", "--prompt", "x"), ("add", "adam"), ("down",), ("accept", "adam")):
        done = fleet.llmc(*command, cwd=other, code=3)
        assert f"works on {fleet.source}" in done.err, command
        assert "llmc init" in done.err
        assert f"--root {fleet.home / 'llmc'}" in done.err
    for command in (
        ("status",),
        ("status", "--json"),
        ("events", "--json"),
        ("config", "get", "repo.source"),
    ):
        done = fleet.llmc(*command, cwd=other)
        assert done.err.count(f"works on {fleet.source}") == 1, command
        assert fleet.llmc(*command, cwd=fleet.home).err == "", "outside any repository"
        assert fleet.llmc(*command).err == "", "in the source"


def test_init_and_uninstall_say_which_root_the_repository_uses(scripted: Fleet) -> None:
    """Break: silently replace llmc.root; remove it although another root of the repository is left."""
    fleet, first, second = scripted, scripted.dir / "first", scripted.dir / "second"
    done = fleet.llmc("init", "--target", str(first))
    assert "llmc.root" not in done.err
    done = fleet.llmc("init", "--target", str(second))
    assert f"now use {second}, not {first}" in done.err
    assert f"git -C {fleet.source} config llmc.root {first}" in done.err
    looked = fleet.llmc("--root", str(second), "uninstall", "--dry-run")
    assert f"would use {first}" in looked.out
    done = fleet.llmc("--root", str(second), "uninstall", "--yes")
    assert f"now use {first}" in done.out
    assert fleet.git("config", "llmc.root") == str(first)
    assert fleet.llmc("status", "--json").json["root"] == str(first)
    done = fleet.llmc("uninstall", "--yes")
    assert f"{fleet.source} has no other llmc root" in done.out
    assert "llmc.root" not in fleet.git("config", "--list", "--local")


def test_uninstall_leaves_the_root_that_the_repository_names(scripted: Fleet) -> None:
    """Break: name the latest root although the repository names another one."""
    fleet, first, second = scripted, scripted.dir / "first", scripted.dir / "second"
    for root in (first, second):
        fleet.llmc("init", "--target", str(root))
    third = fleet.llmc("init", "--target", str(fleet.dir / "third"), "--json").json
    assert third["replaced"] == str(second)
    fleet.git("config", "llmc.root", str(first))
    done = fleet.llmc("--root", str(second), "uninstall", "--yes", "--json").json
    assert done["next_root"] == str(first)
    assert fleet.git("config", "llmc.root") == str(first)
