"""`llmc web`: the fleet in a browser."""

import io
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from urllib.parse import urlsplit

import click

from llmc.api import roots, web_process
from llmc.api.roots import Project
from llmc.api.sign_ins import SignIns
from llmc.base.errors import Exit, LlmcError, UsageError
from llmc.base.text import counted
from llmc.cli.arguments import (
    project_of,
)
from llmc.cli.commands import COMMANDS
from llmc.cli.output import (
    columns,
    has_colours,
    is_terminal,
    is_utf8,
    json_option,
    print_json,
    say,
    say_lines,
    warn,
    write_cleaned,
)

GET_IT = "pip install 'llmc[web]'"
PORT = 8765
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command("web")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0 chooses a free port",
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen on")
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="Accept requests for this host name, for example behind a proxy (repeatable)",
)
@click.option("--read-only", is_flag=True, help="Disable all actions in the browser")
@click.option(
    "--link", "new_link", is_flag=True, help="Print a new sign-in link for the running server and exit"
)
@click.option("--sign-out", is_flag=True, help="Sign out every browser and exit")
@click.option("--detach", is_flag=True, help="Run the server in the background")
@click.option("--stop", is_flag=True, help="Stop this root's server and exit")
@click.option(
    "--no-link", is_flag=True, hidden=True, help="Do not print a sign-in link, to keep it out of logs"
)
@json_option
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
    stop: bool,
    no_link: bool,
    as_json: bool,
) -> int:
    """Show the fleet in a browser

    Prints a link that signs in one browser and works once. The server also works without the daemon. Press Ctrl-C to
    stop the server.

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
        print_json({"signed_out": count}) if as_json else say(f"signed out {counted(count, 'browser')}")
        return 0
    if stop:
        stopped = web_process.stop(project)
        text = "stopped the web server" if stopped else "the web server is not running"
        print_json({"stopped": stopped}) if as_json else say(text)
        return 0
    if new_link:
        _print_link(project, sign_ins, as_json)
        return 0
    _require_installed()
    if detach:
        argv = ["--port", str(port), "--address", address, *(["--read-only"] if read_only else [])]
        argv += [word for name in allowed for word in ("--allow-host", name)]
        pid = web_process.start(project, argv)
        say(f"the web server is running (pid {pid})") if not as_json else None
        _print_link(project, sign_ins, as_json)
        return 0
    say_link = (
        (lambda: say(web_process.SERVING)) if no_link else (lambda: _print_link(project, sign_ins, as_json))
    )
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
    from llmc.web import serving

    def ready(url: str) -> None:
        sign_ins.serves((*(f"https://{name}" for name in allowed), url))
        say_link()

    if address not in LOOPBACK:
        warn(f"other machines may be able to connect to {address}, and connections are not encrypted")
    with web_process.serving(project):
        return serving.serve(
            project, sign_ins, address, port, allowed, ready, commands=COMMANDS, read_only=read_only
        )


def _print_link(project: Project, sign_ins: SignIns, as_json: bool) -> None:
    urls = sign_ins.serving() if web_process.pid_of(project) is not None else ()
    if not urls:
        raise LlmcError(
            "cannot create a sign-in link: the web server is not running",
            hint="Run `llmc web` to start the server; it prints a link.",
        )
    secret = sign_ins.new_link()
    links = [f"{url}/login?link={secret}" for url in urls]
    if as_json:
        print_json({"url": links[0], "urls": links})
        return
    say("Open this link to sign in. It works once and expires in 10 minutes:")
    for link in links:
        say(f"  {link}")
    if is_terminal() and find_spec("segno") is not None:
        _print_code(links[0])


def _print_code(link: str) -> None:
    """Print the link as a QR code, if useful and possible. White on black: not every phone reads inverted codes."""
    if urlsplit(link).hostname in LOOPBACK:
        return
    import segno

    drawn = io.StringIO()
    segno.make(link, error="l").terminal(out=drawn, compact=True)
    lines = drawn.getvalue().splitlines()
    begin, end = ("\033[97;40m", "\033[0m") if has_colours() else ("", "")
    if len(lines[0]) <= columns() and is_utf8():
        write_cleaned("".join(f"{begin}{line}{end}\n" for line in lines).encode())


def _require_installed() -> None:
    if not is_installed():
        raise UsageError("the web server requires starlette, uvicorn and websockets", hint=f"Run: {GET_IT}")


def start_beside(project: Project) -> None:
    """Start the server in the background with its default settings, unless it is running, and print a link."""
    _require_installed()
    if web_process.pid_of(project) is None:
        web_process.start(project, [])
    _print_link(project, SignIns(project.root), as_json=False)


#: exit codes of a command that did not start
_NOT_STARTED = (Exit.USAGE, Exit.REFUSED, Exit.NOT_FOUND)
#: what a unit runs, and the exit codes after which a restart cannot help; each stays in the foreground
_SERVICES: dict[str, tuple[str, tuple[str, ...], tuple[Exit, ...]]] = {
    "web": ("llmc web server", ("web", "--no-link"), ()),
    "auto": ("llmc auto mode", ("up", "--auto"), (Exit.FAILED, *_NOT_STARTED)),
    "overseer": ("llmc supervisor", ("overseer",), (*_NOT_STARTED, Exit.SPIRAL, Exit.MANUAL, Exit.HUMAN)),
}


@click.command("service")
@click.argument("what", type=click.Choice(list(_SERVICES)), default="web")
@click.pass_context
def service(ctx: click.Context, what: str) -> None:
    """Print a systemd unit that keeps llmc running

    The unit runs as your user, for this root. Save the output as a unit file, then enable the unit. systemd restarts the
    command after a crash, but not if auto mode or the supervisor stops because it needs you.

    \b
    Examples:
      llmc service web > ~/.config/systemd/user/llmc-web.service
      systemctl --user enable --now llmc-web
    """
    project = project_of(ctx)
    about, words, final = _SERVICES[what]
    command = [sys.executable, "-m", "llmc", "--root", str(project.root.path), *words]
    path = os.environ.get("PATH", os.defpath)
    never = f"\nRestartPreventExitStatus={' '.join(str(int(code)) for code in final)}" if final else ""
    say_lines(f"""[Unit]
Description={about} for {_quoted(str(project.root.path))}

[Service]
ExecStart={" ".join(_quoted(word) for word in command)}
Environment={_quoted(f"PATH={path}")}
Restart=on-failure
RestartSec=30{never}
KillMode=process

[Install]
WantedBy=default.target""")


def _quoted(word: str) -> str:
    """An argument, quoted for a systemd unit."""
    if word.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum():
        return word.replace("%", "%%")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
