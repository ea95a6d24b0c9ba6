"""Budgets: what tokens cost, which of them count, and when a limit is reached."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.auto.rules.costs import (
    Level,
    Prices,
    Row,
    cost_of,
    limits,
    priced,
    spent_on,
    sums,
    usage_row,
    verdict,
)
from llmc.config.model import Budget, Price
from llmc.records.worker import Spent, Tokens

OPUS = Price(input=15.0, output=75.0, cache_write=18.75, cache_read=1.5)
COUNTS = st.sampled_from([0, 1, 250_000, 10**6, 10**9])
USAGES = st.builds(
    Tokens,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cache_creation_input_tokens=COUNTS,
    cache_read_input_tokens=COUNTS,
)
SPENT = st.builds(
    Spent,
    tokens=USAGES,
    cost=st.sampled_from([0.0, 0.5, 1.0, 399.0, 500.0]),
    unpriced=st.sampled_from([{}, {}, {"claude-x": Tokens()}]),
)
BUDGETS = st.builds(
    Budget,
    task_tokens=st.sampled_from([0, 1, 10**6, 10**9]),
    day_tokens=st.sampled_from([0, 10**6, 10**9]),
    run_tokens=st.sampled_from([0, 10**6, 10**9]),
    task_cost=st.sampled_from([0.0, 1.0, 500.0]),
    day_cost=st.sampled_from([0.0, 1.0, 500.0]),
    run_cost=st.sampled_from([0.0, 1.0, 500.0]),
    soft=st.sampled_from([0.5, 0.8, 1.0]),
)


def million(**kinds: int) -> Tokens:
    return Tokens(**{name: count * 1_000_000 for name, count in kinds.items()})


@pytest.mark.req("5-005")
def test_each_kind_of_token_has_its_own_price() -> None:
    """Break: swap cache_write and cache_read in cost_of()."""
    table = Prices(own={"claude-opus": OPUS})
    kinds = {
        "input_tokens": 15.0,
        "output_tokens": 75.0,
        "cache_creation_input_tokens": 18.75,
        "cache_read_input_tokens": 1.5,
    }
    for kind, dollars in kinds.items():
        assert cost_of(table, "claude-opus-4-8", million(**{kind: 1})) == dollars


def test_caches_without_a_price_follow_the_input() -> None:
    table = Prices(own={"claude": Price(input=10.0, output=50.0)})
    assert cost_of(table, "claude-x", million(cache_creation_input_tokens=1)) == 12.5
    assert cost_of(table, "claude-x", million(cache_read_input_tokens=1)) == 1.0


@pytest.mark.req("5-005")
def test_the_longest_beginning_of_a_name_has_the_price() -> None:
    """Break: use the first name that fits."""
    table = Prices(
        own={
            "claude": Price(input=1.0, output=1.0),
            "claude-opus-4": Price(input=3.0, output=1.0),
            "claude-opus": Price(input=2.0, output=1.0),
        }
    )
    used = million(input_tokens=1)
    prices = {
        model: cost_of(table, model, used) for model in ("claude-opus-4-8", "claude-opus-3", "claude-x")
    }
    assert prices == {"claude-opus-4-8": 3.0, "claude-opus-3": 2.0, "claude-x": 1.0}
    assert cost_of(table, "gpt", used) is None


@pytest.mark.req("5-005")
def test_half_a_price_is_none() -> None:
    """Free output would be a wrong sum that looks right. Break: read an unset output price as 0."""
    assert cost_of(Prices(own={"claude": Price(input=1.0)}), "claude-x", million(input_tokens=1)) is None


@given(st.lists(st.tuples(USAGES, st.sampled_from(["claude-opus", "gpt"])), max_size=8))
def test_the_cost_of_a_sum_is_the_sum_of_the_costs(parts: list[tuple[Tokens, str]]) -> None:
    table = Prices(own={"claude": OPUS})
    costs = [cost_of(table, model, used) for used, model in parts]
    rows = [row(used, model, cost) for (used, model), cost in zip(parts, costs, strict=True)]
    tally = Spent()
    for one in rows:
        tally = tally + one.spent
    spent = priced(table, tally)
    assert spent.tokens == sum((used for used, _ in parts), Tokens())
    assert abs(spent.cost - sum(cost or 0.0 for cost in costs)) < 1e-6
    assert tuple(spent.unpriced) == (("gpt",) if any(model == "gpt" for _, model in parts) else ())
    joined = Spent()
    for part in sums((one.model, one) for one in rows).values():
        joined = joined + part
    assert priced(table, joined).tokens == spent.tokens


def row(used: Tokens, model: str = "claude-opus", cost: float | None = None) -> Row:
    return Row(ts=1.0, worker="w", task_id=None, model=model, tokens=used, cost=cost)


def test_a_price_that_came_later_counts_for_what_had_none() -> None:
    """Break: forget the tokens of rows without a cost."""
    tally = row(million(input_tokens=1), cost=None).spent + row(million(input_tokens=1), cost=7.0).spent
    assert list(priced(Prices(), tally).unpriced) == ["claude-opus"]
    spent = priced(Prices(own={"claude": OPUS}), tally)
    assert (spent.cost, spent.unpriced) == (22.0, {})


def test_other_events_and_broken_ones_are_no_rows() -> None:
    event = {"ts": 1.0, "action": "usage_recorded", "worker": "w", "task_id": "3", "model": "m", "cost": None}
    assert usage_row({**event, "input_tokens": 4, "reason": "", "seq": 9}) == Row(
        ts=1.0, worker="w", task_id="3", model="m", tokens=Tokens(input_tokens=4), cost=None
    )
    assert usage_row({**event, "action": "held"}) is None
    assert usage_row({**event, "model": 3}) is None


@pytest.mark.req("5-007")
def test_cache_reads_do_not_count_against_token_limits_but_cost_what_they_cost() -> None:
    """Each step reads the whole context again, which would dominate every limit.

    Break: add them in Tokens.new.
    """
    allowed = limits(Budget(task_tokens=1000, task_cost=1.0))
    spent = spent_on(Prices(own={"claude": OPUS}), {"claude-opus": million(cache_read_input_tokens=1)})
    found = verdict(allowed, task=spent)
    assert (found.level, [line.limit.unit for line in found.lines]) == (Level.HARD, ["cost"])
    for kind in ("input_tokens", "output_tokens", "cache_creation_input_tokens"):
        found = verdict(limits(Budget(task_tokens=1000)), task=Spent(tokens=Tokens(**{kind: 1000})))
        assert found.level is Level.HARD


@pytest.mark.req("5-006")
@given(BUDGETS, SPENT, SPENT, SPENT)
def test_hard_is_reached_exactly_where_some_limit_is(b: Budget, task: Spent, day: Spent, run: Spent) -> None:
    """Break: compare one scope's spending with another's limit."""
    pairs = [
        (b.task_tokens, task.tokens.new),
        (b.day_tokens, day.tokens.new),
        (b.run_tokens, run.tokens.new),
        (b.task_cost, task.cost),
        (b.day_cost, day.cost),
        (b.run_cost, run.cost),
    ]
    blind = [b.task_cost and task.unpriced, b.day_cost and day.unpriced, b.run_cost and run.unpriced]
    hard = any(most and used >= most for most, used in pairs) or any(blind)
    soft = any(most and used >= b.soft * most for most, used in pairs)
    found = verdict(limits(b), task=task, day=day, run=run)
    assert found.level is (Level.HARD if hard else Level.SOFT if soft else Level.OK)
    assert bool(found.lines) == bool(found.words) == (found.level is not Level.OK)


@pytest.mark.req("5-006")
@pytest.mark.parametrize("unit", ["tokens", "cost"])
@pytest.mark.parametrize("limited", ["task", "day", "run"])
@pytest.mark.parametrize("spender", ["task", "day", "run"])
def test_each_limit_is_about_its_own_scope(limited: str, spender: str, unit: str) -> None:
    """Break: `>` for `>=`, or compare the run's spending with the day's limit."""
    much = Spent(tokens=Tokens(output_tokens=10), cost=10.0)
    found = verdict(limits(Budget(**{f"{limited}_{unit}": 10})), **{spender: much})
    assert found.level is (Level.HARD if limited == spender else Level.OK)
    assert found.concerns(limited) == (limited == spender)


@given(BUDGETS, SPENT, SPENT)
def test_more_use_is_never_a_better_verdict(b: Budget, spent: Spent, more: Spent) -> None:
    after = Spent(tokens=spent.tokens + more.tokens, cost=spent.cost + more.cost, unpriced=spent.unpriced)
    before, later = (verdict(limits(b), task=s, day=s, run=s).level for s in (spent, after))
    assert later >= before


@given(SPENT)
def test_without_limits_everything_is_allowed(spent: Spent) -> None:
    assert verdict(limits(Budget()), task=spent, day=spent, run=spent).level is Level.OK


@pytest.mark.req("5-006")
def test_the_words_name_what_was_used_and_the_setting() -> None:
    budget = Budget(task_tokens=1_000_000, day_cost=10.0, soft=0.5)
    half = Spent(tokens=million(input_tokens=1), cost=5.0)
    soft = verdict(limits(replace(budget, task_tokens=2_000_000)), task=half, day=half)
    assert soft.level is Level.SOFT
    assert soft.words.split("; ") == [
        "the task: 1,000,000 of 2,000,000 tokens (auto.budget.task_tokens)",
        "today: $5.00 of $10.00 (auto.budget.day_cost)",
    ]
    hard = verdict(limits(budget), task=half, day=half)
    assert (hard.level, hard.words) == (
        Level.HARD,
        "the task: 1,000,000 of 1,000,000 tokens (auto.budget.task_tokens)",
    )
    assert hard.concerns("task")
    assert not hard.concerns("day")


@pytest.mark.req("5-008")
def test_a_limit_in_dollars_that_cannot_be_checked_is_a_reason_to_stop() -> None:
    """At night, no user would see that there is no ceiling. Break: leave _is_blind out of _level()."""
    unknown = spent_on(Prices(), {"claude-opus": million(input_tokens=1)})
    found = verdict(limits(Budget(run_cost=10.0)), run=unknown)
    assert found.level is Level.HARD
    assert found.words == "this run: cannot check auto.budget.run_cost without a price for claude-opus"
    assert verdict(limits(Budget(run_tokens=10**9)), run=unknown).level is Level.OK


@pytest.mark.req("5-009")
def test_a_task_can_have_a_budget_of_its_own() -> None:
    """Break: ignore `own` in limits()."""
    budget = Budget(task_tokens=100, task_cost=1.0, day_tokens=50)
    own = limits(budget, {"tokens": 500, "cost": 0})
    assert [(limit.setting, limit.most) for limit in own.limits] == [
        ("the task's own budget", 500.0),
        ("auto.budget.day_tokens", 50.0),
    ]


@pytest.mark.req("5-009")
@given(
    st.none()
    | st.integers()
    | st.text()
    | st.dictionaries(
        st.sampled_from(["tokens", "cost", "x"]),
        st.none()
        | st.booleans()
        | st.integers(max_value=-1)
        | st.text()
        | st.just(float("nan"))
        | st.just(10**400),
    )
)
def test_a_budget_in_a_task_file_that_makes_no_sense_changes_nothing(own: object) -> None:
    """An author of task files must not lift a limit by mistake. Break: accept any value in _is_amount()."""
    budget = Budget(task_tokens=100, task_cost=1.0)
    assert limits(budget, own) == limits(budget)
