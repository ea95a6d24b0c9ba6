"""What config.toml may hold. The checks, `config set`, the starter file and the docs all read these definitions.

To add a table: one Struct, one field in `Config`. Every option carries its description; `extra` may hold
`parse` (text or number to the stored value, ValueError on nonsense), `check` (problem text or None) and
`inherits` (the option that holds where this one is unset).
"""

from typing import Annotated, Literal

from msgspec import Meta

from llmc.config.goal_options import Goals
from llmc.config.options import (
    Dollars,
    EnvName,
    EnvValue,
    ModelName,
    NonEmpty,
    Table,
    Tokens,
    WorkerName,
    as_array,
    check_branch_name,
    check_can_be_typed,
    check_no_nul,
    check_webhook,
    duration,
)


class Repo(Table, frozen=True, kw_only=True):
    """Where work comes from and where accepted work lands."""

    source: Annotated[
        str,
        Meta(
            min_length=1,
            description="Repository that accepted work lands in: a path (with ~) or a URL",
            examples=["~/src/project"],
            extra={"check": check_no_nul},
        ),
    ]
    default_branch: Annotated[
        str,
        Meta(
            description="Branch that work starts from and lands on; detected at init",
            examples=["main"],
            extra={"check": check_branch_name},
        ),
    ] = ""
    validate: Annotated[
        str,
        Meta(
            description="Command run on the commit that would land; it lands only when this succeeds",
            examples=["make test"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    setup: Annotated[
        str,
        Meta(
            description="Command run once in each new worktree, and in a slot when its inputs change",
            examples=["npm ci"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    copy: Annotated[
        tuple[NonEmpty, ...],
        Meta(
            description="Ignored files to copy into each worktree, as patterns of .gitignore",
            examples=[[".env", "*.local.json"]],
        ),
    ] = ()
    serena: Annotated[
        bool, Meta(description="Give each worktree a Serena project of its own, and register it with Serena")
    ] = False
    push_after_accept: Annotated[
        bool, Meta(description="Push the source to its own remote after each accept")
    ] = False
    validate_timeout_s: Annotated[float, duration("Longest time the validate command may take", gt=0)] = (
        3600.0
    )
    validate_in: Annotated[
        Literal["slot", "worktree"],
        Meta(
            description="Where it runs: in a clean checkout of exactly what lands, or in the agent's worktree"
        ),
    ] = "slot"
    validate_slots: Annotated[
        int, Meta(ge=1, le=64, description="Most checks at the same time; a slot is made when it is needed")
    ] = 4
    validate_clean: Annotated[
        bool, Meta(description="Remove ignored files (build caches) from a slot before each check, too")
    ] = False
    setup_inputs: Annotated[
        tuple[NonEmpty, ...],
        Meta(
            description="Files that make `setup` run again in a slot; empty: the usual manifests and lock files",
            examples=[["deps/*.lock"]],
        ),
    ] = ()


class SelfReview(Table, frozen=True, kw_only=True):
    """A second prompt after the work: the agent reads its own commits once more before a person does."""

    enabled: Annotated[
        bool, Meta(description="Every task gets one; `start --self-review` or `--no-self-review` overrides")
    ] = False
    prompt: Annotated[
        str,
        Meta(
            description="What the agent is told to look for; empty: llmc's own words",
            examples=["Look for missing tests and for names that mislead."],
            extra={"check": check_can_be_typed},
        ),
    ] = ""


#: the agents there are; each has a folder of its name in agents/
AgentName = Literal["claude", "scripted"]


class Defaults(Table, frozen=True, kw_only=True):
    """What every worker starts with."""

    model: Annotated[str, Meta(min_length=1, description="Claude model of every worker that names none")] = (
        "opus"
    )
    skip_permissions: Annotated[bool, Meta(description="Launch with --dangerously-skip-permissions")] = True
    allowed_tools: Annotated[
        tuple[NonEmpty, ...], Meta(description="Tools allowed without asking (--allowedTools)")
    ] = ("Bash", "Edit", "Read", "Write", "Glob", "Grep")
    patrol_interval_secs: Annotated[float, duration("Time between two patrols", gt=0)] = 60.0
    sound_on_review: Annotated[bool, Meta(description="Ring the terminal bell when work needs review")] = True
    agent: Annotated[AgentName, Meta(description="Which agent runs: Claude Code, or the scripted one")] = (
        "claude"
    )
    agent_command: Annotated[
        str,
        Meta(
            description="Path of the agent's program; empty: found on PATH",
            examples=["~/.local/bin/claude"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    env: Annotated[
        dict[EnvName, EnvValue],
        Meta(description="Environment variables added for every agent", examples=[{"EDITOR": "true"}]),
    ] = {}
    start_stagger_s: Annotated[float, duration("Pause between two agent launches", ge=0)] = 0.2
    background_grace_s: Annotated[
        float,
        duration(
            "How long shells may run on after the agent stopped with commits; then llmc ends them", ge=0
        ),
    ] = 60.0
    ready_timeout_s: Annotated[float, duration("Longest time an agent may take to become ready", gt=0)] = 20.0
    self_review: SelfReview = SelfReview()


class Worker(Table, frozen=True, kw_only=True):
    """One named worker."""

    model: Annotated[
        str | None,
        Meta(
            description="Claude model of this worker; unset: that of [defaults]",
            examples=["sonnet"],
            extra={"inherits": "defaults.model"},
        ),
    ] = None
    role_prompt: Annotated[
        str,
        Meta(
            description="Text put before each of this worker's prompts",
            examples=["You are Adam, a senior engineer focused on backend systems."],
        ),
    ] = ""
    excluded_from_pool: Annotated[bool, Meta(description="Never chosen by a start that names no worker")] = (
        False
    )


class Trash(Table, frozen=True, kw_only=True):
    """Work that was thrown away stays restorable."""

    keep_days: Annotated[
        int, Meta(ge=0, le=36500, description="Days that discarded work stays restorable")
    ] = 30


class Logs(Table, frozen=True, kw_only=True):
    """Files in `logs/` that have grown get a number, and a new one begins."""

    max_mb: Annotated[
        float, Meta(ge=0, le=10_000, description="Size at which a log is rotated; 0: never")
    ] = 20.0
    keep: Annotated[
        int,
        Meta(ge=1, le=1000, description="How many rotated files of a log stay; of the event log all do"),
    ] = 5


class Budget(Table, frozen=True, kw_only=True):
    """How much auto mode may use before it stops by itself."""

    task_tokens: Annotated[Tokens, Meta(description="Most tokens for one attempt at a task; 0: no limit")] = 0
    day_tokens: Annotated[Tokens, Meta(description="Most tokens in one calendar day; 0: no limit")] = 0
    run_tokens: Annotated[Tokens, Meta(description="Most tokens from one `up --auto` on; 0: no limit")] = 0
    task_cost: Annotated[
        Dollars, Meta(description="Most dollars for one attempt at a task, by [prices]; 0: no limit")
    ] = 0.0
    day_cost: Annotated[Dollars, Meta(description="Most dollars in one calendar day; 0: no limit")] = 0.0
    run_cost: Annotated[Dollars, Meta(description="Most dollars from one `up --auto` on; 0: no limit")] = 0.0
    soft: Annotated[
        float,
        Meta(gt=0, le=1, description="The part of a limit at which the worker is asked to come to an end"),
    ] = 0.8


class Price(Table, frozen=True, kw_only=True):
    """Dollars for a million tokens of the models whose name begins like this."""

    input: Annotated[
        Dollars | None, Meta(description="Of what the model reads that is in no cache", examples=[5.0])
    ] = None
    output: Annotated[Dollars | None, Meta(description="Of what the model writes", examples=[25.0])] = None
    cache_write: Annotated[
        Dollars | None,
        Meta(description="Of what goes into the cache; unset: 1.25 times input", examples=[6.25]),
    ] = None
    cache_read: Annotated[
        Dollars | None,
        Meta(description="Of what comes from the cache; unset: a tenth of input", examples=[0.5]),
    ] = None


#: what a person can be told of; the words are in notifications/rules.py
NoticeKind = Literal[
    "auto_failed",
    "fleet_parked",
    "budget_reached",
    "task_quarantined",
    "worker_error",
    "blocked",
    "waiting",
    "notice",
    "needs_input",
    "needs_review",
    "digest",
    "goal_asked",
    "overseer_failure",
    "overseer_ended",
]


class Notify(Table, frozen=True, kw_only=True):
    """Who is told when something happens that a person should know, and how; once for each incident."""

    on: Annotated[
        tuple[NoticeKind, ...],
        Meta(description="Kinds of incident to tell of; `llmc notify list` explains each"),
    ] = (
        "auto_failed",
        "fleet_parked",
        "budget_reached",
        "task_quarantined",
        "worker_error",
        "blocked",
        "digest",
        "goal_asked",
        "overseer_failure",
        "overseer_ended",
    )
    bell: Annotated[bool, Meta(description="Ring the bell of the terminal llmc runs in")] = False
    desktop: Annotated[bool, Meta(description="Show it on the desktop, with notify-send")] = False
    command: Annotated[
        str,
        Meta(
            description="Command that gets each notification, as JSON on its standard input",
            examples=["~/bin/tell-me"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    webhook: Annotated[
        str,
        Meta(
            description="URL that each notification is posted to, as JSON",
            examples=["https://hooks.example.com/services/T000/B000"],
            extra={"check": check_webhook},
        ),
    ] = ""
    urls: Annotated[
        tuple[NonEmpty, ...],
        Meta(
            description="Services by their Apprise URLs; needs `pip install llmc[notify]`",
            examples=[["ntfy://my-topic", "mailto://user:password@example.com"]],
            extra={"parse": as_array},
        ),
    ] = ()


class Auto(Table, frozen=True, kw_only=True):
    """Auto mode: `llmc up --auto` gives the tasks of a list to workers of its own, and lands what they make."""

    concurrency: Annotated[int, Meta(ge=1, le=99, description="How many auto workers there are")] = 1

    task_list_id: Annotated[
        str,
        Meta(
            description="Claude Code's task list that holds the tasks; the agents get it too",
            examples=["my-project"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    tasks_root: Annotated[
        str,
        Meta(
            description="Directory of the task lists; empty: that of the agent's own configuration",
            examples=["~/.claude/tasks"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    context_config_path: Annotated[
        str,
        Meta(
            min_length=1,
            description="File with a prologue and an epilogue for each label; relative to repo.source",
            extra={"check": check_no_nul},
        ),
    ] = ".claude/llmc_task_context.toml"
    post_accept_command: Annotated[
        str,
        Meta(
            description="Command run after each task that landed, where `up --auto` was called; a failure stops auto mode",
            examples=["make deploy"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    task_pool_command: Annotated[
        str,
        Meta(
            description="Command that prints a new task when a worker has none; runs where `up --auto` was called",
            examples=["scripts/next-task"],
            extra={"check": check_no_nul},
        ),
    ] = ""
    task_pool_timeout_secs: Annotated[float, duration("Longest time that command may take", gt=0)] = 60.0
    worker_tasks: Annotated[
        Literal["propose", "accept", "off"],
        Meta(description="Tasks that agents make: wait for `tasks approve`, are taken like any, or are off"),
    ] = "propose"
    task_timeout_secs: Annotated[float, duration("Longest time one task may take", gt=0)] = 4 * 3600.0
    crash_backoff_secs: Annotated[
        float,
        duration(
            "Wait before a task whose agent crashed is begun again; doubles with each crash of it", ge=0
        ),
    ] = 10.0
    limit_backoff_secs: Annotated[
        float, duration("First wait after a usage limit without a reset time; doubles up to an hour", gt=0)
    ] = 300.0
    api_backoff_secs: Annotated[
        float, duration("First wait when the API is overloaded or away; doubles up to half an hour", gt=0)
    ] = 60.0
    dirty_backoff_secs: Annotated[
        float, duration("First wait while the source has uncommitted changes; doubles up to an hour", gt=0)
    ] = 60.0
    budget: Budget = Budget()


class Overseer(Table, frozen=True, kw_only=True):
    """The supervisor: `llmc overseer` keeps `llmc up --auto` alive, and lets an agent mend what ended it."""

    remediation_prompt: Annotated[
        str,
        Meta(
            description="What the agent that mends a failure is told first; `llmc overseer` needs it",
            examples=["You look after this project's llmc. Read the logs, mend the cause, test the fix."],
            extra={"check": check_can_be_typed},
        ),
    ] = ""
    heartbeat_timeout_secs: Annotated[
        float, duration("How old the daemon's heartbeat may get before it counts as hung", gt=0)
    ] = 30.0
    stall_timeout_secs: Annotated[
        float,
        duration(
            "How long nothing may get on before worker and daemon start over; unless set, goals make it longer",
            gt=0,
        ),
    ] = 3600.0
    restart_cooldown_secs: Annotated[
        float, duration("A daemon that fails sooner than this after a remediation ends the supervisor", gt=0)
    ] = 60.0
    remediation_timeout_secs: Annotated[float, duration("Longest time one remediation may take", gt=0)] = (
        1800.0
    )
    max_remediations_per_day: Annotated[
        int, Meta(ge=1, le=1000, description="Remediations in 24 hours; the next failure waits for a person")
    ] = 6
    check_interval_secs: Annotated[float, duration("Time between two looks at the daemon", gt=0)] = 2.0
    goals: Goals = Goals()


class Config(Table, frozen=True, kw_only=True):
    """All of config.toml."""

    repo: Repo
    defaults: Defaults = Defaults()
    workers: dict[WorkerName, Worker] = {}
    trash: Trash = Trash()
    logs: Logs = Logs()
    notify: Notify = Notify()
    auto: Auto = Auto()
    overseer: Overseer = Overseer()
    prices: dict[ModelName, Price] = {}

    def model_of(self, worker: str) -> str:
        """The Claude model a worker runs; one that is not configured runs the default."""
        configured = self.workers.get(worker)
        return (configured and configured.model) or self.defaults.model
