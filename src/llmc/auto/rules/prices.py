"""What tokens cost: by the prices of config.toml, else by a dated list. Pure."""

import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from msgspec import Struct

from llmc.config.model import Price
from llmc.records.usage import Usage

#: what a cache costs where the table has no price of its own, as parts of the input price
CACHE_WRITE = 1.25
CACHE_READ = 0.1
MILLION = 1_000_000
#: from then on a list is called old
OLD_DAYS = 120

#: a version's date, or a variant of the context window: neither is another model
_VARIANT = re.compile(r"(-20\d{6})?(\[[^\]]*\])?$")


class PriceList(Struct, frozen=True, kw_only=True):
    """Prices of models by their whole names, as somebody published them on a day."""

    as_of: str = ""
    source: str = ""
    prices: Mapping[str, Price] = {}


class Prices(Struct, frozen=True, kw_only=True):
    """A person's own prices, which hold for every model whose name begins so; and a list for the others."""

    own: Mapping[str, Price] = {}
    listed: PriceList = PriceList()

    def of(self, model: str) -> Price | None:
        """None where input or output is not known.

        A person's numbers go over those of the list one by one; with another input price, caches follow from that.
        """
        known = [name for name in self.own if model.startswith(name)]
        own = self.own[max(known, key=len)] if known else Price()
        base = self._listed(model) or Price()
        price = Price(
            input=_first(own.input, base.input),
            output=_first(own.output, base.output),
            cache_write=_first(own.cache_write, base.cache_write if own.input is None else None),
            cache_read=_first(own.cache_read, base.cache_read if own.input is None else None),
        )
        return None if price.input is None or price.output is None else price

    def _listed(self, model: str) -> Price | None:
        """By the whole name: a new model may cost anything, however much its name is like that of an old one."""
        return self.listed.prices.get(model) or self.listed.prices.get(_VARIANT.sub("", model))


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def cost_of(prices: Prices, model: str, tokens: Usage) -> float | None:
    """Dollars; None when the model has no price."""
    price = prices.of(model)
    if price is None or price.input is None or price.output is None:
        return None
    cache_write = price.input * CACHE_WRITE if price.cache_write is None else price.cache_write
    cache_read = price.input * CACHE_READ if price.cache_read is None else price.cache_read
    dollars = (
        tokens.input_tokens * price.input
        + tokens.output_tokens * price.output
        + tokens.cache_creation_input_tokens * cache_write
        + tokens.cache_read_input_tokens * cache_read
    )
    return round(dollars / MILLION, 9)


def newest(*lists: PriceList) -> PriceList:
    """The list of the latest day; models that it lacks as the older ones have them."""
    in_order = sorted(lists, key=lambda one: one.as_of)
    prices = {model: price for one in in_order for model, price in one.prices.items()}
    return PriceList(as_of=in_order[-1].as_of, source=in_order[-1].source, prices=prices)


def age_days(listed: PriceList, today: date) -> int:
    try:
        return (today - date.fromisoformat(listed.as_of)).days
    except ValueError:
        return OLD_DAYS + 1


def complaint(listed: PriceList, today: date) -> str:
    """What is said of an old list; "" while it is not."""
    days = age_days(listed, today)
    if days <= OLD_DAYS:
        return ""
    return f"the prices of models are of {listed.as_of or 'no known day'}; `llmc prices update FILE|URL` brings newer ones"


class NoPrices(ValueError):
    """A text that is no list of prices; it says why."""


def parse(data: object, today: date) -> PriceList:
    """A list as `llmc prices list --json` prints it, or that of LiteLLM, which many tools share.

    What is no price is left out: a model without one stops a budget, a model that costs nothing never does.
    """
    if not isinstance(data, dict):
        raise NoPrices("it is no JSON object")
    ours = data.get("prices")
    if isinstance(ours, dict):
        rows = {str(model): _row(row) for model, row in ours.items()}
        as_of = _day(data.get("as_of"))
    else:
        rows = {
            str(model): _litellm_row(row) for model, row in data.items() if str(model).startswith("claude-")
        }
        as_of = today.isoformat()
    prices = {model: price for model, price in rows.items() if price is not None}
    if not prices:
        raise NoPrices("no model in it has an input and an output price")
    return PriceList(as_of=as_of, source=str(data.get("source") or ""), prices=prices)


def _day(value: object) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError as error:
        raise NoPrices('"as_of" is not a day like 2026-11-13') from error


def _row(row: object) -> Price | None:
    found = row if isinstance(row, dict) else {}
    return _price(*(_amount(found.get(key)) for key in ("input", "output", "cache_write", "cache_read")))


_LITELLM = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_creation_input_token_cost",
    "cache_read_input_token_cost",
)


def _litellm_row(row: object) -> Price | None:
    if not isinstance(row, dict) or row.get("litellm_provider") not in (None, "anthropic"):
        return None
    return _price(*(_per_million(row, key) for key in _LITELLM))


def _per_million(row: Mapping[str, Any], key: str) -> float | None:
    """Where long prompts cost more, the higher price: what limits rest on must not be too low."""
    long = re.compile(rf"{key}(_above_\d+k_tokens)?")
    found = [_amount(value, MILLION) for name, value in row.items() if long.fullmatch(str(name))]
    return max((amount for amount in found if amount is not None), default=None)


def _price(*amounts: float | None) -> Price | None:
    of_input, of_output, cache_write, cache_read = amounts
    if of_input is None or of_output is None:
        return None
    return Price(input=of_input, output=of_output, cache_write=cache_write, cache_read=cache_read)


def _amount(value: object, factor: int = 1) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    amount = round(value * factor, 6)
    return amount if math.isfinite(amount) and 0 < amount < 1e6 else None
