"""Settings that are allowed, and that do not go well together."""

from llmc.config.durations import format_duration
from llmc.config.model import Config


def advice(config: Config) -> list[str]:
    """Each in a line, with the command that helps."""
    return [text for text in (_stall_before_the_ladder(config),) if text]


def _stall_before_the_ladder(config: Config) -> str:
    """The supervisor must not start everything over while goals are still trying to get a silent worker to work."""
    goals, stall_s = config.overseer.goals, config.overseer.stall_timeout_secs
    needs_s = goals.recovery_s()
    if not goals.enabled or stall_s > needs_s:
        return ""
    return (
        f"overseer.stall_timeout_secs ({format_duration(stall_s)}) is not longer than the recovery of a silent part of a "
        f"goal takes, (overseer.goals.max_retries + 2) x idle_after = {format_duration(needs_s)}: the supervisor would "
        f"start the fleet over first. Better: llmc config set overseer.stall_timeout_secs {2 * needs_s:.0f}"
    )
