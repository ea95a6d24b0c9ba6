"""Goal texts for workers and the user, and summaries of plan items. Pure: the same facts give the same text."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from llmc.goals.drive.liveness import Merged
from llmc.goals.drive.updates import KEY, Claim, Update, claims_done
from llmc.goals.model import (
    Advice,
    Anchor,
    Assignment,
    BlockedReason,
    Crystallization,
    Evidence,
    Goal,
    Mode,
    Node,
    Tested,
)

#: maximum bytes of an instruction, a question and a summary of a dependency
MAX_INSTRUCTION, MAX_QUESTION, MAX_HANDOFF = 16_000, 4_000, 1_000
#: most dependencies shown with their summary
MAX_HANDOFFS = 8

_CUT = " [...]"
_NOT_TRIED = ("escalate", "reminder", "withdraw")
#: by purpose: what was sent, and to whom
_SENT = {
    "work": "instruction {to}",
    "answer": "answer {to}",
    "nudge": "status check {to}",
    "replan": "request to the planner to split the work",
    "diagnose": "request to the planner for advice",
    "reassign": "instruction for another worker",
    "escalate": "question for you",
    "reminder": "reminder to you",
    "withdraw": "withdrawal of the task",
}
_TO = {Mode.SEND: "to the worker", Mode.SPAWN: "as a new task", Mode.ESCALATE: "to you"}
_TAKEN_OVER = (
    "Another worker started this task but did not finish it. The unfinished work is in the trash and has not landed."
    " Check the current state of the repository; when in doubt, start over."
)


def sent_words(purpose: str, mode: Mode) -> str:
    """A description of what was sent, for the user."""
    return _SENT.get(purpose, purpose).format(to=_TO[mode])


def instruction_hash(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def fit(text: str, limit: int) -> str:
    """Cut to `limit` bytes, with a mark."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode()
    return raw[: limit - len(_CUT)].decode("utf-8", "ignore") + _CUT


def work_text(
    goal: Goal,
    node: Node,
    parents: Iterable[Node] = (),
    handoffs: Iterable[tuple[Node, Crystallization | None]] = (),
    answer: str = "",
    taken_over: bool = False,
) -> str:
    """The instruction for a leaf: what, why, when it is done, and how to report."""
    parts = [
        f"# {node.name}",
        _TAKEN_OVER if taken_over else "",
        _section("Objective", node.objective),
        _section("Expected outcome", node.expected_outcome),
        _section("Done when", _bullets(node.acceptance_criteria), node.definition_of_done),
        _section("This command must pass; llmc runs it before the work lands", node.verify),
        _section("From the user", answer),
        _section("Context", _place(goal, node, parents)),
        _section("Constraints", _bullets(goal.constraints)),
        _section("Builds on", _built_on(handoffs)),
    ]
    return _with_report("\n\n".join(part for part in parts if part), goal, node)


def answer_text(goal: Goal, node: Node, answer: str) -> str:
    """The user's answer, for the session that asked."""
    said = f"{answer.strip()}\n\nContinue the work."
    return _with_report(
        f"The answer to your question about {node.node_id}, {node.name}:\n\n{said}", goal, node
    )


def nudge_text(goal: Goal, node: Node) -> str:
    """A request for a status update; contains nothing that parses as a report."""
    asked = (
        f"Status check for {node.node_id}, {fit(node.name, 300)}. Report:\n\n"
        "Status: what changed since the last instruction\n"
        "Next: the next concrete action\n"
        "Blockers: what you need to continue\n"
        "If finished: reply DONE with a short summary and the evidence (commits, files, tests)"
    )
    return _with_report(asked, goal, node)


def advised_text(goal: Goal, node: Node, message: str) -> str:
    """A planner's message to the worker; code fences are removed, so that nothing parses as a report."""
    said = fit(message.replace("`" * 3, ""), MAX_QUESTION)
    return _with_report(f"{node.node_id}, {fit(node.name, 300)}:\n\n{said}", goal, node)


def nudge_as_sent(goal: Goal, node: Node, advice: Advice | None, sent_hash: str) -> str:
    """The text that a nudge was decided with."""
    if advice is not None and instruction_hash(text := advised_text(goal, node, advice.message)) == sent_hash:
        return text
    return nudge_text(goal, node)


def diagnose_text(node: Node) -> str:
    return fit(f"{node.node_id} ({node.name}) has stalled. Propose what to do next.", 1000)


def replan_text(node: Node) -> str:
    return fit(f"{node.node_id} ({node.name}) has stalled. Split it into smaller steps.", 1000)


def question_text(goal: Goal, node: Node, assignment: Assignment, reason: BlockedReason) -> str:
    """A question to the user: what is blocked, why, what was tried, and the options."""
    sent = assignment.dispatch_history
    tried = ", ".join(
        dict.fromkeys(sent_words(d.purpose, d.mode) for d in sent if d.purpose not in _NOT_TRIED)
    )
    asked = sum(d.purpose == "escalate" for d in sent)
    lines = [
        f"{fit(goal.title, 200)}: {node.node_id}, {fit(node.name, 200)}, needs you.",
        f"Why: {fit(reason.text, 1000)}",
        f"Question: {fit(reason.question, 1000)}" if reason.question else "",
        *_numbered(reason.options),
        f"Tried so far: {tried}" if tried else "",
        f"Previous questions: {asked}" if asked else "",
        f'Answer with: llmc answer {assignment.assignment_id} "..."',
    ]
    return fit("\n".join(line for line in lines if line), MAX_QUESTION)


def goal_question_text(goal: Goal, reason: BlockedReason, told: int) -> str:
    """A question about the goal itself, or a reminder of it."""
    lines = [
        f"Reminder {told}: this question is still waiting for your answer." if told else "",
        f"{fit(goal.title, 200)} needs you.",
        fit(reason.question or reason.text, 1000),
        *_numbered(reason.options),
        f'Answer with: llmc answer {goal.goal_id} "..."',
    ]
    return fit("\n".join(line for line in lines if line), MAX_QUESTION)


def reminder_text(goal: Goal, node: Node, assignment: Assignment, reason: BlockedReason) -> str:
    asked = question_text(goal, node, assignment, reason)
    return fit(
        f"Reminder {assignment.reminders}: this question is still waiting for your answer.\n{asked}",
        MAX_QUESTION,
    )


#: kinds of question about a leaf that llmc could not get done, and the option that ends it
_FAILED, _STALLED = "failed", "stalled"
_CANCEL = "cancel it"


def stalled_reason(node: Node, why: str, failed: bool, advice: Advice | None = None) -> BlockedReason:
    """The question after all recovery steps: the planner's, or how to proceed."""
    kind, question = _FAILED if failed else _STALLED, f"How should llmc proceed with {node.node_id}?"
    options: tuple[str, ...] = ("try again", "try again, with this hint: ...", _CANCEL)
    if advice is not None and advice.question and not failed:
        question, options = fit(advice.question, 1000), advice.options
    return BlockedReason(kind=kind, text=fit(why, 1000), question=question, options=options)


def cancels(reason: BlockedReason, answer: str) -> bool:
    """Whether an answer to the question of `stalled_reason` cancels the plan item."""
    return answer == _CANCEL and _CANCEL in reason.options and reason.kind in (_FAILED, _STALLED)


def blockers_reason(blockers: tuple[str, ...], summary: str) -> BlockedReason:
    """The question when a worker reports blockers: its own words."""
    text = "; ".join(blockers) or summary or "the worker reported that it is blocked"
    return BlockedReason(kind="blockers", text=fit(text, 1000))


def _with_report(text: str, goal: Goal, node: Node) -> str:
    """The text plus instructions for reporting, which are never cut.

    The status in the example is invalid on purpose, so that the example never parses as a report.
    """
    how = (
        'To report, run `llmc report progress|blocked|done "..."` (with `--decision "what | why"`, `--question`,'
        " `--next`, `--evidence test:...` where they apply), or end a reply with one block like this:\n\n"
        "```json\n"
        f'{{"{KEY}": {{"goalId": "{goal.goal_id}", "workNodeId": "{node.node_id}",'
        ' "status": "in_progress | blocked | done",\n'
        '  "summary": "what changed", "next": "next concrete action", "blockers": ["what you need"],\n'
        '  "decisions": [{"decision": "...", "rationale": "..."}], "openQuestions": ["..."],\n'
        '  "evidence": {"filesTouched": ["..."], "testsRun": ["..."], "commits": ["..."]}}}\n'
        "```"
    )
    return f"{fit(text, MAX_INSTRUCTION - len(how.encode()) - 2)}\n\n{how}"


def _numbered(options: tuple[str, ...]) -> list[str]:
    return [f"  {number}. {fit(option, 200)}" for number, option in enumerate(options[:9], start=1)]


def _section(title: str, *texts: str) -> str:
    said = [text.strip() for text in texts if text.strip()]
    return f"{title}:\n" + "\n".join(said) if said else ""


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _place(goal: Goal, node: Node, parents: Iterable[Node]) -> str:
    lines = [f"Goal: {goal.title}", goal.problem_statement]
    lines += [f"{parent.kind.value.capitalize()} {parent.node_id}: {parent.name}" for parent in parents]
    return "\n".join(line for line in (*lines, f"This task is plan item {node.node_id}.") if line.strip())


def _built_on(handoffs: Iterable[tuple[Node, Crystallization | None]]) -> str:
    lines = []
    for number, (node, crystal) in enumerate(handoffs):
        commits = " ".join(commit[:12] for commit in crystal.evidence.commits[:5]) if crystal else ""
        said = crystal.summary if crystal and number < MAX_HANDOFFS else ""
        line = f"- {node.node_id}, {node.name}" + (f" ({commits})" if commits else "")
        lines.append(fit(line + (f": {said}" if said else ""), MAX_HANDOFF))
    return "\n".join(lines)


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
    said = "reported as done, but not landed yet" if claims_done(update) else state[update.status]
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
        current_state=merged.told,
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
    """The evidence merged in order, without duplicates, and bounded."""
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
    """The first line of a summary; for a parent with several children, how many of them are done."""
    if crystal is None:
        return part.status.value
    first, *parts = [line for line in crystal.summary.splitlines() if line.strip()] or [part.name]
    if first.strip() != part.name:  # a parent's summary starts with its name
        return first
    return parts[0] if len(parts) == 1 else crystal.current_state


def _anchor(assignment: Assignment, message_id: str = "") -> Anchor:
    return Anchor(
        session_key=assignment.session_key,
        session_id=assignment.session_id,
        message_ids=(message_id,) if message_id else (),
        run_ids=(assignment.run_id,) if assignment.run_id else (),
    )
