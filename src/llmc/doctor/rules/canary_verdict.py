"""The verdict of the canary, from what the scratch session showed. Pure.

Each probe is a row of PROBES. Auto mode needs the essential ones; the others only cause a warning.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from llmc.agents.agent_events import PANE_DIED, What
from llmc.records.worker import Cause
from llmc.sessions.rules.decide import NORMAL_EXITS

#: what an event in the log means, if the row does not name its hook
_MEANS = {
    "session_started": What.SESSION_STARTED,
    "session_ended": What.SESSION_ENDED,
    "prompt_seen": What.PROMPT_ARRIVED,
    "prompt_delivered": What.PROMPT_ARRIVED,
    "agent_stopped": What.TURN_ENDED,
    "agent_failed": What.TURN_FAILED,
    "agent_asked": What.DIALOG_OPENED,
    "agent_exited": What.EXITED,
}

OTHER_VERSION = (
    "To use another version of the client, run `llmc config set defaults.agent_command PATH`. "
    "To start anyway, run `llmc up --auto --detach --no-canary`"
)
LATER = "Wait a few minutes, then run the command again"
BY_HAND = "Run `llmc claude`, log in or answer its dialogs, then run `llmc up --auto --detach` again"


class Result(StrEnum):
    """The result of one probe."""

    PASSED = "passed"
    FAILED = "failed"
    #: missing, but llmc works without it
    UNSEEN = "unseen"
    #: no occasion, or an earlier probe failed
    NOT_TRIED = "not_tried"


class Observed(Struct, frozen=True):
    """What the scratch session showed; None where it did not get that far."""

    #: why it could not be launched
    launch_problem: str = ""
    launched: bool | None = None
    ready: bool | None = None
    status_file: bool | None = None
    arrived: bool | None = None
    #: why the prompt did not arrive
    why_not: str = ""
    prompt_hook: bool | None = None
    transcript_row: bool | None = None
    queue_row: bool | None = None
    turn_ended: bool | None = None
    #: the client's name for an API error
    api_error: str = ""
    api_cause: Cause = Cause.AGENT
    #: idle according to its status file, although no hook reported the end of its turn
    rests: bool = False
    #: still busy when the time was up, so nothing shows how the turn ends
    busy: bool = False
    cleared: bool | None = None
    #: whether it exited after /exit, and its exit code; None if tmux did not report it
    exited: bool | None = None
    exit_code: int | None = None


class Probe(Struct, frozen=True):
    """One question to the client. If it is not `essential`, failure is only a warning."""

    name: str
    seen: Callable[[Observed], bool | None]
    #: what is wrong, or what llmc cannot do without it
    words: Callable[[Observed], str]
    fix: str = OTHER_VERSION
    essential: bool = True


def _account_is_good(seen: Observed) -> bool | None:
    if not seen.turn_ended:
        return None
    return not seen.api_cause.needs_a_person if seen.api_error else True


def _turn_ended(seen: Observed) -> bool | None:
    return None if seen.busy and not seen.turn_ended else seen.turn_ended


def _ended_well(seen: Observed) -> bool | None:
    return None if seen.exited is None else seen.exited and seen.exit_code in NORMAL_EXITS


def _no_turn_end(seen: Observed) -> str:
    if seen.rests:
        return "the client answered a prompt but did not run the Stop hook at the end of its turn"
    return "the client accepted a prompt but neither ran the Stop hook nor reported an error in time"


def _bad_end(seen: Observed) -> str:
    if not seen.exited:
        return "the client did not exit after /exit"
    if seen.exit_code is None:
        return "the client exited after /exit, but tmux did not report its exit code"
    return f"the client exited with code {seen.exit_code} after /exit, which llmc would treat as a crash"


#: in the order in which they run
PROBES: tuple[Probe, ...] = (
    Probe("launch", lambda seen: seen.launched, lambda seen: seen.launch_problem, BY_HAND),
    Probe(
        "ready",
        lambda seen: seen.ready,
        lambda seen: (
            "the client started but did not run the SessionStart hook; it may be waiting at a dialog, be logged out or have hooks disabled"
        ),
        BY_HAND,
    ),
    Probe(
        "status_file",
        lambda seen: seen.status_file,
        lambda seen: "the client's status file (interrupts and open dialogs are detected late or not at all)",
        essential=False,
    ),
    Probe(
        "submit",
        lambda seen: seen.arrived,
        lambda seen: f"the client did not confirm a prompt: {seen.why_not}",
    ),
    Probe(
        "prompt_hook",
        lambda seen: seen.prompt_hook,
        lambda seen: "the UserPromptSubmit hook (a turn that you start is detected only when it ends)",
        essential=False,
    ),
    Probe(
        "transcript",
        lambda seen: seen.transcript_row,
        lambda seen: (
            "prompts in the transcript (usage and budgets are not tracked, and prompts may be sent twice after a crash)"
        ),
        essential=False,
    ),
    Probe(
        "queue",
        lambda seen: seen.queue_row,
        lambda seen: (
            "queued messages in the transcript (messages to a busy agent may be reported as unconfirmed)"
        ),
        essential=False,
    ),
    Probe("stop", _turn_ended, _no_turn_end),
    Probe(
        "account",
        _account_is_good,
        lambda seen: f"the API rejected the client's account or settings: {seen.api_error}",
        BY_HAND,
    ),
    Probe("clear", lambda seen: seen.cleared, lambda seen: "/clear did not start a new conversation"),
    Probe("exit", _ended_well, _bad_end),
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The canary's result for one version of the client and one of tmux; stored in `.llmc/canary.json`."""

    agent: str
    client: str
    tmux: str
    at_unix: float
    passed: bool
    #: the first failure, and its fix
    reason: str = ""
    fix: str = ""
    probes: dict[str, Result] = {}
    #: what llmc must do without
    cannot_see: tuple[str, ...] = ()
    #: the evidence: hooks received, in order, and the end of the screen
    hooks: tuple[str, ...] = ()
    screen: tuple[str, ...] = ()

    @property
    def is_undecided(self) -> bool:
        """Whether it neither passed nor failed."""
        return not self.passed and Result.FAILED not in self.probes.values()

    @property
    def summary(self) -> str:
        """One line for users."""
        what = f"{self.client} with {self.tmux}"
        if not self.passed:
            return f"{what}: {self.reason}"
        blind = f"; warning: cannot observe {'; '.join(self.cannot_see)}" if self.cannot_see else ""
        return f"{what}: passed{blind}"


def judge(seen: Observed, agent: str, client: str, tmux: str, at_unix: float, **evidence: Any) -> Verdict:
    """The verdict; the first failed essential probe is the reason."""
    results = {probe.name: result_of(probe, seen) for probe in PROBES}
    failed = next((probe for probe in PROBES if results[probe.name] is Result.FAILED), None)
    # Probes after a failure do not run, so the canary passes only if every essential probe passed.
    tried = all(results[probe.name] is Result.PASSED for probe in PROBES if probe.essential)
    return Verdict(
        agent=agent,
        client=client,
        tmux=tmux,
        at_unix=at_unix,
        passed=tried,
        reason=failed.words(seen) if failed else "" if tried else _no_result(seen),
        fix=failed.fix if failed else "" if tried else LATER,
        probes=results,
        cannot_see=tuple(p.words(seen) for p in PROBES if results[p.name] is Result.UNSEEN),
        **evidence,
    )


def _no_result(seen: Observed) -> str:
    if seen.busy:
        return "the client did not finish a one-word prompt in time; the API may be slow or unreachable"
    return "the canary was interrupted"


def result_of(probe: Probe, seen: Observed) -> Result:
    answer = probe.seen(seen)
    if answer is None:
        return Result.NOT_TRIED
    if answer:
        return Result.PASSED
    return Result.FAILED if probe.essential else Result.UNSEEN


def why_probe(last: Verdict | None, client: str, tmux: str) -> str:
    """Why auto mode must run the canary first; "" if it already passed."""
    if last is None:
        return f"{client} with {tmux} has not been tested in this root"
    if last.client != client:
        return f"the client changed from {last.client} to {client}"
    if last.tmux != tmux:
        return f"tmux changed from {last.tmux} to {tmux}"
    return "" if last.passed else f"the last test of {client} with {tmux} failed: {last.reason}"


def hooks_in(events: Iterable[Mapping[str, Any]], names: Mapping[What, str]) -> tuple[str, ...]:
    """The hooks in an event log, in order; `names`: the agent's names for them."""
    all_names = {**names, What.EXITED: PANE_DIED}
    return tuple(_hook(row, all_names) for row in events if "event" in row)


def _hook(row: Mapping[str, Any], names: Mapping[What, str]) -> str:
    action = str(row.get("action"))
    name = row.get("hook") or (names[_MEANS[action]] if action in _MEANS else action)
    detail = row.get("source") or row.get("end") or row.get("error")
    return f"{name} ({detail})" if detail else str(name)
