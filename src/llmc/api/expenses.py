"""Token usage, its cost, and the prices."""

import time
from collections.abc import Callable
from datetime import date

from msgspec import Struct

from llmc.auto.prices import prices_of as prices_of
from llmc.auto.prices import update as update
from llmc.auto.prices import view as view
from llmc.auto.rules.costs import PriceList as PriceList
from llmc.auto.rules.costs import Prices as Prices
from llmc.auto.rules.costs import Row, priced, sums
from llmc.auto.rules.costs import Spent as Spent
from llmc.auto.rules.costs import complaint as complaint
from llmc.auto.usage import rows
from llmc.config.model import Price as Price
from llmc.repo.project import Project

NO_TASK = "(no task)"
#: what usage can be grouped by
KEYS: dict[str, Callable[[Row], str]] = {
    "worker": lambda row: row.worker,
    "task": lambda row: NO_TASK if row.task_id is None else row.task_id,
    "day": lambda row: time.strftime("%Y-%m-%d", time.localtime(row.ts)),
    "model": lambda row: row.model,
}


class Usage(Struct, frozen=True):
    """Usage by key, highest cost first (days in order), and in total."""

    lines: dict[str, Spent]
    total: Spent
    #: set if the prices are old
    complaint: str


def usage(project: Project, by: str, since_unix: float) -> Usage:
    tallies = sums((KEYS[by](row), row) for row in rows(project, since_unix))
    prices = prices_of(project)
    spent = {key: priced(prices, tally) for key, tally in tallies.items()}
    total = priced(prices, sum(tallies.values(), Spent()))
    keys = sorted(spent) if by == "day" else sorted(spent, key=lambda key: (-weight(spent[key], total), key))
    return Usage({key: spent[key] for key in keys}, total, complaint(prices.listed, date.today()))


def weight(spent: Spent, total: Spent) -> float:
    """The base of a share: cost if every price is known, else tokens."""
    return spent.tokens.new if total.unpriced or not total.cost else spent.cost
