"""The paths in a root as plain strings, for the hot commands, which do not import pathlib."""

CONFIG = "config.toml"
STATE = "state.json"
STATE_BACKUP = "state.json.bak"
WORKTREES = ".worktrees"
LOGS = "logs"
EVENTS = "logs/events.jsonl"
PRIVATE = ".llmc"
DAEMON = ".llmc/daemon.json"
#: in its own directory, which contained agents see: the socket is replaced when a daemon starts
WAKE_SOCKET = ".llmc/run/wake.sock"
INBOX = ".llmc/inbox"
LOCKS = ".llmc/locks"
DAEMON_LOCK = ".llmc/locks/daemon.lock"
OVERSEER_FILE = ".llmc/overseer.json"
OVERSEER_LOCK = ".llmc/locks/overseer.lock"
AGENTS = ".llmc/agents"
PROMPTS = ".llmc/prompts"
TASKS_LEDGER = ".llmc/tasks.jsonl"
TASK_POOL = ".llmc/task_pool"
HEARTBEAT = ".llmc/auto.heartbeat"
#: the other nodes of the fleet, as the daemon last saw them
NODES = ".llmc/nodes.json"
CANARY = ".llmc/canary.json"
PRICES = ".llmc/prices.json"
CANARIES = ".llmc/canary"
INCIDENTS = ".llmc/incidents.json"
LOOKED = ".llmc/looked.json"
#: touched when the attention list was last updated from tasks and goals
LISTED = ".llmc/listed"
GOALS = ".llmc/overseer/store.db"
OVERSEER = ".llmc/overseer"
TRASH = ".llmc/trash"
TRASH_AGES = ".llmc/trash_ages.json"
#: the tasks of pinned work
TRASH_TASKS = ".llmc/trash_tasks"
BIN = ".llmc/bin"
#: for contained workers: the git directory, and the client's home
REPOS = ".llmc/repos"
HOMES = ".llmc/home"
#: for contained workers: the submodules of the default branch, as bare repositories
SUBMODULES = ".llmc/submodules"
#: for contained programs, by worktree: what their tools download and build
CACHES = ".llmc/cache"
SLOTS = ".llmc/slots"
REVIEWS = ".llmc/reviews"
#: git settings that could not be used
SET_ASIDE = ".llmc/set-aside"
#: reverted git settings that could not be reported in state.json yet
UNSAID = ".llmc/unsaid.jsonl"
#: the ID of a registered root (config/trust.py)
ROOT_ID = ".llmc/root-id"

#: the kernel allows 107 bytes; longer sockets move to a short directory
MAX_SOCKET_PATH = 100


def tmux_server(root: str) -> str:
    """The name of a root's tmux server, unique per root."""
    from zlib import crc32  # cheap, and a name needs no secrecy

    base = root.rstrip("/").rpartition("/")[2]
    safe = "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in base)[:24]
    return f"llmc-{safe}-{crc32(root.encode('utf-8', 'surrogateescape')):08x}"
