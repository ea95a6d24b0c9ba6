"""What tokens cost, by the table [prices] of the configuration. Pure."""

from collections.abc import Mapping

from llmc.config.model import Price
from llmc.workers.usage import Usage

#: what a cache costs where the table has no price of its own, as parts of the input price
CACHE_WRITE = 1.25
CACHE_READ = 0.1
MILLION = 1_000_000


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """That of the longest beginning of the model's name; None as well when it lacks input or output."""
    known = [name for name in prices if model.startswith(name)]
    price = prices[max(known, key=len)] if known else None
    return None if price is None or price.input is None or price.output is None else price


def cost_of(prices: Mapping[str, Price], model: str, tokens: Usage) -> float | None:
    """Dollars; None when the model has no price."""
    price = price_of(prices, model)
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
