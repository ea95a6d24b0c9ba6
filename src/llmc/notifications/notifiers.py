"""Notification channels: terminal bell, desktop, a command, a webhook, Apprise. Each has a timeout.

Error texts contain no addresses, because an address often contains a token.
"""

import http.client
import importlib
import logging
import os
import shutil
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from llmc.base import proc
from llmc.base.errors import LlmcError
from llmc.base.text import json_text
from llmc.config.model import Notify
from llmc.notifications.rules import scrubbed

APPRISE_HINT = "pip install 'llmc[notify]'"
_DESKTOP = "notify-send"


class Result(StrEnum):
    TOLD = "told"
    #: not available here, and not an error
    SKIPPED = "skipped"
    FAILED = "failed"


class Outcome(Struct, frozen=True):
    """The result of a notification on one channel."""

    channel: str
    result: Result
    reason: str = ""


class NotTold(Exception):
    """Delivery on a channel failed; the text says why, and is safe to log."""


class NoSuchWay(Exception):
    """The channel is not available here."""


Message = Mapping[str, Any]
Channel = Callable[[Message, float], None]


def tell(channels: Mapping[str, Channel], message: Message, timeout_s: float) -> list[Outcome]:
    """Notify all channels in parallel, with a timeout."""
    found: dict[str, Outcome] = {}

    def run(name: str, channel: Channel) -> None:
        found[name] = _tried(name, channel, message, timeout_s)

    threads = [
        threading.Thread(target=run, args=item, name=f"notify-{item[0]}", daemon=True)
        for item in channels.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s + 0.5
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"no response within {timeout_s:g} s"
    return [found.get(name) or Outcome(name, Result.FAILED, late) for name in channels]


def _tried(name: str, channel: Channel, message: Message, timeout_s: float) -> Outcome:
    try:
        channel(message, timeout_s)
    except NoSuchWay as error:
        return Outcome(name, Result.SKIPPED, str(error))
    except NotTold as error:
        return Outcome(name, Result.FAILED, str(error))
    except Exception as error:  # a bug in one channel must not silence the others
        return Outcome(name, Result.FAILED, type(error).__name__)  # its text may contain an address
    return Outcome(name, Result.TOLD)


def bell(message: Message, timeout_s: float) -> None:
    """Ring the bell of llmc's output, or of the terminal it was started from."""
    if sys.stdout.isatty():
        sys.stdout.write("\a")
        sys.stdout.flush()
        return
    try:
        fd = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NoSuchWay("no terminal is available") from error
    try:
        os.write(fd, b"\a")
    except OSError as error:
        raise NotTold(f"cannot write to the terminal: {error.strerror}") from error
    finally:
        os.close(fd)


def desktop(message: Message, timeout_s: float) -> None:
    if shutil.which(_DESKTOP) is None:
        raise NoSuchWay(f"{_DESKTOP} is not installed")
    argv = [_DESKTOP, "--app-name=llmc", "--", str(message["title"]), str(message["body"])]
    _run(argv, None, timeout_s)


def command(line: str) -> Channel:
    """A channel that runs the user's command."""

    def send(message: Message, timeout_s: float) -> None:
        # One line, so that `cat >> file` writes JSON lines.
        _run(["/bin/sh", "-c", line], f"{json_text(message)}\n".encode(), timeout_s)

    return send


def _run(argv: list[str], data: bytes | None, timeout_s: float) -> None:
    try:
        done = proc.run(argv, input=data, env=proc.command_env(), timeout_s=timeout_s, check=False, cwd="/")
    except LlmcError as error:  # its text contains the command line
        started = not isinstance(error.__cause__, OSError)
        raise NotTold(f"timed out after {timeout_s:g} s" if started else "could not be started") from error
    if not done.ok:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        said = f": {scrubbed(last[0])[:200]}" if last else ""
        raise NotTold(f"exit code {done.returncode}{said}")


def webhook(url: str) -> Channel:
    def send(message: Message, timeout_s: float) -> None:
        data = json_text(message).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "llmc"}
        try:
            request = urllib.request.Request(url, data=data, headers=headers, method="POST")
            with urllib.request.urlopen(request, timeout=timeout_s):
                pass
        except urllib.error.HTTPError as error:
            error.close()
            raise NotTold(f"HTTP status {error.code}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotTold(_network_problem(error, timeout_s)) from None

    return send


def _network_problem(error: Exception, timeout_s: float) -> str:
    """The problem in our own words: the library's message may contain the address."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case TimeoutError():
            return f"no response within {timeout_s:g} s"
        case socket.gaierror():
            return "host not found"
        case ssl.SSLError():
            return "TLS error: the certificate is invalid, or the server does not support TLS"
        case OSError() if reason.strerror:
            return reason.strerror
        case ValueError() | http.client.InvalidURL():
            return "invalid URL"
    return "invalid HTTP response"


def apprise_problem() -> str:
    """Why Apprise cannot be used; "" if it can."""
    try:
        importlib.import_module("apprise")
    except ImportError:
        return f"Apprise is not installed; to install it: {APPRISE_HINT}"
    return ""


def apprise(url: str) -> Channel:
    def send(message: Message, timeout_s: float) -> None:
        problem = apprise_problem()
        if problem:
            raise NotTold(problem)
        log = logging.getLogger("apprise")  # its log may contain the address
        log.propagate = False
        log.addHandler(logging.NullHandler())
        module: Any = importlib.import_module("apprise")
        service = module.Apprise()
        if not service.add(url):
            raise NotTold("Apprise does not support this URL")
        if not service.notify(title=str(message["title"]), body=str(message["body"] or message["title"])):
            raise NotTold("the service rejected the message")

    return send


#: every channel with an option of its own in [notify]; a new one is a function and a row here
CHANNELS: Mapping[str, Callable[[Notify], Channel | None]] = {
    "bell": lambda options: bell if options.bell else None,
    "desktop": lambda options: desktop if options.desktop else None,
    "command": lambda options: command(options.command) if options.command else None,
    "webhook": lambda options: webhook(options.webhook) if options.webhook else None,
}
