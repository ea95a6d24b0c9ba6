"""Passwords in URLs are removed, and nothing else is."""

import logging

import pytest

from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.urls import Remote, scrub, scrub_all, split
from llmc.daemon.log import JsonLines
from llmc.records.state import State
from llmc.records.store import Transaction

URL = "https://me:s3cret@host.example:8443/a/b.git"


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        (URL, Remote("https://host.example:8443/a/b.git", "me", "s3cret")),
        ("https://me:p%40%3As%2F@host/x", Remote("https://host/x", "me", "p@:s/")),
        ("https://me:a@b@host/x", Remote("https://host/x", "me", "a@b")),
        ("https://token@host/x", Remote("https://host/x", "token", "")),
        ("HTTP://u:p@host/x", Remote("HTTP://host/x", "u", "p")),
        ("https://host/x@y", Remote("https://host/x@y")),
        ("ssh://git@host/x", Remote("ssh://git@host/x")),
        ("git@host:x.git", Remote("git@host:x.git")),
        ("/home/a@b/c", Remote("/home/a@b/c")),
        ("file:///a@b", Remote("file:///a@b")),
    ],
)
def test_split(url: str, parts: Remote) -> None:
    assert split(url) == parts


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"fatal: '{URL}': no", "fatal: 'https://***@host.example:8443/a/b.git': no"),
        ("https://ghp_token@host/x and http://u:p@h", "https://***@host/x and http://***@h"),
        ("ssh://git@host/x ssh://git:pw@host/x", "ssh://git@host/x ssh://git:***@host/x"),
        ("https://me:a@b@host/x", "https://***@host/x"),
        ("mail a@b, see https://host/x", "mail a@b, see https://host/x"),
        ("git@host:x.git", "git@host:x.git"),
        ("https://docs.host/@scope/x@1", "https://docs.host/@scope/x@1"),
    ],
)
def test_scrub(text: str, clean: str) -> None:
    assert scrub(text) == clean
    assert scrub(clean) == clean


def test_every_door() -> None:
    """Break: leave one of them unscrubbed."""
    failed = ToolFailed(["git", "push", URL], 128, f"fatal: unable to access '{URL}/'", hint=f"see {URL}")
    for text in (str(failed), failed.message, failed.hint, failed.stderr, *failed.argv, repr(failed)):
        assert "s3cret" not in text
    long = ToolFailed(
        ["git", "x" * 270, "https://me:s3cret" + "x" * 50 + "@host/"], 1, f"{'x' * 50}@host {'y' * 1990}"
    )
    assert "s3cret" not in long.message
    assert "s3cret" not in str(LlmcError(URL, hint=URL))
    tx = Transaction(State())
    tx.emit("push_failed", reason=URL, ref=[URL], step={"x": (URL,)})
    tx.raise_item("x", kind="bad_input", severity="notice", who="", text=URL, next=URL)
    assert "s3cret" not in str(tx.emitted)
    assert "s3cret" not in str(tx.state)
    record = logging.LogRecord("x", logging.ERROR, "", 0, "failed at %s", (URL,), None)
    record.detail = {"url": URL}
    try:
        raise ValueError(URL)
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    assert "s3cret" not in JsonLines().format(record)
    assert scrub_all({"a": [URL, 3, None]}) == {"a": ["https://***@host.example:8443/a/b.git", 3, None]}
