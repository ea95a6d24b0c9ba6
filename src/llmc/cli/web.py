"""`llmc web`: the fleet in a browser."""

import sys
from collections.abc import Callable
from importlib.util import find_spec

import click

from llmc.api import roots
from llmc.api.roots import Project
from llmc.api.running import SERVING, start_web
from llmc.api.sign_ins import SignIns
from llmc.base.errors import LlmcError, UsageError
from llmc.cli.arguments import project_of
from llmc.cli.output import is_terminal, print_json, say

GET_IT = "pip install 'llmc[web]'"
PORT = 8765


@click.command("web")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0 for any",
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on")
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="Host name under which a proxy serves the page",
)
@click.option("--read-only", is_flag=True, help="Show everything, change nothing")
@click.option(
    "--link", "new_link", is_flag=True, help="Print a new sign-in link for the running server, and exit"
)
@click.option("--sign-out", is_flag=True, help="Sign out every browser, and exit")
@click.option("--detach", is_flag=True, help="Run in the background")
@click.option("--no-link", is_flag=True, hidden=True, help="Print no link: it would stay in a log")
@click.option("--json", "as_json", is_flag=True, help="Print machine-readable output")
@click.pass_context
def web(
    ctx: click.Context,
    port: int,
    address: str,
    allowed: tuple[str, ...],
    read_only: bool,
    new_link: bool,
    sign_out: bool,
    detach: bool,
    no_link: bool,
    as_json: bool,
) -> int:
    """Show the fleet in a browser

    Prints a link that signs one browser in; it works once. The server needs no daemon, and stops with Ctrl-C.

    \b
    Examples:
      llmc web
      llmc web --link
      llmc web --allow-host laptop.tailnet.ts.net
    """
    project = project_of(ctx)
    roots.require_state(project)
    sign_ins = SignIns(project.root)
    if sign_out:
        count = sign_ins.sign_out()
        print_json({"signed_out": count}) if as_json else say(f"signed out {count} browsers")
        return 0
    if new_link:
        _print_link(sign_ins, as_json)
        return 0
    if not is_installed():
        raise UsageError("the web page needs starlette and uvicorn", hint=f"Run: {GET_IT}")
    if detach:
        argv = ["--port", str(port), "--address", address, *(["--read-only"] if read_only else [])]
        argv += [word for name in allowed for word in ("--allow-host", name)]
        pid = start_web(project, argv)
        say(f"the web page is running (pid {pid})") if not as_json else None
        _print_link(sign_ins, as_json)
        return 0
    say_link = (lambda: say(SERVING)) if no_link else (lambda: _print_link(sign_ins, as_json))
    return _serve(project, sign_ins, address, port, allowed, read_only, say_link)


def is_installed() -> bool:
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn", "websockets"))


def _serve(
    project: Project,
    sign_ins: SignIns,
    address: str,
    port: int,
    allowed: tuple[str, ...],
    read_only: bool,
    say_link: Callable[[], None],
) -> int:
    from llmc.web import run

    def ready(url: str) -> None:
        sign_ins.serves((*(f"https://{name}" for name in allowed), url))
        say_link()

    if address not in ("127.0.0.1", "::1", "localhost"):
        say(f"warning: {address} is reachable from other machines, and the connection is not encrypted")
    return run.serve(project, sign_ins, address, port, allowed, ready, read_only=read_only)


def _print_link(sign_ins: SignIns, as_json: bool) -> None:
    urls = sign_ins.serving()
    if not urls:
        raise LlmcError("the web page is not running", hint="Start it: llmc web")
    url = f"{urls[0]}/login?link={sign_ins.new_link()}"
    if as_json:
        print_json({"url": url})
        return
    say(f"Open this link to sign in. It works once, for 10 minutes:\n  {url}")
    if is_terminal() and find_spec("segno") is not None:
        import segno

        segno.make(url, error="l").terminal(out=sys.stdout, compact=True)
