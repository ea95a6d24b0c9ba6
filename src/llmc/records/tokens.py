"""Tokens an agent used, and what they cost. Pure data; prices are in auto/rules/costs.py."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import astuple


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one message, or a sum of them; the names are those of the API."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return _tokens(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    def since(self, earlier: "Tokens") -> "Tokens":
        """What came on top of `earlier`; of a kind that became less, nothing."""
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return _tokens(*(max(0, now - before) for now, before in pairs))

    def __bool__(self) -> bool:
        return self != Tokens()

    @property
    def new(self) -> int:
        """What token limits count: all but the cache reads.

        A conversation reads its whole context again in every step, from the cache and at a fraction of the price. That
        number says how many steps there were, not how much work; counted, it would be nearly all of every limit.
        """
        return self.input_tokens + self.output_tokens + self.cache_creation_input_tokens


def _tokens(*counts: int) -> Tokens:
    return Tokens(**dict(zip(Tokens.__struct_fields__, counts, strict=True)))


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, and what they cost as far as it is known."""

    tokens: Tokens = Tokens()
    cost: float = 0.0
    #: by model, those of the tokens that are not in the cost; they may have a price now
    unpriced: Mapping[str, Tokens] = {}

    def __add__(self, other: "Spent") -> "Spent":
        unpriced = {**self.unpriced}
        for model, tokens in other.unpriced.items():
            unpriced[model] = unpriced.get(model, Tokens()) + tokens
        return Spent(tokens=self.tokens + other.tokens, cost=self.cost + other.cost, unpriced=unpriced)
