"""Reads plans written by hand, in Markdown or in the planner's JSON. Pure.

Both pass the same checks as a planner's answer; problems are reported with their line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.base.errors import UsageError
from llmc.base.text import closest
from llmc.goals.drive.moves import as_code, bare, criterion
from llmc.goals.drive.updates import fence_after
from llmc.goals.model import NodeKind
from llmc.goals.plan.plan import BELOW, Limits, Plan, PlanNode
from llmc.goals.plan.plan_check import MAX_CHARS, Problem, check_plan, check_value, json_lines

#: JSON field for each key in a Markdown plan
_FIELDS = {
    "accept": "acceptance",
    "deps": "deps",
    "verify": "verify",
    "objective": "objective",
    "outcome": "outcome",
    "done": "definitionOfDone",
    "agent": "suggestedAgentId",
    "agent-type": "suggestedAgentType",
    "tools": "requiredTools",
    "effort": "estimatedEffort",
    "risk": "riskLevel",
    "recovery": "recoveryPolicy",
    "idle-after": "idleAfter",
}
_GOAL_FIELDS = {"success": "successCriteria", "verify": "checks", "constraint": "constraints"}
_ONE_A_LINE = ("acceptance", "successCriteria", "checks", "constraints")
_COMMA_SEPARATED = ("deps", "requiredTools")

_HEADING = re.compile(r"^(?P<marks>#{1,6})[ \t]+(?P<text>.+?)[ \t#]*$")
_BOX = re.compile(r"^[ \t]*[-*][ \t]+\[(?P<mark>.?)\][ \t]+(?P<text>.+?)[ \t]*$")
_TICKED = re.compile(r"^\[[xX]\][ \t]+(?P<text>.+)$")
_KEY = re.compile(r"^[ \t]*(?:[-*][ \t]+)?(?P<key>[a-z]{2,}(?:-[a-z]+)?):(?:[ \t]+(?P<value>.*?))?[ \t]*$")
_GIVEN_ID = re.compile(r"^(?P<id>[A-Za-z][A-Za-z_-]*[0-9][A-Za-z0-9_.-]*):[ \t]+(?P<name>.+)$")
_SORT = re.compile(r"^(?:goal|phase|task|subtask)[ \t]*[0-9.]*:[ \t]+(?P<name>.+)$", re.IGNORECASE)
_KINDS = tuple(NodeKind)


class LineProblem(Struct, frozen=True):
    """A problem in a handwritten plan; line 0: no particular line."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class _Part(Struct):
    """A heading or a checkbox with its lines, while parsing."""

    kind: NodeKind | None
    line: int
    name: str
    id: str = ""
    done: bool = False
    fields: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    prose: list[str] = field(default_factory=list)
    children: list["_Part"] = field(default_factory=list)


def read_plan(
    text: str, limits: Limits, *, fallback_title: str = "", is_json: bool = False
) -> Plan | tuple[LineProblem, ...]:
    """A plan in Markdown or JSON, or all problems.

    `fallback_title`: the goal's title if the plan has no `#` heading.
    """
    if len(text) > MAX_CHARS:
        return (LineProblem(0, f"must be at most {MAX_CHARS} characters long, not {len(text)}"),)
    if is_json or text.lstrip().startswith("{"):
        return _read_json(text, limits)
    return _Markdown(text).plan(limits, fallback_title)


def _read_json(text: str, limits: Limits) -> Plan | tuple[LineProblem, ...]:
    found = check_plan(text, limits)
    if isinstance(found, Plan):
        return found
    lines = json_lines(text)
    return tuple(LineProblem(_nearest(problem.path, lines), str(problem)) for problem in found)


def _nearest(path: str, lines: Mapping[str, int]) -> int:
    """The line of a path, or of its closest ancestor."""
    while path not in lines and path != "$":
        path = path[: max(path.rfind("."), path.rfind("["))]
    return lines.get(path, 0)


class _Markdown:
    """Parses a plan: a heading or a checkbox starts an item, the lines below belong to it."""

    def __init__(self, text: str) -> None:
        self.goal = _Part(None, 0, "")
        self.problems: list[LineProblem] = []
        self._part = self.goal
        self._open: list[_Part] = []  # the open phase, task and subtask
        self._last_key = ""
        self._key_indent = 0
        fence, opened = "", 0
        for number, line in enumerate(text.splitlines(), start=1):
            # below a checkbox, a fence may be indented by any amount
            before, fence = fence, fence_after(fence, line.lstrip())
            if before != fence:
                opened = opened if before else number
                self._part.prose.append(line.strip())
            elif fence:
                self._part.prose.append(line)
            else:
                self._take(number, line)
        if fence:
            close = f"close it with a line that contains only {fence}"
            self._problem(opened, f"this code fence is not closed; {close}")

    def _take(self, number: int, line: str) -> None:
        if heading := _HEADING.match(line):
            self._begin_heading(number, len(heading["marks"]), heading["text"])
        elif box := _BOX.match(line):
            self._begin_box(number, box["mark"], box["text"])
        elif key := _KEY.match(line):
            self._field(number, key["key"], key["value"] or "", _indent(line))
        elif not line.strip():
            self._last_key = ""
            self._part.prose.append("")
        elif self._last_key and _indent(line) > self._key_indent:
            self._continue(line.strip())
        else:
            self._last_key = ""
            self._part.prose.append(line.strip())

    def _begin_heading(self, number: int, level: int, text: str) -> None:
        self._last_key = ""
        if level == 1 and not self.goal.line and not self._open:
            self.goal.line, self.goal.name = number, _sort_removed(text)
            self._part = self.goal
        elif level == 1:
            self._problem(number, "a plan must have only one `#` heading, at the top")
        elif level > 3:
            self._problem(
                number,
                "headings deeper than `###` are not allowed; write subtasks as checkboxes (`- [ ] name`)",
            )
        else:
            ticked = _TICKED.match(text)
            self._begin(number, _KINDS[level - 2], ticked["text"] if ticked else text, done=bool(ticked))

    def _begin_box(self, number: int, mark: str, text: str) -> None:
        if mark not in (" ", "x", "X"):
            self._problem(number, f"a checkbox must be `[ ]` (open) or `[x]` (done), not `[{mark}]`")
        self._begin(number, NodeKind.SUBTASK, text, done=mark in ("x", "X"))

    def _begin(self, number: int, kind: NodeKind, text: str, done: bool) -> None:
        self._last_key = ""
        part = _Part(kind, number, text, done=done)
        given = _GIVEN_ID.match(text)
        part.id, part.name = (given["id"], given["name"]) if given else ("", _sort_removed(text))
        depth = _KINDS.index(kind)
        if len(self._open) < depth:
            above = ("## phase", "### task")[len(self._open)]
            self._problem(number, f"a {kind} must be under a `{above}` heading")
            self._part = part
            return
        del self._open[depth:]
        siblings = self._open[-1].children if self._open else self.goal.children
        siblings.append(part)
        if not part.id:
            places = [*self._places(), len(siblings)]
            part.id = "PTS"[depth] + ".".join(map(str, places))
        self._open.append(part)
        self._part = part

    def _places(self) -> list[int]:
        """Positions of the open phase and task, from 1."""
        parents = [self.goal, *self._open]
        return [len(parent.children) for parent in parents[: len(self._open)]]

    def _field(self, number: int, key: str, value: str, indent: int) -> None:
        known = _GOAL_FIELDS if self._part.kind is None else _FIELDS
        if key not in known:
            near = closest(key, known)
            hint = f"did you mean `{near}:`?" if near else f"known keys: {', '.join(known)}"
            self._problem(number, f"unknown key `{key}:`; {hint}")
            return
        name = known[key]
        self._last_key, self._key_indent = name, indent
        fields, lines = self._part.fields, self._part.lines
        if name in _ONE_A_LINE:
            lines[f"{name}[{len(fields.get(name, ()))}]"] = number
            fields.setdefault(name, []).append(value)
        elif name in _COMMA_SEPARATED:
            for item in (item.strip() for item in value.split(",")):
                if item and item not in ("-", "none"):
                    lines[f"{name}[{len(fields.get(name, ()))}]"] = number
                    fields.setdefault(name, []).append(item)
        elif name in fields:
            self._problem(number, f"duplicate `{key}:`, already on line {lines[name]}")
        else:
            fields[name] = value
        lines.setdefault(name, number)

    def _continue(self, text: str) -> None:
        """Append a more deeply indented line to the last field."""
        fields, name = self._part.fields, self._last_key
        if name in _ONE_A_LINE:
            fields[name][-1] = f"{fields[name][-1]} {text}".strip()
        elif name in _COMMA_SEPARATED:
            fields.setdefault(name, []).extend(item.strip() for item in text.split(",") if item.strip())
        else:
            fields[name] = f"{fields[name]} {text}".strip()

    def _problem(self, line: int, text: str) -> None:
        self.problems.append(LineProblem(line, text))

    def plan(self, limits: Limits, fallback_title: str) -> Plan | tuple[LineProblem, ...]:
        lines: dict[str, int] = {}
        phases = [
            self._value(part, f"$.phases[{index}]", lines) for index, part in enumerate(self.goal.children)
        ]
        if not phases:
            self._problem(0, "a plan must have at least one phase (a `##` heading)")
            return tuple(self.problems)
        goal = {"title": self.goal.name or fallback_title, "successCriteria": [], "constraints": []}
        goal |= self.goal.fields
        goal["successCriteria"] = [*goal["successCriteria"], *self._criteria(goal.pop("checks", []))]
        lines |= {f"$.goal.{name}": line for name, line in self.goal.lines.items()}
        lines |= {"$.goal.title": self.goal.line}
        found = check_value({"planVersion": 1, "goal": goal, "phases": phases}, limits)
        if not isinstance(found, Plan):
            self.problems += [LineProblem(_nearest(p.path, lines), _in_words(p, lines)) for p in found]
        if self.problems or not isinstance(found, Plan):
            return tuple(sorted(self.problems, key=lambda problem: problem.line))
        parts = {part.id: part for part in _all(self.goal)}
        return replace(
            found,
            phases=tuple(_marked(node, parts) for node in found.phases),
            problem_statement=_joined(self.goal.prose),
        )

    def _criteria(self, checks: Iterable[str]) -> Iterator[str]:
        for index, check in enumerate(checks):
            try:
                yield criterion(check)
            except UsageError as error:
                self._problem(self.goal.lines[f"checks[{index}]"], error.message)

    def _value(self, part: _Part, path: str, lines: dict[str, int]) -> dict[str, Any]:
        """An item as a planner would write it."""
        assert part.kind is not None
        lines[path] = part.line
        lines |= {f"{path}.{name}": line for name, line in part.lines.items()}
        below = BELOW.get(part.kind, "")
        if part.done and any(not found.done for found in _all(part) if not found.children):
            self._problem(part.line, f"{part.id} is checked, but not all of its children are")
        children = [
            self._value(child, f"{path}.{below}[{index}]", lines) for index, child in enumerate(part.children)
        ]
        value: dict[str, Any] = {"id": part.id, "name": part.name, **part.fields}
        if below:
            value[below] = children
        if not ("objective" in value or "outcome" in value):
            value["objective"] = _joined(part.prose) or part.name
        if "acceptance" not in value and (children or part.kind is NodeKind.PHASE):
            value["acceptance"] = [f"All its {below} are done."]
        elif "acceptance" not in value and value.get("verify"):
            value["acceptance"] = [f"{as_code(bare(value['verify']))} passes."]
        return value


def _all(part: _Part) -> list[_Part]:
    return [found for child in part.children for found in (child, *_all(child))]


def _marked(node: PlanNode, parts: Mapping[str, _Part]) -> PlanNode:
    """The node, with checked items marked done."""
    children = tuple(_marked(child, parts) for child in node.children)
    return replace(node, children=children, done=parts[node.id].done)


def _joined(prose: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip()


def _sort_removed(text: str) -> str:
    """`Phase 1: Build` is called `Build`."""
    match = _SORT.match(text)
    return match["name"] if match else text


def _indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


def _in_words(problem: Problem, lines: Mapping[str, int]) -> str:
    """A JSON problem in terms of the Markdown."""
    if problem.path == "$.goal.title":
        return "the goal must have a one-line title (a `#` heading)"
    if problem.text == "`acceptance` is missing":
        return "`accept:` is missing"
    if problem.path.endswith("tasks") and problem.text == "must not be empty":
        return "a phase must have at least one task (a `###` heading)"
    name = problem.path.rpartition(".")[2].partition("[")[0]
    key = next((key for key, value in {**_GOAL_FIELDS, **_FIELDS}.items() if value == name), "")
    text = re.sub(r"\$[\w.\[\]]+", lambda path: f"line {_nearest(path[0], lines)}", problem.text)
    return f"{key}: {text}" if key else text
