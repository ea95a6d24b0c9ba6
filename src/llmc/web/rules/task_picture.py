"""Draws tasks and their dependencies: each task is to the right of all tasks that it waits for. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

BOX_WIDTH, BOX_HEIGHT = 220, 44
GAP_X, GAP_Y = 60, 16
#: a larger graph is not drawn; the list has every task
MOST = 400


class Box(Struct, frozen=True):
    """A task in the picture."""

    id: str
    subject: str
    state: str
    x: int
    y: int


class Line(Struct, frozen=True):
    """A dependency: from the right edge of a task to the left edge of a task that waits for it."""

    x1: int
    y1: int
    x2: int
    y2: int
    #: on the longest chain
    critical: bool


class Picture(Struct, frozen=True):
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: int
    height: int


def picture(tasks: Iterable[Mapping[str, Any]]) -> Picture | None:
    """The open tasks and their dependencies; None if there is nothing to draw, or too much."""
    known = {str(task["id"]): task for task in tasks if task["status"] != "completed"}
    after = {id: [str(one) for one in task["after"] if str(one) in known] for id, task in known.items()}
    if not any(after.values()) or len(known) > MOST:
        return None
    layer = _layers(after)
    columns: dict[int, list[str]] = {}
    for id in sorted(known, key=lambda id: (layer[id], _order(id))):
        columns.setdefault(layer[id], []).append(id)
    places: dict[str, tuple[int, int]] = {}
    for column, ids in columns.items():
        # near the tasks that it waits for, so that fewer lines cross; in a dependency cycle, not all have a place yet
        ids.sort(
            key=lambda id: (
                sum(places[one][1] for one in after[id] if one in places) / (len(after[id]) or 1),
                _order(id),
            )
        )
        for row, id in enumerate(ids):
            places[id] = (column * (BOX_WIDTH + GAP_X), row * (BOX_HEIGHT + GAP_Y))
    chain = _longest(after, layer)
    boxes = tuple(
        Box(id, str(task["subject"]), str(task["state"]), *places[id]) for id, task in known.items()
    )
    lines = tuple(
        Line(
            places[one][0] + BOX_WIDTH,
            places[one][1] + BOX_HEIGHT // 2,
            places[id][0],
            places[id][1] + BOX_HEIGHT // 2,
            (one, id) in chain,
        )
        for id, needed in after.items()
        for one in needed
    )
    height = max(y for _, y in places.values()) + BOX_HEIGHT
    return Picture(boxes, lines, max(x for x, _ in places.values()) + BOX_WIDTH, height)


def _order(id: str) -> tuple[int, str]:
    return (int(id) if id.isdecimal() and len(id) < 10 else 0, id)


def _layers(after: Mapping[str, list[str]]) -> dict[str, int]:
    """The length of the longest chain before each task. A dependency cycle ends where it was entered."""
    layer: dict[str, int] = {}
    for start in after:
        stack: list[tuple[str, int]] = [(start, 0)]
        entered: set[str] = set()
        while stack:
            id, at = stack.pop()
            if id in layer:
                continue
            entered.add(id)
            if at < len(after[id]):
                stack.append((id, at + 1))
                if after[id][at] not in entered and after[id][at] not in layer:
                    stack.append((after[id][at], 0))
            else:
                layer[id] = 1 + max((layer.get(one, 0) for one in after[id]), default=-1)
    return layer


def _longest(after: Mapping[str, list[str]], layer: Mapping[str, int]) -> set[tuple[str, str]]:
    """The lines of one longest chain."""
    at = max(layer, key=lambda id: (layer[id], _order(id)))
    chain = set()
    while before := [one for one in after[at] if layer[one] == layer[at] - 1]:
        chain.add((before[0], at))
        at = before[0]
    return chain
