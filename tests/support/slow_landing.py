"""A second way to land, like a pull request: another party merges it, after a while, or sends it back.

`python -m tests.support.slow_landing FOLDER <llmc's arguments>` is the command `llmc` with it. The folder is
the other side: `offers/` has what was handed over, `answer` the response, `asked` a line for each poll.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from llmc import __main__ as command
from llmc.landing import accept_journal, default_branch, ways
from llmc.repo import provision
from llmc.repo.project import Project

#: an answer that never comes: the caller hangs
HANG = "hang"
MERGE = "merge"
#: the other side makes one commit of its own
SQUASH = "squash"


class SlowLanding:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, project: Project, offer: ways.Offer) -> ways.Landed | ways.Waits:
        offers = self.folder / "offers"
        offers.mkdir(parents=True, exist_ok=True)
        with (self.folder / "begun").open("a") as file:
            file.write(f"{offer.commit}\n")
        (offers / offer.commit).write_text(str(project.root.path))
        return ways.Waits(offer.commit, "a reviewer")

    def poll(
        self, project: Project, offer: ways.Offer, receipt: str
    ) -> ways.Landed | ways.Waits | ways.SentBack:
        assert receipt == offer.commit
        with (self.folder / "asked").open("a") as file:
            file.write(f"{receipt}\n")
        said = self._answer()
        if said == HANG:
            signal.pause()
        if said in (MERGE, SQUASH):
            return ways.Landed(self._merge(project, receipt, said))
        if said:
            (self.folder / "answer").unlink()  # given once: the next offer waits again
            return ways.SentBack(said)
        return ways.Waits(receipt, "a reviewer")

    def verify(self, project: Project, commit: str) -> bool:
        return default_branch.is_landed(project, commit)

    def spread(self, project: Project, offer: ways.Offer) -> str | None:
        return None

    def _answer(self) -> str:
        try:
            return (self.folder / "answer").read_text().strip()
        except FileNotFoundError:
            return ""

    def _merge(self, project: Project, commit: str, how: str) -> str:
        """As the other side does it, once for each offer; returns the commit that has the work."""
        done = self.folder / f"merged-{commit}"
        if done.exists():
            return done.read_text()
        git = ["git", "-C", project.source, "-c", "user.name=Forge", "-c", "user.email=forge@example.com"]
        env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        fetch = ["fetch", "-q", str(project.root.path), "refs/llmc/land/*:refs/offers/*"]
        merge = ["merge", "-q", "--no-ff", "-m", f"Merge {commit[:12]}", commit]
        squash = [["merge", "-q", "--squash", commit], ["commit", "-q", "-m", f"Squashed {commit[:12]} (#7)"]]
        for args in (fetch, *(squash if how == SQUASH else [merge])):
            subprocess.run([*git, *args], env=env, check=True, stdout=subprocess.DEVNULL)
        tip = subprocess.check_output([*git, "rev-parse", "HEAD"], env=env, text=True).strip()
        provision.fetch_base(project)
        landed = tip if how == SQUASH else commit
        done.write_text(landed)
        return landed


def main() -> None:
    folder, *args = sys.argv[1:]
    ways._WAY = SlowLanding(Path(folder))
    accept_journal.POLL_S = 0.2
    sys.argv = ["llmc", *args]
    command.main()


if __name__ == "__main__":
    main()
