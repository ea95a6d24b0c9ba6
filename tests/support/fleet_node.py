"""The command `llmc` on a machine of a fleet, for tests: `python -m tests.support.fleet_node LEDGER REMOTE ROOT <arguments>`."""

import sys
from pathlib import Path

from llmc import __main__ as command
from llmc.landing import accept_journal
from llmc.repo import shared
from llmc.repo.rules.fence import Remote
from tests.support.file_ledger import FileLedger


def main() -> None:
    ledger, address, root, *args = sys.argv[1:]
    remote = Remote(address, "main", limit_s=20)
    shared.fleets[str(Path(root).resolve())] = shared.Shared(remote, FileLedger(Path(ledger)))
    accept_journal.POLL_S = 0.2
    sys.argv = ["llmc", *args]
    command.main()


if __name__ == "__main__":
    main()
