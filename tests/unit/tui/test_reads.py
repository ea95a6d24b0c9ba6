"""Which of the diffs that threads read for the screen counts as seen."""

import threading

from llmc.tui.reads import Reads


def test_what_was_read_last_counts_whichever_ends_last() -> None:
    """Break: no `read > self._counted` in tui/reads.py."""
    reads, seen = Reads(), list[int]()
    first, second, third = reads.begin(), reads.begin(), reads.begin()
    reads.end(second, lambda: seen.append(second) is None)
    reads.end(first, lambda: seen.append(first) is None)
    assert seen == [second]
    reads.end(third, lambda: False)  # it shows the work so far
    fourth = reads.begin()
    reads.end(fourth, lambda: seen.append(fourth) is None)
    assert seen == [second, fourth]


def test_an_accept_waits_for_the_diffs_that_are_being_read() -> None:
    """Break: `wait` returns immediately: what the user sees on the screen would not count as reviewed."""
    reads, told = Reads(), threading.Event()
    read = reads.begin()
    accept = threading.Thread(target=lambda: (reads.wait(), told.set()))
    accept.start()
    assert not told.wait(0.05)
    reads.end(read, None)
    accept.join(5)
    assert told.is_set()
    reads.wait()
