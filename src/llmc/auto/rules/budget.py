"""Whether what was spent is still within the limits. Pure."""

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from llmc.auto.rules.spending import Spent
from llmc.config.model import Budget


class Level(IntEnum):
    """How near the limits are."""

    OK = 0
    #: the worker is asked to come to an end
    SOFT = 1
    #: it is stopped
    HARD = 2


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """One limit: what it is about, and the setting that a person can change."""

    #: task, day or run
    scope: str
    #: tokens or cost
    unit: str
    most: float
    setting: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that is near, or was reached."""

    limit: Limit
    words: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The worst level, and every limit that is at it."""

    level: Level = Level.OK
    lines: tuple[Line, ...] = ()

    @property
    def words(self) -> str:
        return "; ".join(line.words for line in self.lines)

    def concerns(self, scope: str) -> bool:
        """Whether a limit of this scope (task, day or run) is among the lines."""
        return any(line.limit.scope == scope for line in self.lines)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    limits: tuple[Limit, ...] = ()
    soft: float = 0.8


_SUBJECTS = {"task": "the task", "day": "today", "run": "this run"}


def limits(config: Budget, own: object = None) -> Limits:
    """The limits in force; `own` is the task's `metadata.llmc.budget`, and wins where it has a number (0: no limit)."""
    own = own if isinstance(own, Mapping) else {}
    found = []
    for scope in _SUBJECTS:
        for unit in ("tokens", "cost"):
            most, setting = getattr(config, f"{scope}_{unit}"), f"auto.budget.{scope}_{unit}"
            if scope == "task" and _is_amount(own.get(unit)):
                most, setting = own[unit], f"the task's own budget.{unit}"
            if most:
                found.append(Limit(scope=scope, unit=unit, most=float(most), setting=setting))
    return Limits(limits=tuple(found), soft=config.soft)


def verdict(
    allowed: Limits, *, task: Spent | None = None, day: Spent | None = None, run: Spent | None = None
) -> Verdict:
    """The judgement of what the task, the day and the run have used so far."""
    spent = {"task": task or Spent(), "day": day or Spent(), "run": run or Spent()}
    judged = [(_level(limit, allowed.soft, spent[limit.scope]), limit) for limit in allowed.limits]
    worst = max((level for level, _ in judged), default=Level.OK)
    if worst is Level.OK:
        return Verdict()
    lines = [
        Line(limit=limit, words=_words(limit, spent[limit.scope]))
        for level, limit in judged
        if level is worst
    ]
    return Verdict(level=worst, lines=tuple(lines))


def _level(limit: Limit, soft: float, spent: Spent) -> Level:
    used = _used(limit, spent)
    # A limit in dollars that cannot be checked would be none: nobody is there at night to notice.
    if used >= limit.most or _is_blind(limit, spent):
        return Level.HARD
    return Level.SOFT if used >= soft * limit.most else Level.OK


def _used(limit: Limit, spent: Spent) -> float:
    return spent.tokens.new if limit.unit == "tokens" else spent.cost


def _is_blind(limit: Limit, spent: Spent) -> bool:
    return limit.unit == "cost" and bool(spent.unpriced)


def _words(limit: Limit, spent: Spent) -> str:
    used, subject = _used(limit, spent), _SUBJECTS[limit.scope]
    if used < limit.most and _is_blind(limit, spent):
        return f"{subject}: no price for {', '.join(spent.unpriced)}, so {limit.setting} cannot be checked"
    if limit.unit == "cost":
        return f"{subject}: ${used:,.2f} of ${limit.most:,.2f} ({limit.setting})"
    return f"{subject}: {used:,.0f} of {limit.most:,.0f} tokens ({limit.setting})"


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= 10**15
