"""Sums of what was used: the events `usage_recorded`, added up. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from llmc.auto.rules.prices import Prices, cost_of
from llmc.records.usage import Usage

ACTION = "usage_recorded"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One event `usage_recorded`."""

    ts: float
    worker: str
    task_id: str | None
    model: str
    tokens: Usage
    cost: float | None
    claude_session_id: str = ""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, and what they cost; `unpriced` names the models whose part of it is not known."""

    tokens: Usage = Usage()
    cost: float = 0.0
    unpriced: tuple[str, ...] = ()


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of rows; what had no price when it was used is kept by model, for it may have one now."""

    tokens: Usage = Usage()
    cost: float = 0.0
    unpriced: Mapping[str, Usage] = {}

    def plus(self, row: Row) -> "Tally":
        if row.cost is not None:
            return Tally(tokens=self.tokens + row.tokens, cost=self.cost + row.cost, unpriced=self.unpriced)
        unpriced = {**self.unpriced, row.model: self.unpriced.get(row.model, Usage()) + row.tokens}
        return Tally(tokens=self.tokens + row.tokens, cost=self.cost, unpriced=unpriced)

    def joined(self, other: "Tally") -> "Tally":
        unpriced = dict(self.unpriced)
        for model, tokens in other.unpriced.items():
            unpriced[model] = unpriced.get(model, Usage()) + tokens
        return Tally(tokens=self.tokens + other.tokens, cost=self.cost + other.cost, unpriced=unpriced)

    def priced(self, prices: Prices) -> Spent:
        return spent_on(prices, self.unpriced, already=Spent(tokens=self.tokens, cost=self.cost))


def parse(event: Mapping[str, Any]) -> Row | None:
    """The row of an event; None for another event, or one that was not written by us."""
    if event.get("action") != ACTION:
        return None
    try:
        return msgspec.convert({**event, "tokens": event}, Row)
    except msgspec.ValidationError:
        return None


def spent_on(prices: Prices, by_model: Mapping[str, Usage], already: Spent | None = None) -> Spent:
    """What tokens cost at today's prices. With `already`: its sum, whose tokens are counted there."""
    costs = {model: cost_of(prices, model, tokens) for model, tokens in by_model.items()}
    tokens = already.tokens if already else sum(by_model.values(), Usage())
    return Spent(
        tokens=tokens,
        cost=(already.cost if already else 0.0) + sum(cost for cost in costs.values() if cost is not None),
        unpriced=tuple(sorted(model for model, cost in costs.items() if cost is None)),
    )


def sums(rows: Iterable[tuple[str, Row]]) -> dict[str, Tally]:
    """One sum for each key."""
    found: dict[str, Tally] = {}
    for key, row in rows:
        found[key] = found.get(key, Tally()).plus(row)
    return found
