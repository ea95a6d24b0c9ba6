"""Parses a worker's report strictly: a valid structured block, or nothing. Pure."""

import json
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from llmc.goals.model import Assignment, Crystallization, Decision, Evidence, Row, Tested

KEY = "overseerUpdate"
MAX_MESSAGE_CHARS, MAX_BLOCK_CHARS = 1_000_000, 65_536
MAX_ID, MAX_SUMMARY, MAX_NEXT, MAX_ITEM, MAX_ITEMS = 100, 4_000, 1_000, 500, 50

_FENCE = re.compile(r" {0,3}(`{3,}(?!.*`)|~{3,})[ \t]*(.*)")


class Claim(StrEnum):
    """Statuses that a worker may report."""

    IN_PROGRESS = "in_progress"
    BLOCKED = "blocked"
    DONE = "done"


class Update(Row, frozen=True, kw_only=True):
    """One report; None: not mentioned."""

    goal_id: str = ""
    work_node_id: str = ""
    status: Claim | None = None
    summary: str | None = None
    next: tuple[str, ...] | None = None
    blockers: tuple[str, ...] | None = None
    evidence: Evidence | None = None
    current_state: str | None = None
    decisions: tuple[Decision, ...] | None = None
    open_questions: tuple[str, ...] | None = None


class Parsed(Struct, frozen=True):
    """An update or problems; neither if there was no block."""

    update: Update | None = None
    problems: tuple[str, ...] = ()


def parse(message: str | bytes) -> Parsed:
    """The update in the last fenced json block of an assistant message."""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else message
    if len(text) > MAX_MESSAGE_CHARS:
        return Parsed(problems=(f"the message is longer than {MAX_MESSAGE_CHARS} characters",))
    block = last_json_block(text)
    if block is None:
        return Parsed()
    if len(block) > MAX_BLOCK_CHARS:
        return Parsed(problems=(f"the report block is longer than {MAX_BLOCK_CHARS} characters",))
    try:
        found = json.loads(block, object_pairs_hook=_no_doubles, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return Parsed(problems=(f"not valid JSON: {str(error)[:200]}",)) if KEY in block else Parsed()
    if not isinstance(found, dict) or KEY not in found:
        return Parsed()
    return _checked(found)


def fence_after(fence: str, line: str) -> str:
    """The code fence that is open after a line; "" for none. `fence`: the one that is open before the line."""
    found = _FENCE.fullmatch(line)
    if not fence:
        return found[1] if found else ""
    return "" if found and found[1].startswith(fence) and not found[2].strip() else fence


def last_json_block(text: str) -> str | None:
    """The content of the last closed json fence; fences inside other fences do not count."""
    last: str | None = None
    fence, is_json, inside = "", False, list[str]()
    for line in re.split(r"\r\n|\n|\r", text):
        before, fence = fence, fence_after(fence, line)
        if before == fence:
            inside.append(line)
        elif fence:
            is_json, inside = line.strip()[len(fence) :].strip().lower() == "json", []
        elif is_json:
            last = "\n".join(inside)
    return last


#: `llmc report KIND`
KINDS = {"done": Claim.DONE, "blocked": Claim.BLOCKED, "progress": Claim.IN_PROGRESS}


def from_report(kind: str, text: str, more: Any = None) -> Update:
    """An update from `llmc report`; `more`: further fields of a block.

    Agents can write `more` by hand: if it is invalid it is ignored, and the text still counts.
    """
    said = clean(text)[:MAX_SUMMARY]
    status = KINDS[kind]
    blockers = (said[:MAX_ITEM],) if status is Claim.BLOCKED and said else None
    fields, problems = read_fields(more) if isinstance(more, dict) else ({}, [])
    told = {} if problems else {name: value for name, value in fields.items() if name in _MORE}
    return Update(status=status, summary=said or None, blockers=blockers, **told)


def fingerprint(update: Update) -> str:
    """A fingerprint that is the same for the same report, even across versions of llmc."""
    said = msgspec.to_builtins(update)
    said = {key: value for key, value in said.items() if value is not None or key not in _LATER}
    if update.next is not None and len(update.next) == 1:
        said["next"] = update.next[0]
    return sha256(msgspec.json.encode(said)).hexdigest()[:32]


#: fields that older reports lack
_LATER = ("currentState", "decisions", "openQuestions")
_MORE = ("next", "evidence", "current_state", "decisions", "open_questions")


def text_fingerprint(text: str) -> str:
    """Fingerprint of a refused message, so that it is logged once."""
    return "refused:" + sha256(text.encode("utf-8", "replace")).hexdigest()[:24]


def not_about(update: Update, assignment: Assignment, candidates: int) -> str:
    """Why an update is not about this assignment, one of `candidates` in its session; "" if it is."""
    if update.goal_id and update.goal_id != assignment.goal_id:
        return f"the report is for goal {update.goal_id}, not {assignment.goal_id}"
    if update.work_node_id and update.work_node_id != assignment.work_node_id:
        return f"the report is for {update.work_node_id}, not {assignment.work_node_id}"
    if not update.work_node_id and candidates > 1:
        return (
            f"the report must include `workNodeId` because the session is working on {candidates} plan items"
        )
    return ""


def is_blocked(update: Update) -> bool:
    return update.status is Claim.BLOCKED or bool(update.blockers)


def claims_done(update: Update) -> bool:
    """Whether the update reports done, with evidence; only landing makes the work done."""
    return update.status is Claim.DONE and not is_blocked(update) and has_evidence(update.evidence)


def has_evidence(evidence: Evidence | None) -> bool:
    return evidence is not None and evidence != Evidence()


def merged(update: Update, former: Crystallization | None) -> Update:
    """The update, completed from the previous summary."""
    if former is None:
        return update
    # in progress or done means not blocked
    kept = former.known_blockers if update.status in (None, Claim.BLOCKED) else ()
    return msgspec.structs.replace(
        update,
        summary=former.summary if update.summary is None else update.summary,
        next=former.next_actions if update.next is None else update.next,
        blockers=kept if update.blockers is None else update.blockers,
        evidence=former.evidence if update.evidence is None else update.evidence,
        # decisions and open questions outlive later reports
        decisions=tuple(dict.fromkeys((*former.decisions, *(update.decisions or ())))),
        open_questions=tuple(dict.fromkeys((*former.open_questions, *(update.open_questions or ())))),
    )


def clean(text: str) -> str:
    """The text without lone surrogates, which cannot be written to a file."""
    return text.encode("utf-8", "replace").decode()


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def _checked(found: dict[str, Any]) -> Parsed:
    problems = [f"unknown key {clean(str(key))[:60]}" for key in found if key != KEY]
    body = found[KEY]
    if not isinstance(body, dict):
        return Parsed(problems=(*problems, f"{KEY} must be an object"))
    fields, wrong = read_fields(body)
    problems += [f"{KEY}{problem}" for problem in wrong]
    if not problems and not (fields.keys() - {"goal_id", "work_node_id"}):
        problems.append(f"{KEY} is empty")
    return Parsed(problems=tuple(problems[:20])) if problems else Parsed(update=Update(**fields))


def read_fields(body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Fields by their names in `Update`, and problems."""
    fields: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in body.items():
        if key not in _READERS:
            problems.append(f": unknown key {clean(str(key))[:60]}")
            continue
        name, read = _READERS[key]
        try:
            fields[name] = read(value)
        except ValueError as error:
            problems.append(f".{key}: {error}")
    return fields, problems


def _text(limit: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("must be a string")
        if len(value) > limit:
            raise ValueError(f"must be at most {limit} characters long")
        return clean(value).strip()

    return read


def _claim(value: Any) -> Claim:
    try:
        return Claim(value)
    except ValueError:
        raise ValueError("must be in_progress, blocked or done") from None


def _list(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list")
    if len(value) > MAX_ITEMS:
        raise ValueError(f"must have at most {MAX_ITEMS} entries")
    return tuple(value)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(text for text in map(_text(MAX_ITEM), _list(value)) if text)


def _steps(value: Any) -> tuple[str, ...]:
    return _texts(value) if isinstance(value, list) else tuple(filter(None, (_text(MAX_NEXT)(value),)))


def _decisions(value: Any) -> tuple[Decision, ...]:
    return tuple(_decision(entry) for entry in _list(value))


def _decision(entry: Any) -> Decision:
    if isinstance(entry, dict):
        if not {"decision"} <= entry.keys() <= {"decision", "rationale"}:
            raise ValueError(
                "a decision must have the key `decision`; the only other key allowed is `rationale`"
            )
        why = _text(MAX_NEXT)(entry.get("rationale", ""))
        return Decision(decision=_text(MAX_ITEM)(entry["decision"]), rationale=why)
    return Decision(decision=_text(MAX_ITEM)(entry))


def _tests(value: Any) -> tuple[Tested, ...]:
    return tuple(_tested(entry) for entry in _list(value))


def _tested(entry: Any) -> Tested:
    if isinstance(entry, dict):
        if not {"command"} <= entry.keys() <= {"command", "result"}:
            raise ValueError("a test must have the key `command`; the only other key allowed is `result`")
        return Tested(
            command=_text(MAX_ITEM)(entry["command"]), result=_text(MAX_ITEM)(entry.get("result", ""))
        )
    return Tested(command=_text(MAX_ITEM)(entry))


def _evidence(value: Any) -> Evidence:
    if not isinstance(value, dict):
        raise ValueError("must be an object")
    fields: dict[str, Any] = {}
    for key, entries in value.items():
        if key not in _EVIDENCE:
            raise ValueError(f"unknown key {clean(key)[:60]}")
        fields[_EVIDENCE[key]] = _tests(entries) if key == "testsRun" else _texts(entries)
    return Evidence(**fields)


#: keys of evidence and their fields
_EVIDENCE = {one.encode_name: one.name for one in msgspec.structs.fields(Evidence)}

_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "goalId": ("goal_id", _text(MAX_ID)),
    "workNodeId": ("work_node_id", _text(MAX_ID)),
    "status": ("status", _claim),
    "summary": ("summary", _text(MAX_SUMMARY)),
    "next": ("next", _steps),
    "blockers": ("blockers", _texts),
    "evidence": ("evidence", _evidence),
    "currentState": ("current_state", _text(MAX_NEXT)),
    "decisions": ("decisions", _decisions),
    "openQuestions": ("open_questions", _texts),
}


#: kinds of `--evidence KIND:VALUE`
EVIDENCE = {
    "file": "filesTouched",
    "command": "commandsRun",
    "test": "testsRun",
    "commit": "commits",
    "pr": "prs",
    "issue": "issues",
    "link": "externalRefs",
}


def flags(
    *,
    progress: str = "",
    decisions: Iterable[str] = (),
    questions: Iterable[str] = (),
    steps: Iterable[str] = (),
    evidence: Iterable[str] = (),
) -> tuple[dict[str, Any], list[str]]:
    """The options of `llmc report` as fields of a block, and problems."""
    proofs: dict[str, list[Any]] = {}
    for entry in evidence:
        kind, _, value = entry.partition(":")
        key = EVIDENCE.get(kind, "externalRefs")
        text = value.strip() if kind in EVIDENCE else entry.strip()
        proofs.setdefault(key, []).append(_with_result(text) if key == "testsRun" else text)
    body: dict[str, Any] = {
        "currentState": progress.strip(),
        "decisions": [_halves(text, "|", "decision", "rationale") for text in decisions],
        "openQuestions": [text.strip() for text in questions],
        "next": [text.strip() for text in steps],
        "evidence": proofs,
    }
    body = {key: value for key, value in body.items() if value}
    return body, [problem.lstrip(".: ") for problem in read_fields(body)[1]]


def _with_result(text: str) -> dict[str, str]:
    """`make test = passed`"""
    return _halves(text, " = ", "command", "result")


def _halves(text: str, mark: str, first: str, second: str) -> dict[str, str]:
    before, _, after = text.partition(mark)
    return {first: before.strip(), **({second: after.strip()} if after.strip() else {})}
