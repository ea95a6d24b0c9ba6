"""Tokens an agent used. Pure data."""

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one message, or a sum of them; the names are those of the API."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
        )

    def since(self, earlier: "Usage") -> "Usage":
        """What came on top of `earlier`; of a kind that became less, nothing."""
        return Usage(
            input_tokens=max(0, self.input_tokens - earlier.input_tokens),
            output_tokens=max(0, self.output_tokens - earlier.output_tokens),
            cache_creation_input_tokens=max(
                0, self.cache_creation_input_tokens - earlier.cache_creation_input_tokens
            ),
            cache_read_input_tokens=max(0, self.cache_read_input_tokens - earlier.cache_read_input_tokens),
        )

    def __bool__(self) -> bool:
        return self != Usage()

    @property
    def new(self) -> int:
        """What token limits count: all but the cache reads.

        A conversation reads its whole context again in every step, from the cache and at a fraction of the price. That
        number says how many steps there were, not how much work; counted, it would be nearly all of every limit.
        """
        return self.input_tokens + self.output_tokens + self.cache_creation_input_tokens
