"""The options of auto mode, as they are recorded for the command that starts it again."""

import shlex
from datetime import datetime

import pytest

from llmc.daemon.auto_options import AutoOptions
from llmc.records.items import UP_AUTO, up_auto

NOW = datetime(2026, 11, 16, 1, 0, 0).timestamp()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (AutoOptions(), []),
        (AutoOptions(concurrency=3, max_tasks=5), ["--concurrency", "3", "--max-tasks", "5"]),
        (AutoOptions(max_cost=5.0), ["--max-cost", "5"]),
        (AutoOptions(max_cost=1234567.25), ["--max-cost", "1234567.25"]),
        (AutoOptions(until_unix=NOW + 6.5 * 3600), ["--until", "2026-11-16T07:30"]),
        (AutoOptions(until_unix=NOW + 3600.7 + 5), ["--until", "2026-11-16T02:00:05"]),
        (AutoOptions(until_unix=NOW - 1), []),
        (
            AutoOptions(post_accept_command="scripts/after-landing now"),
            ["--post-accept-command", "scripts/after-landing now"],
        ),
        (AutoOptions(post_accept_command="echo 'a b'"), ["--post-accept-command", "COMMAND"]),
        (AutoOptions(post_accept_command=""), ["--post-accept-command", ""]),
        (AutoOptions(post_accept_command="one\ntwo"), ["--post-accept-command", "COMMAND"]),
        (AutoOptions(post_accept_command="TOKEN=secret make deploy"), ["--post-accept-command", "COMMAND"]),
        (
            AutoOptions(2, "curl https://me:secret@host.example/"),
            ["--concurrency", "2", "--post-accept-command", "COMMAND"],
        ),
    ],
)
def test_the_command_has_the_options_as_they_were_given(options: AutoOptions, words: list[str]) -> None:
    """Break: leave out the quotes; or record a password, which hints and notifications would show."""
    recorded = options.recorded()
    assert shlex.split(up_auto(recorded, NOW)) == [*shlex.split(UP_AUTO), *words]
    assert "secret" not in str(recorded)
