"""All drills: one for each row of the failure tables, and some more."""

from llmc.rehearsal.drills import goal_drills
from llmc.rehearsal.drills import landing_and_system as system
from llmc.rehearsal.drills import state_and_supervisor as own
from llmc.rehearsal.drills import tasks_and_workers as work
from llmc.rehearsal.drills.model import Drill, Kind
from llmc.rehearsal.drills.night import night

#: time to detect: a supervisor check every half second, a daemon check every second, and a busy machine
LOOK_S = 5.0
#: likewise, if the agents must start before the fault can show
START_S = 30.0

A, AI, H = Kind.AUTO, Kind.AI, Kind.HUMAN

_ALL = (
    Drill("pool-fails", "1", "the task pool command fails", "the command's exit code", LOOK_S,
          "the remediation agent fixes the command; a new daemon assigns tasks again", AI, work.pool_fails),
    Drill("pool-hangs", "2", "the task pool command hangs", "task_pool_timeout_secs (3 s here, 60 s by default)", 3 + LOOK_S,
          "the remediation agent fixes the command; a new daemon assigns tasks again", AI, work.pool_hangs),
    Drill("pool-is-empty", "3", "the task pool command keeps returning nothing", "nothing to detect", None,
          "the next task starts as usual", A, work.pool_is_empty),
    Drill("pool-repeats", "4", "the task pool command keeps returning the same open task", "the task's ID", None,
          "the task is added once, claimed once and landed once", A, work.pool_repeats,
          instead_of=H, because="an open task is claimed only once; if the command returns a completed task, that task runs again"),
    Drill("agent-killed", "5", "an agent is killed while working", "the agent's process exits", LOOK_S,
          "the agent's work is saved; a new session runs the task again", A, work.agent_killed),
    Drill("agent-crashes", "6", "an agent crashes on every task", "a second task fails the same way", 60.0,
          "the remediation agent fixes the cause; the tasks run again", AI, work.agent_crashes),
    Drill("agent-hangs", "7", "an agent hangs", "no progress for stall_timeout_secs (4 s here)", 4 + LOOK_S,
          "the agent's work is saved, the worker is reset and the daemon restarts", A, work.agent_hangs,
          instead_of=AI, because="resetting the worker is enough"),
    Drill("worker-in-error", "8", "a worker does not resolve its conflict in three rounds", "the rebase is still in progress", 60.0,
          "the work is saved; the task runs again from the latest default branch", A, work.worker_in_error,
          instead_of=AI, because="a failure counts against its task; the daemon stops only if a second task fails for the same reason"),
    Drill("session-killed", "9", "a tmux session is killed", "the agent's process exits", LOOK_S,
          "the agent's work is saved; a new session runs the task again", A, work.session_killed),
    Drill("tmux-killed", "9", "the tmux server and all its sessions are killed", "the agents' processes exit", LOOK_S,
          "all workers get new sessions; the tasks run again", A, work.tmux_killed),
    Drill("session-killed-again", "10", "a tmux session is killed after every restart", "the agent exits for the third time without completing a task", 60.0,
          "the remediation agent fixes the cause; the task runs again", AI, work.session_killed_again),
    Drill("worktree-broken", "11", "the repository loses its entry for a worktree", "a git command fails", 30.0,
          "the remediation agent runs `llmc doctor --repair`; the task runs again", AI, work.worktree_broken),
    Drill("post-accept-fails", "12", "the post-accept command fails", "the command's exit code", START_S,
          "the landed commit stays, the remediation agent fixes the build and the next task starts", AI, work.post_accept_fails),
    Drill("conflict", "13", "work conflicts with a commit that landed in the meantime", "git reports a conflict", START_S,
          "the worker resolves the conflict; the work lands", A, system.conflict),
    Drill("conflicts-again", "14", "every task conflicts, and no agent resolves the conflict", "a second task fails the same way", 120.0,
          "the remediation agent fixes the cause; the tasks run again", AI, system.conflicts_again),
    Drill("git-lock", "15", "a killed git process left its lock file in the source repository", "a git command fails", 30.0,
          "the remediation agent removes the lock file; the work lands", AI, system.git_lock),
    Drill("source-dirty", "15a", "the user leaves uncommitted changes in the source repository", "the check before landing", LOOK_S,
          "llmc retries ten times with increasing waits (from 0.01 s here, from 60 s by default); then the remediation agent commits the changes", Kind.AUTO_THEN_AI, system.source_dirty),
    Drill("disk-full", "16", "the disk is full", "a write fails", 30.0,
          "llmc stops immediately and changes nothing", H, system.disk_full, needs="small disk"),
    Drill("out-of-memory", "17", "the kernel kills the daemon twice", "the daemon's process is gone", LOOK_S,
          "the remediation agent runs after the first kill; the supervisor stops after the second", H, system.out_of_memory),
    Drill("usage-limit", "18", "the account reaches a usage limit", "an error from the client", START_S,
          "auto mode is parked until one worker's retry succeeds", A, system.usage_limit,
          instead_of=AI, because="a usage limit resets on its own"),
    Drill("network-lost", "19", "the API cannot be reached", "an error from the client", START_S,
          "auto mode is parked until one worker's retry succeeds", A, system.network_lost,
          instead_of=H, because="an outage ends on its own"),
    Drill("state-corrupt", "20", "state.json and its backup are not valid JSON", "the daemon's once-per-second check", LOOK_S,
          "the remediation agent runs `llmc doctor --rebuild`; the work lands", AI, own.state_corrupt),
    Drill("state-overwritten", "20a", "another process replaces state.json with one that has no workers", "the daemon's once-per-second check", LOOK_S,
          "the remediation agent runs `llmc doctor --rebuild`; the work lands", AI, own.state_overwritten),
    Drill("config-broken", "21", "config.toml is not valid TOML", "the daemon's next check of a worker", 30.0,
          "the remediation agent fixes the cause; the work lands", AI, own.config_broken),
    Drill("socket-gone", "22", "the hook socket is removed", "the daemon's once-per-second check", LOOK_S,
          "the remediation agent runs; a new daemon creates a new socket", AI, own.socket_gone),
    Drill("permissions-gone", "23", ".llmc is not writable", "no heartbeat for heartbeat_timeout_secs (8 s here)", 8 + LOOK_S,
          "the remediation agent fixes the cause; the work lands", AI, own.permissions_gone, needs="no privileges"),
    Drill("overseer-session-dies", "24", "the remediation agent is killed", "the agent's process exits", LOOK_S,
          "the supervisor restarts the agent and sends the prompt again", A, own.overseer_session_dies),
    Drill("bad-fix", "25", "the remediation agent changes nothing", "the same failure within restart_cooldown_secs", START_S,
          "the supervisor stops (failure spiral)", H, own.bad_fix),
    Drill("remediation-hangs", "26", "the remediation agent hangs", "no result within remediation_timeout_secs (5 s here)", 5 + LOOK_S,
          "the daemon restarts; the supervisor stops when the same failure occurs again", H, own.remediation_hangs),
    Drill("remediation-fails", "26", "the remediation agent requests manual intervention", "the agent's request file in .llmc", START_S,
          "the supervisor stops and shows the request", H, own.remediation_fails),
    Drill("other-daemon", "27", "another process restarts the daemon", "daemon.json names a different process", START_S,
          "both daemons stop, the remediation agent runs, and a new daemon takes over", AI, own.other_daemon),
    Drill("loop-hangs", "2", "the daemon's process is frozen", "no heartbeat for heartbeat_timeout_secs (8 s here)", 8 + LOOK_S,
          "the supervisor kills the daemon, the remediation agent runs, and a new daemon takes over", AI, own.loop_hangs),
    Drill("start-hangs", "2", "a new daemon never starts its agents", "no progress on a worker for 3 s (120 s by default)", 3 + START_S,
          "the supervisor kills the daemon, the remediation agent runs, and a new daemon takes over", AI, own.start_hangs),
    Drill("goal-worker-silent", "", "a worker with a plan item goes silent", "no activity for idle_after (4 s here, 15 min by default)",
          goal_drills.IDLE_AFTER_S + goal_drills.TICK_S + LOOK_S, "the worker gets a reminder; then its work is saved and another worker gets the plan item", A, goal_drills.worker_silent),
    Drill("goal-enter-swallowed", "", "the client ignores the Enter key", "no receipt from the agent's hook", None,
          "llmc sends Enter again", A, goal_drills.enter_swallowed),
    Drill("goal-task-fails", "", "the task for a plan item keeps failing until auto mode gives up", "the task's third failure", 60.0,
          "llmc creates another task for the plan item", A, goal_drills.task_fails),
    Drill("goal-daemon-killed", "", "the daemon is killed between writing a task file and recording it", "the daemon's process is gone", START_S,
          "the remediation agent runs; the next tick finds the task file and does not create another", AI, goal_drills.daemon_killed),
    Drill("goal-question", "", "a plan item has a question for the user", "the agent's report", LOOK_S,
          "the inbox lists the question; the worker gets the answer and continues", A, goal_drills.question),
    Drill("goal-store-damaged", "", "the goal database is damaged", "the next tick", LOOK_S,
          "llmc moves the damaged file aside and tasks in progress land; the user checks the goals and clears safe mode", A, goal_drills.store_damaged),
    Drill("goal-planner-hangs", "", "the planner hangs, then prints garbage", "no plan within planner.timeout (2 s here)", 2 + LOOK_S,
          "the goal has no plan until the planner works again", A, goal_drills.planner_hangs),
    Drill("goal-task-deleted", "", "the task file for a plan item is deleted by hand", "the task is not claimed within idle_after (4 s here)",
          goal_drills.IDLE_AFTER_S + goal_drills.TICK_S + LOOK_S, "llmc creates another task for the plan item", A, goal_drills.task_deleted),
    Drill("goal-session-killed", "", "an agent working on a plan item is killed", "the agent's process exits", LOOK_S,
          "the agent's work is saved; a new session runs the task again", A, goal_drills.session_killed),
    Drill("night", "", "something breaks every few seconds for several minutes", "depends on the fault", None,
          "every task lands exactly once", Kind.ANY, night),
)  # fmt: skip

DRILLS = {drill.name: drill for drill in _ALL}
#: what `--all` runs; `night` takes as long as it is told to
EVERY = [drill for drill in _ALL if drill.name != "night"]
