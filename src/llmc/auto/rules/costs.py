"""Costs of tokens, sums of usage, and budget limits. Pure."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from enum import IntEnum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from llmc.base.names import TaskKey
from llmc.config.model import Budget, Price
from llmc.records.worker import Assignment, Metered, Tokens
from llmc.records.worker import Spent as Spent

#: default cache prices, as a fraction of the input price
CACHE_WRITE = 1.25
CACHE_READ = 0.1
MILLION = 1_000_000
#: age at which a list counts as old
OLD_DAYS = 120

#: a version date or a context window variant of the same model
_VARIANT = re.compile(r"(-20\d{6})?(\[[^\]]*\])?$")


class PriceList(Struct, frozen=True, kw_only=True):
    """Prices by full model name, as published on a day."""

    as_of: str = ""
    source: str = ""
    prices: Mapping[str, Price] = {}


class Prices(Struct, frozen=True, kw_only=True):
    """The user's own prices, by model name prefix; and a list for the others."""

    own: Mapping[str, Price] = {}
    listed: PriceList = PriceList()

    def of(self, model: str) -> Price | None:
        """The price; None if the input or output price is unknown.

        The user's numbers override those of the list one by one; cache prices follow an overridden input price.
        """
        known = [name for name in self.own if model.startswith(name)]
        own = self.own[max(known, key=len)] if known else Price()
        base = self._listed(model) or Price()
        price = Price(
            input=_first(own.input, base.input),
            output=_first(own.output, base.output),
            cache_write=_first(own.cache_write, base.cache_write if own.input is None else None),
            cache_read=_first(own.cache_read, base.cache_read if own.input is None else None),
        )
        return None if price.input is None or price.output is None else price

    def _listed(self, model: str) -> Price | None:
        """Not by prefix: a new model with a similar name may have another price."""
        return self.listed.prices.get(model) or self.listed.prices.get(_VARIANT.sub("", model))


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def cost_of(prices: Prices, model: str, tokens: Tokens) -> float | None:
    """Dollars; None if the model has no price."""
    price = prices.of(model)
    if price is None or price.input is None or price.output is None:
        return None
    cache_write = price.input * CACHE_WRITE if price.cache_write is None else price.cache_write
    cache_read = price.input * CACHE_READ if price.cache_read is None else price.cache_read
    dollars = (
        tokens.input_tokens * price.input
        + tokens.output_tokens * price.output
        + tokens.cache_creation_input_tokens * cache_write
        + tokens.cache_read_input_tokens * cache_read
    )
    return round(dollars / MILLION, 9)


def newest(*lists: PriceList) -> PriceList:
    """The latest list; models that it lacks come from older ones."""
    in_order = sorted(lists, key=lambda one: one.as_of)
    prices = {model: price for one in in_order for model, price in one.prices.items()}
    return PriceList(as_of=in_order[-1].as_of, source=in_order[-1].source, prices=prices)


def age_days(listed: PriceList, today: date) -> int:
    try:
        return (today - date.fromisoformat(listed.as_of)).days
    except ValueError:
        return OLD_DAYS + 1


def complaint(listed: PriceList, today: date) -> str:
    """A warning about an old list; "" if it is recent."""
    days = age_days(listed, today)
    if days <= OLD_DAYS:
        return ""
    return f"the model prices are from {listed.as_of or 'an unknown date'}. To update them: llmc prices update FILE|URL"


class NoPrices(ValueError):
    """Not a price list; the message says why."""


def price_list(data: object, today: date) -> PriceList:
    """Parse the output of `llmc prices list --json`, or LiteLLM's list.

    Skips invalid prices: a model without a price reaches any cost limit, a free model never does.
    """
    if not isinstance(data, dict):
        raise NoPrices("not a JSON object")
    ours = data.get("prices")
    if isinstance(ours, dict):
        rows = {str(model): _row(row) for model, row in ours.items()}
        as_of = _day(data.get("as_of"))
    else:
        rows = {
            str(model): _litellm_row(row) for model, row in data.items() if str(model).startswith("claude-")
        }
        as_of = today.isoformat()
    prices = {model: price for model, price in rows.items() if price is not None}
    if not prices:
        raise NoPrices("no model has both an input and an output price")
    return PriceList(as_of=as_of, source=str(data.get("source") or ""), prices=prices)


def _day(value: object) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError as error:
        raise NoPrices('"as_of" must be a date such as 2026-11-13') from error


def _row(row: object) -> Price | None:
    found = row if isinstance(row, dict) else {}
    return _price(*(_amount(found.get(key)) for key in ("input", "output", "cache_write", "cache_read")))


_LITELLM = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_creation_input_token_cost",
    "cache_read_input_token_cost",
)


def _litellm_row(row: object) -> Price | None:
    if not isinstance(row, dict) or row.get("litellm_provider") not in (None, "anthropic"):
        return None
    return _price(*(_per_million(row, key) for key in _LITELLM))


def _per_million(row: Mapping[str, Any], key: str) -> float | None:
    """The higher price if long prompts cost more, so that limits are not checked against too low a cost."""
    long = re.compile(rf"{key}(_above_\d+k_tokens)?")
    found = [_amount(value, MILLION) for name, value in row.items() if long.fullmatch(str(name))]
    return max((amount for amount in found if amount is not None), default=None)


def _price(*amounts: float | None) -> Price | None:
    of_input, of_output, cache_write, cache_read = amounts
    if of_input is None or of_output is None:
        return None
    return Price(input=of_input, output=of_output, cache_write=cache_write, cache_read=cache_read)


def _amount(value: object, factor: int = 1) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    amount = round(value * factor, 6)
    return amount if math.isfinite(amount) and 0 < amount < 1e6 else None


ACTION = "usage_recorded"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One `usage_recorded` event."""

    ts: float
    worker: str
    task_id: str | None
    model: str
    tokens: Tokens
    cost: float | None
    claude_session_id: str = ""

    @property
    def spent(self) -> Spent:
        if self.cost is None:
            return Spent(tokens=self.tokens, unpriced={self.model: self.tokens})
        return Spent(tokens=self.tokens, cost=self.cost)


def usage_row(event: Mapping[str, Any]) -> Row | None:
    """The row of an event; None if it is another event or invalid."""
    if event.get("action") != ACTION:
        return None
    try:
        return msgspec.convert({**event, "tokens": event}, Row)
    except msgspec.ValidationError:
        return None


def priced(prices: Prices, spent: Spent) -> Spent:
    """The same usage; tokens that had no price at the time cost what they do now."""
    costs = {model: cost_of(prices, model, tokens) for model, tokens in sorted(spent.unpriced.items())}
    return Spent(
        tokens=spent.tokens,
        cost=spent.cost + sum(cost for cost in costs.values() if cost is not None),
        unpriced={model: spent.unpriced[model] for model, cost in costs.items() if cost is None},
    )


def spent_on(prices: Prices, by_model: Mapping[str, Tokens]) -> Spent:
    """The cost of tokens at current prices."""
    return priced(prices, Spent(tokens=sum(by_model.values(), Tokens()), unpriced=by_model))


def sums(rows: Iterable[tuple[str, Row]]) -> dict[str, Spent]:
    """One sum per key."""
    found: dict[str, Spent] = {}
    for key, row in rows:
        found[key] = found.get(key, Spent()) + row.spent
    return found


class Level(IntEnum):
    """How close the limits are."""

    OK = 0
    #: the worker is told to wrap up
    SOFT = 1
    #: it is stopped
    HARD = 2


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """One limit, and the setting to change it."""

    #: task, day or run
    scope: str
    #: tokens or cost
    unit: str
    most: float
    setting: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that is near or reached."""

    limit: Limit
    words: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The worst level, and all limits at that level."""

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
    """The effective limits; `own` is the task's `metadata.llmc.budget`, which takes precedence (0 means no limit)."""
    own = own if isinstance(own, Mapping) else {}
    found = []
    for scope in _SUBJECTS:
        for unit in ("tokens", "cost"):
            most, setting = getattr(config, f"{scope}_{unit}"), f"auto.budget.{scope}_{unit}"
            if scope == "task" and _is_amount(own.get(unit)):
                most, setting = own[unit], "the task's own budget"
            if most:
                found.append(Limit(scope=scope, unit=unit, most=float(most), setting=setting))
    return Limits(limits=tuple(found), soft=config.soft)


def verdict(
    allowed: Limits, *, task: Spent | None = None, day: Spent | None = None, run: Spent | None = None
) -> Verdict:
    """Check what the task, the day and the run have used against the limits."""
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
    # A dollar limit that cannot be checked counts as reached: the run is unattended.
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
        return f"{subject}: cannot check {limit.setting} without a price for {', '.join(spent.unpriced)}"
    if limit.unit == "cost":
        return f"{subject}: ${used:,.2f} of ${limit.most:,.2f} ({limit.setting})"
    return f"{subject}: {used:,.0f} of {limit.most:,.0f} tokens ({limit.setting})"


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= 10**15


ByModel = Mapping[str, Tokens]


class Reading(msgspec.Struct, frozen=True):
    """The usage in one transcript, and how much of it is in the event log."""

    transcript: str
    totals: ByModel
    counted: ByModel = {}
    #: of a skipped conversation: the task it started with
    task: TaskKey | None = None


class Delta(msgspec.Struct, frozen=True):
    """Tokens that are not in an event yet."""

    task: TaskKey | None
    transcript: str
    model: str
    tokens: Tokens


def measure(
    before: Metered,
    left: Mapping[str, Tokens],
    here: Reading,
    assignment: Assignment | None,
    skipped: Sequence[Reading] = (),
) -> tuple[Metered, list[Delta]]:
    """What is counted after this check, and what to record.

    `left` is the conversation counted so far, `here` the current one: the same, or a new one after /clear; `skipped`
    are those that started and ended in between. A conversation belongs to the assignment it started with. `here`
    replaces `left` once it has tokens: by then `left` is complete.
    """
    was = Reading(before.transcript, left, before.counted)
    deltas = _grown(was, before.task)
    if here.transcript != before.transcript:
        if here.totals or not before.transcript:
            return _moved(
                before, here, assignment, [*deltas, *(d for one in skipped for d in _grown(one, one.task))]
            )
    elif deltas and assignment is not None and assignment.claim != before.claim:
        # A task that was sent without /clear: the conversation counts for it from now on, so that its budget holds.
        return _owned(replace(before, counted=_counted(was)), assignment), deltas
    return replace(before, counted=_counted(was), spent=_with(before.spent, deltas)), deltas


def _moved(
    before: Metered, here: Reading, assignment: Assignment | None, earlier: list[Delta]
) -> tuple[Metered, list[Delta]]:
    """Switch to another conversation: a new one, or a resumed one."""
    fresh = _owned(Metered(transcript=here.transcript, counted=_counted(here)), assignment)
    deltas = _grown(here, fresh.task)
    spent = _with({}, deltas)
    if fresh.claim and fresh.claim == before.claim:  # the same work continues
        spent = _with(before.spent, [*earlier, *deltas])
    return replace(fresh, spent=spent), earlier + deltas


def _grown(reading: Reading, task: TaskKey | None) -> list[Delta]:
    news = {
        model: now.since(reading.counted.get(model, Tokens()))
        for model, now in sorted(reading.totals.items())
    }
    return [Delta(task, reading.transcript, model, new) for model, new in news.items() if new]


def _counted(reading: Reading) -> dict[str, Tokens]:
    """What is counted after a reading. A missing model keeps its count: a deleted transcript proves nothing.

    If a total shrank (an older copy was restored), its tokens are counted already, and growth counts from there.
    """
    return {**reading.counted, **reading.totals}


def _owned(metered: Metered, assignment: Assignment | None) -> Metered:
    if assignment is None:
        return replace(metered, claim="", task_id=None, task_list="", spent={})
    task = assignment.task
    return replace(metered, claim=assignment.claim, task_id=task.id, task_list=task.list, spent={})


def _with(spent: ByModel, deltas: list[Delta]) -> dict[str, Tokens]:
    total = dict(spent)
    for delta in deltas:
        total[delta.model] = total.get(delta.model, Tokens()) + delta.tokens
    return total
