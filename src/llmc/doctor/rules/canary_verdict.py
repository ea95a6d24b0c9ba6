"""The canary: from what a scratch session showed to a verdict with words. Pure.

Each probe is a row of PROBES. Auto mode depends on the essential ones; what else cannot be seen is only said.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from llmc.agents.agent_events import PANE_DIED, What
from llmc.records import causes
from llmc.sessions.rules.decide import NORMAL_EXITS

#: what an event in the log tells of, where the row does not name its hook
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
    "Use a version that llmc was tried with: `llmc config set defaults.agent_command PATH`. "
    "`llmc up --auto --detach --no-canary` goes on all the same"
)
BY_HAND = "Start the client once by hand and answer what it asks, then run `llmc up --auto --detach` again"


class Result(StrEnum):
    """What became of one probe."""

    PASSED = "passed"
    FAILED = "failed"
    #: it is not there, and llmc works without it
    UNSEEN = "unseen"
    #: there was no occasion, or an earlier probe failed
    NOT_TRIED = "not_tried"


class Observed(Struct, frozen=True):
    """What was seen of the scratch session; None where it did not come to that."""

    #: why it could not even be launched
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
    #: the client's own word for an API error
    api_error: str = ""
    api_cause: causes.Cause = causes.Cause.AGENT
    #: it rests, by its status file, though no hook said that its turn has ended
    rests: bool = False
    cleared: bool | None = None
    #: it ended after /exit, and how: None when tmux did not tell
    exited: bool | None = None
    exit_code: int | None = None


class Probe(Struct, frozen=True):
    """One question to the client. Without `essential` a missing answer is only said."""

    name: str
    seen: Callable[[Observed], bool | None]
    #: what is wrong; or what llmc cannot do without it
    words: Callable[[Observed], str]
    fix: str = OTHER_VERSION
    essential: bool = True


def _account_is_good(seen: Observed) -> bool | None:
    if not seen.turn_ended:
        return None
    return not causes.needs_a_person(seen.api_cause) if seen.api_error else True


def _ended_well(seen: Observed) -> bool | None:
    return None if seen.exited is None else seen.exited and seen.exit_code in NORMAL_EXITS


def _no_turn_end(seen: Observed) -> str:
    if seen.rests:
        return "it answered a prompt, and no Stop hook said that its turn has ended"
    return "it took a prompt, and neither a Stop hook nor an error came in time"


def _bad_end(seen: Observed) -> str:
    if not seen.exited:
        return "it did not end on /exit"
    if seen.exit_code is None:
        return "it ended on /exit, and tmux did not tell its exit code"
    return f"it ended with exit code {seen.exit_code} on /exit, which llmc would take for a crash"


#: in the order in which they are tried
PROBES: tuple[Probe, ...] = (
    Probe("launch", lambda seen: seen.launched, lambda seen: seen.launch_problem, BY_HAND),
    Probe(
        "ready",
        lambda seen: seen.ready,
        lambda seen: "it started, and no SessionStart hook came: a dialog, a login, or hooks that do not run",
        BY_HAND,
    ),
    Probe(
        "status_file",
        lambda seen: seen.status_file,
        lambda seen: "its status file: an interrupt and an open dialog are noticed late or not at all",
        essential=False,
    ),
    Probe(
        "submit",
        lambda seen: seen.arrived,
        lambda seen: f"a prompt was typed, and nothing proves that it arrived: {seen.why_not}",
    ),
    Probe(
        "prompt_hook",
        lambda seen: seen.prompt_hook,
        lambda seen: "the UserPromptSubmit hook: what a person types is noticed only when it has ended",
        essential=False,
    ),
    Probe(
        "transcript",
        lambda seen: seen.transcript_row,
        lambda seen: (
            "prompts in its transcript: no usage and no budgets, and a prompt may come twice after a crash"
        ),
        essential=False,
    ),
    Probe(
        "queue",
        lambda seen: seen.queue_row,
        lambda seen: "queue rows in its transcript: a message to a busy agent may be called unconfirmed",
        essential=False,
    ),
    Probe("stop", lambda seen: seen.turn_ended, _no_turn_end),
    Probe(
        "account",
        _account_is_good,
        lambda seen: f"its account or its settings were refused: {seen.api_error}",
        BY_HAND,
    ),
    Probe("clear", lambda seen: seen.cleared, lambda seen: "/clear began no new conversation"),
    Probe("exit", _ended_well, _bad_end),
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the canary found about one version of the client on one version of tmux; kept in `.llmc/canary.json`."""

    agent: str
    client: str
    tmux: str
    at_unix: float
    passed: bool
    #: what failed first, and what to do about it
    reason: str = ""
    fix: str = ""
    probes: dict[str, Result] = {}
    #: what llmc has to do without
    cannot_see: tuple[str, ...] = ()
    #: the evidence: hooks that came, in their order, and the end of the screen
    hooks: tuple[str, ...] = ()
    screen: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """One line for people."""
        what = f"{self.client} with {self.tmux}"
        if not self.passed:
            return f"{what}: {self.reason}"
        blind = f"; llmc cannot see {'; '.join(self.cannot_see)}" if self.cannot_see else ""
        return f"{what}: passed{blind}"


def judge(seen: Observed, agent: str, client: str, tmux: str, at_unix: float, **evidence: Any) -> Verdict:
    """The verdict: the first essential probe that failed is the reason."""
    results = {probe.name: result_of(probe, seen) for probe in PROBES}
    failed = next((probe for probe in PROBES if results[probe.name] is Result.FAILED), None)
    # What came after a failure was not tried; nothing was proved before the last of the essential ones.
    tried = all(results[probe.name] is Result.PASSED for probe in PROBES if probe.essential)
    return Verdict(
        agent=agent,
        client=client,
        tmux=tmux,
        at_unix=at_unix,
        passed=tried,
        reason=failed.words(seen) if failed else "" if tried else "it was interrupted",
        fix=failed.fix if failed else "",
        probes=results,
        cannot_see=tuple(p.words(seen) for p in PROBES if results[p.name] is Result.UNSEEN),
        **evidence,
    )


def result_of(probe: Probe, seen: Observed) -> Result:
    answer = probe.seen(seen)
    if answer is None:
        return Result.NOT_TRIED
    if answer:
        return Result.PASSED
    return Result.FAILED if probe.essential else Result.UNSEEN


def why_probe(last: Verdict | None, client: str, tmux: str) -> str:
    """Why the client has to be tried before auto mode; "" when it was, and passed."""
    if last is None:
        return f"{client} with {tmux} was not tried on this root yet"
    if last.client != client:
        return f"the client is another one: {last.client} before, {client} now"
    if last.tmux != tmux:
        return f"tmux is another one: {last.tmux} before, {tmux} now"
    return "" if last.passed else f"{client} with {tmux} failed the last time: {last.reason}"


def hooks_in(events: Iterable[Mapping[str, Any]], names: Mapping[What, str]) -> tuple[str, ...]:
    """The hooks that an event log tells of, in their order; `names`: what the agent calls them."""
    all_names = {**names, What.EXITED: PANE_DIED}
    return tuple(_hook(row, all_names) for row in events if "event" in row)


def _hook(row: Mapping[str, Any], names: Mapping[What, str]) -> str:
    action = str(row.get("action"))
    name = row.get("hook") or (names[_MEANS[action]] if action in _MEANS else action)
    detail = row.get("source") or row.get("end") or row.get("error")
    return f"{name} ({detail})" if detail else str(name)
