"""What the screens need besides views: the roots of this user."""

from llmc.config import trust


def roots_of_user() -> list[str]:
    """Every registered root of this user."""
    return sorted(trust.registered())
