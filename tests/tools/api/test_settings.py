"""config.toml changes under the root's lock, and an edit never takes back what changed since its draft was copied."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmc.api import new_roots, settings
from llmc.base.errors import ConfigError, Refused
from llmc.base.locks import Rank, lock
from llmc.config.load import load_config
from llmc.config.model import Config
from llmc.config.paths import Root
from tests.support.repos import Mold, Repo, make_project, project_at


def make(folder: Path) -> None:
    source = Repo(folder / "source")
    source.commit("a.txt")
    make_project(str(source.path), folder / "root")


@pytest.fixture
def root(mold: Mold) -> Root:
    return Root(mold.place(make) / "root")


def config(root: Root) -> Config:
    return load_config(root.config)


def edited(root: Root, old: str, new: str) -> settings.Draft:
    """A draft in which the user replaced this text."""
    draft = settings.draft(root)
    data = draft.path.read_bytes()
    assert old.encode() in data
    draft.path.write_bytes(data.replace(old.encode(), new.encode(), 1))
    return draft


def drafts(root: Root) -> list[str]:
    return sorted(path.name for path in root.path.glob("config.edit*"))


SET = """
import sys
from pathlib import Path
from llmc.api import settings
from llmc.config.paths import Root
for number in range(10):
    settings.set_option(Root(Path(sys.argv[1])), f"defaults.env.{sys.argv[2]}{number}", "x")
"""


def test_commands_that_run_at_the_same_time_lose_nothing(root: Root) -> None:
    """Break: `set_option` without the lock."""
    begun = [subprocess.Popen([sys.executable, "-c", SET, str(root.path), name]) for name in "AB"]
    assert [process.wait(60) for process in begun] == [0, 0]
    assert len(config(root).defaults.env) == 20


CHANGES: dict[str, Callable[[Root], object]] = {
    "set": lambda root: settings.set_option(root, "defaults.model", "sonnet"),
    "unset": lambda root: settings.unset_option(root, "defaults.model"),
    "edit": lambda root: settings.save(root, edited(root, "[repo]\n", "# mine\n[repo]\n")),
    "init": lambda root: new_roots.set_check(project_at(root.path), "make test"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_takes_the_lock(root: Root, change: Callable[[Root], object]) -> None:
    """A thread that has the lock cannot take it again. Break: a change without the lock."""
    before = root.config.read_bytes()
    with lock(root.lock("config"), Rank.CONFIG), pytest.raises(AssertionError, match="lock order"):
        change(root)
    assert root.config.read_bytes() == before
    change(root)


def test_what_changed_meanwhile_is_named_and_comes_into_the_draft(root: Root) -> None:
    """Break: write the draft although config.toml is not what the draft was copied from."""
    draft = edited(root, "[repo]\n", '[repo]\nvalidate = "make test"\n')
    settings.set_option(root, "defaults.model", "sonnet")
    settings.set_option(root, "defaults.env.A", "1")
    with pytest.raises(Refused, match=r"config\.toml .*: defaults\.env\.A, defaults\.model") as refused:
        settings.save(root, draft)
    assert "llmc config edit" in refused.value.hint
    assert (config(root).defaults.model, config(root).repo.validate) == ("sonnet", "")
    again = settings.draft(root)
    assert 'validate = "make test"' in again.path.read_text()
    settings.save(root, again)
    found = config(root)
    assert (found.defaults.model, found.defaults.env, found.repo.validate) == (
        "sonnet",
        {"A": "1"},
        "make test",
    )
    assert drafts(root) == []


def test_a_draft_that_was_refused_does_not_take_back_what_came_after_it(root: Root) -> None:
    """Break: copy config.toml once more for the comparison when the edit continues."""
    with pytest.raises(ConfigError):
        settings.save(root, edited(root, "[repo]\n", '[repo]\nvalidat = "x"\n'))
    settings.set_option(root, "defaults.model", "sonnet")
    with pytest.raises(Refused, match=r"defaults\.model"):
        settings.save(root, edited(root, "validat =", "validate ="))
    assert config(root).defaults.model == "sonnet"


def test_a_key_that_both_changed_is_a_conflict_in_the_draft(root: Root) -> None:
    """Break: let one side win."""
    settings.set_option(root, "defaults.model", "opus")
    draft = edited(root, '\nmodel = "opus"', '\nmodel = "mine"')
    settings.set_option(root, "defaults.model", "theirs")
    with pytest.raises(Refused, match=r"defaults\.model") as refused:
        settings.save(root, draft)
    assert "conflict" in refused.value.hint
    with pytest.raises(ConfigError, match="invalid TOML"):
        settings.save(root, settings.draft(root))
    assert config(root).defaults.model == "theirs"
    lines = settings.draft(root).path.read_text().splitlines()
    assert [line for line in lines if line.startswith("model = ")] == [
        'model = "mine"',
        'model = "theirs"',
    ]
    draft = settings.draft(root)
    kept = [
        line
        for line in lines
        if not line.startswith(("<<<<<<<", "=======", ">>>>>>>")) and "theirs" not in line
    ]
    draft.path.write_text("\n".join(kept) + "\n")
    settings.save(root, draft)
    assert config(root).defaults.model == "mine"


def test_a_draft_without_a_change_is_copied_again(root: Root) -> None:
    """Break: keep any draft that exists; or refuse to save one without a change."""
    settings.draft(root)
    settings.set_option(root, "defaults.model", "sonnet")
    again = settings.draft(root)
    assert 'model = "sonnet"' in again.path.read_text()
    settings.set_option(root, "defaults.model", "haiku")
    settings.save(root, again)
    assert config(root).defaults.model == "haiku"
    assert drafts(root) == []


def test_a_draft_of_an_older_llmc_does_not_win(root: Root) -> None:
    """Nobody knows what it was copied from. Break: take config.toml as it is now for that."""
    old = root.config.read_text()
    root.path.joinpath("config.edit.toml").write_text(old.replace("[repo]\n", '[repo]\nvalidate = "x"\n', 1))
    settings.set_option(root, "defaults.model", "sonnet")
    with pytest.raises(Refused):
        settings.save(root, settings.draft(root))
    assert 'validate = "x"' in settings.draft(root).path.read_text()
    assert (config(root).defaults.model, config(root).repo.validate) == ("sonnet", "")


def test_a_file_that_is_not_utf8_can_be_edited_and_is_refused(root: Root) -> None:
    """Break: read config.toml or the draft as text."""
    settings.set_option(root, "defaults.env.A", "cafe")
    good = root.config.read_bytes()
    root.config.write_bytes(good.replace(b"cafe", b"caf\xe9"))
    line = good[: good.index(b"cafe")].count(b"\n") + 1
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"config\.edit\.toml:{line}: not valid UTF-8"):
            settings.save(root, settings.draft(root))
    draft = settings.draft(root)
    draft.path.write_bytes(draft.path.read_bytes().replace(b"caf\xe9", "café".encode()))
    settings.save(root, draft)
    assert config(root).defaults.env == {"A": "café"}


def test_a_link_stays_a_link_and_the_file_keeps_its_mode(root: Root, tmp_path: Path) -> None:
    """Break: write_atomic, which replaces the link with a file of mode 600."""
    place = root.config.rename(tmp_path / "mine.toml")
    place.chmod(0o640)
    root.config.symlink_to(place)
    settings.save(root, edited(root, "[repo]\n", '[repo]\nvalidate = "x"\n'))
    assert root.config.is_symlink()
    assert place.stat().st_mode & 0o777 == 0o640
    assert config(root).repo.validate == "x"


def test_only_a_change_of_the_source_is_looked_at(root: Root) -> None:
    """Break: fetch after every edit; or after none of a file that was invalid before."""
    assert not settings.save(root, edited(root, "[repo]\n", '[repo]\nvalidate = "x"\n'))
    good = root.config.read_bytes()
    root.config.write_bytes(good + b"\xe9")
    draft = settings.draft(root)
    draft.path.write_bytes(good)
    assert settings.save(root, draft)
