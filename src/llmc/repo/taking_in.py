"""Fetches contained workers' commits into the clone before git runs there.

An agent can write its repository, and make it unreadable or slow. So each worker has its own turn, and a failure is a
refusal of that worker. A git call that is not about the worker waits a few seconds for its commits, then goes on.
"""

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from llmc.base import locks
from llmc.base.clock import monotonic, waiting
from llmc.base.errors import LlmcError
from llmc.base.text import in_line
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.repo import git, own_repos
from llmc.repo.git_config import Seen, stamp

#: how long a git call waits for commits of workers that it is not about
OTHERS_S = 5.0
#: such waits take at most 1/_PART of the time
_PART = 10


class TakingIn:
    """Takes in commits for one root's guard. `turn_of`: returns a worker's lock, held by one thread at a time."""

    def __init__(self, root: str, seen: Seen, turn_of: Callable[[str], threading.Lock]) -> None:
        self._root = Path(root)
        self._seen = seen
        self._turn_of = turn_of
        #: by worker: when the next git call that is not about the worker may try
        self._due: dict[str, float] = {}

    def look(self, words: Sequence[str]) -> None:
        """Take in new commits. `words`: git's arguments. Commits that git refuses stay out, so they cannot land."""
        until = monotonic() + OTHERS_S
        for name in own_repos.names(str(self._root)):
            try:
                if self._has_news(name):
                    self._attend(name, words, until)
            except Exception as error:  # a problem of this worker only
                self._tell(name, str(error) or type(error).__name__)

    def _has_news(self, name: str) -> bool:
        return not all(map(self._seen.is_fine, own_repos.watched(str(self._root), name)))

    def _attend(self, name: str, words: Sequence[str], until: float) -> None:
        turn = self._turn_of(name)
        if self._is_about(words, name):
            with waiting(own_repos.MOST_S), turn:
                self._take(name, own_repos.MOST_S)
            return
        began = monotonic()
        if began >= until or began < self._due.get(name, 0.0):
            return
        done = False
        if turn.acquire(timeout=until - began):
            try:
                done = self._take(name, until - monotonic())
            finally:
                turn.release()
        if not done:
            self._due[name] = monotonic() + _PART * (monotonic() - began)

    def _take(self, name: str, limit_s: float) -> bool:
        """Take in a worker's commits; whether this finished in time. The caller holds the worker's turn."""
        files = own_repos.watched(str(self._root), name)
        stamps = [(path, stamp(path)) for path in files[:-2]]  # the clone's own files change now
        until = monotonic() + limit_s
        refusal = own_repos.take(self._root, name, limit_s)
        if refusal and limit_s < own_repos.MOST_S and monotonic() >= until:
            return False
        self._tell(name, refusal)
        for path, found in [*stamps, *((path, stamp(path)) for path in files[-2:])]:
            self._seen.remember(path, found)
        return True

    def _is_about(self, words: Sequence[str], name: str) -> bool:
        """Whether a git call is about this worker: it names one of its refs or paths, or a commit that only it has."""
        if names_worker(words, name):
            return True
        commits = [commit for word in words for commit in _COMMIT.findall(word)]
        claimed = (commit for commit in commits if own_repos.claims(self._root, name, commit))
        return any(not git.has_commit(self._root, commit) for commit in claimed)

    def _tell(self, name: str, refusal: str) -> None:
        if not locks.may_take(locks.Rank.STATE):
            return
        key, store = f"refused:{name}", Store(Root(self._root))
        with suppress(LlmcError):  # an unwritable state must not weaken the guard
            if not refusal and key not in store.read().attention:
                return
            with store.transaction() as tx:
                tx.clear_item(key)
                if refusal:
                    text = f"git cannot fetch {name}'s commits: {in_line(refusal)}"
                    about = {"kind": "refused", "severity": "blocked", "who": name}
                    tx.raise_item(key, text=text, next=f"llmc reset {name}", **about)


_COMMIT = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")


def names_worker(words: Sequence[str], name: str) -> bool:
    """Whether these words name a ref or path that llmc keeps for this worker."""
    named = re.compile(rf"(?:\bllmc(?:/[a-z]+)?|worktrees|repos)/{re.escape(name)}(?![\w-])")
    return any(named.search(word) for word in words)
