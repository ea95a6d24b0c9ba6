"""The demo of manual mode: three workers, a review, a conflict, three commits."""

import sys
from datetime import datetime

from llmc.rehearsal import sample
from llmc.rehearsal.demo_show import Show

#: each worker's task: the file it is in, and its text
TASKS = {
    "adam": ("by-name.md", sample.BY_NAME),
    "baker": ("warmer.md", sample.WARMER),
    "clara": ("farewell.md", sample.FAREWELL),
}


def tell(show: Show) -> None:
    show.title("A sample repository, and a root for it")
    sample.create(show.source)
    show.llmc(
        "init", "--target", str(show.root), "--agent", "scripted", "--validate", "python3 -m unittest -q"
    )
    show.title("Three workers: each an agent in tmux, in a git worktree of its own")
    for worker in TASKS:
        show.llmc("add", worker)
    show.llmc("up", "--detach")
    show.title("A task for each, delivered and receipted by the agent's own hook")
    for worker, (name, text) in TASKS.items():
        show.file(name, text)
        show.llmc("start", "--worker", worker, "--prompt-file", f"../{name}")
    for worker in TASKS:
        show.llmc("wait", worker, "--status", "needs_review", "--timeout", "60")
    show.llmc("status")
    show.title("clara forgot the test: what would land, and back it goes, in the same conversation")
    show.llmc("review", "clara", "--interface", "diff")
    show.llmc("reject", "clara", "Please add a test for it.")
    show.llmc("wait", "clara", "--status", "needs_review", "--timeout", "60")
    show.title("adam's commit: rebased, validated, squashed, landed by fast-forward")
    before = datetime.now().isoformat(timespec="milliseconds")
    show.llmc("accept", "adam")
    show.title("baker changed the same line, so it is told, and puts both together")
    show.until("baker", "rebase_resolved")
    show.llmc("events", "--worker", "baker", "--since", before)
    show.title("The other two land on top")
    show.llmc("review", "clara", "--interface", "diff")
    show.llmc("accept", "clara")
    show.llmc("accept", "baker")
    show.title("A straight history, and it is green")
    show.run(["git", "log", "--oneline", "--graph", "--stat"], "git log --oneline --graph --stat")
    show.run([sys.executable, "-m", "unittest", "-q"], "python3 -m unittest -q")
    show.llmc("status")
