"""llmc prices"""

from datetime import date

import click

from llmc.auto import prices as service
from llmc.auto.rules.costs import PriceList, Prices, complaint
from llmc.cli.arguments import Group, project_of
from llmc.cli.output import json_option, note, print_json, say
from llmc.config.model import Price

FIELDS = ("input", "output", "cache_write", "cache_read")


@click.group("prices", cls=Group)
def prices() -> None:
    """What models cost, in dollars for a million tokens: `usage`, budgets and --max-cost calculate with it.

    A list with a date is installed with llmc. Your own prices, in config.toml, go over it:
    a name there holds for every model that begins with it.

    \b
    Examples:
      llmc prices list
      llmc config set prices.claude-opus-5-5.input 4
      llmc prices update ~/Downloads/prices.json
    """


@prices.command("list")
@json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """Show the prices in force, and the day they are of.

    \b
    Example:
      llmc prices list

    With --json, it prints what `llmc prices update` takes.
    """
    prices = service.prices_of(project_of(ctx))
    if as_json:
        print_json({**service.view(prices.listed), "own": service.view(_own(prices))["prices"]})
        return
    names = [*prices.own, *(name for name in prices.listed.prices if name not in prices.own)]
    rows = [("dollars for a million tokens", *(field.replace("_", " ") for field in FIELDS), "from")]
    rows += [(name, *_cells(_shown(prices, name)), "config.toml" * (name in prices.own)) for name in names]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for first, *numbers, origin in rows:
        cells = "  ".join(cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True))
        say(f"{first:<{widths[0]}}  {cells}  {origin or prices.listed.as_of}".rstrip())
    note(f"as of {prices.listed.as_of}: {prices.listed.source}")
    if old := complaint(prices.listed, date.today()):
        note(old)


def _own(prices: Prices) -> PriceList:
    return PriceList(prices=prices.own)


def _shown(prices: Prices, name: str) -> Price:
    """As it is calculated with; half a price of a person's own as far as it goes."""
    return prices.of(name) or prices.own[name]


def _cells(price: Price) -> list[str]:
    return ["" if (value := getattr(price, field)) is None else f"{value:g}" for field in FIELDS]


@prices.command("update")
@click.argument("source", metavar="FILE|URL")
@json_option
@click.pass_context
def update(ctx: click.Context, source: str, as_json: bool) -> None:
    """Bring a newer list, from a file or a URL, into this root.

    \b
    Example:
      llmc prices update ~/Downloads/model_prices_and_context_window.json

    It takes what `llmc prices list --json` prints, and the list of LiteLLM:
    https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json
    Your own prices, in config.toml, still go over it.
    """
    before, now = service.update(project_of(ctx), source)
    names = [name for name in now.prices if now.prices[name] != before.prices.get(name)]
    if as_json:
        print_json({"as_of": now.as_of, "models": len(now.prices), "changed": names})
        return
    for name in names:
        old = before.prices.get(name)
        say(f"{name}: {_pair(old) if old else 'no price'} -> {_pair(now.prices[name])}")
    say(f"prices as of {now.as_of}: {len(now.prices)} models, {len(names)} changed")


def _pair(price: Price) -> str:
    return f"{price.input:g}/{price.output:g}"
