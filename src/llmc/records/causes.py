"""Why an agent's turn failed, or work did: the kinds of failure, and what may be done about each. Pure."""

from enum import StrEnum


class Cause(StrEnum):
    """What kind of failure it was; it decides what may be done about it."""

    #: the agent did something wrong
    AGENT = "agent"
    #: a person is in the way; no failure of anybody's
    PERSON = "person"
    #: its process died
    CRASH = "crash"
    #: a usage limit; passes by itself
    LIMIT = "limit"
    #: the API is overloaded or unreachable; passes by itself
    API = "api"
    #: logged out or refused; never retried
    AUTH = "auth"
    #: no space; never retried
    DISK = "disk"
    #: settings that cannot work; never retried
    CONFIG = "config"
    TASK = "task"
    GIT = "git"
    COMMAND = "command"
    BUDGET = "budget"
    TMUX = "tmux"
    #: llmc's own
    BUG = "bug"


def passes_by_itself(cause: Cause) -> bool:
    return cause in (Cause.LIMIT, Cause.API)


def needs_a_person(cause: Cause) -> bool:
    """Trying again cannot help."""
    return cause in (Cause.AUTH, Cause.CONFIG, Cause.DISK)
