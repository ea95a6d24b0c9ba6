"""Everything that is said to workers and people about goals. Pure; the same facts make the same words."""

from collections.abc import Iterable
from hashlib import sha256

from llmc.goals.drive.updates import KEY
from llmc.goals.model import Advice, Assignment, BlockedReason, Crystallization, Goal, Node

#: an instruction, a question and a handed-over summary are at most so long, in bytes of UTF-8
MAX_INSTRUCTION, MAX_QUESTION, MAX_HANDOFF = 16_000, 4_000, 1_000
#: finished dependencies that are named in full
MAX_HANDOFFS = 8

_CUT = " [...]"
_NOT_TRIED = ("escalate", "reminder", "withdraw")


def instruction_hash(text: str) -> str:
    """What makes two instructions the same."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def fit(text: str, limit: int) -> str:
    """The text within so many bytes; what is cut away is marked."""
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
    """The instruction to do a leaf of the plan: what, what for, when it is done, and how to say so."""
    how = _how_to_report(goal.goal_id, node.node_id)
    parts = [
        f"# {node.name}",
        _taken_over() if taken_over else "",
        _section("Objective", node.objective),
        _section("Expected outcome", node.expected_outcome),
        _section("It is done when", _bullets(node.acceptance_criteria), node.definition_of_done),
        _section("This command must pass; it is run before the work is merged", node.verify),
        _section("A person says", answer),
        _section("Where it belongs", _place(goal, node, parents)),
        _section("Constraints", _bullets(goal.constraints)),
        _section("What it builds on", _built_on(handoffs)),
    ]
    body = "\n\n".join(part for part in parts if part)
    # how to report comes last and is never cut away
    return f"{fit(body, MAX_INSTRUCTION - len(how.encode()) - 2)}\n\n{how}"


def answer_text(goal: Goal, node: Node, answer: str) -> str:
    """A person's answer, for the session that asked."""
    how = _how_to_report(goal.goal_id, node.node_id)
    body = f"About {node.node_id}, {node.name}. You asked, and a person answered:\n\n{answer.strip()}\n\nGo on with it."
    return f"{fit(body, MAX_INSTRUCTION - len(how.encode()) - 2)}\n\n{how}"


def nudge_text(goal: Goal, node: Node) -> str:
    """The request for a status; it asks for the block, and holds nothing that could be taken for one."""
    return (
        f"How does {node.node_id} stand, {fit(node.name, 300)}?\n\n"
        "Status: what changed since the last instruction\n"
        "Next: the next concrete action\n"
        "Blockers: what you need to go on\n"
        "If finished: reply DONE, a short summary, and the evidence (commits, files, tests)\n\n"
        f"{_how_to_report(goal.goal_id, node.node_id)}"
    )


def advised_text(goal: Goal, node: Node, message: str) -> str:
    """What a planner wants the worker to be told; it may hold no block that could be taken for a report."""
    said = fit(message.replace("`" * 3, ""), MAX_QUESTION)
    return f"About {node.node_id}, {fit(node.name, 300)}:\n\n{said}\n\n{_how_to_report(goal.goal_id, node.node_id)}"


def nudge_as_sent(goal: Goal, node: Node, advice: Advice | None, sent_hash: str) -> str:
    """A nudge in the words it was decided in."""
    if advice is not None and instruction_hash(text := advised_text(goal, node, advice.message)) == sent_hash:
        return text
    return nudge_text(goal, node)


def diagnose_text(node: Node) -> str:
    """What a planner is asked about a leaf that the rules do not get going."""
    return fit(f"{node.node_id}, {node.name}, does not get on. Say what to do.", 1000)


def replan_text(node: Node) -> str:
    """What a planner is asked to do about a leaf that does not get on."""
    return fit(f"{node.node_id}, {node.name}, does not get on. Split it into smaller steps.", 1000)


def question_text(goal: Goal, node: Node, assignment: Assignment, reason: BlockedReason) -> str:
    """The escalation: what stands still, why, what was tried, what can be chosen."""
    sent = [d.purpose for d in assignment.dispatch_history]
    tried = ", ".join(dict.fromkeys(purpose for purpose in sent if purpose not in _NOT_TRIED))
    asked = sent.count("escalate")
    lines = [
        f"{fit(goal.title, 200)}: {node.node_id}, {fit(node.name, 200)}, needs you.",
        f"Why: {fit(reason.text, 1000)}",
        f"Question: {fit(reason.question, 1000)}" if reason.question else "",
        *(f"  {number}. {fit(option, 200)}" for number, option in enumerate(reason.options[:9], start=1)),
        f"Tried so far: {tried}" if tried else "",
        f"Asked before: {asked} times" if asked else "",
        f'Answer with: llmc answer {assignment.assignment_id} "..."',
    ]
    return fit("\n".join(line for line in lines if line), MAX_QUESTION)


def goal_question_text(goal: Goal, reason: BlockedReason, told: int) -> str:
    """What a goal itself asks, and asks again."""
    lines = [
        f"Reminder {told}: still waiting for you." if told else "",
        f"{fit(goal.title, 200)} needs you.",
        fit(reason.question or reason.text, 1000),
        *(f"  {number}. {fit(option, 200)}" for number, option in enumerate(reason.options[:9], start=1)),
        f'Answer with: llmc answer {goal.goal_id} "..."',
    ]
    return fit("\n".join(line for line in lines if line), MAX_QUESTION)


def reminder_text(goal: Goal, node: Node, assignment: Assignment, reason: BlockedReason) -> str:
    """The escalation once more, numbered."""
    number = assignment.reminders
    return fit(
        f"Reminder {number}: still waiting for you.\n{question_text(goal, node, assignment, reason)}",
        MAX_QUESTION,
    )


def stalled_reason(node: Node, why: str, failed: bool, advice: Advice | None = None) -> BlockedReason:
    """What a person is asked when the ladder has ended: what a planner wants to know, or how it shall go on."""
    if advice is not None and advice.question and not failed:
        return BlockedReason(
            kind="stalled", text=fit(why, 1000), question=fit(advice.question, 1000), options=advice.options
        )
    return BlockedReason(
        kind="failed" if failed else "stalled",
        text=fit(why, 1000),
        question=f"How shall {node.node_id} go on?",
        options=("try again", "try again, with this hint: ...", "cancel it"),
    )


def blockers_reason(blockers: tuple[str, ...], summary: str) -> BlockedReason:
    """What a person is asked when a worker said what it needs: just that, in its own words."""
    text = "; ".join(blockers) or summary or "it says that it is blocked"
    return BlockedReason(kind="blockers", text=fit(text, 1000))


def _how_to_report(goal_id: str, node_id: str) -> str:
    """The contract, with an example whose status is none: read back, it is refused."""
    return (
        'To report, run `llmc report progress|blocked|done "..."` (with `--decision "what | why"`, `--question`,'
        " `--next`, `--evidence test:...` where they apply), or end a reply with one block like this, with what"
        " applies:\n\n"
        "```json\n"
        f'{{"{KEY}": {{"goalId": "{goal_id}", "workNodeId": "{node_id}",'
        ' "status": "in_progress | blocked | done",\n'
        '  "summary": "what changed", "next": "next concrete action", "blockers": ["what you need"],\n'
        '  "decisions": [{"decision": "...", "rationale": "..."}], "openQuestions": ["..."],\n'
        '  "evidence": {"filesTouched": ["..."], "testsRun": ["..."], "commits": ["..."]}}}\n'
        "```"
    )


def _section(title: str, *texts: str) -> str:
    said = [text.strip() for text in texts if text.strip()]
    return f"{title}:\n" + "\n".join(said) if said else ""


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _place(goal: Goal, node: Node, parents: Iterable[Node]) -> str:
    lines = [f"Goal: {goal.title}", goal.problem_statement]
    lines += [f"{parent.kind.value.capitalize()} {parent.node_id}: {parent.name}" for parent in parents]
    return "\n".join(line for line in (*lines, f"This is {node.node_id}.") if line.strip())


def _built_on(handoffs: Iterable[tuple[Node, Crystallization | None]]) -> str:
    lines = []
    for number, (node, crystal) in enumerate(handoffs):
        commits = " ".join(commit[:12] for commit in crystal.evidence.commits[:5]) if crystal else ""
        said = crystal.summary if crystal and number < MAX_HANDOFFS else ""
        line = (
            f"- {node.node_id}, {node.name}"
            + (f" ({commits})" if commits else "")
            + (f": {said}" if said else "")
        )
        lines.append(fit(line, MAX_HANDOFF))
    return "\n".join(lines)


def _taken_over() -> str:
    return (
        "Another worker had this and did not finish it. Its unfinished work was kept in the trash, not merged: look at"
        " what is there, and begin anew where in doubt."
    )
