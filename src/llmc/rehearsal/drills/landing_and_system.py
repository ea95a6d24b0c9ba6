"""Drills: landing, the machine and the network (rows 13 to 19)."""

import contextlib
import os
import signal

from llmc.base.clock import now_unix
from llmc.rehearsal.drills.scratch import PERSON, Scratch
from llmc.repo import git


def conflict(scratch: Scratch) -> None:
    scratch.create()
    resolve = "echo both > shared; git add shared; git -c core.editor=: rebase --continue"
    scratch.task(
        1, scratch.commit(1, before=scratch.person("shared"), file="shared"), f"@on-conflict {resolve}"
    )
    scratch.breaks_now()
    scratch.supervise()
    scratch.detected("rebase_conflicted")
    scratch.all_landed()


def conflicts_again(scratch: Scratch) -> None:
    """The same file keeps changing, and no agent resolves the conflict: the tasks are not the cause."""
    scratch.create()
    fixed = scratch.marks / "fixed"
    scratch.remedy(f"touch {fixed}", "llmc tasks requeue 1", "llmc tasks requeue 2")
    fights = f"test -e {fixed} || {{ {scratch.person('shared')}; }}"
    for number in (1, 2):
        lines = [scratch.commit(number, before=fights, file="shared"), "@on-conflict true"]
        scratch.task(number, *lines)
    scratch.breaks_now()
    scratch.supervise()
    scratch.noticed("failure:", limit_s=120)
    scratch.all_landed(120)


def git_lock(scratch: Scratch) -> None:
    """A killed git left its lock in the source."""
    scratch.create()
    lock = scratch.source / ".git" / "refs" / "heads" / "main.lock"
    scratch.remedy(f"rm {lock}")
    scratch.task(1, f"@sh {scratch.gate('go')}", scratch.commit(1))
    scratch.supervise_to("go")
    scratch.breaks_now()
    lock.touch()
    hour_ago = now_unix() - 3600
    os.utime(lock, (hour_ago, hour_ago))
    scratch.open("go")
    scratch.noticed("log failure:", "(git")
    scratch.all_landed()


def source_dirty(scratch: Scratch) -> None:
    """The user leaves changes in the source; after ten retries it needs a remediation."""
    scratch.create(**{"auto.dirty_backoff_secs": "0.01"})
    scratch.remedy(f"git -C {scratch.source} {PERSON} commit -q -a -m 'By a person'")
    scratch.task(1, f"@sh {scratch.gate('go')}", scratch.commit(1))
    scratch.supervise_to("go")
    words = "a person writes here"
    scratch.breaks_now()
    (scratch.source / "README.md").write_text(f"{words}\n")
    scratch.open("go")
    scratch.detected("source_dirty")
    scratch.until(lambda: scratch.events("overseer_failure"), "all ten retries failed", 90)
    scratch.all_landed()
    shown = git.git(scratch.source, "log", "-p", "--format=%an", "--", "README.md").stdout
    scratch.require(words in shown, "the user's change is in the history")


def disk_full(scratch: Scratch) -> None:
    scratch.at_work()
    scratch.breaks_now()
    _fill(scratch)
    scratch.open("go")
    scratch.seen(lambda: "(disk)" in scratch.said(), "the supervisor reports that the disk is full")
    scratch.require(scratch.ended() == 12, "the supervisor exits with code 12")
    (scratch.directory / "filler").unlink()


def _fill(scratch: Scratch) -> None:
    """Fill the disk to the last byte."""
    with (scratch.directory / "filler").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)


def out_of_memory(scratch: Scratch) -> None:
    """Kill the daemon twice, as the kernel does: a remediation does not add memory."""
    first = scratch.at_work()
    scratch.breaks_now()
    os.kill(first, signal.SIGKILL)
    scratch.noticed("process failure:")
    os.kill(scratch.daemon(other_than=first), signal.SIGKILL)
    scratch.require(scratch.ended() == 10, "the supervisor exits with code 10")


def usage_limit(scratch: Scratch) -> None:
    scratch.create(**{"auto.concurrency": "2"})
    scratch.task(1, "@limit 1", f"@on-resume {scratch.commit(1)[4:]}")
    scratch.task(2)
    scratch.breaks_now()
    scratch.supervise()
    scratch.detected("fleet_parked", cause="limit")
    scratch.all_landed()


def network_lost(scratch: Scratch) -> None:
    """The API cannot be reached three times in a row; then it is back."""
    scratch.create()
    scratch.task(1, "@error 529", f"@on-resume {scratch.commit(1)[4:]}")
    scratch.breaks_now()
    scratch.supervise()
    scratch.detected("fleet_parked", cause="api")
    scratch.all_landed()
