"""Dotted keys, and the lines they are on."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.config.toml_text import entries, join_key, line_of, quoted, split_key

TEXT = '''\
# [commented]
top = 1
[a]  # [no.header]
x = """
[inside]
y = 1
"""
list = [
  "[not.header]", # ] }
  ["nested"],
]
"quoted.key" = 1
b.c = { d = 1 }
 [ a . "s t" ]
z = '\\'
[[rows]]
k = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("a",), 3),
        (("a", "x"), 4),
        (("a", "list"), 8),
        (("a", "quoted.key"), 12),
        (("a", "b"), 13),
        (("a", "b", "c"), 13),
        (("a", "b", "c", "d"), 13),
        (("a", "s t"), 14),
        (("a", "s t", "z"), 15),
        (("rows", "k"), 17),
        (("a", "y"), 3),
        (("inside",), None),
        (("not",), None),
    ],
)
def test_finds_the_line_of_a_key_or_of_what_is_around_it(path: tuple[str, ...], line: int | None) -> None:
    """Fails when a multi-line string or array is read as keys."""
    tomllib.loads(TEXT)
    assert line_of(TEXT, path) == line


def test_an_entry_ends_where_its_value_ends() -> None:
    spans = {entry.path: (entry.line, entry.end_line) for entry in entries(TEXT)}
    assert spans[("a", "x")] == (4, 7)
    assert spans[("a", "list")] == (8, 11)


@pytest.mark.parametrize(
    "text", ['a = """x"""""\nb = 1\n', "a = '''x'''''\nb = 1\n", 'a = "\\""\nb = 1\n', 'a = ""\r\nb = 1\r\n']
)
def test_quotes_at_the_end_of_a_string_do_not_hide_the_next_key(text: str) -> None:
    tomllib.loads(text)
    assert line_of(text, ("b",)) == 2


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_join_then_split_is_the_same_key(path: list[str]) -> None:
    """Fails when a part with a dot or a quote is joined bare."""
    assert split_key(join_key(path)) == tuple(path)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quoted_is_toml(text: str) -> None:
    """Fails when a control character, a quote or a backslash stays unescaped."""
    assert tomllib.loads(f"v = {quoted(text)}") == {"v": text}


@pytest.mark.parametrize("dotted", ["", ".", "a.", ".a", "a..b", "a b", "a=1", 'a."b', "a\n", "[a]"])
def test_what_is_no_key_is_refused(dotted: str) -> None:
    with pytest.raises(ValueError, match="expected a key such as"):
        split_key(dotted)
