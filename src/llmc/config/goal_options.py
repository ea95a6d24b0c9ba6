"""The tables of config.toml about goals: [overseer.goals]."""

from typing import Annotated

from msgspec import Meta

from llmc.config.options import NonEmpty, Table, as_array, check_no_nul, duration


class Backoff(Table, frozen=True, kw_only=True):
    """Wait after a recovery step; doubles each time."""

    base: Annotated[float, duration("Wait after the first recovery step without progress", gt=0)] = 120.0
    max: Annotated[float, duration("Maximum wait after a recovery step", gt=0)] = 1800.0


class GoalPlanner(Table, frozen=True, kw_only=True):
    """The planner of goals, and the size of a plan."""

    command: Annotated[
        str,
        Meta(
            description="Command that reads the planning prompt and prints the plan; empty means Claude Code",
            examples=["~/bin/plan-goal"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    model: Annotated[
        str,
        Meta(description="Claude model for planning; empty means the client's default", examples=["opus"]),
    ] = ""
    max_plan_phases: Annotated[int, Meta(ge=1, le=5, description="Maximum number of phases per plan")] = 5
    max_tasks_per_phase: Annotated[int, Meta(ge=1, le=7, description="Maximum number of tasks per phase")] = 7
    max_subtasks_per_task: Annotated[
        int, Meta(ge=0, le=7, description="Maximum number of subtasks per task")
    ] = 7
    max_repair_attempts: Annotated[
        int, Meta(ge=0, le=10, description="How many times an invalid plan is returned to the planner")
    ] = 2
    diagnose: Annotated[
        bool,
        Meta(description="Ask the planner about stalled work before asking you"),
    ] = False
    timeout: Annotated[float, duration("Timeout of a planning run", gt=0)] = 600.0


class GoalPolicy(Table, frozen=True, kw_only=True):
    """Which workers goals may use."""

    allow_agents: Annotated[
        tuple[NonEmpty, ...],
        Meta(
            description='Pools that goals may use: "auto", names of manual workers, or "*" for all',
            extra={"parse": as_array},
        ),
    ] = ("auto",)
    allow_cross_agent: Annotated[bool, Meta(description='Allow pools in allow_agents other than "auto"')] = (
        False
    )


class GoalStorage(Table, frozen=True, kw_only=True):
    """Where goals are stored."""

    dir: Annotated[
        str,
        Meta(
            description="Directory of the goal store; empty means .llmc/overseer. LLMC_OVERSEER_DIR overrides it",
            examples=["~/goals"],
            extra={"check": check_no_nul},
        ),
    ] = ""


class Goals(Table, frozen=True, kw_only=True):
    """Goals, which the daemon works through in auto mode."""

    enabled: Annotated[bool, Meta(description="Enable goals")] = False
    tick_every: Annotated[float, duration("Time between goal ticks (periodic checks of all goals)", gt=0)] = (
        120.0
    )
    idle_after: Annotated[float, duration("Time without activity before work counts as stalled", gt=0)] = (
        900.0
    )
    max_retries: Annotated[
        int, Meta(ge=0, le=100, description="Recovery attempts without progress before you are asked")
    ] = 2
    min_resend_interval: Annotated[
        float, duration("Minimum time before the same instruction is sent again", ge=0)
    ] = 300.0
    max_in_progress: Annotated[
        int, Meta(ge=1, le=245, description="Maximum number of plan items in progress across all goals")
    ] = 6
    reminders: Annotated[
        int, Meta(ge=0, le=100, description="How many times you are reminded of an open question")
    ] = 3
    backoff: Backoff = Backoff()
    planner: GoalPlanner = GoalPlanner()
    policy: GoalPolicy = GoalPolicy()
    storage: GoalStorage = GoalStorage()

    def recovery_s(self) -> float:
        """How long recovery takes before the user is asked."""
        return (self.max_retries + 2) * self.idle_after
