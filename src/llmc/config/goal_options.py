"""[overseer.goals]: the tables of config.toml about goals."""

from typing import Annotated

from msgspec import Meta

from llmc.config.options import NonEmpty, Table, as_array, check_no_nul, duration


class Backoff(Table, frozen=True, kw_only=True):
    """How long nothing is sent after a recovery; doubles each time."""

    base: Annotated[float, duration("Wait after the first recovery without progress", gt=0)] = 120.0
    max: Annotated[float, duration("Longest such wait", gt=0)] = 1800.0


class GoalPlanner(Table, frozen=True, kw_only=True):
    """Who makes a plan of a goal, and how large it may be."""

    command: Annotated[
        str,
        Meta(
            description="Command that reads the planning prompt and prints the plan; empty: Claude Code itself",
            examples=["~/bin/plan-goal"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    model: Annotated[
        str, Meta(description="Claude model that plans; empty: the client's own", examples=["opus"])
    ] = ""
    max_plan_phases: Annotated[int, Meta(ge=1, le=5, description="Most phases of a plan")] = 5
    max_tasks_per_phase: Annotated[int, Meta(ge=1, le=7, description="Most tasks of a phase")] = 7
    max_subtasks_per_task: Annotated[int, Meta(ge=0, le=7, description="Most subtasks of a task")] = 7
    max_repair_attempts: Annotated[
        int, Meta(ge=0, le=10, description="How often an invalid plan is sent back to be mended")
    ] = 2
    diagnose: Annotated[
        bool,
        Meta(description="Whether the planner is asked about work that stands still, before a person is"),
    ] = False
    timeout: Annotated[float, duration("Longest time that one planning may take", gt=0)] = 600.0


class GoalPolicy(Table, frozen=True, kw_only=True):
    """Whom goals may give work to, and send messages."""

    allow_agents: Annotated[
        tuple[NonEmpty, ...],
        Meta(
            description='Pools that may be given work: "auto", names of manual workers, or "*" for all',
            extra={"parse": as_array},
        ),
    ] = ("auto",)
    allow_cross_agent: Annotated[
        bool, Meta(description="Whether the pools of allow_agents beyond the goal's own count at all")
    ] = False


class GoalStorage(Table, frozen=True, kw_only=True):
    """Where goals are kept."""

    dir: Annotated[
        str,
        Meta(
            description="Directory of the goals' store; empty: .llmc/overseer. LLMC_OVERSEER_DIR wins",
            examples=["~/goals"],
            extra={"check": check_no_nul},
        ),
    ] = ""


class Goals(Table, frozen=True, kw_only=True):
    """Goals: plans that the daemon drives to their end."""

    enabled: Annotated[bool, Meta(description="Whether the daemon drives goals at all")] = False
    tick_every: Annotated[float, duration("Time between two looks at the goals", gt=0)] = 120.0
    idle_after: Annotated[
        float, duration("How long nothing may happen before work counts as stalled", gt=0)
    ] = 900.0
    max_retries: Annotated[
        int, Meta(ge=0, le=100, description="Recoveries in a row without progress; then a person is asked")
    ] = 2
    min_resend_interval: Annotated[
        float, duration("Shortest time between two sendings of the same instruction", ge=0)
    ] = 300.0
    max_in_progress: Annotated[
        int, Meta(ge=1, le=245, description="Most parts of a goal that are given out at the same time")
    ] = 6
    reminders: Annotated[
        int, Meta(ge=0, le=100, description="How often a person is reminded of an open question")
    ] = 3
    backoff: Backoff = Backoff()
    planner: GoalPlanner = GoalPlanner()
    policy: GoalPolicy = GoalPolicy()
    storage: GoalStorage = GoalStorage()

    def recovery_s(self) -> float:
        """How long everything that is tried with silent work takes, before a person is asked."""
        return (self.max_retries + 2) * self.idle_after
