"""The daemon's log, daemon.jsonl: one JSON object per line, with a stable `action`."""

import errno
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from llmc.base.files import append_line
from llmc.base.text import visible
from llmc.base.urls import scrub, scrub_all

#: errors after which the terminal or the pipe is gone for good; a full disk is not one of them
_NO_READER = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO)
_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None)))


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        body: dict[str, Any] = {
            "ts": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **extra,
        }
        if (
            record.levelno >= logging.WARNING
        ):  # the supervisor acts on it, so it always has the kind of failure
            body = {**body, "action": body.get("action", "failed"), "cause": body.get("cause") or "bug"}
        if record.exc_info:
            body["traceback"] = self.formatException(record.exc_info)
        return json.dumps(scrub_all(body), ensure_ascii=False, default=lambda value: scrub(str(value)))


class Appender(logging.Handler):
    """Opens the file for each line, so that it can be rotated at any time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        try:
            append_line(self._path, self.format(record).encode(errors="replace"))
        except Exception:
            self.handleError(record)


def open_log(path: Path) -> logging.Logger:
    """The log of one daemon; only its own code writes to it. With LLMC_TRACE it logs every write.

    Not from `logging.getLogger`: that has one logger per name and process, and a process may have several daemons.
    """
    logger = logging.Logger("llmc.daemon", logging.DEBUG if os.environ.get("LLMC_TRACE") else logging.INFO)
    path.touch(mode=0o600)
    handler = Appender(path)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    return logger


def say(text: str, *, bell: bool = False) -> None:
    """Print a line for the user of `llmc up`, if there is one. It may contain untrusted text."""
    try:
        encoding = sys.stdout.encoding or "utf-8"
        shown = visible(text).encode(encoding, "replace").decode(encoding)
        print(shown + ("\a" if bell else ""), flush=True)
    except OSError as error:
        if error.errno in _NO_READER:
            sys.stdout = open("/dev/null", "w")
