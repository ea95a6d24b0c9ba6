"""The append-only event log, events.jsonl: one JSON object a line, each exactly once and in order."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmc.base.files import append_line, ends_torn, json_row, private_dir
from llmc.base.log_reader import archives, whole_lines

#: every action there is, with what it means; docs/protocol.md is generated from this table
ACTIONS: dict[str, str] = {
    "worker_added": "a worker was added",
    "provision_incomplete": "a worktree lacks something it should have; llmc goes on without",
    "worker_removed": "a worker was removed (`ref`: its trash ref, `directory`: where its worktree is now)",
    "status_changed": "a worker's status changed (`from`, `to`, `reason`)",
    "held": "a person took the worker: llmc types, accepts and resets nothing there",
    "released": "a person gave the worker back",
    "prompt_pending": "a prompt is in state and about to be typed (`prompt_id`)",
    "prompt_delivered": "what became of a prompt (`prompt_id`, `outcome`, `elapsed_ms`)",
    "prompt_seen": "the agent got a prompt that llmc did not send",
    "session_launched": "an agent was started in a tmux pane of its own (`instance`, `agent`, `model`)",
    "session_started": "the agent said it is ready (`source`, `claude_session_id`)",
    "session_ended": "the agent said it ends (`end`: its reason)",
    "agent_exited": "the agent's process ended (`exit_code`)",
    "agent_stopped": "the agent's turn ended, and what git showed then (`ahead`, `dirty`)",
    "agent_failed": "the agent's turn ended with an API error (`error`, `cause`)",
    "agent_reported": "the agent said how its work stands (`kind`, `text`; `update`: what its options said, `message_id`: where in its conversation)",
    "agent_asked": "the agent opened a question or a permission dialog (`tool`, `question`: its text)",
    "question_answered": "a person answered with `llmc answer` (`outcome`, `answer`)",
    "hook_received": "another hook event of the agent (`hook`)",
    "hook_ignored": "a hook event that no longer counts: old instance, or unreadable",
    "reviewed": "a person looked at a worker's work (`commit`, `behind`)",
    "commits_collapsed": "a worker's commits became one with the same files, to be rebased (`commit`, `tip`: before it, `ref`: where that is pinned)",
    "rebase_started": "a rebase of a worker's commits began (`commit`: before it, `base`, `ref`: where that is pinned)",
    "rebased": "a worker's commits are on the newest base now (`commit`, `base`)",
    "rebase_conflicted": "the rebase has conflicts, the worker is to resolve them (`files`, `base`)",
    "rebase_failed": "git refused the rebase; the worktree is as before",
    "rebase_resolved": "the worker resolved the conflicts (`ahead`)",
    "rebase_unresolved": "the agent's turn ended with conflicts unresolved (`left`, `round`)",
    "rebase_aborted": "the worker gave the rebase up; its commits are as before",
    "self_review_failed": "the self-review was not delivered; a person gets the work as it is",
    "rebase_stalled": "nothing has moved in a rebase for too long (`quiet_s`)",
    "rebase_validated": "rebased work passed `repo.validate`",
    "validation_failed": "a rebased worker does not pass `repo.validate` (`code`, `round`: 0 when it was a clean rebase)",
    "background_ended": "llmc ended what an agent had left running in the background (`pids`, `commands`)",
    "accept_step": "an accept reached a step (`step`, `commit`)",
    "accepted": (
        "a worker's commit landed on the default branch (`commit`, `prompt`, `subject`, "
        "`reviewed`: `same`, `changed` or `not_reviewed`)"
    ),
    "accepted_nothing": "an accept found all of the work on the default branch already; the worker is idle (`base`)",
    "undone": "an accept was taken back by a revert commit (`commit`, `revert`, `reason`: what can be done again)",
    "undo_failed": "an undo ended, and nothing was taken back (`step`, `commit`)",
    "picked": "a worker's commits became a branch of the source (`branch`, `commit`, `base`)",
    "push_failed": "the source could not be pushed to its own remote after an accept",
    "trash_pruned": "old trash was deleted for good (`names`; `refs`: those of them that were refs)",
    "validation_left": "files that a check left in a worktree were moved into the trash (`files`, `ref`)",
    "accept_failed": "an accept ended without landing (`step`)",
    "pinning": "work is about to be kept under a trash ref (`ref`)",
    "work_restored": "work from the trash was given back to a worker (`ref`, `commit`)",
    "work_pinned": "work was kept under a trash ref before a reset (`ref`)",
    "worktree_linked": (
        "a worktree without its link to the clone, or with a wrong one, was linked again (`ref`: where the wrong `.git` is)"
    ),
    "lock_removed": "lock files that a killed git had left in a worktree were removed (`paths`)",
    "worker_reset": "a worker was reset to the newest base (`base`, `ref`: the trash ref, if there was work)",
    "git_config_undone": (
        "a setting in the root's clone would have run a program or led git elsewhere, and was undone (`file`, `keys`)"
    ),
    "repaired": "`llmc doctor --repair` mended something (`kind`, `problem`)",
    "state_rebuilt": "`llmc doctor --rebuild` made a new state.json (`workers`, `kept`: the old file)",
    "daemon_started": "the daemon registered (`pid`, `instance_id`)",
    "daemon_stopped": "the daemon ended in order",
    "auto_started": "the daemon began to give tasks to auto workers (`concurrency`)",
    "auto_stopped": "no more tasks are given, and what ran has ended (`reason`)",
    "auto_failed": "auto mode ended because of a failure (`cause`, `worker`, `status` of that, `task_id`, `reason`)",
    "task_assigned": "an auto worker took a task (`task_id`, `subject`, `label`, `claim`)",
    "task_completed": "a task's work has landed, or nothing had to change (`task_id`, `commit`: null then)",
    "task_released": "a task is free again and nothing counts against it (`task_id`, `cause`)",
    "task_failed": "a task's attempt failed (`task_id`, `cause`, `attempt`, `retry_in_s`: it waits so long after a crash, `ref`: where unfinished work is pinned)",
    "task_quarantined": "a task failed three times, or cannot be done as it is, and waits for a person (`task_id`, `cause`, `attempt`)",
    "task_parked": "a task used up its budget and waits for a person (`task_id`, `cause`)",
    "task_proposed": "a worker's session made a task that waits for `tasks approve` (`task_id`, `subject`)",
    "task_received": "the task pool command gave a task (`task_id`, `subject`)",
    "task_approved": "a person approved a task that a worker proposed (`task_id`, `subject`)",
    "task_requeued": "a person wants a task done again; nothing counts against it any more (`task_id`, `subject`)",
    "task_done": "a person said that a task is done, and nobody did it (`task_id`, `subject`)",
    "task_sent_back": "a task's work did not pass its `verify` and went back to the worker (`task_id`, `round`, `code`)",
    "budget_reached": "no more tasks are taken because the budget of the run is used up",
    "notified": "a person was told of something (`kind`, `key`, `channels`: those that took it)",
    "notify_failed": "a channel did not take a notification (`kind`, `key`, `channel`, `attempt`)",
    "fleet_parked": "nobody is given work for a while (`cause`, `until_unix`)",
    "fleet_resumed": "work goes on after a park (`cause`)",
    "source_dirty": "uncommitted changes in the source keep work from landing (`retry_in_s`, `attempt`)",
    "base_failed": "the default branch itself fails `repo.validate`: nothing can land, and auto mode starts no tasks (`commit`, `command`)",
    "base_passed": "the default branch passes again, or is not validated any more (`commit`: the one that failed, `command`)",
    "post_accept": "the post-accept command ran (`task_id`, `code`, `elapsed_s`)",
    "usage_recorded": (
        "tokens an agent used since the last such event (`task_id`, `model`, `input_tokens`, `output_tokens`, "
        "`cache_creation_input_tokens`, `cache_read_input_tokens`, `cost`: null without a price, `claude_session_id`)"
    ),
    "overseer_started": "a supervisor began (`pid`, `adopted`: the pid of a daemon that it took over, or null)",
    "overseer_daemon_started": "the supervisor's daemon registered (`pid`, `instance_id`)",
    "goal_asked": "a goal needs a person (`goal_id`, `work_node_id`, `assignment_id`, `dispatch_id`, `reason`: the question, `deliver`: where its goal wants it told)",
    "goal_ticked": "a tick of the goals did something (`reason`: why it came, `actions`: in words)",
    "goal_acted": (
        "something was sent for a goal (`goal_id`, `work_node_id`, `assignment_id`, `dispatch_id`, `purpose`, `mode`, "
        "`result`)"
    ),
    "goal_stalled": "work on a part of a goal does not get on (`goal_id`, `work_node_id`, `assignment_id`, `reason`)",
    "overseer_failure": "the supervisor found that the daemon failed (`kind`, `cause`, `ran_s`, `reason`)",
    "overseer_daemon_ended": "the supervisor ended the daemon, or found it ended (`pid`)",
    "overseer_remediation": "a remediation began (`attempt`), or ended (`attempt`, `outcome`, `duration_s`, `log`)",
    "overseer_restart": "the daemon is started again without a remediation (`after_s`, `workers`: those that were reset)",
    "overseer_stopped": "the supervisor ended (`code`: its exit code, `reason`)",
    "attention_raised": "something needs a person (`key`, `reason`: what); `status` lists it until it is over",
    "attention_cleared": "something that needed a person is over (`key`)",
    "clock_jump": "the clock or the daemon stood still: no age is judged for one full limit from now (`why`)",
}


def check_action(action: str) -> None:
    assert action in ACTIONS, f"event action {action!r} is not in the table"


def append_missing(path: Path, recent: list[dict[str, Any]]) -> int:
    """Append those of the newest events that are not in the file yet (under the state lock); its last number."""
    last = last_seq(path)
    missing = [event for event in recent if _number(event) > last]
    if not missing:
        return last
    private_dir(path.parent)
    torn = b"\n" if ends_torn(path) else b""
    append_line(path, torn + "\n".join(json.dumps(event, ensure_ascii=False) for event in missing).encode())
    return int(missing[-1]["seq"])


def _number(event: dict[str, Any]) -> int:
    """Its number; 0 for one that nobody numbered: somebody has edited the state by hand."""
    value = event.get("seq")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def read_lines(path: Path) -> Iterator[bytes]:
    """Every complete line there ever was, oldest first: the log is rotated, but nothing of it is removed."""
    return whole_lines(str(path))


def last_seq(path: Path) -> int:
    """The number of the last complete line; 0 for a new log."""
    found = _last_seq_in(path)
    if found is None:  # right after a rotation there is no line in the new file yet
        older = [Path(archive) for _, archive in reversed(archives(str(path)))]
        found = next((seq for file in older if (seq := _last_seq_in(file)) is not None), 0)
    return found


def _last_seq_in(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            window = 4096
            while True:
                file.seek(max(0, size - window))
                lines = file.read().splitlines()
                complete = lines if size <= window else lines[1:]
                for line in reversed(complete):
                    if (seq := _seq(line)) is not None:
                        return seq
                if size <= window:
                    return None
                window *= 8
    except FileNotFoundError:
        return None


def _seq(line: bytes) -> int | None:
    return _number(json_row(line) or {}) or None
