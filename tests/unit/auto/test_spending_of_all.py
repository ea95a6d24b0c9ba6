"""A budget is the account's: usage by other nodes of a fleet counts."""

from datetime import datetime
from typing import Any, cast

from llmc.auto.usage import Spending, Totals, day_start, next_midnight
from llmc.records.worker import Spent, Tokens
from llmc.repo.project import Project


class _Own:
    """What this root used: a dollar today, and half of it in this run."""

    def read(self, project: Project) -> tuple[Spent, Spent]:
        return Spent(cost=1.0), Spent(cost=0.5)


def test_what_other_nodes_used_counts() -> None:
    """Break: read only this root's own log."""
    spending = Spending(max_cost=2.0)
    spending._totals = cast(Totals, _Own())
    project = cast(Any, None)
    assert spending.is_spent(project) == ""
    spending.others = (Spent(cost=9.0), Spent(cost=1.5))
    assert spending.is_spent(project) == "spent $2.00 of $2.00 (--max-cost)"
    assert spending.own(project) == (Spent(cost=1.0), Spent(cost=0.5)), "it reports only its own usage"


def test_without_a_price_it_is_not_known_whether_the_limit_is_reached() -> None:
    """Break: count an unpriced model as free: the run goes on past --max-cost."""
    spending = Spending(max_cost=2.0)
    spending._totals = cast(Totals, _Own())
    project = cast(Any, None)
    assert spending.is_blind(project) == ""
    spending.others = (Spent(), Spent(unpriced={"opus-9": Tokens()}))
    assert spending.is_blind(project).startswith("cannot check --max-cost without a price for opus-9")


def test_the_day_ends_by_the_fleets_clock() -> None:
    """Break: use midnight of this machine's own clock, which is ten minutes ahead."""
    five_to = datetime(2026, 11, 15, 23, 55).timestamp()
    here = five_to + 600
    assert next_midnight(here, 600.0) - here == 300
    assert here - day_start(here, 600.0) == (23 * 60 + 55) * 60
    assert here - day_start(here) == 300
