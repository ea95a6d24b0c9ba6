"""A process that hosts several roots, as a daemon of many would: `python -m tests.support.two_roots ROOT ...`.

A line on its stdin names a root to stop. Auto mode is on in each that has a task list.
"""

import signal
import sys
import threading

from llmc.daemon.auto import AutoOptions
from llmc.daemon.host import Host
from llmc.daemon.main import Daemon, Options
from llmc.repo.project import open_project


def main(*roots: str) -> int:
    projects = [open_project(root) for root in roots]
    options = [
        Options(auto=AutoOptions() if project.config.auto.task_list_id else None) for project in projects
    ]
    daemons = {root: Daemon(*pair) for root, *pair in zip(roots, projects, options, strict=True)}

    def listen() -> None:
        for line in sys.stdin:
            daemon = daemons[line.strip()]
            daemon.loop.call_soon_threadsafe(daemon.told, signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()
    return Host([*daemons.values()]).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
