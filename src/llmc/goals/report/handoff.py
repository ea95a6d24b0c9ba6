"""The handoff document of a goal as Markdown, and the export of the store as JSON. Pure.

The same records give the same text. Text from users and agents is escaped, and lists are bounded.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from llmc.base.text import printable
from llmc.goals.drive.moves import CODE, as_code, progress
from llmc.goals.model import (
    Assignment,
    Crystallization,
    Event,
    Evidence,
    GoalView,
    Node,
    NodeKind,
    NodeStatus,
    PlannerRef,
)
from llmc.goals.plan.plan import BELOW, children_of, shape_of, waits_of, walk
from llmc.goals.plan.replan import current_id
from llmc.goals.report.draw import open_waits, owner_of, owners_of, some

#: version of the export format, not of the store
VERSION = 1


def export(
    views: Iterable[GoalView], crystallizations: Iterable[Crystallization], events: Iterable[Event]
) -> dict[str, Any]:
    """All goals with plans, assignments with dispatches, summaries, an index, and the events."""
    goals, assignments, index = {}, {}, {}
    for view in views:
        goals[view.goal.goal_id] = goal_tree(view)
        for one in view.assignments.values():
            assignments[one.assignment_id] = msgspec.to_builtins(one)
            for dispatch in one.dispatch_history:
                about = {"assignmentId": one.assignment_id, "goalId": one.goal_id}
                index[dispatch.dispatch_id] = {**about, **msgspec.to_builtins(dispatch)}
    return {
        "version": VERSION,
        "goals": goals,
        "assignments": assignments,
        "crystallizations": {one.crystallization_id: msgspec.to_builtins(one) for one in crystallizations},
        "dispatchIndex": index,
        "events": [event_row(event) for event in events],
    }


def goal_tree(view: GoalView) -> dict[str, Any]:
    """A goal with its phases, tasks and subtasks, each with its progress."""
    children, done = children_of(view.nodes), progress(view)

    def row(node: Node, path: str) -> dict[str, Any]:
        place = f"{path}/{node.node_id}" if path else node.node_id
        plain: dict[str, Any] = {f"{node.kind}Id": node.node_id, **msgspec.to_builtins(node)}
        plain |= {"path": place, "percent": done[node.node_id].percent}
        if node.kind in BELOW:
            plain[BELOW[node.kind]] = [row(child, place) for child in children.get(node.node_id, ())]
        return plain

    phases = [row(phase, "") for phase in children.get("", ())]
    whole: dict[str, Any] = msgspec.to_builtins(view.goal)
    return {**whole, "percent": done[""].percent, "phases": phases}


def said_of(view: GoalView, crystallizations: Iterable[Crystallization]) -> dict[str, Any]:
    """Workers' decisions, open questions and next actions, from the newest report of each leaf in plan order."""
    newest = {one.work_node_id: one for one in crystallizations}
    found = [(leaf, newest[leaf]) for leaf in shape_of(view.nodes).leaves if leaf in newest]
    is_open = {leaf: view.nodes[leaf].status.is_open for leaf, _ in found}
    return {
        "decisions": [
            {"workNodeId": leaf, **msgspec.to_builtins(decision)}
            for leaf, one in found
            for decision in one.decisions
        ],
        "openQuestions": [
            {"workNodeId": leaf, "question": text} for leaf, one in found for text in one.open_questions
        ],
        "nextActions": [
            {"workNodeId": leaf, "action": text}
            for leaf, one in found
            for text in one.next_actions
            if is_open[leaf]
        ],
    }


def event_row(event: Event) -> dict[str, Any]:
    """An event as JSON, without empty ids."""
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return {key: value for key, value in plain.items() if value != "" or key in ("ts", "type")}


#: limits: characters of a text, entries of a list, plan revisions
TEXT_CHARS, MAX_LIST, MAX_REVISIONS = 2000, 50, 20
#: limit of the document
MAX_CHARS = 200_000

_BOXES = {NodeStatus.DONE: "x", NodeStatus.CANCELLED: "-"}


def handoff(view: GoalView, crystallizations: Iterable[Crystallization], percent: Mapping[str, int]) -> str:
    """The handoff document. `percent`: by node id, and of the goal under ""."""
    children = children_of(view.nodes)
    nodes = [*walk(children)]
    leaves = [node for node in nodes if node.node_id not in children]
    found = [replace(c, work_node_id=current_id(view.goal, c.work_node_id)) for c in crystallizations]
    kept = sorted(found, key=lambda c: (c.created_at, c.crystallization_id))
    parts = [
        f"# Handoff: {escaped(view.goal.title)}",
        *_purpose(view),
        *_state(view, nodes, leaves, kept, percent),
        *_decisions(kept),
        *_next(view, nodes, kept),
        *_open(view, kept),
        *_evidence(view, nodes, kept),
        *_history(view),
    ]
    return _bounded([part for part in parts if part])


def _bounded(parts: list[str]) -> str:
    kept: list[str] = []
    room = MAX_CHARS
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            kept.append(f"(paragraphs omitted: {len(parts) - len(kept)})")
            break
        kept.append(part)
    return "\n\n".join(kept) + "\n"


def escaped(text: str) -> str:
    """On one line, with Markdown and HTML escaped."""
    return _escaped_start(_escaped_marks(_line(text)))


def _line(text: str) -> str:
    line = " ".join(printable(text[:TEXT_CHARS]).split())
    more = len(text) - TEXT_CHARS
    return f"{line} ({more} more characters omitted)" if more > 0 else line


def _escaped_start(line: str) -> str:
    """Escape what would start a heading or a list."""
    return re.sub(r"^(\d*)([#+.)-])", r"\1\\\2", line)


def _escaped_marks(line: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|~&!])", r"\\\1", line)


def code(text: str) -> str:
    """Code, in as many backticks as it needs."""
    return as_code(" ".join(printable(text[:TEXT_CHARS]).split()))


def _with_code(text: str) -> str:
    """The text escaped, except in backticks, which become code."""
    plain, *found = CODE.split(_line(text))
    shown = (code(inner) + _escaped_marks(rest) for inner, rest in zip(found[1::3], found[2::3], strict=True))
    return _escaped_start(_escaped_marks(plain) + "".join(shown))


def _of_parts(summary: str) -> str:
    """The summary of a goal or a plan item with parts: its name, and a line for each part."""
    name, *parts = summary.splitlines() or [""]
    return "\n\n".join(text for text in (escaped(name), _bullets([*map(escaped, parts)])) if text)


def _bullets(items: Sequence[str]) -> str:
    rows = [f"- {item}" for item in items[:MAX_LIST]]
    if len(items) > MAX_LIST:
        rows.append(f"- and {len(items) - MAX_LIST} more")
    return "\n".join(rows)


def _section(title: str, items: Sequence[str]) -> list[str]:
    return [f"## {title}", _bullets(items)] if items else []


def _labelled(label: str, items: Sequence[str]) -> str:
    return f"{label}:\n\n{_bullets([escaped(item) for item in items])}" if items else ""


def _purpose(view: GoalView) -> list[str]:
    goal = view.goal
    risks = [
        escaped(risk.risk)
        + (f"; impact: {escaped(risk.impact)}" if risk.impact else "")
        + (f"; mitigation: {escaped(risk.mitigation)}" if risk.mitigation else "")
        for risk in goal.risks
    ]
    return [
        "## Purpose",
        escaped(goal.problem_statement) or "No problem statement was given.",
        _labelled("Stakeholders", goal.stakeholders),
        _labelled("Success criteria", goal.success_criteria),
        _labelled("Non-goals", goal.non_goals),
        _labelled("Constraints", goal.constraints),
        _labelled("Assumptions", goal.assumptions),
        f"Risks:\n\n{_bullets(risks)}" if risks else "",
        _repository(goal.repo_context_snapshot),
    ]


def _repository(snapshot: str) -> str:
    """One line per fact; the README, squeezed into one line, is one of them."""
    facts, readme, start = snapshot.partition("\n\nREADME ")
    rows = [_with_code(fact) for fact in [*facts.split("\n\n"), readme + start] if fact]
    return f"Repository at planning time:\n\n{_bullets(rows)}" if rows else ""


def _state(
    view: GoalView,
    nodes: Sequence[Node],
    leaves: Sequence[Node],
    kept: Sequence[Crystallization],
    percent: Mapping[str, int],
) -> list[str]:
    goal = view.goal
    done = sum(leaf.status is NodeStatus.DONE for leaf in leaves)
    progress = f"{percent.get('', 0)}% ({done} of {len(leaves)} plan items done)."
    facts = [
        f"Goal {code(goal.goal_id)}, {goal.status}, priority {goal.priority}. Progress: {progress}",
        f"Created {_when(goal.created_at)}, last changed {_when(goal.updated_at)}."
        + (f" Owner: {escaped(goal.owner)}." if goal.owner else ""),
    ]
    latest = _latest(kept, "")
    said = [_of_parts(latest.summary), escaped(latest.current_state)] if latest else []
    return ["## State", "\n".join(facts), *said, _plan(view, nodes)]


def _plan(view: GoalView, nodes: Sequence[Node]) -> str:
    if not view.nodes:
        return "No plan yet."
    owners, depth = owners_of(view), {kind: "  " * level for level, kind in enumerate(NodeKind)}
    return "\n".join(depth[node.kind] + _plan_row(view, node, owners.get(node.node_id)) for node in nodes)


def _plan_row(view: GoalView, node: Node, assignment: Assignment | None) -> str:
    about = [str(node.status)]
    if assignment is not None:
        about.append(f"{escaped(owner_of(assignment))} ({assignment.status})")
    if node.blocked_reason is not None:
        about.append(f"blocked: {escaped(node.blocked_reason.text)}")
    if waits := open_waits(view, node):
        about.append(f"waits for {escaped(', '.join(waits))}")
    box = _BOXES.get(node.status, " ")
    return f"- [{box}] **{escaped(node.node_id)}** {escaped(node.name)} ({'; '.join(about)})"


def _decisions(kept: Sequence[Crystallization]) -> list[str]:
    found = [
        f"{escaped(decision.decision)}"
        + (f"; why: {escaped(decision.rationale)}" if decision.rationale else "")
        + f" ({_where(crystal)})"
        for crystal in kept
        for decision in crystal.decisions
    ]
    return _section("Decisions", list(dict.fromkeys(found)))


def _next(view: GoalView, nodes: Sequence[Node], kept: Sequence[Crystallization]) -> list[str]:
    """Next actions from reports, then leaves that can start."""
    found = []
    for node_id in ["", *(node.node_id for node in nodes if node.status is not NodeStatus.DONE)]:
        latest = _latest(kept, node_id)
        actions = latest.next_actions if latest else ()
        found += [f"{escaped(action)} ({escaped(node_id or 'goal')})" for action in actions]
    ready = waits_of(view).ready
    found += [f"Start {escaped(leaf)}: {escaped(view.nodes[leaf].name)}" for leaf in ready]
    return _section("Next actions", found)


def _open(view: GoalView, kept: Sequence[Crystallization]) -> list[str]:
    """Questions and blockers of unfinished items; the newest report of an item wins."""
    open_nodes = ["", *(id for id, node in view.nodes.items() if node.status is not NodeStatus.DONE)]
    latest = [crystal for id in open_nodes if (crystal := _latest(kept, id))]
    asked = [
        f"{escaped(a.blocked_reason.question or a.blocked_reason.text)} ({escaped(a.work_node_id)}"
        + (f"; options: {escaped(', '.join(a.blocked_reason.options))}" if a.blocked_reason.options else "")
        + ")"
        for a in sorted(view.assignments.values(), key=lambda a: (a.created_at, a.assignment_id))
        if a.blocked_reason is not None and a.status.is_open
    ]
    questions = asked + [f"{escaped(q)} ({_where(c)})" for c in latest for q in c.open_questions]
    blockers = [f"{escaped(blocker)} ({_where(c)})" for c in latest for blocker in c.known_blockers]
    return _section("Open questions", questions) + _section("Known blockers", blockers)


def _evidence(view: GoalView, nodes: Sequence[Node], kept: Sequence[Crystallization]) -> list[str]:
    """Summaries and evidence of each item; items that a later plan removed come last."""
    wholes = children_of(view.nodes)
    order = [*(node.node_id for node in nodes), ""]
    order += sorted({crystal.work_node_id for crystal in kept} - set(order))
    parts = []
    for node_id in order:
        crystals = [crystal for crystal in kept if crystal.work_node_id == node_id]
        if crystals:
            is_whole = not node_id or node_id in wholes
            rows = (_crystal(crystal, is_whole) for crystal in crystals[-MAX_LIST:])
            parts += [f"### {_heading(view, node_id)}", *rows]
    return ["## Evidence", *parts] if parts else []


def _heading(view: GoalView, node_id: str) -> str:
    if not node_id:
        return "The goal as a whole"
    node = view.nodes.get(node_id)
    return (
        f"{escaped(node_id)}: {escaped(node.name)}" if node else f"{escaped(node_id)} (no longer in the plan)"
    )


def _crystal(crystal: Crystallization, is_whole: bool) -> str:
    said = _of_parts(crystal.summary) if is_whole else escaped(crystal.summary)
    rows = [f"{_when(crystal.created_at)}: {said}"]
    facts = _facts(crystal.evidence)
    for anchor in crystal.anchors[:MAX_LIST]:
        known = [anchor.session_key, anchor.session_id, *anchor.run_ids, *anchor.message_ids]
        facts.append("conversation: " + ", ".join(code(text) for text in known if text))
    return "\n\n".join(row for row in [*rows, _bullets(facts)] if row)


def _facts(evidence: Evidence) -> list[str]:
    tests = [
        code(test.command) + (f" ({escaped(test.result)})" if test.result else "")
        for test in evidence.tests_run
    ]
    rows = {
        "commits": [code(commit) for commit in evidence.commits],
        "files": [code(file) for file in evidence.files_touched],
        "commands": [code(command) for command in evidence.commands_run],
        "tests": tests,
        "pull requests": [escaped(text) for text in evidence.prs],
        "issues": [escaped(text) for text in evidence.issues],
        "see also": [escaped(text) for text in evidence.external_refs],
    }
    return [f"{name}: {some(found, MAX_LIST)}" for name, found in rows.items() if found]


def _history(view: GoalView) -> list[str]:
    goal = view.goal
    rows = []
    for revision in goal.plan_revision_history[-MAX_REVISIONS:]:
        counts = [("added", revision.added), ("changed", revision.changed), ("removed", revision.removed)]
        what = ", ".join(f"{len(ids)} {word}" for word, ids in counts if ids)
        rows.append(f"{_when(revision.ts)}: {escaped(revision.why)} ({what or 'moved'})")
    if goal.planner.model_ref:
        rows.append(_planner(goal.planner))
    return _section("Plan history", rows)


def _planner(planner: PlannerRef) -> str:
    if not planner.prompt_template_id:
        return f"Planned {escaped(planner.model_ref)}."
    template = code(f"{planner.prompt_template_id} {planner.prompt_template_hash}")
    return f"Planned by {escaped(planner.model_ref)} with the prompt template {template}."


def _latest(kept: Sequence[Crystallization], node_id: str) -> Crystallization | None:
    return next((crystal for crystal in reversed(kept) if crystal.work_node_id == node_id), None)


def _where(crystal: Crystallization) -> str:
    return escaped(crystal.work_node_id or "goal")


def _when(ts: float) -> str:
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d %H:%M UTC")
