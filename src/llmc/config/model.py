"""The model of config.toml. The checks, `config set`, the starter file and the docs are generated from it.

To add a table: one Struct, one field in `Config`. Every option has a description; it may have `parse` (text or number to
the stored value, raises ValueError), `check` (problem text or None) and `inherits` (the option that is used if this one
is unset).
"""

from typing import Annotated, Literal, get_args

from msgspec import Meta
from msgspec.structs import replace

from llmc.base.urls import database_address
from llmc.config.goal_options import Goals
from llmc.config.options import (
    Dollars,
    EnvName,
    EnvPattern,
    HostName,
    ModelName,
    NonEmpty,
    Table,
    Text,
    Tokens,
    WorkerName,
    as_array,
    check_branch_name,
    check_can_be_typed,
    check_database,
    check_node,
    check_place,
    check_remote,
    check_webhook,
    duration,
    option,
)


class Repo(Table, frozen=True, kw_only=True):
    """The source repository and how work lands there."""

    source: Annotated[
        Text,
        option("Source repository: a path (~ is allowed) or a URL", min_length=1, example="~/src/project"),
    ]
    default_branch: Annotated[
        str,
        option(
            "Branch that work starts from and lands on; detected by `llmc init`",
            example="main",
            check=check_branch_name,
        ),
    ] = ""
    validate: Annotated[
        Text, option("Command that must succeed before a commit can land", example="make test")
    ] = ""
    setup: Annotated[
        Text,
        option(
            "Command to run in each new worktree, and in a validation slot when a file in setup_inputs changes",
            example="npm ci",
        ),
    ] = ""
    copy: Annotated[
        tuple[NonEmpty, ...],
        option(
            "Ignored files to copy into each worktree, given as .gitignore patterns",
            example=[".env", "*.local.json"],
        ),
    ] = ()
    serena: Annotated[
        bool, option("Create a Serena project for each worktree and register the project with Serena")
    ] = False
    push_after_accept: Annotated[
        bool, option("Push the source repository to its remote after work lands")
    ] = False
    validate_timeout_s: Annotated[float, duration("Timeout for the validate command", gt=0)] = 3600.0
    validate_in: Annotated[
        Literal["slot", "worktree"],
        option(
            "Where validate runs: a clean checkout of the commit (slot) or the worker's worktree (worktree)"
        ),
    ] = "slot"
    validate_slots: Annotated[
        int, option("Maximum number of parallel validations; slots are created on demand", ge=1, le=64)
    ] = 4
    validate_clean: Annotated[
        bool, option("Also remove ignored files, such as build caches, from a slot before each validation")
    ] = False
    setup_inputs: Annotated[
        tuple[NonEmpty, ...],
        option(
            "Files that trigger `setup` in a slot when they change; empty means common manifests and lock files",
            example=["deps/*.lock"],
        ),
    ] = ()


class SelfReview(Table, frozen=True, kw_only=True):
    """The agent reviews its own commits before you do."""

    enabled: Annotated[
        bool,
        option(
            "Have agents review their own work; `llmc start --self-review` or `--no-self-review` overrides this"
        ),
    ] = False
    prompt: Annotated[
        str,
        option(
            "Instructions for the self-review; empty means the built-in instructions",
            example="Look for missing tests and misleading names.",
            check=check_can_be_typed,
        ),
    ] = ""


#: the known agents; each has its own folder in agents/
AgentName = Literal["claude", "scripted"]


#: whether to contain an agent: if this machine supports it, always, never
Sandbox = Literal["auto", "on", "off"]


class Defaults(Table, frozen=True, kw_only=True):
    """Defaults for all workers."""

    model: Annotated[str, option("Default Claude model for workers", min_length=1)] = "opus"
    skip_permissions: Annotated[bool, option("Launch agents with --dangerously-skip-permissions")] = True
    allowed_tools: Annotated[
        tuple[NonEmpty, ...], option("Tools allowed without a permission prompt (--allowedTools)")
    ] = ("Bash", "Edit", "Read", "Write", "Glob", "Grep")
    patrol_interval_secs: Annotated[
        float, duration("Time between patrols (periodic checks of all workers)", gt=0)
    ] = 60.0
    sound_on_review: Annotated[bool, option("Ring the terminal bell when work needs review")] = True
    agent: Annotated[
        AgentName, option("Agent to run: `claude` (Claude Code) or `scripted` (for tests and demos)")
    ] = "claude"
    agent_command: Annotated[
        Text, option("Path to the agent's executable; empty means search PATH", example="~/.local/bin/claude")
    ] = ""
    env: Annotated[
        dict[EnvName, Text], option("Environment variables for every agent", example={"EDITOR": "true"})
    ] = {}
    start_stagger_s: Annotated[float, duration("Time between agent launches", ge=0)] = 0.2
    background_grace_s: Annotated[
        float,
        duration(
            "Maximum time that background processes may keep running after their agent commits and stops",
            ge=0,
        ),
    ] = 60.0
    ready_timeout_s: Annotated[float, duration("Maximum time to wait for an agent to become ready", gt=0)] = (
        20.0
    )
    sandbox: Annotated[
        Sandbox,
        option(
            "Contain agents in their worktrees: always (on), never (off), or if the machine supports it (auto)"
        ),
    ] = "auto"
    self_review: SelfReview = SelfReview()


#: a tool chain whose needs sandbox/presets.py knows
PresetName = Literal["pip", "npm", "pnpm", "cargo", "go", "maven"]
Place = Annotated[str, Meta(extra={"check": check_place})]


class Contained(Table, frozen=True, kw_only=True):
    """What contained agents and checks may use besides their worktree."""

    checks: Annotated[
        Sandbox | None,
        option(
            "Contain repo.validate, repo.setup and tasks' verify commands; if unset, defaults.sandbox",
            example="on",
            inherits="defaults.sandbox",
        ),
    ] = None
    presets: Annotated[
        tuple[Literal["auto"] | PresetName, ...],
        option(
            'Tool chains for contained agents and checks; "auto" means those that the repository uses',
            parse=as_array,
        ),
    ] = ("auto",)
    read: Annotated[
        tuple[Place, ...],
        option(
            "Files and directories readable by contained agents and checks; ~ is allowed",
            example=["~/.m2/settings.xml"],
        ),
    ] = ()
    write: Annotated[
        tuple[Place, ...],
        option(
            "Directories writable by contained agents and checks; treat their contents as untrusted",
            example=["/srv/fixtures"],
        ),
    ] = ()
    hosts: Annotated[
        tuple[HostName, ...],
        option(
            "Hosts reachable from contained agents and checks: host, host:port or *.domain",
            example=["pypi.org", "*.npmjs.org", "localhost:5432"],
            parse=as_array,
        ),
    ] = ()
    ignored_hosts: Annotated[
        tuple[HostName, ...],
        option(
            "Hosts to block without reporting them: host, host:port or *.domain",
            example=["telemetry.example.com"],
            parse=as_array,
        ),
    ] = ()
    env: Annotated[
        tuple[EnvPattern, ...],
        option(
            "Environment variables to pass on to contained agents and checks; NAME* for all that start with NAME",
            example=["DATABASE_URL", "AWS_*"],
            parse=as_array,
        ),
    ] = ()


class Worker(Table, frozen=True, kw_only=True):
    """One named worker."""

    model: Annotated[
        str | None,
        option(
            "Claude model for this worker; if unset, defaults.model",
            example="sonnet",
            inherits="defaults.model",
        ),
    ] = None
    role_prompt: Annotated[
        str,
        option(
            "Text to prepend to each of this worker's tasks",
            example="You are Adam, a senior engineer focused on backend systems.",
        ),
    ] = ""
    excluded_from_pool: Annotated[
        bool, option("Exclude this worker from automatic selection by `llmc start`")
    ] = False
    sandbox: Annotated[
        Sandbox | None,
        option(
            "Contain this worker's agent; if unset, defaults.sandbox",
            example="on",
            inherits="defaults.sandbox",
        ),
    ] = None


class Trash(Table, frozen=True, kw_only=True):
    """Discarded work that can be restored."""

    keep_days: Annotated[int, option("Number of days to keep discarded work", ge=0, le=36500)] = 30


class Logs(Table, frozen=True, kw_only=True):
    """Rotation of the files in `logs/`."""

    max_mb: Annotated[
        float, option("Size in MB at which a log is rotated; 0 means never", ge=0, le=10000)
    ] = 20.0
    keep: Annotated[
        int,
        option(
            "Number of rotated files to keep per log; rotated event logs are never deleted", ge=1, le=1000
        ),
    ] = 5


class Budget(Table, frozen=True, kw_only=True):
    """Limits on what auto mode may spend."""

    task_tokens: Annotated[Tokens, option("Maximum tokens per attempt at a task; 0 means no limit")] = 0
    day_tokens: Annotated[Tokens, option("Maximum tokens per calendar day; 0 means no limit")] = 0
    run_tokens: Annotated[Tokens, option("Maximum tokens per run of auto mode; 0 means no limit")] = 0
    task_cost: Annotated[
        Dollars, option("Maximum cost in dollars per attempt at a task; 0 means no limit")
    ] = 0.0
    day_cost: Annotated[Dollars, option("Maximum cost in dollars per calendar day; 0 means no limit")] = 0.0
    run_cost: Annotated[Dollars, option("Maximum cost in dollars per run of auto mode; 0 means no limit")] = (
        0.0
    )
    soft: Annotated[
        float, option("Fraction of a limit at which llmc tells the worker to wrap up", gt=0, le=1)
    ] = 0.8


class Price(Table, frozen=True, kw_only=True):
    """Prices in dollars per million tokens, for models whose names start with <model>."""

    input: Annotated[Dollars | None, option("Price of uncached input tokens", example=5.0)] = None
    output: Annotated[Dollars | None, option("Price of output tokens", example=25.0)] = None
    cache_write: Annotated[
        Dollars | None, option("Price of cache writes; if unset, 1.25 times the input price", example=6.25)
    ] = None
    cache_read: Annotated[
        Dollars | None, option("Price of cache reads; if unset, 0.1 times the input price", example=0.5)
    ] = None


#: kinds of notification; described in notifications/rules.py
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
_OFF_BY_DEFAULT = ("waiting", "notice", "needs_input", "needs_review")


class Notify(Table, frozen=True, kw_only=True):
    """Notifications, one per incident."""

    on: Annotated[
        tuple[NoticeKind, ...], option("Kinds of incidents to notify you about; see `llmc notify list`")
    ] = tuple(kind for kind in get_args(NoticeKind) if kind not in _OFF_BY_DEFAULT)
    bell: Annotated[bool, option("Ring the terminal bell for each notification")] = False
    desktop: Annotated[bool, option("Show desktop notifications with notify-send")] = False
    command: Annotated[
        Text,
        option("Command that receives each notification as JSON on stdin", example="~/bin/tell-me"),
    ] = ""
    webhook: Annotated[
        str,
        option(
            "URL that receives each notification as a JSON POST request",
            example="https://hooks.example.com/services/T000/B000",
            check=check_webhook,
        ),
    ] = ""
    urls: Annotated[
        tuple[NonEmpty, ...],
        option(
            "Apprise URLs for notification services; requires `pip install llmc[notify]`",
            example=["ntfy://my-topic", "mailto://user:password@example.com"],
            parse=as_array,
        ),
    ] = ()


class Auto(Table, frozen=True, kw_only=True):
    """Auto mode: `llmc up --auto` assigns tasks from a list to auto workers and lands the results."""

    concurrency: Annotated[int, option("Number of auto workers", ge=1, le=99)] = 1

    task_list_id: Annotated[
        Text, option("ID of the Claude Code task list that llmc shares with the agents", example="my-project")
    ] = ""
    tasks_root: Annotated[
        Text,
        option(
            "Directory that contains the task lists; empty means `tasks` in the agent's configuration directory",
            example="~/.claude/tasks",
        ),
    ] = ""
    context_config_path: Annotated[
        Text,
        option(
            "File with a prologue and an epilogue for each label; the path is relative to repo.source",
            min_length=1,
        ),
    ] = ".claude/llmc_task_context.toml"
    post_accept_command: Annotated[
        Text,
        option(
            "Command to run after a task lands, in the directory where auto mode started; failure ends auto mode",
            example="make deploy",
        ),
    ] = ""
    task_pool_command: Annotated[
        Text,
        option(
            "Command that prints a task for a worker without one; runs in the directory where auto mode started",
            example="scripts/next-task",
        ),
    ] = ""
    task_pool_timeout_secs: Annotated[float, duration("Timeout for task_pool_command", gt=0)] = 60.0
    worker_tasks: Annotated[
        Literal["propose", "accept", "off"],
        option(
            "How to handle tasks that agents create: hold for approval (propose), run (accept) or disallow (off)"
        ),
    ] = "propose"
    task_timeout_secs: Annotated[float, duration("Maximum time per task", gt=0)] = 4 * 3600.0
    crash_backoff_secs: Annotated[
        float, duration("Wait before retrying a task whose agent crashed; doubles with each crash", ge=0)
    ] = 10.0
    limit_backoff_secs: Annotated[
        float, duration("Initial wait after a usage limit without a reset time; doubles up to 1 hour", gt=0)
    ] = 300.0
    api_backoff_secs: Annotated[
        float,
        duration(
            "Initial delay before a retry when the API is overloaded or unreachable; doubles up to 30 minutes",
            gt=0,
        ),
    ] = 60.0
    dirty_backoff_secs: Annotated[
        float,
        duration(
            "Initial delay before a retry when the source has uncommitted changes; doubles up to 1 hour",
            gt=0,
        ),
    ] = 60.0
    budget: Budget = Budget()


class Overseer(Table, frozen=True, kw_only=True):
    """The supervisor: `llmc overseer` keeps `llmc up --auto` running and has a remediation agent fix failures."""

    remediation_prompt: Annotated[
        str,
        option(
            "Instructions for the remediation agent; required by `llmc overseer`",
            example="You maintain this project's llmc setup. Read the logs, fix the cause and test the fix.",
            check=check_can_be_typed,
        ),
    ] = ""
    heartbeat_timeout_secs: Annotated[
        float, duration("Time without a heartbeat before the daemon is considered hung", gt=0)
    ] = 30.0
    stall_timeout_secs: Annotated[
        float,
        duration(
            "Time without progress before a worker is reset and the daemon restarted; longer with goals enabled",
            gt=0,
        ),
    ] = 3600.0
    restart_cooldown_secs: Annotated[
        float,
        duration(
            "Time after a remediation during which another daemon failure makes the supervisor give up",
            gt=0,
        ),
    ] = 60.0
    remediation_timeout_secs: Annotated[float, duration("Maximum time per remediation", gt=0)] = 1800.0
    max_remediations_per_day: Annotated[
        int,
        option("Maximum number of remediations in 24 hours before the supervisor gives up", ge=1, le=1000),
    ] = 6
    check_interval_secs: Annotated[
        float, duration("Time between the supervisor's checks of the daemon", gt=0)
    ] = 2.0
    goals: Goals = Goals()


class Ui(Table, frozen=True, kw_only=True):
    """The interactive screen, `llmc ui`."""

    theme: Annotated[Literal["dark", "light"], option("Color theme of `llmc ui`")] = "dark"
    glyphs: Annotated[
        Literal["auto", "unicode", "ascii"],
        option("Status symbols in `llmc ui`; auto chooses based on locale and terminal"),
    ] = "auto"
    keys: Annotated[
        dict[NonEmpty, NonEmpty],
        option("Keys for actions in `llmc ui`, replacing the default keys"),
    ] = {}


class Fleet(Table, frozen=True, kw_only=True):
    """Several machines that share tasks and goals in one PostgreSQL database."""

    database: Annotated[
        str,
        option(
            "URL of the shared PostgreSQL database; empty means that this root works alone",
            example="postgresql://llmc:password@db.example.com/llmc",
            check=check_database,
        ),
    ] = ""
    node: Annotated[
        str,
        option(
            "Name of this root in the fleet; empty means the host name", example="laptop", check=check_node
        ),
    ] = ""
    remote: Annotated[
        str,
        option(
            "Git remote that all nodes push to: a path or a URL without a password; empty means repo.source",
            example="git@example.com:project.git",
            check=check_remote,
        ),
    ] = ""
    lease_secs: Annotated[
        float,
        duration("Time without contact after which another node takes over a node's tasks", ge=1),
    ] = 60.0
    fence_ref: Annotated[
        str,
        option(
            "Git ref on the remote that moves with each landing; a new branch if the host allows only branches",
            check=check_branch_name,
            min_length=1,
        ),
    ] = "refs/llmc/fence"


class Config(Table, frozen=True, kw_only=True):
    """All of config.toml."""

    repo: Repo
    defaults: Defaults = Defaults()
    sandbox: Contained = Contained()
    workers: dict[WorkerName, Worker] = {}
    trash: Trash = Trash()
    logs: Logs = Logs()
    notify: Notify = Notify()
    auto: Auto = Auto()
    overseer: Overseer = Overseer()
    ui: Ui = Ui()
    fleet: Fleet = Fleet()
    prices: dict[ModelName, Price] = {}

    def shown(self) -> "Config":
        """The configuration to show to the user: without the database password."""
        return replace(self, fleet=replace(self.fleet, database=database_address(self.fleet.database)))

    def model_of(self, worker: str) -> str:
        """The Claude model of a worker, or the default."""
        configured = self.workers.get(worker)
        return (configured and configured.model) or self.defaults.model

    def sandbox_of(self, worker: str) -> Sandbox:
        """A worker's `sandbox` setting, or the default."""
        configured = self.workers.get(worker)
        return (configured and configured.sandbox) or self.defaults.sandbox

    @property
    def checks(self) -> Sandbox:
        """The `sandbox.checks` setting, or the default."""
        return self.sandbox.checks or self.defaults.sandbox
