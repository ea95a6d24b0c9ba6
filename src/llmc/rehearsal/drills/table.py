"""All drills: one for each row of the failure tables, and some more."""

from llmc.rehearsal.drills import goal_drills
from llmc.rehearsal.drills import landing_and_system as system
from llmc.rehearsal.drills import state_and_supervisor as own
from llmc.rehearsal.drills import tasks_and_workers as work
from llmc.rehearsal.drills.model import Drill, Kind
from llmc.rehearsal.drills.night import night

#: a supervisor check every half second, a daemon check every second, and a busy machine
LOOK_S = 5.0
#: with the start of the agents before the fault can show
START_S = 30.0

A, AI, H = Kind.AUTO, Kind.AI, Kind.HUMAN

_ALL = (
    Drill("pool-fails", "1", "the task pool command fails", "its exit code", LOOK_S,
          "the remediation agent fixes the command; a new daemon takes tasks", AI, work.pool_fails),
    Drill("pool-hangs", "2", "the task pool command hangs", "its time limit (3 s here, 60 s by default)", 3 + LOOK_S,
          "the remediation agent fixes the command; a new daemon takes tasks", AI, work.pool_hangs),
    Drill("pool-is-empty", "3", "the task pool command keeps returning nothing", "not needed", None,
          "the next task starts as usual", A, work.pool_is_empty),
    Drill("pool-repeats", "4", "the task pool command keeps returning an open task", "its key", None,
          "one file, one claim, one commit", A, work.pool_repeats,
          instead_of=H, because="the claim covers an open task; a tracker that repeats a completed task runs it again"),
    Drill("agent-killed", "5", "an agent is killed while working", "its process exits", LOOK_S,
          "the agent's work is saved; a new session runs the task again", A, work.agent_killed),
    Drill("agent-crashes", "6", "an agent crashes on every task", "a second task that fails the same way", 60.0,
          "the remediation agent fixes the cause; the tasks run again", AI, work.agent_crashes),
    Drill("agent-hangs", "7", "an agent hangs", "no progress for stall_timeout_secs (4 s here)", 4 + LOOK_S,
          "the agent's work is saved; the worker is reset; the daemon restarts", A, work.agent_hangs,
          instead_of=AI, because="resetting the worker is enough"),
    Drill("worker-in-error", "8", "a worker does not resolve its conflict in three rounds", "the state of git", 60.0,
          "the work is saved; the task runs again from the latest default branch", A, work.worker_in_error,
          instead_of=AI, because="failures count for the task; only the same cause in a second task stops the daemon"),
    Drill("session-killed", "9", "a tmux session is killed", "its process exits", LOOK_S,
          "the agent's work is saved; a new session runs the task again", A, work.session_killed),
    Drill("tmux-killed", "9", "the tmux server is killed with every session", "the processes exit", LOOK_S,
          "all workers get new sessions; the tasks run again", A, work.tmux_killed),
    Drill("session-killed-again", "10", "a tmux session is killed after each restart", "the third time without a completed task", 60.0,
          "the remediation agent fixes the cause; the task runs again", AI, work.session_killed_again),
    Drill("worktree-broken", "11", "the repository loses a worktree entry", "git fails", 30.0,
          "the remediation agent runs `llmc doctor --repair`; the task runs again", AI, work.worktree_broken),
    Drill("post-accept-fails", "12", "the post-accept command fails", "its exit code", START_S,
          "the landed commit stays; the remediation agent fixes the build; the next task starts", AI, work.post_accept_fails),
    Drill("conflict", "13", "work conflicts with a commit that landed in the meantime", "the state of git", START_S,
          "the worker resolves the conflict; the work lands", A, system.conflict),
    Drill("conflicts-again", "14", "every task conflicts, and no agent resolves the conflict", "a second task that fails the same way", 120.0,
          "the remediation agent fixes the cause; the tasks run again", AI, system.conflicts_again),
    Drill("git-lock", "15", "a killed git left its lock in the source", "git fails", 30.0,
          "the remediation agent removes the lock; the same work lands", AI, system.git_lock),
    Drill("source-dirty", "15a", "the user leaves uncommitted changes in the source", "the check before landing", LOOK_S,
          "ten retries with growing waits (0.01 s and up here, 60 s and up by default), then the remediation agent commits the changes", Kind.AUTO_THEN_AI, system.source_dirty),
    Drill("disk-full", "16", "the disk is full", "a write that fails", 30.0,
          "everything stops immediately; nothing is changed", H, system.disk_full, needs="small disk"),
    Drill("out-of-memory", "17", "the kernel kills the daemon, twice", "its process is gone", LOOK_S,
          "the remediation agent runs once; the second time the supervisor stops", H, system.out_of_memory),
    Drill("usage-limit", "18", "a usage limit", "the client's own error", START_S,
          "the fleet is parked; one worker probes; all continue", A, system.usage_limit,
          instead_of=AI, because="a limit ends without help"),
    Drill("network-lost", "19", "the API cannot be reached", "the client's own error", START_S,
          "the fleet is parked; one worker probes; all continue", A, system.network_lost,
          instead_of=H, because="an outage ends without help"),
    Drill("state-corrupt", "20", "state.json and its backup are not valid JSON", "the daemon's check every second", LOOK_S,
          "the remediation agent runs `llmc doctor --rebuild`; the work lands", AI, own.state_corrupt),
    Drill("state-overwritten", "20a", "another process writes a state without workers", "the daemon's check every second", LOOK_S,
          "the remediation agent runs `llmc doctor --rebuild`; the work lands", AI, own.state_overwritten),
    Drill("config-broken", "21", "config.toml is not valid TOML", "the next check of a worker", 30.0,
          "the remediation agent fixes the cause; the work lands", AI, own.config_broken),
    Drill("socket-gone", "22", "the hook socket is removed", "the daemon's check every second", LOOK_S,
          "the remediation agent runs; a new daemon creates a new socket", AI, own.socket_gone),
    Drill("permissions-gone", "23", ".llmc is not writable", "heartbeat_timeout_secs (8 s here)", 8 + LOOK_S,
          "the remediation agent fixes the cause; the work lands", AI, own.permissions_gone, needs="no privileges"),
    Drill("overseer-session-dies", "24", "the remediation agent is killed", "its process exits", LOOK_S,
          "the supervisor restarts the agent and sends the prompt again", A, own.overseer_session_dies),
    Drill("bad-fix", "25", "the remediation agent changes nothing", "the same failure within restart_cooldown_secs", START_S,
          "the supervisor stops (failure spiral)", H, own.bad_fix),
    Drill("remediation-hangs", "26", "the remediation agent hangs", "remediation_timeout_secs (5 s here)", 5 + LOOK_S,
          "the daemon restarts; the same failure stops the supervisor", H, own.remediation_hangs),
    Drill("remediation-fails", "26", "the remediation agent requests manual intervention", "its file in .llmc", START_S,
          "the supervisor stops and shows the request", H, own.remediation_fails),
    Drill("other-daemon", "27", "another process restarts the daemon", "another identity", START_S,
          "both daemons stop; the remediation agent runs; a new daemon continues", AI, own.other_daemon),
    Drill("loop-hangs", "2", "the daemon's process is frozen", "heartbeat_timeout_secs (8 s here)", 8 + LOOK_S,
          "the supervisor kills the daemon; the remediation agent runs; a new daemon continues", AI, own.loop_hangs),
    Drill("start-hangs", "2", "a new daemon never starts its agents", "no progress on a worker (3 s here, 120 s by default)", 3 + START_S,
          "the supervisor kills the daemon; the remediation agent runs; a new daemon continues", AI, own.start_hangs),
    Drill("goal-worker-silent", "", "a worker with a plan item goes silent", "no activity for idle_after (4 s here, 15 min by default)",
          goal_drills.IDLE_AFTER_S + goal_drills.TICK_S + LOOK_S, "the worker gets a reminder; then its work is saved and another worker takes the plan item", A, goal_drills.worker_silent),
    Drill("goal-enter-swallowed", "", "the client swallows Enter", "no receipt from the agent's hook", None,
          "Enter is sent again", A, goal_drills.enter_swallowed),
    Drill("goal-task-fails", "", "the task of a plan item fails until auto mode gives up", "its third failure", 60.0,
          "another task for the same plan item", A, goal_drills.task_fails),
    Drill("goal-daemon-killed", "", "the daemon is killed between writing a task file and recording it", "its process is gone", START_S,
          "the remediation agent runs; the next tick finds the file by its dispatch id", AI, goal_drills.daemon_killed),
    Drill("goal-question", "", "a plan item has a question for the user", "its report", LOOK_S,
          "the inbox lists the question; the worker gets the answer and continues", A, goal_drills.question),
    Drill("goal-store-damaged", "", "the goal store is damaged", "the next tick", LOOK_S,
          "the store is set aside unchanged; tasks in progress land; the user checks the store and resumes", A, goal_drills.store_damaged),
    Drill("goal-planner-hangs", "", "the planner hangs, then prints garbage", "planner.timeout (2 s here)", 2 + LOOK_S,
          "the goal stays without a plan until the planner works", A, goal_drills.planner_hangs),
    Drill("goal-task-deleted", "", "the task file of a plan item is deleted by hand", "not claimed for idle_after (4 s here)",
          goal_drills.IDLE_AFTER_S + goal_drills.TICK_S + LOOK_S, "another task for the same plan item", A, goal_drills.task_deleted),
    Drill("goal-session-killed", "", "the agent with a plan item is killed", "its process exits", LOOK_S,
          "its work is saved, it gets a new session, the same task runs again", A, goal_drills.session_killed),
    Drill("night", "", "something breaks every few seconds for several minutes", "depends on the fault", None,
          "every task lands exactly once", Kind.ANY, night),
)  # fmt: skip

DRILLS = {drill.name: drill for drill in _ALL}
#: the drills of the failure tables; `night` is run by name
ROWS = [drill for drill in _ALL if drill.row]
