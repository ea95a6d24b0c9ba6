"""[overseer.goals]: its defaults, and what counts as a bad value."""

import pytest

from llmc.config.load import advice, check_text
from llmc.config.model import Config

REPO = '[repo]\nsource = "/none"\n'


def loaded(text: str = "") -> Config:
    config, problems = check_text(REPO + text, "config.toml")
    assert config is not None, problems
    return config


@pytest.mark.req("3-116", "3-117", "3-118")
def test_the_defaults_are_those_of_the_document() -> None:
    """Break: change a default in config/model.py."""
    goals = loaded().overseer.goals
    assert goals.enabled is False
    assert (goals.tick_every, goals.idle_after, goals.max_retries) == (120.0, 900.0, 2)
    assert goals.min_resend_interval == 300.0
    assert (goals.backoff.base, goals.backoff.max) == (120.0, 1800.0)
    plan = goals.planner
    assert (plan.max_plan_phases, plan.max_tasks_per_phase, plan.max_subtasks_per_task) == (5, 7, 7)
    assert plan.max_repair_attempts == 2
    assert (goals.policy.allow_agents, goals.policy.allow_cross_agent) == (("auto",), False)
    assert goals.storage.dir == ""


@pytest.mark.req("0-102", "3-117")
def test_the_supervisor_gives_goals_their_time_unless_told_otherwise() -> None:
    """Break: leave `_fitted` out of check_text: goals with all defaults would warn about another default."""
    on = "[overseer.goals]\nenabled = true\n"
    assert loaded().overseer.stall_timeout_secs == 3600
    assert (loaded(on).overseer.stall_timeout_secs, advice(loaded(on))) == (7200, [])
    slow = loaded(f"{on}idle_after = '2h'\n")
    assert (slow.overseer.stall_timeout_secs, advice(slow)) == (16 * 3600, [])
    quick = loaded(f"{on}idle_after = '1m'\n")
    assert (quick.overseer.stall_timeout_secs, advice(quick)) == (3600, [])
    told = loaded(f"[overseer]\nstall_timeout_secs = 3600\n{on}")
    assert told.overseer.stall_timeout_secs == 3600, "the user's value holds"
    (warning,) = advice(told)
    assert "llmc config set overseer.stall_timeout_secs 7200" in warning


@pytest.mark.req("3-119")
@pytest.mark.parametrize(
    ("written", "seconds"), [('"2m"', 120.0), ("120", 120.0), ('"1h30m"', 5400.0), ('"250ms"', 0.25)]
)
def test_a_duration_is_text_or_seconds(written: str, seconds: float) -> None:
    """Break: `float` without `duration` for tick_every."""
    assert loaded(f"[overseer.goals]\ntick_every = {written}\n").overseer.goals.tick_every == seconds


@pytest.mark.req("3-119")
@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("overseer.goals", "tick_every"),
        ("overseer.goals", "idle_after"),
        ("overseer.goals", "min_resend_interval"),
        ("overseer.goals.backoff", "base"),
        ("overseer.goals.planner", "timeout"),
    ],
)
@pytest.mark.parametrize("written", ['"soon"', '"2x"', '"-5m"', "true", '""'])
def test_a_bad_duration_is_named_and_turns_nothing_off(table: str, key: str, written: str) -> None:
    """Break: let parse_duration return 0 for what it does not know."""
    config, problems = check_text(f"{REPO}[{table}]\n{key} = {written}\n", "config.toml")
    assert config is None
    (problem,) = problems
    assert (problem.key, problem.line) == (f"{table}.{key}", 4)
    assert "duration" in problem.message


@pytest.mark.req("3-118")
def test_a_plan_may_be_made_smaller_but_not_larger_than_its_bounds() -> None:
    """Break: remove `le` from max_plan_phases."""
    small = "[overseer.goals.planner]\nmax_plan_phases = 2\n"
    assert loaded(small).overseer.goals.planner.max_plan_phases == 2
    config, problems = check_text(f"{REPO}[overseer.goals.planner]\nmax_plan_phases = 6\n", "config.toml")
    assert config is None
    assert problems[0].key == "overseer.goals.planner.max_plan_phases"
