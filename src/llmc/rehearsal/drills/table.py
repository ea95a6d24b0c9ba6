"""Every drill there is: one for each row of the tables of failures, and some besides."""

from llmc.rehearsal.drills import goal_drills
from llmc.rehearsal.drills import landing_and_system as system
from llmc.rehearsal.drills import state_and_supervisor as own
from llmc.rehearsal.drills import tasks_and_workers as work
from llmc.rehearsal.drills.model import Drill, Kind
from llmc.rehearsal.drills.night import night

#: a look of the supervisor every half second, one of the daemon every second, and a busy machine
LOOK_S = 5.0
#: with the agents' start before the fault can show
START_S = 30.0

A, AI, H = Kind.AUTO, Kind.AI, Kind.HUMAN

_ALL = (
    Drill("pool-fails", "1", "the task pool command ends with an error", "its exit code", LOOK_S,
          "remediated, a new daemon takes tasks", AI, work.pool_fails),
    Drill("pool-hangs", "2", "the task pool command never ends", "its time limit (3 s here, 60 s by default)", 3 + LOOK_S,
          "remediated, a new daemon takes tasks", AI, work.pool_hangs),
    Drill("pool-is-empty", "3", "the task pool command has nothing, again and again", "none is needed", None,
          "the next task is taken as usual", A, work.pool_is_empty),
    Drill("pool-repeats", "4", "the task pool command names an open task again and again", "its key", None,
          "one file, one claim, one commit", A, work.pool_repeats,
          instead_of=H, because="a claim closes it while the task is open; a tracker that repeats a completed one has it done again"),
    Drill("agent-killed", "5", "an agent is killed at work", "the end of its process", LOOK_S,
          "its work is pinned, its session is new, the task is done again", A, work.agent_killed),
    Drill("agent-crashes", "6", "an agent crashes at every task", "a second task that ends the same way", 60.0,
          "remediated, the tasks are done again", AI, work.agent_crashes),
    Drill("agent-hangs", "7", "an agent never comes to an end", "nothing gets on for stall_timeout_secs (4 s here)", 4 + LOOK_S,
          "its work is pinned, worker and daemon start over", A, work.agent_hangs,
          instead_of=AI, because="a stall needs no model; the worker starts over"),
    Drill("worker-in-error", "8", "a worker does not resolve its conflict in three rounds", "git's own state", 60.0,
          "its work is pinned, the task is done again from the newest base", A, work.worker_in_error,
          instead_of=AI, because="failures count on the task; only the same cause on a second one ends the daemon"),
    Drill("session-killed", "9", "a tmux session is killed", "the end of its process", LOOK_S,
          "its work is pinned, its session is new, the task is done again", A, work.session_killed),
    Drill("tmux-killed", "9", "the tmux server is killed with every session on it", "the end of the processes", LOOK_S,
          "all sessions are new, the tasks are done again", A, work.tmux_killed),
    Drill("session-killed-again", "10", "a tmux session is killed as often as it comes back", "the third time without a task completed", 60.0,
          "remediated, the task is done again", AI, work.session_killed_again),
    Drill("worktree-broken", "11", "the repository does not know a worktree any more", "git fails", 30.0,
          "remediated by `llmc doctor --repair`, the task is done again", AI, work.worktree_broken),
    Drill("post-accept-fails", "12", "the post-accept command fails", "its exit code", START_S,
          "what landed stays; remediated, the next task is taken", AI, work.post_accept_fails),
    Drill("conflict", "13", "work conflicts with what landed meanwhile", "git's own state", START_S,
          "its worker resolves it, and it lands", A, system.conflict),
    Drill("conflicts-again", "14", "every task conflicts, and no agent resolves it", "a second task that ends the same way", 120.0,
          "remediated, the tasks are done again", AI, system.conflicts_again),
    Drill("git-lock", "15", "a killed git left its lock in the source", "git fails", 30.0,
          "remediated, the same work lands", AI, system.git_lock),
    Drill("source-dirty", "15a", "a person leaves changes in the source", "the check before a landing", LOOK_S,
          "ten retries with growing waits (0.01 s and up here, 60 s and up by default), then remediated", Kind.AUTO_THEN_AI, system.source_dirty),
    Drill("disk-full", "16", "the disk is full", "a write that fails", 30.0,
          "everything ends at once and stays as it is", H, system.disk_full, needs="small disk"),
    Drill("out-of-memory", "17", "the kernel kills the daemon, twice", "its process is gone", LOOK_S,
          "remediated once; the second time the supervisor ends", H, system.out_of_memory),
    Drill("usage-limit", "18", "a usage limit", "the client's own error", START_S,
          "the fleet waits, one worker tries, all go on", A, system.usage_limit,
          instead_of=AI, because="a limit passes by itself"),
    Drill("network-lost", "19", "the API cannot be reached", "the client's own error", START_S,
          "the fleet waits, one worker tries, all go on", A, system.network_lost,
          instead_of=H, because="nobody can mend it, and it passes by itself"),
    Drill("state-corrupt", "20", "state.json and its copy are no JSON any more", "the daemon's look once a second", LOOK_S,
          "remediated by `llmc doctor --rebuild`, the work lands", AI, own.state_corrupt),
    Drill("state-overwritten", "20a", "somebody writes a state without workers", "the daemon's look once a second", LOOK_S,
          "remediated by `llmc doctor --rebuild`, the work lands", AI, own.state_overwritten),
    Drill("config-broken", "21", "config.toml is no TOML any more", "the next look at a worker", 30.0,
          "remediated, the work lands", AI, own.config_broken),
    Drill("socket-gone", "22", "the hooks' socket is removed", "the daemon's look once a second", LOOK_S,
          "remediated; a new daemon makes a new one", AI, own.socket_gone),
    Drill("permissions-gone", "23", "nobody may write in .llmc any more", "heartbeat_timeout_secs (8 s here)", 8 + LOOK_S,
          "remediated, the work lands", AI, own.permissions_gone, needs="no privileges"),
    Drill("overseer-session-dies", "24", "the agent that mends is killed", "the end of its process", LOOK_S,
          "it is started again and told again", A, own.overseer_session_dies),
    Drill("bad-fix", "25", "a remediation changes nothing", "the same failure within restart_cooldown_secs", START_S,
          "the supervisor ends: a spiral", H, own.bad_fix),
    Drill("remediation-hangs", "26", "the agent that mends never ends", "remediation_timeout_secs (5 s here)", 5 + LOOK_S,
          "the daemon starts again; the same failure ends the supervisor", H, own.remediation_hangs),
    Drill("remediation-fails", "26", "the agent that mends asks for a person", "its file in .llmc", START_S,
          "the supervisor ends, and says what is asked for", H, own.remediation_fails),
    Drill("other-daemon", "27", "the daemon is restarted behind the supervisor's back", "another identity", START_S,
          "both end; remediated, a new daemon goes on", AI, own.other_daemon),
    Drill("loop-hangs", "2", "the daemon's process is frozen", "heartbeat_timeout_secs (8 s here)", 8 + LOOK_S,
          "it is killed; remediated, a new daemon goes on", AI, own.loop_hangs),
    Drill("start-hangs", "2", "a new daemon never gets its agents up", "a lane that does not get on (3 s here, 120 s by default)", 3 + START_S,
          "it is killed; remediated, a new daemon goes on", AI, own.start_hangs),
    Drill("goal-worker-silent", "", "a worker with a leaf of a goal falls silent", "no sign of life for idle_after (4 s here, 15 min by default)",
          goal_drills.IDLE_AFTER_S + goal_drills.TICK_S + LOOK_S, "nudged, then its work is pinned and somebody else does the leaf", A, goal_drills.worker_silent),
    Drill("goal-enter-swallowed", "", "the client swallows Enter", "no receipt of the agent's own hook", None,
          "Enter again", A, goal_drills.enter_swallowed),
    Drill("goal-task-fails", "", "the task of a leaf fails until auto mode gives it up", "its third failure", 60.0,
          "another task for the same leaf", A, goal_drills.task_fails),
    Drill("goal-daemon-killed", "", "the daemon is killed between a task file and the note of it", "its process is gone", START_S,
          "remediated, the next tick finds the file by its dispatch id", AI, goal_drills.daemon_killed),
    Drill("goal-question", "", "a leaf needs a person", "its own report", LOOK_S,
          "the question is in the inbox, the answer goes to the worker that asked, which goes on", A, goal_drills.question),
    Drill("goal-store-damaged", "", "the store of the goals is no database any more", "the next tick", LOOK_S,
          "set aside as it is; what was given out lands; a person looks, and goes on", A, goal_drills.store_damaged),
    Drill("goal-planner-hangs", "", "the planner hangs, then prints garbage", "planner.timeout (2 s here)", 2 + LOOK_S,
          "the goal is kept without a plan, and planned when somebody has mended the planner", A, goal_drills.planner_hangs),
    Drill("goal-task-deleted", "", "the task file of a leaf is deleted by hand", "nobody has it for idle_after (4 s here)",
          goal_drills.IDLE_AFTER_S + goal_drills.TICK_S + LOOK_S, "another task for the same leaf", A, goal_drills.task_deleted),
    Drill("goal-session-killed", "", "the agent that has a leaf is killed", "the end of its process", LOOK_S,
          "its work is pinned, its session is new, the same task is done again", A, goal_drills.session_killed),
    Drill("night", "", "something breaks every few seconds, for minutes", "whatever it is", None,
          "every task lands once, whatever breaks", Kind.ANY, night),
)  # fmt: skip

DRILLS = {drill.name: drill for drill in _ALL}
#: those of the tables of failures; the night is asked for by its name
ROWS = [drill for drill in _ALL if drill.row]
