"""Tokens used by an agent, and their cost. Pure data; prices are in auto/rules/costs.py."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import astuple


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one message, or a sum; named as in the API."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return _tokens(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    def since(self, earlier: "Tokens") -> "Tokens":
        """The increase since `earlier`; 0 for counts that decreased."""
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return _tokens(*(max(0, now - before) for now, before in pairs))

    def __bool__(self) -> bool:
        return self != Tokens()

    @property
    def new(self) -> int:
        """The tokens that limits count: all but cache reads.

        Every step reads the whole context again, from the cache and at a fraction of the price. Counting it would
        measure steps instead of work, and would dominate every limit.
        """
        return self.input_tokens + self.output_tokens + self.cache_creation_input_tokens


def _tokens(*counts: int) -> Tokens:
    return Tokens(**dict(zip(Tokens.__struct_fields__, counts, strict=True)))


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and their cost, as far as known."""

    tokens: Tokens = Tokens()
    cost: float = 0.0
    #: by model, tokens not included in the cost, which may have a price now
    unpriced: Mapping[str, Tokens] = {}

    def __add__(self, other: "Spent") -> "Spent":
        unpriced = {**self.unpriced}
        for model, tokens in other.unpriced.items():
            unpriced[model] = unpriced.get(model, Tokens()) + tokens
        return Spent(tokens=self.tokens + other.tokens, cost=self.cost + other.cost, unpriced=unpriced)
