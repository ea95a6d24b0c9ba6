"""Agent sessions: the only place that starts and stops agents and compares sessions with the state."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from shlex import join as shell_join

from msgspec.structs import replace

from llmc import hook_client, launch
from llmc.agents import kinds
from llmc.agents.agent_events import AgentEvent, What
from llmc.agents.kinds import kind_of, reader_of, tool_children
from llmc.agents.protocol import Agent, ClientState, ClientStatus, Launch
from llmc.attention.rules import NOT_TAKEN
from llmc.base import processes
from llmc.base.clock import age_s, now_unix
from llmc.base.errors import LlmcError, Refused
from llmc.base.faults import step as fault_step
from llmc.base.files import private_dir, write_atomic
from llmc.base.given import written_out
from llmc.base.names import OVERSEER, ClaudeSessionId, PaneId, SessionName
from llmc.base.panes import Pane
from llmc.base.proc import CALLER_DIR, ShuttingDown
from llmc.base.tmux import Unknown, answered
from llmc.records import inbox
from llmc.records.store import Transaction
from llmc.records.transitions import Step, step
from llmc.records.worker import Asked, Cause, Delivery, Outcome, Status, WorkerRecord
from llmc.repo import provision
from llmc.repo.project import Project, agent_for
from llmc.sessions import intake, leftovers
from llmc.sessions.rules import decide
from llmc.sessions.rules.decide import ANOTHER_MODEL

#: git variables that would point an agent at another repository
_MISLEADING = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "LLMC_FAULT",
    "LLMC_AGENT",
    "LLMC_INBOX",
    "LLMC_WAKE",
    CALLER_DIR,
)

#: the variables that name a launch
_MARKS = ("LLMC_ROOT", "LLMC_WORKER", "LLMC_INSTANCE")

#: how long an agent may take to record that its turn was interrupted
INTERRUPTED_S = 0.5
#: how long tmux may take to notice that a program has ended
NOTICED_S = 3.0


def start(project: Project, name: str) -> None:
    """Launch a worker's agent if none runs; the caller holds the worker's lock and waits with `wait_ready`."""
    record = intake.apply_pending(project, name)
    pane = answered(project.pane(record), name, hint=f"Run `{project.start_command(record)}`.")
    runs = isinstance(pane, Pane) and not pane.dead and bool(record.instance)
    if isinstance(pane, Pane) and runs and not _is_stuck(record, pane):
        adopt(project, record, pane)
        return
    _launch(project, record, index=sorted(project.store.read().workers).index(record.name))


def _is_stuck(record: WorkerRecord, pane: Pane) -> bool:
    """Whether an agent has failed to become ready before and reports nothing: only another launch can help."""
    has_failed = record.status is Status.OFFLINE and bool(record.error_reason)
    return has_failed and not is_taken(record, pane) and status_of(record, pane) is ClientStatus.UNKNOWN


def adopt(project: Project, record: WorkerRecord, pane: Pane) -> None:
    """Record the pane of an agent that an older llmc started, which recorded only sessions; the agent keeps running."""
    if record.pane_id:
        return
    if not pane.instance:
        argv = _died_argv(project, record.name, record.instance)
        project.tmux.adopt(pane, argv, instance=record.instance, worker=record.name)
    with project.store.transaction() as tx:
        tx.update(record.name, pane_id=pane.id)


def _launch(project: Project, record: WorkerRecord, index: int) -> None:
    _check_goes_on(project)
    agent = agent_for(project)
    instance = os.urandom(6).hex()
    contained = provision.is_contained(project, record)
    environment = _environment(project, record, agent, instance, index, contained=contained)
    home = None
    if contained:
        from llmc.repo import containment  # most agents are not contained
        from llmc.sandbox import network
        from llmc.sessions import containing

        home = containing.make_home(project, record, agent, environment)
        reached = containing.agent_network(project, record, agent, environment)
        theirs = {**os.environ, **project.config.defaults.env}
        environment |= containment.environment(project, Path(record.worktree_path), theirs)
        environment |= {**home.environment, **network.environment(reached)}
    problem = agent.setup_problem(_to_trust(project, record), environment)
    if problem:
        record_failure(project, record.name, problem, untrusted=True)
        raise LlmcError(f"{record.name}: {problem}")
    leftovers.end_launch(project, record.name, record.instance)
    private_dir(project.root.inbox / record.name)
    if contained:
        inbox.clear(project.root, record.name)
    provision.settle_repository(project, record, contained=contained)
    request = _launch_request(project, record, agent)
    known = agent.conversations(environment)
    if request.resume and not Path(record.transcript_path).is_relative_to(known):
        agent.carry(Path(record.transcript_path), environment)
    argv = agent.argv(request)
    spec = private_dir(project.root.agents) / f"{record.name}.{instance}.launch.json"
    payload: dict[str, object] = {"argv": argv, "cwd": record.worktree_path, "env": environment}
    marks: list[str] = []
    if home is not None:
        # The pane's process is the holder, which keeps its first environment; llmc identifies the pane by it.
        named = {**home.environment, **{name: environment[name] for name in _MARKS}}
        marks = ["env", *(f"{name}={value}" for name, value in named.items())]
        payload["sandbox"] = containing.sandbox(
            project, record, home, request.settings, argv, environment, reached
        )
    with fault_step("session.launch"):
        if record.status.is_live:
            mark_offline(project, record, "session gone")
        with project.store.transaction() as tx:
            tx.update(
                record.name,
                instance=instance,
                pane_id=PaneId(""),
                agent=agent.name,
                model=request.model,
                config_dir=str(agent.config_dir(environment)),
                contained=contained,
                refused_hosts=(),
                delivery=_not_taken(record) or record.delivery,
                **({} if record.status is Status.ERROR else {"error_reason": "", "cause": ""}),
            )
            tx.clear_item(_trust_key(record))
            if record.refused_hosts:
                from llmc.sessions import connections  # most agents are not contained

                connections.tell(project, tx)
            intake.forget_forged(tx, record.name)
            _tell_uncontained(project, tx, record, contained=contained)
            launched_as = {"instance": instance, "agent": agent.name, "model": request.model}
            tx.emit("session_launched", worker=record.name, **launched_as)
        write_atomic(spec, json.dumps(payload).encode())
        _close_panes(project, record)
        _check_goes_on(project)
        pane_id = project.tmux.launch(
            record.session_id,
            record.worktree_path,
            [*marks, sys.executable, "-I", "-S", launch.__file__, str(spec)],
            _died_argv(project, record.name, instance),
            instance=instance,
            worker=record.name,
        )
        with project.store.transaction() as tx:  # until then the pane's own mark identifies it
            tx.update(record.name, pane_id=pane_id)


def _check_goes_on(project: Project) -> None:
    """A daemon that is stopping ends the agents that it knows, so it must not launch another."""
    if project.stopping is not None and project.stopping():
        raise ShuttingDown


def is_held_as_wanted(project: Project, record: WorkerRecord) -> bool:
    """Whether the running agent is contained as configured now; True if containment is impossible here."""
    with suppress(LlmcError):
        return provision.is_contained(project, record) == record.contained
    return True


def _tell_uncontained(project: Project, tx: Transaction, record: WorkerRecord, *, contained: bool) -> None:
    """Update the attention item about an agent that runs uncontained because this machine cannot contain it."""
    key = f"uncontained:{record.name}"
    if contained or not record.has_branch or project.config.sandbox_of(record.name) != "auto":
        tx.clear_item(key)
        return
    from llmc.sandbox import probe  # most agents are not contained

    if (problem := probe.problem()) is None:
        return  # fixed a moment ago
    about = {"kind": "uncontained", "severity": "notice", "who": record.name}
    tx.raise_item(key, text=f"its agent is not contained: {problem.text}", next="llmc doctor", **about)


def _not_taken(record: WorkerRecord) -> Delivery | None:
    """The delivery, now unconfirmed, of a message queued in a client that has exited: no other client picks it up.

    None for an auto worker, whose task is released and sent again as a whole.
    """
    if (
        record.auto
        or record.delivery is None
        or not (_resumable(record) and leftovers.never_left_queue(record))
    ):
        return None
    return replace(record.delivery, outcome=Outcome.UNCONFIRMED, reason=NOT_TAKEN)


def _died_argv(project: Project, name: str, instance: str) -> list[str]:
    return ["env", f"LLMC_INSTANCE={instance}", *_hook_argv(project, name), "PaneDied"]


def _close_panes(project: Project, record: WorkerRecord) -> None:
    """Close every pane that llmc launched for a worker. The user's own panes stay, and with them the session."""
    pane = project.pane(record)
    panes = answered(project.tmux.panes(), record.name)
    for found in panes.values():
        if launched(found)[0] == record.name or found == pane:
            _end_pane(project, found)


def _end_pane(project: Project, pane: Pane) -> None:
    """Remove the pane last: after a crash, its mark identifies the rest of the launch."""
    worker, instance = launched(pane)
    end_program(pane)
    leftovers.end_launch(project, worker, instance)
    project.tmux.kill_pane(pane)


def end_program(pane: Pane) -> None:
    """Stop what a pane runs, but only if it is a child of the tmux server: its pid may have been reused."""
    if not pane.dead:
        processes.terminate(processes.identify(pane.pid, parent=pane.server_pid), grace_s=5)


def _to_trust(project: Project, record: WorkerRecord) -> Path:
    """The directory that the client must trust: the repository's, which for worktrees is the root."""
    if project.trusted_as is not None:
        return project.trusted_as
    place = Path(record.worktree_path)
    return project.root.path if place.is_relative_to(project.root.worktrees) else place


def wait_ready(project: Project, name: str, timeout_s: float) -> str | None:
    """Wait until the launched agent is ready; returns the problem if it is not. The caller holds the lock.

    Watches the agent's process too: tmux sometimes misses the exit of a program, and then no event reports it.
    """
    record = project.store.worker(name)
    if record.status is Status.OFFLINE and record.instance:
        pane = project.pane(record)

        def has_ended() -> bool:
            nonlocal pane
            if isinstance(pane, Unknown):
                pane = project.pane(record)
            return pane is None or (isinstance(pane, Pane) and not processes.is_alive(pane.pid))

        def has_told() -> bool:
            return _is_start_told(project, record) or (
                isinstance(pane, Pane) and _has_started_unheard(record, pane)
            )

        def is_up() -> bool:
            return has_told() and _look(project, name).status is not Status.OFFLINE

        if not processes.wait_until(lambda: is_up() or has_ended(), timeout_s):
            problem = (
                f"the agent is running, but git cannot read its worktree. Run `llmc doctor`, "
                f"then run `{project.start_command(record)}`"
                if has_told()
                else f"the agent was not ready after {timeout_s:g} s. Check `llmc peek {name}` "
                f"for a dialog or a login prompt, then run `{project.start_command(record)}`"
            )
            record_failure(project, name, problem)
            return problem
        if isinstance(pane, Pane):
            _after_its_end(project, record, pane)
    after = intake.apply_pending(project, name)
    if after.status is not Status.OFFLINE:
        return None
    if not after.error_reason:
        said = _why_it_exited(project, after)
        problem = "the agent exited immediately" + (f": {said}" if said else f"; see `llmc peek {name}`")
        record_failure(project, name, problem)
        return problem
    return after.error_reason


def _is_start_told(project: Project, record: WorkerRecord) -> bool:
    """Whether a hook about the agent's start is in the inbox."""
    events = kinds.waiting(project.root, record.name, record.agent)
    ours = (e for e in events if isinstance(e, AgentEvent) and e.instance == record.instance)
    return any(event.what is What.SESSION_STARTED for event in ours)


def _look(project: Project, name: str) -> WorkerRecord:
    return notice_start(project, intake.apply_pending(project, name))


def notice_start(project: Project, record: WorkerRecord) -> WorkerRecord:
    """The record, after a start that no hook reported. The caller holds the lock and has applied the inbox."""
    if record.status is not Status.OFFLINE or not record.instance:
        return record
    pane = project.pane(record)
    if not isinstance(pane, Pane) or pane.dead or not _has_started_unheard(record, pane):
        return record
    return intake.apply_start(project, record, state_of(record, pane.pid).session)


def _has_started_unheard(record: WorkerRecord, pane: Pane) -> bool:
    """Whether the client reports that it is at its prompt, for longer than its hook takes."""
    said = state_of(record, pane.pid)
    is_idle = said.status in (ClientStatus.IDLE, ClientStatus.SHELL)
    return decide.has_started_unheard(record, is_idle, age_s(said.since_unix, now_unix()))


def _why_it_exited(project: Project, record: WorkerRecord) -> str:
    """Why an agent exited, from what it printed, without tmux's own line about the exit."""
    pane = project.pane(record)
    if not isinstance(pane, Pane):
        return ""
    with suppress(LlmcError):
        lines = project.tmux.capture(pane, history=200).splitlines()
        said = [line for line in lines if not line.startswith("Pane is dead")]
        return written_out(reader_of(record.agent).start_failure(said))
    return ""


def end(project: Project, name: str, reason: str, last: Delivery | None = None) -> None:
    """Stop a worker's agent: interrupt it, stop its process, then what it left running. The caller holds the lock.

    `last`: the delivery that the record had until now, if it has none any more. The message may be queued in the
    client without being in the transcript yet, and an interrupt would send it.
    """
    record = intake.apply_pending(project, name)
    pane = _after_its_end(project, record, answered(project.pane(record), name, hint=""))
    if isinstance(pane, Pane) and pane.dead and record.status.is_live:
        record = intake.apply_exit(project, record)
    if record.status.is_live:
        # Write the state first: the instance is no longer ours, so its exit does not count as a crash.
        mark_offline(project, record, reason)
    if isinstance(pane, Pane) and not pane.dead:
        told = record if record.delivery is not None else replace(record, delivery=last)
        if status_of(record, pane) is ClientStatus.BUSY and not leftovers.has_queue(told, pane):
            interrupt(project, record, pane)  # with a queue, an interrupt would start the next turn
            processes.wait_until(
                lambda: status_of(record, pane) is not ClientStatus.BUSY, INTERRUPTED_S, interval_s=0.02
            )
        end_program(pane)
    processes.kill(tool_children(record.instance))
    _close_panes(project, record)
    intake.apply_pending(project, name)


def _after_its_end(project: Project, record: WorkerRecord, pane: Pane | None) -> Pane | None:
    """The pane; if its program has just exited, wait until tmux has noticed, or no event would report the exit."""
    if pane is None or pane.dead or processes.is_alive(pane.pid):
        return pane
    found: list[Pane | None] = [pane]

    def is_known() -> bool:
        found[:] = [answered(project.pane(record), record.name, hint="")]
        return found[0] is None or found[0].dead

    processes.wait_until(is_known, NOTICED_S, interval_s=0.05)
    return found[0]


def interrupt(project: Project, record: WorkerRecord, pane: Pane) -> None:
    """End the agent's turn; a draft in its input box stays."""
    project.tmux.send_keys(pane, kind_of(record.agent).interrupt_key)


def launched(pane: Pane) -> tuple[str, str]:
    """The worker and instance that a pane was launched for, by its marks or environment; ("", "") for a user's pane."""
    if pane.instance or pane.dead:
        return pane.worker, pane.instance
    environment = processes.environment(pane.pid)
    return environment.get("LLMC_WORKER", ""), environment.get("LLMC_INSTANCE", "")


def end_stray(project: Project, session: SessionName) -> None:
    """Stop the agents in a session without a worker; not the supervisor's, and not while a terminal is attached."""
    if project.is_overseer(session):
        raise Refused(
            f"cannot stop {session}: it is the supervisor's own session",
            hint="To stop the supervisor, press Ctrl-C in the terminal where `llmc overseer` runs.",
        )
    panes = answered(project.tmux.panes(), session)
    for pane in panes.values():
        worker, instance = launched(pane)
        if pane.session != session or not instance or worker == OVERSEER:
            continue
        if pane.attached:
            raise Refused(
                f"cannot stop {session}: a terminal is attached to it",
                hint="Detach first (C-b d, or C-b C-b d inside another tmux), then run the command again.",
            )
        _end_pane(project, pane)


def status_of(record: WorkerRecord, pane: Pane) -> ClientStatus:
    """The status of the client in the pane, by its own account."""
    return state_of(record, pane.pid).status


def state_of(record: WorkerRecord, pid: int) -> ClientState:
    """Everything that the client reports about itself."""
    if not record.config_dir:
        return ClientState()
    return reader_of(record.agent).state(Path(record.config_dir), pid)


def open_question(record: WorkerRecord, said: ClientState) -> Asked | None:
    """The question that `llmc answer` can answer now, in any status; the screen must still confirm it."""
    asked = record.asked
    waits = said.status is ClientStatus.WAITING and said.wants_answer
    return asked if asked is not None and asked.answerable and waits else None


def reconcile(project: Project, name: str) -> None:
    """Compare a worker's record with tmux: without its pane it is offline. Unknown changes nothing."""
    record = _look(project, name)
    pane = project.pane(record)
    if isinstance(pane, Unknown) or not record.status.is_live:
        return
    if pane is None:
        leftovers.end_with_its_agent(project, record)
        mark_offline(project, record, "session gone", error_reason="its tmux pane is gone", cause=Cause.TMUX)
        return
    if pane.dead:
        intake.apply_exit(project, record)
        return
    adopt(project, record, pane)
    if change := client_contradicts(record, pane.pid, now_unix()):
        with project.store.transaction() as tx:
            tx.move(name, change)


def wants_a_look(record: WorkerRecord, pid: int, now: float) -> bool:
    """Whether to check a worker without a hook: its client contradicts its hooks, or a self-review is due."""
    waits = not record.held and decide.todo(record) is not None
    return waits or client_contradicts(record, pid, now) is not None


def client_contradicts(record: WorkerRecord, pid: int, now: float) -> Step | None:
    """The transition that the client's status file calls for, where no hook fires."""
    if record.status not in decide.CLIENT_CAN_CONTRADICT:
        return None
    said = state_of(record, pid)
    for_s = age_s(max(said.since_unix, record.since_unix), now)
    busy, idle, waiting = (
        said.status is one for one in (ClientStatus.BUSY, ClientStatus.IDLE, ClientStatus.WAITING)
    )
    return decide.client_says(record, busy, idle, for_s, is_waiting=waiting)


def mark_offline(project: Project, record: WorkerRecord, reason: str, **fields: str) -> None:
    with project.store.transaction() as tx:
        tx.move(record.name, step(Status.OFFLINE, reason, **fields))


def is_taken(record: WorkerRecord, pane: Pane | None) -> str | None:
    """Why llmc must leave a worker alone: it is on hold, or a terminal is attached."""
    if record.held:
        return f"{record.name} is on hold; release it with `llmc release {record.name}`"
    if pane is not None and pane.attached:
        return (
            f"a terminal is attached to {record.name}; detach first (C-b d, or C-b C-b d inside another tmux)"
        )
    return None


def agent_gone(project: Project, record: WorkerRecord) -> Refused:
    hint = f"Run `{project.start_command(record)}` to start it."
    return Refused(f"{record.name}'s agent is not running", hint=hint)


def _launch_request(project: Project, record: WorkerRecord, agent: Agent) -> Launch:
    settings = write_settings(project, record.name, agent)
    defaults = project.config.defaults
    return Launch(
        settings=settings,
        model=model_for(project, record),
        skip_permissions=defaults.skip_permissions,
        allowed_tools=tuple(defaults.allowed_tools),
        unattended=record.auto,
        resume=_resumable(record),
    )


def model_for(project: Project, record: WorkerRecord) -> str:
    """The Claude model that the worker needs now: that of its task, or its own."""
    of_task = record.assignment.model if record.assignment else ""
    return of_task or project.config.model_of(record.name)


def has_its_model(project: Project, record: WorkerRecord) -> bool:
    """Whether the agent was launched with the model that the worker needs; a client keeps the model it started with."""
    return (record.model or project.config.model_of(record.name)) == model_for(project, record)


def relaunch_with_its_model(project: Project, name: str) -> str | None:
    """Restart the agent with the model that a task needs, before the task is sent; returns the problem, if any.

    The caller holds the worker's lock. Becoming idle clears the worker's task, so it is set again here.
    """
    assignment = project.store.worker(name).assignment
    end(project, name, ANOTHER_MODEL)
    start(project, name)
    problem = wait_ready(project, name, project.config.defaults.ready_timeout_s)
    if problem is None:
        with project.store.transaction() as tx:
            tx.update(name, assignment=assignment)
    return problem


def settings_file(project: Project, name: str) -> Path:
    """The file that registers llmc's hooks with a worker's agent."""
    return project.root.agents / f"{name}.settings.json"


def hook_command(project: Project, name: str) -> str:
    return shell_join(_hook_argv(project, name))


def write_settings(project: Project, name: str, agent: Agent) -> Path:
    private_dir(project.root.agents)
    write_atomic(settings_file(project, name), agent.settings(hook_command(project, name)))
    return settings_file(project, name)


def _resumable(record: WorkerRecord) -> ClaudeSessionId | None:
    """The conversation to resume; None unless the worker has a task and a transcript."""
    if record.current_prompt and record.claude_session_id and os.path.exists(record.transcript_path):
        return record.claude_session_id
    return None


def _environment(
    project: Project, record: WorkerRecord, agent: Agent, instance: str, index: int, *, contained: bool
) -> dict[str, str]:
    base = {key: value for key, value in os.environ.items() if key not in _MISLEADING}
    if contained:
        from llmc.sandbox import rules  # most agents are not contained

        base = rules.passed_on(base, (*agent.variables, *project.config.sandbox.env))
    base.update(project.config.defaults.env)
    auto = project.config.auto
    # A contained agent does not see the list: its tasks are in its own home, and hooks report them.
    task_list = auto.task_list_id if record.shares_the_list and not contained else ""
    environment = agent.environment(base, task_tools=auto.worker_tasks != "off", task_list=task_list)
    # What `llmc` needs inside, where it cannot find the root.
    inside = {
        "LLMC_INBOX": str(project.root.inbox / record.name),
        "LLMC_WAKE": str(project.root.wake_socket()),
    }
    return {
        **environment,
        "LLMC_ROOT": str(project.root.path),
        "LLMC_WORKER": record.name,
        "LLMC_INDEX": str(index),
        "LLMC_INSTANCE": instance,
        **(inside if contained else {}),
        "PATH": f"{project.root.bin}:{environment.get('PATH', os.defpath)}",
    }


def _hook_argv(project: Project, name: str) -> list[str]:
    inbox_dir = project.root.inbox / name
    socket_path = project.root.wake_socket()
    return [sys.executable, "-I", "-S", hook_client.__file__, str(inbox_dir), str(socket_path)]


def record_failure(project: Project, name: str, problem: str, *, untrusted: bool = False) -> None:
    """Record why an agent did not start, unless its worker is live: its own reason, or question, is in that field."""
    with project.store.transaction() as tx:
        record = tx.worker(name)
        if record.status is Status.OFFLINE:
            tx.update(name, error_reason=problem, cause=Cause.CONFIG, since_unix=tx.now)
        if not untrusted:
            return
        again = f"llmc init --trust && {project.start_command(record)}"
        about = {"kind": "trust", "severity": "blocked", "who": record.name}
        tx.raise_item(_trust_key(record), text=problem, next=again, **about)


def _trust_key(record: WorkerRecord) -> str:
    return f"trust:{record.name}"
