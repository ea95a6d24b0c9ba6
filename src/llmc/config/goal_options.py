"""The options of goals in config.toml: the table `[overseer.goals]` and the tables in it."""

from typing import Annotated

from llmc.config.options import NonEmpty, Table, Text, as_array, duration, option


class Backoff(Table, frozen=True, kw_only=True):
    """Wait after a recovery step; doubles each time."""

    base: Annotated[
        float,
        duration("Initial wait after a recovery step that made no progress; doubles after each one", gt=0),
    ] = 120.0
    max: Annotated[float, duration("Maximum wait after a recovery step", gt=0)] = 1800.0


class GoalPlanner(Table, frozen=True, kw_only=True):
    """The planner for goals, and limits on the size of a plan."""

    command: Annotated[
        Text,
        option(
            "Command that reads the planning prompt on stdin and prints the plan; empty means Claude Code",
            example="~/bin/plan-goal",
        ),
    ] = ""
    model: Annotated[
        str, option("Claude model for planning; empty means Claude Code's default", example="opus")
    ] = ""
    max_plan_phases: Annotated[int, option("Maximum number of phases per plan", ge=1, le=5)] = 5
    max_tasks_per_phase: Annotated[int, option("Maximum number of tasks per phase", ge=1, le=7)] = 7
    max_subtasks_per_task: Annotated[int, option("Maximum number of subtasks per task", ge=0, le=7)] = 7
    max_repair_attempts: Annotated[
        int, option("Maximum number of times to return an invalid plan to the planner", ge=0, le=10)
    ] = 2
    diagnose: Annotated[bool, option("Ask the planner to diagnose stalled work before asking you")] = False
    timeout: Annotated[float, duration("Timeout for a planning run", gt=0)] = 600.0


class GoalPolicy(Table, frozen=True, kw_only=True):
    """Which workers goals may use."""

    allow_agents: Annotated[
        tuple[NonEmpty, ...],
        option(
            'Workers that goals may use: "auto" for all auto workers, names of other workers, or "*" for all',
            parse=as_array,
        ),
    ] = ("auto",)
    allow_cross_agent: Annotated[
        bool, option('Let goals use the workers in allow_agents other than "auto"')
    ] = False


class GoalStorage(Table, frozen=True, kw_only=True):
    """Where goals are stored."""

    dir: Annotated[
        Text,
        option(
            "Directory for the goal database (LLMC_OVERSEER_DIR overrides it); empty means .llmc/overseer",
            example="~/goals",
        ),
    ] = ""


class Goals(Table, frozen=True, kw_only=True):
    """Goals, which the daemon works through in auto mode."""

    enabled: Annotated[bool, option("Let the daemon work on goals in auto mode")] = False
    tick_every: Annotated[float, duration("Time between goal ticks (periodic checks of all goals)", gt=0)] = (
        120.0
    )
    idle_after: Annotated[
        float, duration("Time without activity after which work counts as stalled", gt=0)
    ] = 900.0
    max_retries: Annotated[
        int, option("Number of recovery attempts without progress before llmc asks you", ge=0, le=100)
    ] = 2
    min_resend_interval: Annotated[
        float, duration("Minimum time before the same instruction is sent again", ge=0)
    ] = 300.0
    max_in_progress: Annotated[
        int, option("Maximum number of plan items in progress across all goals", ge=1, le=245)
    ] = 6
    reminders: Annotated[int, option("Number of reminders about each open question", ge=0, le=100)] = 3
    backoff: Backoff = Backoff()
    planner: GoalPlanner = GoalPlanner()
    policy: GoalPolicy = GoalPolicy()
    storage: GoalStorage = GoalStorage()

    def recovery_s(self) -> float:
        """How long recovery takes before the user is asked."""
        return (self.max_retries + 2) * self.idle_after
