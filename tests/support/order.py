"""The order in which pytest-xdist's workers run the tests, so that all of them finish at the same time.

Each worker starts at the front of its part of the list; an idle one takes tests from the end of another's. So
every part starts with its share of the slow files, and what is left at the end is short.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import TypeVar

T = TypeVar("T")


def in_parts(kinds: Iterable[Iterable[tuple[int, Sequence[T]]]], quick: Sequence[T], count: int) -> list[T]:
    """Kinds of files, the slowest first, and single tests: one list that is cut into `count` equal parts.

    Each file has a weight among those of its kind, and stays whole.
    """
    shares: list[list[T]] = [[] for _ in range(count)]
    for files in kinds:
        _spread(files, shares)
    rest = iter(quick)
    left = len(quick) + sum(map(len, shares))
    parts: list[list[T]] = []
    for share in sorted(shares, key=len, reverse=True):
        size = left // (count - len(parts))
        parts.append([*share, *islice(rest, max(0, size - len(share)))])
        left -= len(parts[-1])
    return [test for part in parts for test in part]


def _spread(files: Iterable[tuple[int, Sequence[T]]], shares: list[list[T]]) -> None:
    """Add the files to the shares: the heaviest first, each to the lightest share."""
    totals = [0] * len(shares)
    for weight, tests in sorted(files, key=lambda file: file[0], reverse=True):
        least = totals.index(min(totals))
        totals[least] += weight
        shares[least].extend(tests)


def by_file(names: Sequence[str]) -> list[tuple[str, list[int]]]:
    """The files of these tests, each with the positions of its tests in the list."""
    found = groupby(enumerate(names), key=lambda pair: pair[1].partition("::")[0])
    return [(file, [at for at, _ in pairs]) for file, pairs in found]
