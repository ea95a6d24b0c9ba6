"""A diff in rows: nothing is lost, numbers are right, the changed words are marked."""

from difflib import unified_diff

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.reviews.rules.diff_rows import FOLD_ROWS, DiffFile, Kind, files_of

HEAD = "diff --git a/{0} b/{0}\nindex 1..2 100644\n--- a/{0}\n+++ b/{0}\n"
LINES = st.lists(
    st.sampled_from(["", "a", "b b", "+", "-", "@@ -1 +1 @@", "\\ x", "diff --git", "ä\u2028b"]), max_size=12
)


def diff_of(old: list[str], new: list[str], path: str = "f.py") -> str:
    rows = list(unified_diff(old, new, lineterm=""))[2:]
    return HEAD.format(path) + "".join(f"{row}\n" for row in rows) if rows else ""


@given(LINES, LINES)
def test_the_rows_give_both_files_back(old: list[str], new: list[str]) -> None:
    """Break: treat a line that starts with a second + as a header, or miscount a hunk's lines."""
    if old == new:
        return
    (file,) = files_of(diff_of(old, new))
    for lines, side, gone in ((old, "old", Kind.ADDED), (new, "new", Kind.REMOVED)):
        rows = [row for row in file.rows if row.kind not in (Kind.HUNK, Kind.NOTE, gone)]
        for row in rows:
            number = getattr(row, side)
            assert lines[number - 1] == row.text
        assert all(getattr(row, side) is None for row in file.rows if row.kind is gone)
    assert file.added == sum(row.kind is Kind.ADDED for row in file.rows)
    assert file.deleted == sum(row.kind is Kind.REMOVED for row in file.rows)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=60), st.text(max_size=60))
def test_marked_words_are_inside_their_line_and_differ(old: str, new: str) -> None:
    """Break: count in words instead of characters."""
    new = new.replace("\n", " ")
    (file,) = files_of(HEAD.format("f") + f"@@ -1 +1 @@\n-{old}\n+{new}\n")
    removed, added = file.rows[1:]
    for row in (removed, added):
        ends = [0, *(place for span in row.words for place in span)]
        assert ends == sorted(ends)
        assert ends[-1] <= len(row.text)
    kept = [without(row.text, row.words) for row in (removed, added)]
    assert not (removed.words or added.words) or kept[0] == kept[1]


def without(text: str, spans: tuple[tuple[int, int], ...]) -> str:
    at, kept = 0, ""
    for start, end in spans:
        kept += text[at:start]
        at = end
    return kept + text[at:]


def test_the_changed_words_of_a_line() -> None:
    (file,) = files_of(HEAD.format("g.py") + '@@ -3 +3 @@ class G\n-def greet():\n+def greet(name="w"):\n')
    hunk, removed, added = file.rows
    assert (hunk.kind, hunk.text, hunk.old, hunk.new) == (Kind.HUNK, "class G", 3, 3)
    assert removed.words == ()
    assert [added.text[a:b] for a, b in added.words] == ['name="w"']


def test_lines_that_have_nothing_in_common_are_not_cut_into_words() -> None:
    (file,) = files_of(
        HEAD.format("g.py") + "@@ -1 +1 @@\n-import os\n+return {one: two for three in four}\n"
    )
    assert [row.words for row in file.rows[1:]] == [(), ()]


@pytest.mark.parametrize(
    ("text", "path", "was", "notes"),
    [
        (
            "diff --git a/old name b/new name\nsimilarity index 100%\nrename from old name\nrename to new name\n",
            "new name",
            "old name",
            ["renamed from old name"],
        ),
        (
            (
                'diff --git "a/caf\\303\\251 \\"x\\"" "b/caf\\303\\251 \\"x\\""\nindex 1..2\n'
                '--- "a/caf\\303\\251 \\"x\\""\n+++ "b/caf\\303\\251 \\"x\\""\n@@ -1 +1 @@\n-a\n+b\n'
            ),
            'café "x"',
            None,
            [],
        ),
        (
            "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n",
            "a",
            None,
            ["old mode 100644", "new mode 100755"],
        ),
        (
            "diff --git a/x/y.png b/x/y.png\nnew file mode 100644\nindex 0..1\nBinary files /dev/null and b/x/y.png differ\n",
            "x/y.png",
            None,
            ["new file mode 100644", "binary file"],
        ),
        (
            (
                "diff --git a/gone b/gone\ndeleted file mode 100644\nindex 1..0\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
                "\\ No newline at end of file\n"
            ),
            "gone",
            None,
            ["deleted file mode 100644", "No newline at end of file"],
        ),
    ],
    ids=["renamed", "quoted", "mode", "binary", "deleted"],
)
def test_what_is_no_plain_change(text: str, path: str, was: str | None, notes: list[str]) -> None:
    (file,) = files_of(text)
    assert (file.path, file.was) == (path, was)
    assert [row.text for row in file.rows if row.kind is Kind.NOTE] == notes
    assert (file.added is None) == ("binary file" in notes)


def test_each_file_has_its_own_rows_and_patch() -> None:
    first, second = diff_of(["a"], ["b"], "one"), diff_of(["a"], ["c"], "two")
    files = files_of(first + second)
    assert [file.path for file in files] == ["one", "two"]
    alone = files_of(second)
    assert files[1].patch_id == alone[0].patch_id != files[0].patch_id


def test_a_patch_is_the_same_on_another_base() -> None:
    here = diff_of(["a", "b"], ["a", "c"])
    there = here.replace("@@ -1,2 +1,2 @@", "@@ -41,2 +41,2 @@").replace("index 1..2", "index 3..4")
    assert files_of(here)[0].patch_id == files_of(there)[0].patch_id


def folded(path: str, rows: int = 1) -> str:
    file: DiffFile = files_of(diff_of([], ["x"] * rows, path))[0]
    return file.folded


def test_what_starts_folded() -> None:
    assert [folded(path) for path in ("uv.lock", "web/package-lock.json", "a.min.js", "api_pb2.py")] == [
        "lock file",
        "lock file",
        "generated",
        "generated",
    ]
    assert folded("clock.py") == ""
    assert folded("big.py", FOLD_ROWS + 1) == f"{FOLD_ROWS + 2} rows"
