"""Commands that the user types on the screen: where the last word begins, and how it is completed."""

import pytest

from llmc.tui.typed import Typed, parted


@pytest.mark.parametrize(
    ("line", "words", "last"),
    [
        ("", [], ""),
        ("hold", [], "hold"),
        ("hold ", ["hold"], ""),
        ("llmc hold ad", ["hold"], "ad"),
        ('accept "w', ["accept"], "w"),
        ("accept 'w 1", ["accept"], "w 1"),
        (r"tasks import my\ pl", ["tasks", "import"], "my pl"),
        ("tasks import my\\", ["tasks", "import"], "my"),
        ("message w1 'two words' thr", ["message", "w1", "two words"], "thr"),
        ("message w1 \"it's", ["message", "w1"], "it's"),
    ],
)
def test_a_line_is_parted_as_a_shell_would(line: str, words: list[str], last: str) -> None:
    """Break: split at each space; or let an open quote reach into the words before it."""
    begun, found, incomplete = parted(line)
    assert (found, incomplete) == (words, last)
    assert line.startswith(begun)


@pytest.mark.parametrize(
    ("line", "found", "completed"),
    [
        ("hold ad", ["adam"], "hold adam "),
        ('accept "w', ["w1"], "accept w1 "),
        ("start --worker=w", ["--worker=w1"], "start --worker=w1 "),
        ("import pl", ["plans/"], "import plans/"),
        ("import my", ["my plan.json"], "import 'my plan.json' "),
        ("import 'my p", ["my plan/"], "import 'my plan/'"),
        ("hold a", ["adam", "adele"], "hold ad"),
        ("hold ad", ["adam", "adele"], "hold ad"),
        ("hold x", [], "hold x"),
    ],
)
def test_a_word_is_completed_as_far_as_it_is_known(line: str, found: list[str], completed: str) -> None:
    """Break: put a space behind a directory; or leave out the quotes that a name needs."""
    typed = Typed(lambda words: [], lambda words, stopping: (0, ""), lambda words: False, lambda line: found)
    assert typed.completed(line)[0] == completed
