"""The append-only event log, events.jsonl: one JSON object per line, each exactly once and in order."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmc.base.files import append_line, ends_torn, private_dir
from llmc.base.log_reader import whole_lines
from llmc.records.event_log import EventLog, seq_of

#: every action with its meaning; docs/protocol.md is generated from this table
ACTIONS: dict[str, str] = {
    "worker_added": "a worker was added",
    "provision_incomplete": "llmc could not fully set up a worktree, but continued",
    "worker_removed": "a worker was removed (`ref`: its trash ref, `directory`: its worktree in the trash)",
    "status_changed": "a worker's status changed (`from`, `to`, `reason`)",
    "held": "the user put a worker on hold: llmc does not type into its pane, land its work or reset it",
    "released": "the user released a held worker",
    "web_signed_in": "a browser signed in to the web page with a link (`by`: the browser and its address)",
    "web_ordered": "the user ran a command from the web page (`command`: the equivalent command line, `by`: the browser and its address)",
    "prompt_pending": "llmc recorded a prompt and is about to type it (`prompt_id`)",
    "prompt_delivered": "llmc sent a prompt, or failed to send it (`prompt_id`, `outcome`, `elapsed_ms`)",
    "prompt_seen": "the agent received a prompt that llmc did not send",
    "session_launched": "an agent was started in its own tmux pane (`instance`, `agent`, `model`)",
    "session_started": "the agent is ready (`source`, `claude_session_id`)",
    "session_ended": "the agent is exiting (`end`: the reason)",
    "agent_exited": "the agent's process exited (`exit_code`)",
    "agent_stopped": "the agent's turn ended (`ahead`, `dirty`: the state of its worktree)",
    "agent_failed": "the agent's turn ended with an API error (`error`, `cause`)",
    "agent_reported": "the agent reported the status of its work (`kind`, `text`, `update`: the options of `llmc report`, `message_id`: the message in its conversation)",
    "agent_asked": "the agent opened a question or a permission dialog (`tool`, `question`: the text)",
    "question_answered": "the user answered a question with `llmc answer` (`outcome`, `answer`, `prompt_id`)",
    "hook_received": "the agent sent another kind of hook event (`hook`)",
    "host_refused": "a contained agent tried to connect to a host that is not in `sandbox.hosts` (`host`, `allow`: what to add); logged once per host and launch",
    "hook_ignored": "llmc ignored a hook event that was unreadable, came from an earlier launch of the agent, or did not belong to the agent (`why`)",
    "reviewed": "the user reviewed a worker's work (`commit`, `behind`)",
    "commits_collapsed": "a worker's commits were squashed into one before a rebase (`commit`, `tip`: the last of the original commits, `ref`: the ref that keeps `tip` reachable)",
    "rebase_started": "llmc started rebasing a worker's commits (`base`, `commit`: the tip before the rebase, `ref`: the ref that keeps `commit` reachable)",
    "rebased": "a worker's commits were rebased onto the latest default branch (`commit`, `base`)",
    "rebase_conflicted": "a rebase has conflicts that the worker must resolve (`files`, `base`)",
    "rebase_failed": "git refused to rebase; the worktree is unchanged",
    "rebase_resolved": "the worker resolved the conflicts (`ahead`)",
    "rebase_unresolved": "the agent's turn ended with unresolved conflicts (`left`, `round`)",
    "rebase_aborted": "the worker aborted the rebase; the worker's commits are unchanged",
    "self_review_failed": "llmc could not deliver the self-review prompt; the work is waiting for your review",
    "rebase_stalled": "a rebase made no progress for too long (`quiet_s`)",
    "rebase_validated": "rebased work passed `repo.validate`",
    "validation_failed": "rebased work failed `repo.validate` (`code`, `round`: 0 after a clean rebase)",
    "background_ended": "llmc stopped an agent's background processes (`pids`, `commands`)",
    "accept_step": "`llmc accept` started its next step (`step`, `commit`)",
    "accepted": (
        "a worker's commit landed on the default branch (`commit`, `prompt`, `subject`, "
        "`reviewed`: `same`, `changed` or `not_reviewed`)"
    ),
    "accepted_nothing": "`llmc accept` found every change already on the default branch; the worker is idle (`base`)",
    "undone": "a landed commit was reverted (`commit`, `revert`; `reason` names the task or plan item to run again)",
    "undo_failed": "`llmc undo` ended without reverting anything (`step`, `commit`)",
    "picked": "a worker's commits were copied to a branch in the source repository (`branch`, `commit`, `base`)",
    "push_failed": "llmc could not push the source repository to its remote after work landed",
    "trash_pruned": "old trash entries were deleted permanently (`names`; `refs`: the entries that were refs)",
    "validation_left": "files left in a worktree by validation were moved to the trash (`files`, `ref`)",
    "accept_failed": "`llmc accept` ended without landing anything (`step`)",
    "pinning": "llmc is about to save work under a trash ref (`ref`)",
    "work_restored": "work from the trash was restored to a worker (`ref`, `commit`)",
    "work_pinned": "work was saved under a trash ref before a reset (`ref`)",
    "worktree_linked": (
        "llmc repaired a worktree's missing or wrong link to the root's clone (`ref`: the trash ref with the wrong `.git`)"
    ),
    "lock_removed": "stale git lock files were removed (`paths`)",
    "worker_reset": "a worker was reset to the latest default branch (`base`, `ref`: the trash ref, if there was work)",
    "git_config_undone": (
        "llmc removed dangerous git settings, which run programs or redirect git, from the root's clone (`file`, `keys`)"
    ),
    "repaired": "`llmc doctor --repair` fixed a problem (`kind`, `problem`)",
    "state_rebuilt": "`llmc doctor --rebuild` rebuilt state.json (`workers`, `kept`: the old file)",
    "daemon_started": "the daemon started (`pid`, `instance_id`, `killed`: the daemon of the last run of auto mode, if that has no recorded end, `silent_s`: the time since its last heartbeat, null if unknown)",
    "daemon_stopped": "the daemon exited normally (`instance_id`, `auto`: whether auto mode had started, `reason`)",
    "auto_started": "the daemon started auto mode (`concurrency`, `instance_id`)",
    "auto_stopped": "auto mode ended; no task is in progress (`reason`, `instance_id`)",
    "auto_failed": "auto mode failed (`cause`, `worker`, `status`: the worker's status, `task_id`, `reason`, `instance_id`)",
    "task_assigned": "an auto worker claimed a task (`task_id`, `subject`, `label`, `claim`)",
    "task_completed": "a task's work landed, or the task needed no changes (`task_id`, `commit`: null if nothing changed)",
    "task_released": "a task was released; this does not count as a failed attempt (`task_id`, `cause`)",
    "task_failed": "an attempt failed (`task_id`, `cause`, `attempt`, `retry_in_s`: delay before the next attempt after a crash, `ref`: the trash ref with the unfinished work)",
    "task_quarantined": "a task failed three times, or cannot be done as written, and is quarantined (`task_id`, `cause`, `attempt`)",
    "task_parked": "a task used up its budget and is parked (`task_id`, `cause`)",
    "task_proposed": "a worker proposed a task, which needs `llmc tasks approve` (`task_id`, `subject`)",
    "task_received": "the command in `auto.task_pool_command` returned a task (`task_id`, `subject`)",
    "task_prioritised": "the user changed the priority of a task (`task_id`, `subject`, `priority`)",
    "task_approved": "the user approved a task proposed by a worker (`task_id`, `subject`)",
    "task_requeued": "the user requeued a task; its failed attempts no longer count (`task_id`, `subject`)",
    "task_done": "the user marked a task as done (`task_id`, `subject`)",
    "task_sent_back": "a task failed its verify command and was sent back to the worker (`task_id`, `round`, `code`)",
    "budget_reached": "the budget for the run is used up; auto mode starts no more tasks",
    "notified": "a notification was sent (`kind`, `key`, `channels`: where it was delivered)",
    "notify_failed": "a channel failed to deliver a notification (`kind`, `key`, `channel`, `attempt`)",
    "fleet_parked": "auto mode is parked (`cause`, `until_unix`)",
    "fleet_resumed": "auto mode is no longer parked (`cause`)",
    "source_dirty": "nothing can land: the source repository has uncommitted changes (`retry_in_s`, `attempt`)",
    "base_failed": "the default branch itself fails `repo.validate`, so nothing can land and auto mode does not start tasks (`commit`, `command`)",
    "base_passed": "the default branch passes `repo.validate` again, or is no longer validated (`commit`: the commit that failed, `command`)",
    "post_accept": "the command in `auto.post_accept_command` ran (`task_id`, `code`, `elapsed_s`)",
    "usage_recorded": (
        "an agent used tokens since the previous event of this kind (`task_id`, `model`, `input_tokens`, `output_tokens`, "
        "`cache_creation_input_tokens`, `cache_read_input_tokens`, `cost`: null if the price is unknown, `claude_session_id`)"
    ),
    "overseer_started": "a supervisor started (`pid`, `adopted`: the pid of a daemon that the supervisor took over, or null)",
    "overseer_daemon_started": "the supervisor's daemon started (`pid`, `instance_id`)",
    "goal_asked": "a goal has a question for the user (`goal_id`, `work_node_id`, `assignment_id`, `dispatch_id`, `reason`: the question, `deliver`: where to send the question)",
    "goal_ticked": "a goal tick took action (`reason`: why the tick ran, `actions`: the actions taken)",
    "goal_acted": (
        "llmc sent an instruction for a goal (`goal_id`, `work_node_id`, `assignment_id`, `dispatch_id`, `purpose`, `mode`, "
        "`result`)"
    ),
    "goal_stalled": "work on a plan item has stalled (`goal_id`, `work_node_id`, `assignment_id`, `reason`)",
    "overseer_failure": "the supervisor detected a daemon failure (`kind`, `cause`, `ran_s`, `reason`)",
    "overseer_daemon_ended": "the supervisor stopped the daemon, or found it stopped (`pid`)",
    "overseer_remediation": "the remediation agent started (`attempt`) or ended (`attempt`, `outcome`, `duration_s`, `log`)",
    "overseer_restart": "the supervisor is restarting the daemon without running the remediation agent (`after_s`, `workers`: the workers that were reset)",
    "overseer_stopped": "the supervisor exited (`code`: its exit code, `reason`)",
    "attention_raised": "an item needs the user (`key`, `reason`); `llmc status` lists it until it is resolved",
    "attention_cleared": "an item that needed the user is resolved (`key`)",
    "clock_jump": "the clock jumped or the daemon was suspended, so timeouts are paused for one full interval (`why`)",
}


def check_action(action: str) -> None:
    assert action in ACTIONS, f"unknown event action {action!r}"


def append_missing(path: Path, recent: list[dict[str, Any]]) -> int:
    """Append the recent events that the file lacks (under the state lock); returns its last number."""
    last = last_seq(path)
    missing = [event for event in recent if seq_of(event) > last]
    if not missing:
        return last
    private_dir(path.parent)
    torn = b"\n" if ends_torn(path) else b""
    append_line(path, torn + "\n".join(json.dumps(event, ensure_ascii=False) for event in missing).encode())
    return int(missing[-1]["seq"])


def read_lines(path: Path) -> Iterator[bytes]:
    """Every complete line, oldest first, including rotated files, which are never deleted."""
    return whole_lines(str(path))


def last_seq(path: Path) -> int:
    """The number of the latest event in the log; 0 for a new log."""
    return EventLog(str(path)).last_seq()
