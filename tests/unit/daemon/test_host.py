"""The host of several roots: what ends one ends no other."""

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llmc.base.errors import LlmcError
from llmc.daemon.host import Host
from llmc.daemon.main import Daemon


class Root:
    """Stands in for the daemon of a root."""

    def __init__(self, name: str, fails: str = "", code: int = 0) -> None:
        self.project = SimpleNamespace(root=SimpleNamespace(path=Path(name)))
        self.exit_code = code
        self.fails = fails
        self.loop: Any = None
        self.did: list[str] = []
        self.told_to_stop = asyncio.Event()

    def begin(self) -> None:
        self.did.append("begin")
        if self.fails == "begin":
            raise LlmcError(f"{self.project.root.path} cannot begin")

    async def serve(self) -> None:
        self.did.append("serve")
        if self.fails == "serve":
            raise RuntimeError("a bug")
        await self.told_to_stop.wait()
        self.did.append("end")

    def told(self, number: signal.Signals) -> None:
        self.did.append(number.name)
        self.told_to_stop.set()


def host_of(*roots: Root) -> Host:
    return Host(cast("list[Daemon]", roots))


class Later(Root):
    """Lets something happen once it serves; then it continues until the host tells it to stop."""

    def __init__(self, name: str, then: Any) -> None:
        super().__init__(name)
        self._then = then

    async def serve(self) -> None:
        self.loop.call_later(0, self._then)
        await super().serve()


def test_what_ends_one_root_ends_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Break: let an error out of `_serve` or `_has_begun`; or gather without them."""
    broken, crashes = Root("/broken", "begin"), Root("/crashes", "serve")
    good = Later("/good", lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert host_of(broken, crashes, good).run() == 1
    assert broken.did == ["begin"]
    assert crashes.did == ["begin", "serve", "SIGTERM"]
    assert good.did == ["begin", "serve", "SIGTERM", "end"]
    assert capsys.readouterr().out.splitlines() == ["/broken: /broken cannot begin", "/crashes: a bug"]


def test_one_root_is_stopped_and_the_others_go_on() -> None:
    """Break: return from `_main` when the first of them has ended."""
    one = Root("/one", code=3)
    two = Later("/two", one.told_to_stop.set)

    def look() -> None:
        if one.did[-1] == "end":
            assert two.did == ["begin", "serve"]
            os.kill(os.getpid(), signal.SIGINT)
        else:
            two.loop.call_soon(look)

    three = Later("/three", look)
    assert host_of(one, two, three).run() == 3, "the code of the one that failed"
    assert one.did == ["begin", "serve", "end", "SIGINT"]
    assert two.did == ["begin", "serve", "SIGINT", "end"]


def test_where_nothing_is_left_to_host_the_error_is_the_commands() -> None:
    """As `llmc up` shows it. Break: print it and return 1; its hint would be lost."""
    with pytest.raises(LlmcError, match="/one cannot begin"):
        host_of(Root("/one", "begin")).run()
    with pytest.raises(RuntimeError, match="a bug"):
        host_of(Root("/one", "serve")).run()
