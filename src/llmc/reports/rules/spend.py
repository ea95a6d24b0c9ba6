"""What the digest says was spent: tokens, and their cost. Pure."""

from msgspec import Struct
from msgspec.structs import asdict

from llmc.auto.rules.costs import Prices, priced
from llmc.records.worker import Spent


class Spend(Struct, frozen=True):
    """Tokens, and their cost where prices are known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    #: None: no prices known
    cost: float | None = None
    #: tokens without a price, not counting cache reads
    unpriced_tokens: int = 0

    @classmethod
    def of(cls, spent: Spent, prices: Prices) -> "Spend":
        """Usage at the prices of its time, or else of now."""
        spent = priced(prices, spent)
        is_priced = spent.cost or (spent.tokens and not spent.unpriced)
        unpriced = sum(tokens.new for tokens in spent.unpriced.values())
        return cls(**asdict(spent.tokens), cost=spent.cost if is_priced else None, unpriced_tokens=unpriced)

    @property
    def tokens(self) -> int:
        """All tokens except cache reads, as in `llmc usage`."""
        return self.input_tokens + self.output_tokens + self.cache_creation_input_tokens
