"""Review before landing: `llmc review` and `llmc reject`."""

import os
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any

import click
from msgspec import to_builtins

from llmc.api import commenting, reviews, roots
from llmc.api.reviews import FileChange, Review
from llmc.api.roots import Project
from llmc.base import proc
from llmc.base.errors import LlmcError, Refused, UnknownWorker, UsageError
from llmc.base.text import counted, in_line, indented, printable, some_files, visible
from llmc.cli.arguments import (
    WORKER,
    Row,
    message_file_option,
    optional_worker,
    pass_project,
    show_receipt,
    text_to_send,
)
from llmc.cli.output import (
    cleaned,
    columns,
    has_colours,
    is_terminal,
    json_option,
    note,
    paint,
    plain,
    print_json,
    say,
    say_lines,
    warn,
    write_cleaned,
)
from llmc.cli.overview import age

INTERFACES = ("diff", "difftastic", "vscode")


@click.command("review")
@optional_worker
@click.option(
    "--interface",
    "-i",
    type=click.Choice(INTERFACES),
    help="Tool to show the diff with [default: difftastic if installed, else diff]",
)
@click.option(
    "--name-only",
    is_flag=True,
    help="Show only the names of changed files, without marking the work as reviewed",
)
@click.option("--comments", "comments", is_flag=True, help="Show only your comments on the changes")
@json_option
@pass_project
def review(
    project: Project,
    worker: str | None,
    interface: str | None,
    name_only: bool,
    comments: bool,
    as_json: bool,
) -> None:
    """Review the changes a worker wants to land

    Shows the worker's commits and the diff against the default branch. If the default branch has moved, llmc rebases the
    commits first; on conflicts, llmc asks the worker to resolve them. If the worker has not finished, shows its work so
    far, committed or not, and changes nothing.

    llmc remembers what you reviewed; accept warns you if a different change would land.

    \b
    Examples:
      llmc review                    # the worker that has waited longest
      llmc review adam --interface vscode
      llmc review adam --comments    # your comments, sent or not
    """
    name = reviews.choose(project, worker)
    if comments:
        _show_comments(commenting.page(project, name), as_json)
        return
    show = interface or ("difftastic" if shutil.which("difft") else "diff")
    if not (as_json or name_only):
        _check_installed(show)
    shown = reviews.begin(project, name)
    if as_json:
        print_json(_view(shown, with_diff=not name_only))
    elif name_only:
        say_lines(_head(shown, time.time(), project.config.repo.default_branch), err=True)
        for file in shown.files:
            say(in_line(file.path))
    else:
        _show(project, shown, _head(shown, time.time(), project.config.repo.default_branch), show)
    if shown.so_far:
        return  # unfinished work does not count as reviewed
    has_agent = reviews.end(project, shown, seen=not name_only)
    if not as_json and not has_agent:
        note(f"next: llmc up --detach, then llmc accept {shown.worker} or llmc reject {shown.worker} ...")
    elif not as_json and shown.dirty:
        note(f"next: {reviews.after_dirty(shown.worker)}")
    elif not as_json:
        note(f"next: llmc accept {shown.worker}   or: llmc reject {shown.worker} ...")


def _show_comments(page: commenting.Page, as_json: bool) -> None:
    """Print every comment with its current place; `llmc reject --comments` sends the drafts."""
    if as_json:
        rows = [
            {
                **to_builtins(one.comment),
                "anchor": to_builtins(one.anchor),
                "lines_changed": one.lines_changed,
                "claimed": one.claimed,
            }
            for one in page.comments
        ]
        print_json({"worker": page.worker, "round": page.round, "comments": rows})
        return
    for one in page.comments:
        state = f"round {one.comment.round}, {one.standing}" if one.comment.round else one.standing
        where = (
            ""
            if one.anchor is None
            else in_line(one.anchor.path) + (f":{one.anchor.line}" if one.anchor.line else "")
        )
        say(f"{one.comment.id}  {state}  {where}  {in_line(one.comment.text)}".replace("    ", "  "))
    if not page.comments:
        say(f"no comments on {page.worker}; to add one, press c on a line of the diff in `llmc ui`")
    elif page.drafts:
        note(f"next: llmc reject {page.worker} --comments")


def _view(review: Review, *, with_diff: bool) -> Row:
    change = ("base", "head", "ahead", "behind", "commits", "message", "author", "author_date", "files")
    caveats = ("dirty", "left_out", "conflicts", "warnings")
    return {
        **plain(review, "worker", "not_rebased", "prompt"),
        **_text(plain(review, *change, *caveats)),
        "so_far": review.so_far or None,
        "diff": _text(review.diff) if with_diff else "",
    }


def _head(review: Review, now: float, branch: str) -> str:
    """Worker, age, commits, files and warnings."""
    waited = age(max(0.0, now - review.since_unix))
    state = f"{review.so_far} ({waited}); work so far:" if review.so_far else f"waiting for review ({waited})"
    lines = [paint(f"{review.worker}  {state}", "yellow", bold=True)]
    lines += [f"  {printable(line)}" for line in review.prompt.strip().splitlines()[:10]]
    lines += [f"{commit.sha[:12]} {in_line(commit.subject)}" for commit in review.commits]
    if review.commits and not review.so_far:
        lines += _said(review)
    lines += [f"  {_stat(file)}" for file in review.files]
    if review.so_far:
        return "\n".join([*lines, *_so_far(review)])
    if not review.diff and not review.too_large:
        lines.append(paint("  no changes", "red"))
    if review.behind:
        lines.append(
            paint(
                f"note: {branch} is {counted(review.behind, 'commit')} ahead; {_why_behind(review)}", "yellow"
            )
        )
    lines += [paint(f"warning: {in_line(text)}", "red") for text in review.warnings]
    if review.stale:
        lines.append(paint(f"note: cannot fetch {branch}: {review.stale}", "yellow"))
    if review.dirty:
        lines.append(paint(f"note: uncommitted files are not included: {some_files(review.dirty)}", "red"))
    return "\n".join(lines)


def _said(review: Review) -> list[str]:
    """Author and message of the commit that lands, as git shows them."""
    who = [f"Author: {in_line(review.author)}", f"Date:   {review.author_date}"]
    return [*who, indented(review.message)] if review.has_longer_message else who


def _so_far(review: Review) -> list[str]:
    """Notes on unfinished work."""
    lines = [] if review.diff or review.too_large else ["  no changes"]
    lines += [paint(f"warning: {in_line(text)}", "red") for text in review.warnings]
    if review.dirty:
        lines.append(paint(f"note: uncommitted files: {some_files(review.dirty)}", "yellow"))
    if review.left_out:
        lines.append(
            paint(
                f"note: files not shown (too large or nested repositories): {some_files(review.left_out)}",
                "yellow",
            )
        )
    return lines


def _why_behind(review: Review) -> str:
    why = f"the commits were not rebased ({review.not_rebased}); " if review.not_rebased else ""
    if review.conflicts:
        return f"{why}the commits conflict in {some_files(review.conflicts)}, so the diff is against the merge base"
    return f"{why or '`llmc accept` rebases the commits first; '}the diff shows what would land"


def _stat(file: FileChange) -> str:
    counts = "binary" if file.added is None else f"+{file.added} -{file.deleted}"
    old = "" if file.renamed_from is None else f"{in_line(file.renamed_from)} => "
    return f"{counts:<12} {old}{in_line(file.path)}"


def _show(project: Project, review: Review, head: str, interface: str) -> None:
    if interface == "vscode":
        say_lines(head)
        reviews.open_difftool(project, review, "code --wait --diff")
        return
    tool = _difftastic if interface == "difftastic" else _diff
    body = b"" if review.too_large else _shown(lambda colour: tool(project, review, colour))
    _page(project, review.worker, cleaned(f"{head}\n\n" if body else f"{head}\n") + body)


def _shown(diff: Callable[[str], str]) -> bytes:
    """The diff for the terminal. Control characters in the change are escaped (`^[`), and then there are no colors:
    an escape sequence could come from the change instead of the tool."""
    plain = diff("never")
    is_harmless = visible(plain) == plain
    if has_colours() and is_harmless:
        return diff("always").encode("utf-8", "replace")
    return cleaned(plain)


def _diff(project: Project, review: Review, colour: str) -> str:
    """The diff as the user's git shows it, but without an external diff program."""
    return reviews.diff(project, review, "--no-ext-diff", f"--color={colour}", "--find-renames")


def _difftastic(project: Project, review: Review, colour: str) -> str:
    env = {
        "GIT_EXTERNAL_DIFF": "difft",
        "DFT_COLOR": colour,
        "DFT_WIDTH": str(columns()),
        "LC_ALL": "C.UTF-8",
    }
    return reviews.diff(project, review, "--ext-diff", env=env)


#: exit codes of a shell that cannot run the pager
_NO_PAGER = (126, 127)
#: the user quit the pager, or did not read to the end
_QUIT = (0, -signal.SIGINT, 128 + signal.SIGINT, -signal.SIGPIPE, 128 + signal.SIGPIPE)


def _page(project: Project, worker: str, data: bytes) -> None:
    """Show the data in the pager that git would use. Raises an error if the pager fails: the user saw nothing."""
    if not is_terminal():
        write_cleaned(data)
        return
    # clean_env drops GIT_PAGER, which is the user's choice here. LESS and LV as git sets them.
    chosen = {key: os.environ[key] for key in ("GIT_PAGER",) if key in os.environ}
    pager = reviews.pager(project, chosen)
    if pager in ("", "cat"):
        write_cleaned(data)
        return
    code = proc.run_attached(
        ["/bin/sh", "-c", pager], env={"LESS": "FRX", "LV": "-c", **proc.command_env()}, input=data
    )
    if code in _NO_PAGER:
        warn(f"cannot run the pager `{pager}`; set core.pager in your git config, or $GIT_PAGER")
        write_cleaned(data)
    elif code not in _QUIT:
        raise LlmcError(
            f"the pager `{pager}` failed with exit code {code}; the work is not marked as reviewed",
            hint=f"To review without a pager: GIT_PAGER=cat llmc review {worker}",
        )


def _check_installed(interface: str) -> None:
    program = {"difftastic": "difft", "vscode": "code"}.get(interface)
    if program and shutil.which(program) is None:
        fix = "https://difftastic.wilfred.me.uk" if program == "difft" else "https://code.visualstudio.com"
        raise proc.ToolMissing(
            f"{program} is not installed or not on PATH",
            hint=f"Install it ({fix}), or run: llmc review --interface diff",
        )


def _text(value: Any) -> Any:
    """Replace bytes that are not UTF-8, in all texts of a value."""
    match value:
        case str():
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        case dict():
            return {key: _text(one) for key, one in value.items()}
        case list() | tuple():
            return [_text(one) for one in value]
    return value


#: one word may be a misspelled worker name, so it is not sent as feedback
_ONE_WORD = re.compile(r"([\w.-]+/)?[a-z][a-z0-9-]{0,30}")


@click.command("reject")
@optional_worker
@click.argument("message", required=False)
@click.option(
    "--worker",
    "-w",
    "named",
    metavar="WORKER",
    type=WORKER,
    help="Worker to send the message to",
)
@message_file_option
@click.option(
    "--comments",
    "comments",
    is_flag=True,
    help="Send all your draft comments, with the message if there is one",
)
@json_option
@pass_project
def reject(
    project: Project,
    worker: str | None,
    message: str | None,
    named: str | None,
    file: str | None,
    comments: bool,
    as_json: bool,
) -> int:
    """Request changes from a worker

    Sends your message and the diff to the worker, which then amends its commit. Without a message, opens $EDITOR.

    \b
    Examples:
      llmc reject "Keep the old name as an alias"  # the worker reviewed last
      llmc reject adam "Keep the old name as an alias"
      llmc reject adam --file notes.md
      llmc reject adam --comments   # the comments from `llmc ui`
    """
    name, text = _whom_and_what(project, [a for a in (worker, message) if a is not None], named, file)
    roots.require_worker(project, name)
    if comments:
        general = text_to_send(text, file, "message") if text is not None or file is not None else ""
        return show_receipt(commenting.send(project, name, general), as_json)
    feedback = text_to_send(text, file, "message")
    return show_receipt(reviews.reject(project, name, feedback), as_json)


def _whom_and_what(
    project: Project, given: list[str], named: str | None, file: str | None
) -> tuple[str, str | None]:
    """The worker and the message; one argument alone can be either."""
    if named is not None:
        if len(given) > 1:
            raise UsageError("WORKER and --worker cannot be used together")
        return named, given[0] if given else None
    if len(given) == 2:
        return given[0], given[1]
    if given and (file is not None or given[0] in roots.worker_names(project)):
        return given[0], None
    last = reviews.reviewed_last(project)
    if given and _ONE_WORD.fullmatch(given[0]):
        meant = last or "WORKER"
        raise UnknownWorker(
            given[0],
            hint=f"If this is the message, run: llmc reject {meant} {shlex.quote(given[0])}",
        )
    if last is None:
        raise Refused(
            "cannot tell which worker you mean: you have not reviewed any work that is still waiting",
            hint="Run `llmc review` first, or run `llmc reject WORKER ...`.",
        )
    return last, given[0] if given else None
