"""`llmc status` for people: the commands it offers work, and it is plain when not on a terminal."""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.support.fleet import Fleet, Result
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
TASK = f"Say hello\n@sh echo hello >> hello.txt; git add -A; {COMMIT} 'Say hello'"


def offered(fleet: Fleet) -> str:
    """The command at the end of adam's line, or in the line below that starts with `next:`."""
    text = re.sub(r"\nAttention\n(.+\n)+", "", fleet.llmc("status").out)
    (found,) = re.findall(
        r"llmc (?!up\))[a-z]+ adam.*|llmc .* adam.*|next: llmc up --detach|llmc up --detach$",
        text,
        re.MULTILINE,
    )
    return str(found).removeprefix("next: ").partition(", or ")[0]


def follow(fleet: Fleet, verb: str, **env: str) -> Result:
    """Run what the status offers, which must be this."""
    command = offered(fleet)
    assert command.startswith(f"llmc {verb}"), fleet.llmc("status").out
    return fleet.llmc(*shlex.split(command)[1:], **env)


@pytest.mark.soak
def test_a_life_by_doing_what_the_status_offers(scripted: Fleet) -> None:
    """From `up` to the accepted commit, past a hold and a kill -9, using only commands that status names.

    Break: offer `accept` for a held worker, or nothing where an accept was interrupted.
    """
    scripted.set_up("adam")
    editor = scripted.dir / "editor"
    editor.write_text(f'#!/bin/sh\ncat > "$1" <<"END"\n{TASK}\nEND\n')
    editor.chmod(0o755)
    writes = {"EDITOR": str(editor), "VISUAL": str(editor)}
    assert offered(scripted) == "llmc up --detach"
    scripted.up()
    follow(scripted, "start", **writes)
    scripted.wait("adam", "needs_review")
    assert "Say hello\n" in scripted.llmc("status").out, "the subject of its commit"
    follow(scripted, "review")
    scripted.llmc("hold", "adam")
    scripted.llmc("accept", "adam", code=3)
    follow(scripted, "release")
    scripted.kill_daemon()
    scripted.llmc("accept", "adam", code=-9, LLMC_FAULT="accept.validate:before:kill")
    assert "(accepting: validate)" in scripted.llmc("status").out
    follow(scripted, "accept")
    assert scripted.log()[0] == "Say hello"
    scripted.llmc("start", "--worker", "adam", "--prompt", "@ask Which colour?")
    scripted.wait("adam", "needs_input")
    assert offered(scripted) == "llmc answer adam", "a message would answer the dialog"
    scripted.answer_dialog("adam", "Escape")
    wait_until(lambda: offered(scripted) == "llmc message adam")
    follow(scripted, "message", **writes)
    scripted.wait("adam", "needs_review")


def on_a_terminal(fleet: Fleet, columns: int, *options: str, until: str = "", **env: str) -> str:
    """What `llmc status` writes to a terminal of that width; Ctrl-C once it has written `until` twice."""
    master, slave = pty.openpty()
    argv = [sys.executable, "-m", "llmc", "status", *options]
    size = {"COLUMNS": str(columns), "LINES": "9"}
    environment = {key: value for key, value in fleet.env.items() if key != "NO_COLOR"}
    program = subprocess.Popen(
        argv, cwd=fleet.source, env={**environment, **size, **env}, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    found = ""
    with suppress(OSError):  # the other side is closed: everything was read
        while part := os.read(master, 65536):
            found += part.decode()
            if until and found.count(until) >= 2:
                program.send_signal(signal.SIGINT)
                until = ""
    os.close(master)
    assert program.wait(30) == (130 if "--watch" in options else 0), found
    return found.replace("\r\n", "\n")


def ageless(text: str) -> str:
    """Without colors, and without what changes every second."""
    return re.sub(r" +[0-9]+s", " 0s", re.sub(r"\033\[[0-9;]*m", "", text))


def test_colours_and_width_are_for_a_terminal_only(scripted: Fleet) -> None:
    """Break: use COLUMNS where standard output is not a terminal, or ignore NO_COLOR on one."""
    scripted.set_up("adam")
    piped = scripted.llmc("status", COLUMNS="200", NO_COLOR="").out
    assert "\033" not in piped
    assert ageless(piped) == ageless(scripted.llmc("status", COLUMNS="60").out)
    shown = on_a_terminal(scripted, 80)
    assert "\033[2m[offline]\033[0m" in shown
    assert ageless(shown) == ageless(piped)
    without = on_a_terminal(scripted, 44, NO_COLOR="1")
    assert "\033" not in without
    assert max(map(len, without.splitlines())) <= 44 < max(map(len, piped.splitlines()))


def test_watch_stays_on_one_screen(scripted: Fleet) -> None:
    """Each frame is drawn over the previous one, and cut at the end of the screen; Ctrl-C ends it.

    Break: print the frames one below the other, or all of a long one.
    """
    scripted.set_up("adam", "baker", "charlie", "dora", "edward", "frank", "george")
    shown = on_a_terminal(scripted, 80, "--watch", "--interval", "0.1", until="to quit")
    frames = re.findall(r"\033\[H(.*?)\033\[J", shown, re.DOTALL)
    assert len(frames) >= 2
    for frame in frames:
        assert str(scripted.root) in frame
        assert "... and 5 more lines" in frame
        assert "refreshing every 0.1 s; press Ctrl-C to quit" in frame
        assert frame.count("\n") < 9
