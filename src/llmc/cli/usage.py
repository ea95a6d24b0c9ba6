"""llmc usage"""

import time
from collections.abc import Callable
from datetime import date
from typing import Any

import click
import msgspec

from llmc.auto.prices import prices_of
from llmc.auto.rules.costs import Row, Spent, complaint, priced, sums
from llmc.auto.usage import rows
from llmc.cli.arguments import parse_since, project_of
from llmc.cli.output import json_option, note, print_json, say
from llmc.config.toml_text import join_key

NO_TASK = "(no task)"
KEYS: dict[str, Callable[[Row], str]] = {
    "worker": lambda row: row.worker,
    "task": lambda row: NO_TASK if row.task_id is None else row.task_id,
    "day": lambda row: time.strftime("%Y-%m-%d", time.localtime(row.ts)),
    "model": lambda row: row.model,
}


@click.command("usage")
@click.option(
    "--by", type=click.Choice(list(KEYS)), default="worker", show_default=True, help="One line each."
)
@click.option(
    "--since", metavar="T", default="0", help="From this time on: unix seconds, ISO 8601, or like 12h."
)
@json_option
@click.pass_context
def usage(ctx: click.Context, by: str, since: str, as_json: bool) -> None:
    """Show the tokens that agents used, and what they cost (`llmc prices list`).

    Token limits count input, output and what is written to the cache; cache reads are billed, but do not count toward limits.

    \b
    Examples:
      llmc usage --by task --since 12h
      llmc usage --by day --json
    """
    since_unix = parse_since(since, time.time())
    project = project_of(ctx)
    tallies = sums((KEYS[by](row), row) for row in rows(project, since_unix))
    prices = prices_of(project)
    spent = {key: priced(prices, tally) for key, tally in tallies.items()}
    total = priced(prices, sum(tallies.values(), Spent()))
    keys = sorted(spent) if by == "day" else sorted(spent, key=lambda key: (-_weight(spent[key], total), key))
    if as_json:
        lines = [_view(spent[key], total, **{by: None if key == NO_TASK else key}) for key in keys]
        print_json({"by": by, "since_unix": since_unix, "lines": lines, "total": _view(total, total)})
        return
    if not keys:
        note("nothing was used" + ("" if since == "0" else f" since {since}"))
        return
    head = (by, "input", "output", "cache write", "cache read", "toward limit", "cost", "share")
    body = [_cells(key, spent[key], total) for key in keys] + [_cells("total", total, total)]
    _print_table([head, *body])
    for model in total.unpriced:
        key = join_key(["prices", model, "input"])
        note(
            f"no price for {model}; in dollars for a million tokens: `llmc config set {_quoted(key)} N`, then output; "
            "or `llmc prices update FILE|URL`"
        )
    if old := complaint(prices.listed, date.today()):
        note(old)


def _weight(spent: Spent, total: Spent) -> float:
    """What the share is a share of: money where all of it is known, else tokens."""
    return spent.tokens.new if total.unpriced or not total.cost else spent.cost


def _share(spent: Spent, total: Spent) -> float:
    whole = _weight(total, total)
    return _weight(spent, total) / whole if whole else 0.0


def _view(spent: Spent, total: Spent, **key: Any) -> dict[str, Any]:
    """`cost` is null where none of it is known; `unpriced` names the models that are not in it."""
    return {
        **key,
        **msgspec.structs.asdict(spent.tokens),
        "tokens": spent.tokens.new,
        "cost": _known(spent),
        "unpriced": list(spent.unpriced),
        "share": round(_share(spent, total), 4),
    }


def _known(spent: Spent) -> float | None:
    return None if spent.unpriced and not spent.cost else round(spent.cost, 6)


def _cells(key: str, spent: Spent, total: Spent) -> tuple[str, ...]:
    cost = _known(spent)
    shown = "?" if cost is None else _dollars(cost) + (" + ?" if spent.unpriced else "")
    tokens = [f"{count:,}" for count in (*msgspec.structs.astuple(spent.tokens), spent.tokens.new)]
    return (key, *tokens, shown, f"{_share(spent, total):.0%}")


def _dollars(cost: float) -> str:
    return f"${cost:,.4f}" if 0 < cost < 1 else f"${cost:,.2f}"


def _print_table(table: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for first, *rest in table:
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        say(f"{first:<{widths[0]}}  {numbers}".rstrip())


def _quoted(key: str) -> str:
    return f"'{key}'" if '"' in key else key
