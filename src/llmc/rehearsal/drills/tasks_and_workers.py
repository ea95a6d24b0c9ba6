"""Drills: task sources and workers (rows 1 to 12)."""

import shutil
from pathlib import Path

from llmc.records.worker import Status
from llmc.rehearsal.drills.scratch import Scratch


def pool_fails(scratch: Scratch) -> None:
    broken = scratch.directory / "pool-is-broken"
    scratch.create(**{"auto.task_pool_command": f"test ! -e {broken} || {{ echo no tracker >&2; exit 9; }}"})
    scratch.remedy(f"rm {broken}")
    scratch.task(1)
    scratch.supervise()
    scratch.until(lambda: 1 in scratch.landed(), "task 1 landed")
    scratch.breaks_now()
    broken.touch()
    scratch.noticed("log failure:", "(command")
    scratch.task(2)
    scratch.all_landed()


def pool_hangs(scratch: Scratch) -> None:
    broken = scratch.marks / "pool-hangs"
    command = f"test ! -e {broken} || {{ touch {broken}.reached; sleep 1000; }}"
    scratch.create(**{"auto.task_pool_command": command, "auto.task_pool_timeout_secs": "3"})
    scratch.remedy(f"rm {broken}")
    scratch.supervise()
    broken.touch()
    scratch.reached("pool-hangs")
    scratch.breaks_now()  # it hangs from now on
    scratch.noticed("log failure:", "(command")
    scratch.task(1)
    scratch.all_landed()


def pool_is_empty(scratch: Scratch) -> None:
    asked = scratch.directory / "asked"
    scratch.create(**{"auto.task_pool_command": f"echo asked >> {asked}"})
    scratch.supervise()
    scratch.breaks_now()  # it never has a task
    scratch.until(
        lambda: asked.exists() and len(asked.read_text().split()) >= 3, "the command ran three times"
    )
    scratch.task(1)
    scratch.all_landed()


def pool_repeats(scratch: Scratch) -> None:
    """Return the same task until it is done, like a tracker that does not know that the task is in progress."""
    done = scratch.directory / "done"
    task = f"id: tracker-1\n# Do 1\n\n{scratch.commit(1, before=scratch.gate('go'))}"
    answer = scratch.directory / "answer.md"
    answer.write_text(task)
    asked = scratch.directory / "asked"
    command = f"test -e {done} || {{ echo asked >> {asked}; cat {answer}; }}"
    scratch.create(**{"auto.task_pool_command": command, "auto.concurrency": "2"})
    scratch.breaks_now()
    scratch.supervise()
    scratch.reached("go")
    scratch.until(lambda: len(asked.read_text().split()) >= 3, "the command ran three times")
    done.touch()
    scratch.open("go")
    scratch.expected.add(1)
    scratch.all_landed()
    scratch.require(len(scratch.task_files()) == 1, "there is exactly one task file")


def agent_killed(scratch: Scratch) -> None:
    scratch.at_work()
    scratch.kill_agent()
    scratch.all_landed()


def agent_crashes(scratch: Scratch) -> None:
    """Every task crashes until the cause is fixed: one is quarantined, a second one shows that no task is to blame."""
    fixed = scratch.marks / "fixed"
    scratch.create()
    scratch.remedy(f"touch {fixed}", "llmc tasks requeue 1")
    crash = f"@sh test -e {fixed} || kill -9 $PPID"
    for number in (1, 2):
        scratch.task(number, crash, scratch.commit(number))
    scratch.breaks_now()
    scratch.supervise()
    scratch.noticed("log failure:", "(crash")
    scratch.all_landed()


def agent_hangs(scratch: Scratch) -> None:
    scratch.create(**{"overseer.stall_timeout_secs": "4"})
    scratch.task(1, scratch.half(1, scratch.gate("never")), scratch.commit(1))
    scratch.supervise_to("never")
    scratch.breaks_now()
    scratch.llmc("config", "set", "overseer.stall_timeout_secs", "600")  # for the next daemon
    scratch.noticed("stall failure:")
    scratch.all_landed()


def worker_in_error(scratch: Scratch) -> None:
    """An agent does not resolve its conflict in three rounds; the next attempt starts from the latest default branch."""
    scratch.create()
    person = scratch.marks / "person-was-here"
    conflict = f"test -e {person} || {{ touch {person}; {scratch.person('shared')}; }}"
    scratch.task(1, scratch.commit(1, before=conflict, file="shared"), "@on-conflict true")
    scratch.breaks_now()
    scratch.supervise()
    scratch.detected("status_changed", to="error")
    scratch.all_landed()


def session_killed(scratch: Scratch) -> None:
    scratch.at_work()
    project = scratch.project()
    scratch.breaks_now()
    project.tmux.kill_session(project.session("auto-1"))
    scratch.detected("status_changed", to="offline")
    scratch.open("go")
    scratch.all_landed()


def tmux_killed(scratch: Scratch) -> None:
    """Kill the server with every session."""
    scratch.create(**{"auto.concurrency": "2"})
    for number in (1, 2):
        scratch.task(number, f"@sh {scratch.gate(f'go-{number}')}", scratch.commit(number))
    scratch.supervise()
    for number in (1, 2):
        scratch.reached(f"go-{number}")
    scratch.breaks_now()
    scratch.project().tmux.kill_server()
    scratch.detected("status_changed", to="offline")
    for number in (1, 2):
        scratch.open(f"go-{number}")
    scratch.all_landed()


def session_killed_again(scratch: Scratch) -> None:
    """Kill the session every time it comes back, until the cause is fixed."""
    scratch.create()
    fixed = scratch.directory / "fixed"
    scratch.remedy(f"touch {fixed}")
    scratch.task(1, f"@sh {scratch.gate('go')}", scratch.commit(1))
    scratch.supervise()
    scratch.breaks_now()
    scratch.until(lambda: _kill_at_work(scratch, fixed), "the remediation agent fixes the cause", 90)
    scratch.noticed("log failure:", "(tmux")
    scratch.open("go")
    scratch.all_landed()


def _kill_at_work(scratch: Scratch, fixed: Path) -> bool:
    """Whether the cause is fixed; if not, kill the session if its agent is working on the task."""
    if fixed.exists():
        return True
    project = scratch.project()
    # An agent that is killed before its prompt arrives has crashed, and three crashes quarantine the task.
    if project.store.worker("auto-1").status is Status.WORKING:
        project.tmux.kill_session(project.session("auto-1"))
    return False


def worktree_broken(scratch: Scratch) -> None:
    """The repository loses its entry for the worktree. (A wrong link in the worktree is fixed immediately.)

    A contained worker has no entry there: it has a repository of its own.
    """
    scratch.at_work("llmc doctor --repair --yes", **{"defaults.sandbox": "off"})
    scratch.breaks_now()
    shutil.rmtree(scratch.root / ".git" / "worktrees" / "auto-1")
    scratch.open("go")
    scratch.noticed("failure:")
    scratch.all_landed()


def post_accept_fails(scratch: Scratch) -> None:
    """The landed commit breaks the build; a fix on top repairs it."""
    fixed = scratch.directory / "fixed"
    check = f"test -e {fixed} || {{ echo the build is red; exit 1; }}"
    scratch.create(**{"auto.post_accept_command": check})
    scratch.remedy(f"touch {fixed}")
    scratch.task(1)
    scratch.task(2, after=(1,))
    scratch.breaks_now()
    scratch.supervise()
    scratch.noticed("log failure:", "(command")
    scratch.all_landed()
