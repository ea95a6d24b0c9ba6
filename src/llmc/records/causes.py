"""Causes of failure of a turn or a task, and how each is handled. Pure."""

from enum import StrEnum


class Cause(StrEnum):
    """The cause of a failure, which decides how it is handled."""

    #: the agent did something wrong
    AGENT = "agent"
    #: the user is in the way; not a failure
    PERSON = "person"
    #: its process died
    CRASH = "crash"
    #: a usage limit; passes by itself
    LIMIT = "limit"
    #: the API is overloaded or unreachable; passes by itself
    API = "api"
    #: logged out or refused; never retried
    AUTH = "auth"
    #: disk full; never retried
    DISK = "disk"
    #: invalid settings; never retried
    CONFIG = "config"
    TASK = "task"
    GIT = "git"
    COMMAND = "command"
    BUDGET = "budget"
    TMUX = "tmux"
    #: llmc's own fault
    BUG = "bug"


def passes_by_itself(cause: Cause) -> bool:
    return cause in (Cause.LIMIT, Cause.API)


def needs_a_person(cause: Cause) -> bool:
    """Whether a retry cannot help."""
    return cause in (Cause.AUTH, Cause.CONFIG, Cause.DISK)
