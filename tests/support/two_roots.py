"""A process that hosts several roots, like a daemon for many.

Usage: `python -m tests.support.two_roots ROOT ...`.

Auto mode is on in each root with a task list.
"""

import sys

from llmc.daemon.auto_options import AutoOptions
from llmc.daemon.host import Host
from llmc.daemon.main import Daemon, Options
from llmc.repo.project import open_project


def main(*roots: str) -> int:
    projects = [open_project(root) for root in roots]
    options = [
        Options(auto=AutoOptions() if project.config.auto.task_list_id else None) for project in projects
    ]
    return Host([Daemon(*pair) for pair in zip(projects, options, strict=True)]).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
