"""Old events of the goals' log, summed up: what happened how often, from when to when, and what was done. Pure."""

from collections import Counter
from collections.abc import Iterable

from llmc.goals.model import Event

MILESTONE = "overseer.milestone"


def milestones(rows: Iterable[tuple[int, Event]]) -> dict[int, Event]:
    """One event for each goal instead of all of these, under the number of its last one; none is left uncounted."""
    groups: dict[str, list[tuple[int, Event]]] = {}
    for number, event in rows:
        groups.setdefault(event.goal_id, []).append((number, event))
    return {
        group[-1][0]: _summed(goal_id, [event for _, event in group]) for goal_id, group in groups.items()
    }


def _summed(goal_id: str, events: list[Event]) -> Event:
    counts: Counter[str] = Counter()
    done: list[str] = []
    first = events[0].ts
    for event in events:
        if event.type == MILESTONE:
            counts.update(event.data["types"])
            done += event.data["done"]
            first = min(first, event.data["from"])
        else:
            counts[event.type] += 1
            done += [event.work_node_id] if event.type == "work.done" else []
    data = {
        "from": first,
        "to": events[-1].ts,
        "count": counts.total(),
        "types": dict(counts),
        "done": list(dict.fromkeys(done)),
    }
    return Event(ts=events[-1].ts, type=MILESTONE, goal_id=goal_id, data=data)
