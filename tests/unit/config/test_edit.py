"""Single options are read and changed; comments survive, and nothing invalid is written."""

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.base.errors import ConfigError, LlmcError, NotFound, Refused, UsageError
from llmc.config.edit import add_worker, get_value, initial_text, remove_worker, set_value, unset_value
from llmc.config.load import check_text, load_config
from llmc.config.model import Config, Defaults, Price, Repo, Worker
from llmc.config.toml_text import differences, quoted, remove_table

TEXT = """\
# my fleet
[repo]
source = "~/src/x"   # the real one

# how workers start
[defaults]
# cheaper than opus
model = "sonnet"  # for now
env = { A = "1" }

# Adam is careful
[workers.adam]
role_prompt = '''
You are Adam.
'''

# the end
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(TEXT)
    return path


def comments(text: str) -> list[str]:
    return [line[line.index("#") :] for line in text.splitlines() if "#" in line]


def test_get_gives_the_value_in_effect(file: Path) -> None:
    config = load_config(file)
    assert get_value(config, "defaults.model") == "sonnet"
    assert get_value(config, "defaults.agent") == "claude"
    assert get_value(config, "defaults.env.A") == "1"
    assert get_value(config, "repo") == Repo(source="~/src/x")


def test_get_of_an_unset_worker_model_is_the_inherited_one(file: Path) -> None:
    """Fails when `inherits` is taken from Worker.model."""
    assert get_value(load_config(file), "workers.adam.model") == "sonnet"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("defaults.modle", 'did you mean "defaults.model"?'),
        ("defaults.self_review.enable", 'did you mean "defaults.self_review.enabled"?'),
        ("default.model", 'did you mean "defaults"?'),
        ("workers.zed.model", '"workers.zed" is not configured'),
        ("workers.Zed.model", "a worker name must start"),
        ("defaults.env.B", '"defaults.env.B" is not configured'),
        ("defaults.model.x", "defaults.model is not a table"),
    ],
)
def test_get_of_an_unknown_key_names_the_nearest(file: Path, key: str, said: str) -> None:
    with pytest.raises(NotFound) as caught:
        get_value(load_config(file), key)
    assert said in caught.value.message


def test_get_needs_no_tomlkit() -> None:
    """Fails when edit.py imports tomlkit at the top."""
    code = "import sys, llmc.config.edit; sys.exit('tomlkit' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_set_changes_one_line_and_nothing_else(file: Path) -> None:
    """Fails when the file is written from the data instead of edited."""
    config = set_value(file, "defaults.model", "haiku")
    assert config.defaults.model == "haiku"
    assert file.read_text() == TEXT.replace('model = "sonnet"', 'model = "haiku"')


def test_a_new_key_goes_below_the_last_key_of_its_table(file: Path) -> None:
    """Fails when tomlkit places it: below "# Adam is careful"."""
    set_value(file, "defaults.patrol_interval_secs", "2m")
    assert file.read_text() == TEXT.replace('"1" }\n', '"1" }\npatrol_interval_secs = "2m"\n')


def test_a_new_key_goes_below_the_comment_that_shows_it(file: Path) -> None:
    file.write_text(initial_text("~/src/x", "main", "claude"))
    set_value(file, "defaults.model", "sonnet")
    assert '# model = "opus"\nmodel = "sonnet"\n' in file.read_text()


def test_a_new_table_goes_to_the_end(file: Path) -> None:
    set_value(file, "trash.keep_days", "7")
    assert file.read_text() == TEXT + "\n[trash]\nkeep_days = 7\n"


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("defaults.model", '"quoted"', "quoted"),
        ("defaults.model", "3", "3"),
        ("repo.validate", "true", "true"),
        ("repo.validate", "make test # all", "make test # all"),
        ("repo.validate", "", ""),
        ("workers.adam.model", "2024-01-01", "2024-01-01"),
        ("repo.copy", '[".env"]', (".env",)),
        ("defaults.skip_permissions", "false", False),
        ("defaults.ready_timeout_s", "1h30m", 5400.0),
        ("defaults.ready_timeout_s", "0.5", 0.5),
        ("defaults.env.B", "a\nb", "a\nb"),
        ("defaults.env", '{ Z = "1" }', {"Z": "1"}),
        ("defaults.agent", "scripted", "scripted"),
        ('prices."claude-opus-4.8".input', "5", 5.0),
        ("auto.budget.day_cost", "12.5", 12.5),
        ("workers.adam.role_prompt", 'one\n"""two"""\n', 'one\n"""two"""\n'),
        ("workers.adam.role_prompt", "\nfirst line empty\\", "\nfirst line empty\\"),
        ("workers.adam.role_prompt", 'x"\ny = 1', 'x"\ny = 1'),
    ],
)
def test_raw_is_toml_or_else_text(file: Path, key: str, raw: str, value: object) -> None:
    assert get_value(set_value(file, key, raw), key) == value
    assert get_value(load_config(file), key) == value


@pytest.mark.parametrize(
    ("key", "raw", "error"),
    [
        ("defaults.modle", "x", NotFound),
        ("defaults", '{ model = "x" }', UsageError),
        ("workers", "{}", UsageError),
        ("workers.adam", "{}", UsageError),
        ("defaults.", "x", UsageError),
        ("defaults.sound_on_review", "yes", UsageError),
        ("defaults.patrol_interval_secs", "0", UsageError),
        ("defaults.ready_timeout_s", "soon", UsageError),
        ("trash.keep_days", "1\nx = 2", UsageError),
        ("repo.source", "", UsageError),
        ("repo.copy", ".env", UsageError),
        ("workers.adma.model", "opus", NotFound),
        ("defaults.env.A-B", "1", NotFound),
        ("defaults.model", "\udcff", UsageError),
        ("prices.claude-opus", "{ input = 5 }", UsageError),
        ("prices.claude-opus.inptu", "5", NotFound),
        ('prices."two words".input', "5", NotFound),
        ("prices.claude-opus.input", "-5", UsageError),
        ("auto.budget.day_tokens", "1.5", UsageError),
        ("auto.budget.soft", "0", UsageError),
    ],
)
def test_a_bad_set_writes_nothing(file: Path, key: str, raw: str, error: type[LlmcError]) -> None:
    """Fails when the file is written before the result is checked."""
    with pytest.raises(error):
        set_value(file, key, raw)
    assert file.read_text() == TEXT
    assert os.listdir(file.parent) == ["config.toml"]


def test_an_unknown_worker_in_set_says_add(file: Path) -> None:
    """Fails when set creates the worker that a typo names."""
    with pytest.raises(NotFound) as caught:
        set_value(file, "workers.zed.model", "opus")
    assert "llmc add zed" in caught.value.hint


def test_set_may_repair_the_key_that_is_wrong_but_not_hide_another(file: Path) -> None:
    file.write_text(TEXT.replace('"sonnet"', "3"))
    assert set_value(file, "defaults.model", "opus").defaults.model == "opus"
    broken = TEXT.replace("[defaults]", "[defaults]\nmodle = 1\nagent = 1")
    file.write_text(broken)
    with pytest.raises(ConfigError, match=r"was not changed(.|\n)*config.toml:7: defaults.modle"):
        set_value(file, "defaults.agent", "claude")
    assert file.read_text() == broken


def test_unset_removes_what_only_unset_can_repair(file: Path) -> None:
    file.write_text(TEXT.replace("[defaults]", "[defaults]\nmodle = 1"))
    unset_value(file, "defaults.modle")
    assert file.read_text() == TEXT


def test_unset_goes_back_to_the_default(file: Path) -> None:
    assert unset_value(file, "defaults.model").defaults.model == "opus"
    assert "# cheaper than opus" in file.read_text()
    before = file.read_text()
    assert unset_value(file, "defaults.model").defaults.model == "opus"
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("key", "error"), [("defaults.modle", NotFound), ("defaults", UsageError), ("repo.source", ConfigError)]
)
def test_a_bad_unset_writes_nothing(file: Path, key: str, error: type[LlmcError]) -> None:
    with pytest.raises(error):
        unset_value(file, key)
    assert file.read_text() == TEXT


def test_broken_toml_is_never_touched(file: Path) -> None:
    file.write_text("[repo\n")
    for change in (lambda: set_value(file, "defaults.model", "x"), lambda: add_worker(file, "bob", Worker())):
        with pytest.raises(ConfigError, match=r"config\.toml:1: invalid TOML"):
            change()
    assert file.read_text() == "[repo\n"


def test_a_worker_is_added_and_removed(file: Path) -> None:
    worker = Worker(model="opus", role_prompt="You are Bob.\nBe brief.\n")
    assert add_worker(file, "bob", worker).workers["bob"] == worker
    assert file.read_text().endswith(
        '\n\n[workers.bob]\nmodel = "opus"\nrole_prompt = """\nYou are Bob.\nBe brief.\n"""\n'
    )
    assert "bob" not in remove_worker(file, "bob").workers
    assert file.read_text().rstrip() == TEXT.rstrip()


def test_removing_a_worker_leaves_the_comment_of_the_next_one(file: Path) -> None:
    """Fails when tomlkit removes the table: it removes the comments after it, too."""
    bob = '[workers.bob] # b\nmodel = "x"\n[workers.bob.sub]\n# inside\nx = [\n1]\n\n'
    zoe = "# Zoe is fast\n[workers.zoe]\n"
    assert remove_table(f"{TEXT}\n{bob}{zoe}", ("workers", "bob")) == f"{TEXT}\n{zoe}"
    file.write_text(f"{TEXT}\n{zoe}")
    remove_worker(file, "adam")
    assert file.read_text().endswith("# Adam is careful\n\n# the end\n\n# Zoe is fast\n[workers.zoe]\n")


def test_prices_are_set_and_unset_one_by_one(file: Path) -> None:
    """Fails when a price is required as a whole: no single `config set` could create one."""
    set_value(file, "prices.claude-opus.input", "5")
    config = set_value(file, "prices.claude-opus.output", "25")
    assert config.prices == {"claude-opus": Price(input=5.0, output=25.0)}
    assert file.read_text() == TEXT + "\n[prices.claude-opus]\ninput = 5\noutput = 25\n"
    with pytest.raises(NotFound, match=r'"prices.claude-opus.cache_read" is not set'):
        get_value(config, "prices.claude-opus.cache_read")
    unset_value(file, "prices.claude-opus.input")
    assert unset_value(file, "prices.claude-opus.output").prices.get("claude-opus", Price()) == Price()


def test_unset_does_not_lose_a_worker(file: Path) -> None:
    """Fails when a worker's table counts as empty: the dotted one would vanish with its last key."""
    text = 'repo.source = "x"\nworkers.adam.model = "a"\n'
    file.write_text(text)
    with pytest.raises(ConfigError, match="without changing"):
        unset_value(file, "workers.adam.model")
    assert file.read_text() == text


def test_a_worker_with_defaults_is_an_empty_table(file: Path) -> None:
    assert add_worker(file, "bob", Worker()).workers["bob"] == Worker()
    assert file.read_text() == TEXT + "\n[workers.bob]\n"


@pytest.mark.parametrize(
    ("name", "error"),
    [("adam", Refused), ("auto-1", UsageError), ("overseer", UsageError), ("B", UsageError)],
)
def test_a_bad_add_writes_nothing(file: Path, name: str, error: type[LlmcError]) -> None:
    with pytest.raises(error):
        add_worker(file, name, Worker())
    assert file.read_text() == TEXT


def test_removing_an_unknown_worker_names_the_nearest(file: Path) -> None:
    with pytest.raises(NotFound, match='did you mean "adam"'):
        remove_worker(file, "adan")


LAYOUTS = {
    "headers": TEXT,
    "no newline at the end": '[repo]\nsource = "x"\n[workers.adam]',
    "windows": TEXT.replace("\n", "\r\n"),
    "dotted": 'repo.source = "x" # c\ndefaults.model = "sonnet"\nworkers.adam.role_prompt = ""\n',
    "inline": 'repo = { source = "x" } # c\ndefaults = { model = "a" }\nworkers = { adam = { } }\n',
    "inline, empty": 'workers = { adam = {} }\ndefaults = {}\nrepo = { source = "x" }\n',
    "out of order": '[workers.adam]\n# a\n[repo]\nsource = "x"\n[workers.zoe]\nmodel = "q" # z\n[defaults.env]\nA = "1"\n',
    "starter": initial_text("x", "main", "claude") + "[workers.adam]\n",
    "indented": '[repo]\n  source = "x"\n[workers]\n  # w\n  [workers.adam]\n    model = "a" # m\n[defaults]\n',
}
CHANGES: dict[str, Callable[[Path], Config]] = {
    "set model": lambda path: set_value(path, "defaults.model", "haiku"),
    "set tools": lambda path: set_value(path, "defaults.allowed_tools", '["A", "B"]'),
    "set env": lambda path: set_value(path, "defaults.env.NEW", "a b"),
    "set worker": lambda path: set_value(path, "workers.adam.model", "haiku"),
    "set role": lambda path: set_value(path, "workers.adam.role_prompt", "one\ntwo\n"),
    "set trash": lambda path: set_value(path, "trash.keep_days", "1"),
    "unset model": lambda path: unset_value(path, "defaults.model"),
    "remove": lambda path: remove_worker(path, "adam"),
    "add": lambda path: add_worker(path, "bob", Worker(role_prompt="a\nb")),
}


#: what comes after or inside something that is removed
GONE = {"unset model": ["# for now"], "remove": ["# m"]}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_works_in_every_layout(tmp_path: Path, layout: str, change: str) -> None:
    """Fails when there is no second way to edit what the plain insert cannot, e.g. inline tables."""
    path = tmp_path / "config.toml"
    path.write_bytes(LAYOUTS[layout].encode())
    before = load_config(path)
    after = CHANGES[change](path)
    assert load_config(path) == after
    assert (after == before) == (change == "unset model" and before.defaults.model == "opus")
    kept = comments(path.read_bytes().decode())
    assert [
        line for line in comments(LAYOUTS[layout]) if line not in kept and line not in GONE.get(change, [])
    ] == []


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
_NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)


def _edited(text: str, change: Callable[[Path], object]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_bytes(text.encode())
        change(path)
        return path.read_bytes().decode()


@given(_TEXTS, st.sampled_from(sorted(LAYOUTS)))
def test_any_role_prompt_survives_add_and_get(prompt: str, layout: str) -> None:
    """Fails when a multi-line string is written without escapes."""
    text = _edited(LAYOUTS[layout], lambda path: add_worker(path, "bob", Worker(role_prompt=prompt)))
    config, found = check_text(text, "config.toml")
    assert config is not None, found
    assert config.workers["bob"].role_prompt == prompt


@given(st.dictionaries(_NAMES, _TEXTS.filter(lambda text: "\0" not in text), max_size=4))
def test_set_then_get_and_every_comment_survives(env: dict[str, str]) -> None:
    """Fails when a replaced value loses the comment after it."""

    def change(path: Path) -> None:
        for name, value in env.items():
            set_value(path, f"defaults.env.{name}", quoted(value))

    text = _edited(TEXT, change)
    config, _ = check_text(text, "config.toml")
    assert config is not None
    assert config.defaults.env == {"A": "1"} | env
    assert [line for line in comments(TEXT) if line not in text] == []


def test_the_file_is_replaced_whole_and_keeps_its_mode(file: Path) -> None:
    """Fails when the file is written in place: an open reader would see it change."""
    file.chmod(0o640)
    with file.open() as reader:
        set_value(file, "defaults.model", "haiku")
        assert reader.read() == TEXT
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(file.parent) == ["config.toml"]


def test_a_linked_config_stays_a_link(file: Path, tmp_path: Path) -> None:
    """Fails when the rename replaces the link instead of its target."""
    link = tmp_path / "other" / "config.toml"
    link.parent.mkdir()
    link.symlink_to(file)
    set_value(link, "defaults.model", "haiku")
    assert link.is_symlink()
    assert load_config(file).defaults.model == "haiku"


def test_a_failed_write_is_told_and_leaves_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        set_value(file, "defaults.model", "haiku")
    assert file.read_text() == TEXT
    assert os.listdir(file.parent) == ["config.toml"]


@pytest.mark.parametrize("agent", ["claude", "scripted"])
@pytest.mark.parametrize("source", ["~/src/x", 'a "b" \\c', "https://example.org/x.git", "tab\there"])
def test_the_starter_is_valid_and_holds_what_was_chosen(source: str, agent: str) -> None:
    config, found = check_text(initial_text(source, "main", agent), "config.toml")
    assert found == []
    assert config == Config(
        repo=Repo(source=source, default_branch="main"),
        defaults=Defaults(agent="scripted" if agent == "scripted" else "claude"),
    )


def test_every_commented_option_of_the_starter_can_be_switched_on() -> None:
    """Fails when an example in model.py is not valid for its option."""
    lines = initial_text("x", "main", "claude").splitlines()
    options = [line for line in lines if line.startswith("# ") and (" = " in line or "# [" in line)][1:]
    assert len(options) > 15
    text = "\n".join(line[2:] if line in options else line for line in lines)
    config, found = check_text(text, "config.toml")
    assert found == []
    assert config is not None
    assert config.workers["adam"].model == "sonnet"
    assert set(tomllib.loads(text)["defaults"]) == set(Defaults.__struct_fields__)


def test_the_differences_of_two_files_are_keys() -> None:
    """Break: name whole tables; or leave out a table without keys, such as a new worker."""
    before = {"a": {"b": 1, "c d": 2, "same": {"x": 1}}, "gone": True}
    after = {"a": {"b": 2, "c d": 2, "same": {"x": 1}, "new": [1]}, "workers": {"adam": {}}}
    assert differences(before, after) == ["a.b", "a.new", "gone", "workers.adam"]
    assert differences(before, before) == []
    assert differences({}, {"a": {"b": 1}}) == ["a.b"]
