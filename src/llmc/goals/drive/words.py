"""Texts to workers and the user about goals. Pure: the same facts give the same text."""

from collections.abc import Iterable
from hashlib import sha256

from llmc.goals.drive.updates import KEY
from llmc.goals.model import Advice, Assignment, BlockedReason, Crystallization, Goal, Node

#: maximum bytes of an instruction, a question and a summary of a dependency
MAX_INSTRUCTION, MAX_QUESTION, MAX_HANDOFF = 16_000, 4_000, 1_000
#: dependencies that are shown with their summary
MAX_HANDOFFS = 8

_CUT = " [...]"
_NOT_TRIED = ("escalate", "reminder", "withdraw")
_TAKEN_OVER = (
    "Another worker started this task and did not finish. Its unfinished work is in the trash and was not merged."
    " Check the current state of the repository; when in doubt, start over."
)


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
    said = f"the answer to your question:\n\n{answer.strip()}\n\nContinue the work."
    return _with_report(f"{node.node_id}, {node.name}: {said}", goal, node)


def nudge_text(goal: Goal, node: Node) -> str:
    """A request for a status update; contains nothing that parses as a report."""
    asked = (
        f"Status check: {node.node_id}, {fit(node.name, 300)}. Report:\n\n"
        "Status: what changed since the last instruction\n"
        "Next: the next concrete action\n"
        "Blockers: what you need to continue\n"
        "If finished: reply DONE, a short summary, and the evidence (commits, files, tests)"
    )
    return _with_report(asked, goal, node)


def advised_text(goal: Goal, node: Node, message: str) -> str:
    """A planner's message to the worker; code fences are removed, so that nothing parses as a report."""
    said = fit(message.replace("`" * 3, ""), MAX_QUESTION)
    return _with_report(f"{node.node_id}, {fit(node.name, 300)}:\n\n{said}", goal, node)


def nudge_as_sent(goal: Goal, node: Node, advice: Advice | None, sent_hash: str) -> str:
    """A nudge with the text it was decided with."""
    if advice is not None and instruction_hash(text := advised_text(goal, node, advice.message)) == sent_hash:
        return text
    return nudge_text(goal, node)


def diagnose_text(node: Node) -> str:
    return fit(f"{node.node_id}, {node.name}, has stalled. Propose what to do.", 1000)


def replan_text(node: Node) -> str:
    return fit(f"{node.node_id}, {node.name}, has stalled. Split it into smaller steps.", 1000)


def question_text(goal: Goal, node: Node, assignment: Assignment, reason: BlockedReason) -> str:
    """A question to the user: what is blocked, why, what was tried, and the options."""
    sent = [d.purpose for d in assignment.dispatch_history]
    tried = ", ".join(dict.fromkeys(purpose for purpose in sent if purpose not in _NOT_TRIED))
    asked = sent.count("escalate")
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
    """A question of the goal itself, or its reminder."""
    lines = [
        f"Reminder {told}: still waiting for you." if told else "",
        f"{fit(goal.title, 200)} needs you.",
        fit(reason.question or reason.text, 1000),
        *_numbered(reason.options),
        f'Answer with: llmc answer {goal.goal_id} "..."',
    ]
    return fit("\n".join(line for line in lines if line), MAX_QUESTION)


def reminder_text(goal: Goal, node: Node, assignment: Assignment, reason: BlockedReason) -> str:
    asked = question_text(goal, node, assignment, reason)
    return fit(f"Reminder {assignment.reminders}: still waiting for you.\n{asked}", MAX_QUESTION)


def stalled_reason(node: Node, why: str, failed: bool, advice: Advice | None = None) -> BlockedReason:
    """The question after all recovery steps: the planner's, or how to proceed."""
    kind, question = "failed" if failed else "stalled", f"How should {node.node_id} proceed?"
    options: tuple[str, ...] = ("try again", "try again, with this hint: ...", "cancel it")
    if advice is not None and advice.question and not failed:
        question, options = fit(advice.question, 1000), advice.options
    return BlockedReason(kind=kind, text=fit(why, 1000), question=question, options=options)


def blockers_reason(blockers: tuple[str, ...], summary: str) -> BlockedReason:
    """The question when a worker reports blockers: its own words."""
    text = "; ".join(blockers) or summary or "reported as blocked"
    return BlockedReason(kind="blockers", text=fit(text, 1000))


def _with_report(text: str, goal: Goal, node: Node) -> str:
    """The text, and how to report, which is never cut.

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
    return "\n".join(line for line in (*lines, f"This is {node.node_id}.") if line.strip())


def _built_on(handoffs: Iterable[tuple[Node, Crystallization | None]]) -> str:
    lines = []
    for number, (node, crystal) in enumerate(handoffs):
        commits = " ".join(commit[:12] for commit in crystal.evidence.commits[:5]) if crystal else ""
        said = crystal.summary if crystal and number < MAX_HANDOFFS else ""
        line = f"- {node.node_id}, {node.name}" + (f" ({commits})" if commits else "")
        lines.append(fit(line + (f": {said}" if said else ""), MAX_HANDOFF))
    return "\n".join(lines)
