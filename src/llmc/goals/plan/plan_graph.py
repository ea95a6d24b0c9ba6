"""What waits for what in a plan: ids that are known, and no circle. Pure.

A node that waits for a phase or a task waits for every leaf of it. Leaves may be many, so the circles are looked for
among beginnings and ends: a group begins before its parts and ends after them, a leaf begins and ends at once.
"""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from msgspec import Struct

from llmc.goals.plan.strict_json import Problem

#: so many circles are named
MAX_CYCLES = 20

#: the beginning (False) or the end (True) of a node
_Moment = tuple[str, bool]


class Wait(Struct, frozen=True):
    """What the graph has to know of one node."""

    id: str
    parent: str
    deps: tuple[str, ...]
    #: where it stands, for problems
    path: str


def graph_problems(waits: Sequence[Wait], elsewhere: frozenset[str] = frozenset()) -> list[Problem]:
    """Ids that come twice, dependencies that nobody knows or that are part of the node, and circles.

    `elsewhere`: ids that exist besides these, and may be waited for.
    """
    first: dict[str, Wait] = {}
    problems: list[Problem] = []
    # A node without an id is a problem of its shape; "" is also what is no part of anything.
    waits = [wait for wait in waits if wait.id]
    for wait in waits:
        if wait.id in first:
            text = f"the id {wait.id} is in {first[wait.id].path} already"
            problems.append(_sense(f"{wait.path}.id", text))
        first.setdefault(wait.id, wait)
    for wait in waits:
        problems += _of_deps(wait, first, elsewhere)
    return problems or _cycles(first)


def _sense(path: str, text: str) -> Problem:
    return Problem(path, text, of_shape=False)


def _of_deps(wait: Wait, known: Mapping[str, Wait], elsewhere: frozenset[str]) -> list[Problem]:
    problems = []
    for index, needed in enumerate(wait.deps):
        path = f"{wait.path}.deps[{index}]"
        if needed == wait.id:
            problems.append(_sense(path, f"{wait.id} cannot wait for itself"))
        elif needed not in known:
            if needed not in elsewhere:
                problems.append(_sense(path, f"no phase, task or subtask has the id {needed}"))
        elif needed in _ancestors(wait, known):
            problems.append(_sense(path, f"{wait.id} is part of {needed}, and cannot wait for it"))
        elif wait.id in _ancestors(known[needed], known):
            problems.append(_sense(path, f"{needed} is part of {wait.id}, which cannot wait for it"))
    return problems


def _ancestors(wait: Wait, known: Mapping[str, Wait]) -> list[str]:
    found: list[str] = []
    while wait.parent in known and wait.parent not in found:
        found.append(wait.parent)
        wait = known[wait.parent]
    return found


def _cycles(known: Mapping[str, Wait]) -> list[Problem]:
    """One problem for each circle; a circle is opened where it was found, to see the next one."""
    parents = {wait.parent for wait in known.values()}
    leaves = {id for id in known if id not in parents}
    before = _moments(known, leaves)
    problems: list[Problem] = []
    while len(problems) < MAX_CYCLES:
        try:
            TopologicalSorter(before).prepare()
            break
        except CycleError as error:
            circle: list[_Moment] = error.args[1]  # each is before the next, the first is the last
        path, opened = _named(circle, known, leaves)
        problems.append(_sense(f"{known[opened[0]].path}.deps", f"a circle: {path}"))
        del before[(opened[0], False)][(opened[1], opened[1] not in leaves)]
    return problems


#: what has to come before each moment; dicts, so that the same plan has its problems in the same order
_Before = dict[_Moment, dict[_Moment, None]]


def _moments(known: Mapping[str, Wait], leaves: set[str]) -> _Before:
    before: _Before = {}
    for id, wait in known.items():
        begun = before.setdefault((id, False), {})
        begun |= {(needed, needed not in leaves): None for needed in wait.deps if needed in known}
        if wait.parent in known:
            begun[(wait.parent, False)] = None
            before.setdefault((wait.parent, True), {})[(id, id not in leaves)] = None
    return before


def _named(
    circle: Sequence[_Moment], known: Mapping[str, Wait], leaves: set[str]
) -> tuple[str, tuple[str, str]]:
    """The circle as leaves that wait for each other, and one dependency of it."""
    opened = next(
        (later[0], earlier[0])
        for earlier, later in pairwise(circle)
        if not later[1] and earlier[0] in known[later[0]].deps
    )
    around = [id for id, _ in circle[:-1] if id in leaves][::-1]
    turn = around.index(min(around))
    around = around[turn:] + around[:turn]
    return " waits for ".join([*around, around[0]]), opened
