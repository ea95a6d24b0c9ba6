"""Summaries of plan items. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from llmc.goals.drive.liveness import Merged
from llmc.goals.drive.updates import Claim, Update, claims_done
from llmc.goals.drive.words import fit
from llmc.goals.model import (
    Anchor,
    Assignment,
    Crystallization,
    Evidence,
    Goal,
    Node,
    Tested,
)

#: limits of a record: bytes of a summary, entries of a list, bytes of an entry
MAX_SUMMARY, MAX_ENTRIES, MAX_ENTRY = 4_000, 50, 500
#: bytes of a child's summary within its parent's
MAX_LINE = 300
#: lists of texts in evidence
_TEXTS = [name for name in Evidence.__struct_fields__ if name != "tests_run"]


def of_node(crystal_id: str, node: Node, now: float, **said: Any) -> Crystallization:
    return Crystallization(
        crystallization_id=crystal_id,
        goal_id=node.goal_id,
        work_node_id=node.node_id,
        level=node.kind.value,
        created_at=now,
        **said,
    )


def of_report(
    crystal_id: str, assignment: Assignment, node: Node, update: Update, now: float, message_id: str = ""
) -> Crystallization:
    """Summary of a worker's report."""
    state = {None: "", Claim.IN_PROGRESS: "in progress", Claim.BLOCKED: "blocked", Claim.DONE: "in progress"}
    said = "reported done; not landed yet" if claims_done(update) else state[update.status]
    return of_node(
        crystal_id,
        node,
        now,
        summary=fit(update.summary or said or "report", MAX_SUMMARY),
        current_state=fit(update.current_state or ("blocked" if update.blockers else said), MAX_SUMMARY),
        decisions=(update.decisions or ())[-MAX_ENTRIES:],
        next_actions=_bounded(update.next or ()),
        open_questions=_bounded(update.open_questions or ()),
        known_blockers=_bounded(update.blockers or ()),
        evidence=bounded_evidence(update.evidence or Evidence()),
        anchors=(_anchor(assignment, message_id),),
    )


def of_merge(
    crystal_id: str,
    assignment: Assignment,
    node: Node,
    merged: Merged,
    former: Crystallization | None,
    now: float,
) -> Crystallization:
    """Summary of a merged leaf: the commit, and what git and the worker's report say."""
    told = former.evidence if former else Evidence()
    commits = Evidence(commits=(merged.commit,))
    return of_node(
        crystal_id,
        node,
        now,
        summary=fit(merged.summary or (former.summary if former else "") or node.name, MAX_SUMMARY),
        current_state=f"merged as {merged.commit[:12]}",
        decisions=(former.decisions if former else ())[:MAX_ENTRIES],
        open_questions=(former.open_questions if former else ())[:MAX_ENTRIES],
        evidence=joined_evidence((commits, merged.evidence, told)),
        anchors=tuple(dict.fromkeys((_anchor(assignment), *(former.anchors if former else ())))),
    )


def of_parts(
    crystal_id: str,
    goal: Goal,
    node: Node | None,
    parts: Sequence[tuple[Node, Crystallization | None]],
    now: float,
) -> Crystallization:
    """Summary of a task, a phase or (without a node) the goal, from its children."""
    known = [crystal for _, crystal in parts if crystal is not None]
    lines = [fit(f"{part.node_id} {part.name}: {_gist(part, crystal)}", MAX_LINE) for part, crystal in parts]
    title = node.name if node else goal.title
    return Crystallization(
        crystallization_id=crystal_id,
        goal_id=goal.goal_id,
        work_node_id=node.node_id if node else "",
        level=node.kind.value if node else "goal",
        created_at=now,
        summary=fit("\n".join([title, *lines]), MAX_SUMMARY),
        current_state=f"{sum(part.status.value == 'done' for part, _ in parts)} of {len(parts)} children done",
        decisions=tuple(dict.fromkeys(entry for crystal in known for entry in crystal.decisions))[
            :MAX_ENTRIES
        ],
        next_actions=_bounded(entry for crystal in known for entry in crystal.next_actions),
        open_questions=_bounded(entry for crystal in known for entry in crystal.open_questions),
        known_blockers=_bounded(entry for crystal in known for entry in crystal.known_blockers),
        evidence=joined_evidence(crystal.evidence for crystal in known),
        anchors=tuple(dict.fromkeys(anchor for crystal in known for anchor in crystal.anchors))[:MAX_ENTRIES],
    )


def joined_evidence(parts: Iterable[Evidence]) -> Evidence:
    """Merged without duplicates, in order; bounded."""
    each = list(parts)
    tests: dict[str, Tested] = {}
    for part in each:
        for tested in part.tests_run:
            known = tests.get(tested.command)
            tests[tested.command] = known if known is not None and known.result else tested
    texts = {name: tuple(entry for part in each for entry in getattr(part, name)) for name in _TEXTS}
    return bounded_evidence(Evidence(tests_run=tuple(tests.values()), **texts))


def bounded_evidence(evidence: Evidence) -> Evidence:
    tests = tuple(
        Tested(command=fit(t.command, MAX_ENTRY), result=fit(t.result, MAX_ENTRY))
        for t in evidence.tests_run[:MAX_ENTRIES]
    )
    return Evidence(tests_run=tests, **{name: _bounded(getattr(evidence, name)) for name in _TEXTS})


def _bounded(entries: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fit(entry, MAX_ENTRY) for entry in entries))[:MAX_ENTRIES]


def _gist(part: Node, crystal: Crystallization | None) -> str:
    """The first line of a summary."""
    if crystal is None:
        return part.status.value
    # a parent's summary starts with its name
    lines = [line for line in crystal.summary.splitlines() if line.strip() and line.strip() != part.name]
    return lines[0] if lines else crystal.current_state


def _anchor(assignment: Assignment, message_id: str = "") -> Anchor:
    return Anchor(
        session_key=assignment.session_key,
        session_id=assignment.session_id,
        message_ids=(message_id,) if message_id else (),
        run_ids=(assignment.run_id,) if assignment.run_id else (),
    )
