"""Tasks without model time through four auto workers, against a shell loop that does the same git work.

Measures the time per merged task: at most twice the loop's, that is, at least half its throughput.
"""

import os
import statistics
import time
from functools import partial
from pathlib import Path

from tests.support.fleet import Fleet

from bench.fleets import fleet
from bench.measure import Row, clock_ms, program_ms, row
from bench.repos import fill, git
from llmc.repo.project import Project

NAME = "auto_throughput"
TARGET = 2.0
WORKERS = 4
TASKS = 24
ROUNDS = 3

WORK = "echo {number} > work-{number}.txt; git add work-{number}.txt; git -c user.name=W -c user.email=w@e commit -qm W{number}"

#: what every task needs: a reset, the work, the landing and its verification
LOOP = """
set -e
cd "$1"
i=$2; end=$3
while [ $i -lt $end ]; do
  git -C root fetch -q origin +refs/heads/main:refs/remotes/origin/main
  cd root/.worktrees/w
  git reset -q --hard refs/remotes/origin/main; git clean -fdq; git status --porcelain
  {work}
  git status --porcelain
  git -C ../../../src status --porcelain --untracked-files=no
  git fetch -q origin +refs/heads/main:refs/remotes/origin/main
  git -c user.name=W -c user.email=w@e rebase -q refs/remotes/origin/main
  squash=$(git -c user.name=W -c user.email=w@e commit-tree 'HEAD^{{tree}}' -p refs/remotes/origin/main -m W)
  git update-ref refs/land $squash
  git update-ref refs/trash/$i HEAD
  cd ../../../src
  git fetch -q ../root refs/land
  git merge -q --ff-only $squash
  git -C ../root fetch -q origin +refs/heads/main:refs/remotes/origin/main
  cd ..
  i=$((i + 1))
done
"""


def run() -> list[Row]:
    return [_measure("small repository", many=False), _measure("10,000 files", many=True)]


def _measure(case: str, *, many: bool) -> Row:
    with fleet("scripted", up=None) as (made, project):
        if many:
            fill(made.source)
        loop = _Loop(made.dir / "loop", many)
        made.llmc("config", "set", "auto.task_list_id", "bench")
        made.llmc("config", "set", "auto.tasks_root", str(made.dir / "tasks"))
        made.up("--auto", "--concurrency", str(WORKERS))
        fleet_ms, loop_ms = [], []
        for number in range(ROUNDS):
            loop_ms.append(loop.run(TASKS) / TASKS)
            fleet_ms.append(clock_ms(partial(_through_the_fleet, made, project, number)) / TASKS)
    floor_ms = statistics.median(loop_ms)
    rates = f"{60000 / statistics.median(fleet_ms):.0f} against {60000 / floor_ms:.0f} tasks a minute"
    return row(NAME, case, fleet_ms, "a shell loop", floor_ms, target=TARGET, note=rates)


def _through_the_fleet(made: Fleet, project: Project, round_: int) -> None:
    folder = made.dir / f"plan-{round_}"
    folder.mkdir()
    for index in range(TASKS):
        number = round_ * TASKS + index
        (folder / f"{number}.md").write_text(f"# Do {number}\n\n@sh {WORK.format(number=number)}\n")
    before = project.store.read().auto.tasks_completed
    made.llmc("tasks", "import", str(folder))
    while project.store.read().auto.tasks_completed < before + TASKS:
        time.sleep(0.01)


class _Loop:
    """The same by hand: a source, a clone of it, and a worktree of the clone."""

    def __init__(self, place: Path, many: bool) -> None:
        source, root = place / "src", place / "root"
        source.mkdir(parents=True)
        git(source, "init", "-q", "-b", "main")
        (source / "README.md").write_text("sample\n")
        git(source, "add", "-A")
        git(source, "commit", "-q", "-m", "First commit")
        if many:
            fill(source)
        git(place, "clone", "-q", "--local", "--no-checkout", str(source), str(root))
        git(root, "config", "core.bare", "true")
        git(root, "worktree", "add", "-q", "-b", "w", str(root / ".worktrees/w"), "origin/main")
        self.place, self.next = place, 0
        self.script = place / "loop.sh"
        self.script.write_text(LOOP.format(work=WORK.format(number="$i")))

    def run(self, count: int) -> float:
        first, self.next = self.next, self.next + count
        argv = ["/bin/sh", str(self.script), str(self.place), str(first), str(self.next)]
        return program_ms(argv, os.environ)
