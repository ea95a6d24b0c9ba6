"""One run of a planner: the client or a command, its time and its output limited, and what came of it. Never raises for it."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from llmc.agents import print_mode
from llmc.agents.claude_code import ClaudeCode
from llmc.agents.print_mode import Tokens
from llmc.base import proc
from llmc.base.errors import LlmcError
from llmc.goals.plan.plan import DEFAULT_LIMITS, Limits

#: so much of what a program said when it failed is kept
ERROR_CHARS = 500


class Failure(StrEnum):
    """Why there is no plan."""

    #: the goal has one, or the leaf cannot be split: nobody was asked
    NOT_NEEDED = "not_needed"
    #: the program is not there, or cannot be started
    MISSING = "missing"
    #: it was ended by us: too slow, or too much output
    OVERRAN = "overran"
    #: it ended with an error
    FAILED = "failed"
    #: the API refused: not logged in, the usage limit, anything else
    AUTH = "auth"
    LIMIT = "limit"
    API = "api"
    #: no answer was a plan, repairs included
    INVALID = "invalid"


class PlannerSetup(Struct, frozen=True):
    """Who plans, and what that may take."""

    #: where it runs: the repository it plans for
    cwd: Path
    #: a line for the shell; "": the Claude Code client
    command: str = ""
    #: the path of the client; "": it is looked for
    client: str = ""
    #: "": the client's own default
    model: str = ""
    timeout_s: float = 600.0
    most_bytes: int = 2_000_000
    max_repair_attempts: int = 2
    limits: Limits = DEFAULT_LIMITS
    #: on top of ours
    env: Mapping[str, str] = field(default_factory=dict)
    stopping: Callable[[], bool] | None = None


class Said(Struct, frozen=True):
    """An answer, whatever it is worth."""

    text: str
    tokens: Tokens
    model: str


class Silent(Struct, frozen=True):
    """No answer that could be looked at."""

    failure: Failure
    text: str
    hint: str = ""
    tokens: Tokens = field(default_factory=Tokens)
    model: str = ""


def ask(
    setup: PlannerSetup, schema: Mapping[str, Any], told: Mapping[str, str], prompt: str
) -> Said | Silent:
    """Run the planner once."""
    client = ClaudeCode(setup.client)
    env = {**proc.command_env(), **setup.env, **told}
    try:
        if setup.command:
            argv = ["/bin/sh", "-c", setup.command]
        else:
            argv = print_mode.argv(client.program(), schema, setup.model)
            env = client.environment(env, task_tools=False)
        done = proc.run_bounded(
            argv,
            cwd=setup.cwd,
            env={key: value for key, value in env.items() if key not in _NOT_FOR_IT},
            input=prompt.encode("utf-8", "replace"),
            timeout_s=setup.timeout_s,
            most_bytes=setup.most_bytes,
            stopping=setup.stopping,
        )
    except proc.Overran as error:
        return Silent(Failure.OVERRAN, _named(setup, error.message))
    except (LlmcError, OSError) as error:
        return Silent(
            Failure.MISSING, f"the planner could not be started: {error}", getattr(error, "hint", "")
        )
    return _of_command(setup, done) if setup.command else _of_client(done)


#: a planner is no worker, whoever started us
_NOT_FOR_IT = ("LLMC_WORKER", "LLMC_INSTANCE", "LLMC_INDEX")


def known_as(setup: PlannerSetup) -> str:
    """What is kept of who planned. Of a command only its program: the line may hold a key."""
    if not setup.command:
        return setup.model or "claude"
    program = next((word for word in setup.command.split() if "=" not in word), "")
    return f"command:{program.rpartition('/')[2][:80]}"


def _who(setup: PlannerSetup) -> str:
    return f"the planner `{known_as(setup).removeprefix('command:')}`"


def _named(setup: PlannerSetup, message: str) -> str:
    """The shell is not what a person configured."""
    return message.replace("`/bin/sh`", _who(setup)) if setup.command else message


def _of_command(setup: PlannerSetup, done: proc.Done) -> Said | Silent:
    if done.ok:
        return Said(done.stdout.strip(), Tokens(), known_as(setup))
    failure = Failure.MISSING if done.returncode == 127 else Failure.FAILED
    return Silent(failure, _ended(_who(setup), done))


def _of_client(done: proc.Done) -> Said | Silent:
    answer = print_mode.read_answer(done.stdout)
    if answer is None:
        return Silent(Failure.FAILED, _ended("the client", done))
    if answer.error or not done.ok:
        failure = _STATUSES.get(answer.status, Failure.API if answer.status else Failure.FAILED)
        text = f"the client could not answer: {answer.error[:ERROR_CHARS] or done.returncode}"
        return Silent(failure, text, _HINTS.get(failure, ""), answer.tokens, answer.model)
    return Said(answer.text, answer.tokens, answer.model)


_STATUSES = {401: Failure.AUTH, 403: Failure.AUTH, 429: Failure.LIMIT}
_HINTS = {Failure.AUTH: "Log in again with `claude`."}


def _ended(who: str, done: proc.Done) -> str:
    tail = (done.stderr.strip() or done.stdout.strip())[-ERROR_CHARS:]
    return f"{who} ended with code {done.returncode}" + (f": {tail}" if tail else ", and printed nothing")
