"""The command `llmc` on a machine of a fleet, for tests.

Usage: `python -m tests.support.fleet_node LEDGER REMOTE ROOT <arguments>`.
"""

import sys
from pathlib import Path

from msgspec.structs import replace

from llmc import __main__ as command
from llmc.config.model import Config
from llmc.config.paths import Root
from llmc.landing import accept_journal
from llmc.repo import project
from llmc.repo.project import Project, Shared
from llmc.repo.rules.fenced_push import Remote
from tests.support.file_ledger import FileLedger


def main() -> None:
    ledger, address, root, *args = sys.argv[1:]
    found = Shared(Remote(address, "main", limit_s=20), FileLedger(Path(ledger)))
    as_configured = project.opened

    def opened(at: Root, config: Config) -> Project:
        made = as_configured(at, config)
        return replace(made, shared=found) if at.path == Path(root).resolve() else made

    project.opened = opened
    accept_journal.POLL_S = 0.2
    sys.argv = ["llmc", *args]
    command.main()


if __name__ == "__main__":
    main()
