"""Token usage, cost and prices: `llmc usage` and `llmc prices`."""

import shlex
import time
from collections.abc import Iterable
from datetime import date

import click
import msgspec

from llmc.api import reports
from llmc.api.reports import KEYS, NO_TASK, Price, PriceList, Prices, Spent
from llmc.api.roots import Project
from llmc.base.text import counted
from llmc.cli.arguments import Group, Row, parse_since, pass_project, project_of, since_option
from llmc.cli.output import json_option, note, plain, print_json, say
from llmc.config.toml_text import join_key


@click.command("usage")
@click.option(
    "--by", type=click.Choice(list(KEYS)), default="worker", show_default=True, help="Field to group by"
)
@since_option
@json_option
@click.pass_context
def usage(ctx: click.Context, by: str, since: str, as_json: bool) -> None:
    """Show token usage and cost

    Costs use the prices from `llmc prices list`. Token limits count input, output and cache writes; cache reads are
    billed but do not count toward limits.

    \b
    Examples:
      llmc usage --by task --since 12h
      llmc usage --by day --json
    """
    since_unix = parse_since(since, time.time())
    project = project_of(ctx)
    used = reports.usage(project, by, since_unix)
    spent, total = used.lines, used.total
    if as_json:
        lines = [
            _spent_view(one, total, **{by: None if key == NO_TASK else key}) for key, one in spent.items()
        ]
        print_json({"by": by, "since_unix": since_unix, "lines": lines, "total": _spent_view(total, total)})
        return
    if not spent:
        note("no usage" + ("" if since == "0" else f" in this period (--since {since})"))
        return
    head = (by, "input", "output", "cache write", "cache read", "toward limit", "cost", "share")
    body = [_spent_cells(key, one, total) for key, one in (*spent.items(), ("total", total))]
    _print_table([head, *body])
    for model in total.unpriced:
        keys = (shlex.quote(join_key(["prices", model, one])) for one in ("input", "output"))
        note(
            f"no price for {model}; run `llmc prices update FILE|URL`, or "
            "set its prices in dollars per million tokens: "
            + "; ".join(f"llmc config set {key} N" for key in keys)
        )
    if used.complaint:
        note(used.complaint)


def _share(spent: Spent, total: Spent) -> float:
    whole = reports.weight(total, total)
    return reports.weight(spent, total) / whole if whole else 0.0


def _spent_view(spent: Spent, total: Spent, **key: str | None) -> Row:
    """`cost` is null if unknown; `unpriced` names models without a price."""
    return {
        **key,
        **plain(spent.tokens),
        "tokens": spent.tokens.new,
        "cost": _known(spent),
        "unpriced": list(spent.unpriced),
        "share": round(_share(spent, total), 4),
    }


def _known(spent: Spent) -> float | None:
    return None if spent.unpriced and not spent.cost else round(spent.cost, 6)


def _spent_cells(key: str, spent: Spent, total: Spent) -> tuple[str, ...]:
    cost = _known(spent)
    shown = "?" if cost is None else _dollars(cost) + (" + ?" if spent.unpriced else "")
    tokens = [f"{count:,}" for count in (*msgspec.structs.astuple(spent.tokens), spent.tokens.new)]
    return (key, *tokens, shown, f"{_share(spent, total):.0%}")


def _dollars(cost: float) -> str:
    return f"${cost:,.4f}" if 0 < cost < 1 else f"${cost:,.2f}"


def _print_table(table: list[tuple[str, ...]], notes: Iterable[str] | None = None) -> None:
    """Names on the left, numbers on the right; a note follows its row."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for (first, *rest), remark in zip(table, notes or [""] * len(table), strict=True):
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        say(f"{first:<{widths[0]}}  {numbers}  {remark}".rstrip())


FIELDS = ("input", "output", "cache_write", "cache_read")


@click.group("prices", cls=Group)
def prices() -> None:
    """Show and update model prices

    Prices are in dollars per million tokens. `llmc usage`, budgets and --max-cost use them. llmc comes with a dated price
    list. Prices in config.toml override it; a name there matches all models that start with it.

    \b
    Examples:
      llmc prices list
      llmc config set prices.claude-opus-5-5.input 4
      llmc prices update ~/Downloads/prices.json
    """


@prices.command("list")
@json_option
@pass_project
def list_(project: Project, as_json: bool) -> None:
    """List the prices in effect and their dates

    `llmc prices update` can read the output of --json.

    \b
    Example:
      llmc prices list
    """
    prices = reports.prices_of(project)
    listed = prices.listed
    if as_json:
        own = reports.view(PriceList(prices=prices.own))["prices"]
        print_json({**reports.view(listed), "own": own})
        return
    names = [*prices.own, *(name for name in listed.prices if name not in prices.own)]
    head = ("dollars per million tokens", *(field.replace("_", " ") for field in FIELDS))
    origins = ["config.toml" if name in prices.own else listed.as_of for name in names]
    _print_table([head, *((name, *_price_cells(prices, name)) for name in names)], ["from", *origins])
    note(f"as of {listed.as_of}: {listed.source}")
    if old := reports.complaint(listed, date.today()):
        note(old)


def _price_cells(prices: Prices, name: str) -> list[str]:
    """The effective price; for an incomplete one in config.toml, only the fields that are set."""
    price = prices.of(name) or prices.own[name]
    return ["" if (value := getattr(price, field)) is None else f"{value:g}" for field in FIELDS]


@prices.command("update")
@click.argument("source", metavar="FILE|URL")
@json_option
@pass_project
def update(project: Project, source: str, as_json: bool) -> None:
    """Update the price list from a file or URL

    Reads the output of `llmc prices list --json`, or LiteLLM's price list:
    https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json
    Prices in config.toml still take precedence.

    \b
    Example:
      llmc prices update ~/Downloads/model_prices_and_context_window.json
    """
    before, now = reports.update(project, source)
    names = [name for name in now.prices if now.prices[name] != before.prices.get(name)]
    if as_json:
        print_json({"as_of": now.as_of, "models": len(now.prices), "changed": names})
        return
    for name in names:
        old = before.prices.get(name)
        say(f"{name}: {_pair(old) if old else 'no price'} -> {_pair(now.prices[name])}")
    say(f"prices as of {now.as_of}: {counted(len(now.prices), 'model')}, {len(names)} changed")


def _pair(price: Price) -> str:
    return f"{price.input:g}/{price.output:g}"
