"""Read config.toml: a typed Config or a list of problems; and warnings about conflicting settings."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from llmc.base.errors import ConfigError, NotFound
from llmc.config.durations import format_duration
from llmc.config.model import Config
from llmc.config.problems import Found, check, root_type
from llmc.config.toml_text import join_key, line_of

EDIT_HINT = "Fix it with `llmc config edit`, then run `llmc config check`."


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem with a config file; `key` is empty if the file is not TOML."""

    file: str
    key: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.message) if part)


def load_config(path: Path) -> Config:
    """The configuration at `path`; raises NotFound or ConfigError."""
    config, problems = check_text(read_text(path), path.name)
    if config is None:
        raise unusable(path, problems)
    return config


def check_text(text: str, file: str) -> tuple[Config | None, list[Problem]]:
    """A Config, or all problems in order of their lines."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return None, [_syntax_problem(str(error), text, file)]
    found: Found = []
    checked = check(data, root_type(), (), found)
    problems = [
        Problem(file=file, key=join_key(path), line=line_of(text, path), message=message)
        for path, message in found
    ]
    if problems:
        return None, sorted(problems, key=lambda problem: (problem.line or 0, problem.key))
    try:
        return _fitted(msgspec.convert(checked, Config), data), []
    except msgspec.ValidationError as error:  # a constraint that problems.py does not know
        return None, [Problem(file=file, key="", line=None, message=str(error))]


def _fitted(config: Config, data: dict[str, Any]) -> Config:
    """Extend the default stall timeout so that goal recovery has enough time."""
    overseer = config.overseer
    if not overseer.goals.enabled or "stall_timeout_secs" in data["overseer"]:
        return config
    stall_s = max(overseer.stall_timeout_secs, 2 * overseer.goals.recovery_s())
    return replace(config, overseer=replace(overseer, stall_timeout_secs=stall_s))


def unusable(path: Path, problems: list[Problem]) -> ConfigError:
    """The error that lists all problems."""
    lines = "\n".join(f"{problem}" for problem in problems)
    return ConfigError(f"{path} is invalid:\n{lines}", hint=EDIT_HINT)


def read_text(path: Path) -> str:
    """The text, with its line endings."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"file not found: {path}", hint="Run `llmc init` to create a root.") from None
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", hint="Check its owner and mode."
        ) from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise unusable(path, [Problem(file=path.name, key="", line=line, message="not UTF-8 text")]) from None


def _syntax_problem(said: str, text: str, file: str) -> Problem:
    """Take the line from the message of tomllib."""
    place = re.search(r" \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$", said)
    if place is None:
        return Problem(file=file, key="", line=None, message=f"not TOML: {said}")
    line = int(place[1]) if place[1] else text.rstrip("\n").count("\n") + 1
    return Problem(file=file, key="", line=line, message=f"not TOML: {said[: place.start()]}")


def advice(config: Config) -> list[str]:
    """Warnings, one line each, with the fix."""
    return [text for text in (_stall_before_the_ladder(config),) if text]


def _stall_before_the_ladder(config: Config) -> str:
    """The supervisor must not restart the fleet during the recovery of a silent worker."""
    goals, stall_s = config.overseer.goals, config.overseer.stall_timeout_secs
    needs_s = goals.recovery_s()
    if not goals.enabled or stall_s > needs_s:
        return ""
    return (
        f"overseer.stall_timeout_secs ({format_duration(stall_s)}) is too short: goal recovery takes "
        f"(overseer.goals.max_retries + 2) x idle_after = {format_duration(needs_s)}, so the supervisor would restart the "
        f"fleet first. Fix: llmc config set overseer.stall_timeout_secs {2 * needs_s:.0f}"
    )
