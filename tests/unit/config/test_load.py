"""config.toml becomes one Config, or every problem at once."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.base.errors import ConfigError, NotFound
from llmc.config.load import Problem, check_text, load_config
from llmc.config.model import Config, Defaults, Repo, Worker
from llmc.config.options import check_worker_name

REPO = '[repo]\nsource = "~/src/x"\n'


def problems(text: str) -> list[str]:
    config, found = check_text(text, "config.toml")
    assert (config is None) == bool(found)
    return [str(problem) for problem in found]


def loaded(text: str) -> Config:
    config, found = check_text(text, "config.toml")
    assert config is not None, found
    return config


@pytest.mark.req("1-030", "1-031", "1-032", "1-033", "1-034")
def test_defaults_are_those_of_the_documents() -> None:
    """Fails when any default changes."""
    config = loaded(REPO)
    assert config == Config(repo=Repo(source="~/src/x"))
    assert config.defaults.model == "opus"
    assert config.defaults.skip_permissions
    assert config.defaults.allowed_tools == ("Bash", "Edit", "Read", "Write", "Glob", "Grep")
    assert config.defaults.patrol_interval_secs == 60
    assert config.defaults.sound_on_review
    assert config.trash.keep_days == 30


@pytest.mark.req("1-036", "1-037", "1-038")
def test_a_worker_overrides_the_model() -> None:
    """Fails when model_of ignores the worker's own model."""
    config = loaded(REPO + '[workers.adam]\nmodel = "sonnet"\nexcluded_from_pool = true\n[workers.baker]\n')
    assert config.workers["adam"] == Worker(model="sonnet", excluded_from_pool=True)
    assert config.workers["baker"] == Worker(model=None, role_prompt="", excluded_from_pool=False)
    assert [config.model_of(name) for name in ("adam", "baker", "auto-1")] == ["sonnet", "opus", "opus"]


@pytest.mark.parametrize(
    ("written", "seconds"), [("90", 90.0), ("0.5", 0.5), ('"15m"', 900.0), ('"90"', 90.0)]
)
def test_durations_take_numbers_and_texts(written: str, seconds: float) -> None:
    """Fails when a duration field loses its `parse`."""
    config = loaded(f"{REPO}validate_timeout_s = {written}\n[defaults]\npatrol_interval_secs = {written}\n")
    assert config.repo.validate_timeout_s == seconds
    assert config.defaults.patrol_interval_secs == seconds


def test_every_problem_is_listed_with_its_line() -> None:
    """Fails when the walk stops at the first problem, as msgspec does."""
    text = """\
[defaults]
modle = "x"
patrol_interval_secs = 0
skip_permissions = "yes"
allowed_tools = ["a", 3]
agent = "codex"
env = { "A B" = "x", C = 3 }
start_stagger_s = "soon"
[repos]
[trash]
keep_days = 3.5
[workers.Bad]
[workers.adam]
model = 3
role = ""
excluded = 1
"""
    assert problems(text) == [
        "config.toml: repo.source: missing; expected a string",
        'config.toml:2: defaults.modle: unknown key; did you mean "model"?',
        "config.toml:3: defaults.patrol_interval_secs: must be greater than 0, got 0.0",
        'config.toml:4: defaults.skip_permissions: expected true or false, got "yes"',
        "config.toml:5: defaults.allowed_tools.1: expected a string, got 3",
        'config.toml:6: defaults.agent: expected "claude" or "scripted", got "codex"',
        'config.toml:7: defaults.env."A B": an environment variable name may contain only letters, digits and underscores, and must not start with a digit',
        "config.toml:7: defaults.env.C: expected a string, got 3",
        'config.toml:8: defaults.start_stagger_s: "soon" is not a duration; use a number of seconds (90) or a value such as "15m", "1h30m", "250ms" or "2d"',
        'config.toml:9: repos: unknown key; did you mean "repo"?',
        "config.toml:11: trash.keep_days: expected a whole number, got 3.5",
        "config.toml:12: workers.Bad: a worker name must start with a lowercase letter, contain only lowercase letters, digits and dashes, and have at most 31 characters",
        "config.toml:14: workers.adam.model: expected a string, got 3",
        'config.toml:15: workers.adam.role: unknown key; did you mean "role_prompt"?',
        'config.toml:16: workers.adam.excluded: unknown key; did you mean "excluded_from_pool"?',
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("true", "got true"),
        ("-1", "at least 0"),
        ("40000", "at most 36500"),
        ("0x" + "f" * 9000, "got a huge number"),
    ],
)
def test_a_whole_number_has_bounds_and_is_no_bool(value: str, said: str) -> None:
    """Fails when bool counts as int, as in Python."""
    (problem,) = problems(f"{REPO}[trash]\nkeep_days = {value}\n")
    assert problem.startswith("config.toml:4: trash.keep_days: ")
    assert said in problem


def test_a_key_near_nothing_is_told_what_there_is() -> None:
    assert problems(REPO + "[trash]\nzzz = 1\n") == [
        "config.toml:4: trash.zzz: unknown key; expected one of: keep_days"
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sound_on_review = 1", "expected true or false, got 1"),
        ("model = true", "expected a string, got true"),
        ('model = ""', "must not be empty"),
        ("ready_timeout_s = true", "true is not a duration"),
        ("ready_timeout_s = inf", "not a finite duration"),
        ("ready_timeout_s = nan", "not a finite duration"),
        ("ready_timeout_s = 1e300", "must be at most 31536000"),
        ("start_stagger_s = -1", "is negative"),
        ('env = "A=1"', "expected a table"),
        ('env.A = "\\u0000"', "NUL"),
        ('allowed_tools = "Bash"', "expected an array of strings"),
        ("model = 2024-01-01", "got a date"),
        ("ready_timeout_s = 0x" + "f" * 9000, "a huge number is not a finite duration"),
    ],
)
def test_wrong_values_name_what_is_expected(line: str, said: str) -> None:
    (problem,) = problems(f"{REPO}[defaults]\n{line}\n")
    assert problem.startswith("config.toml:4: defaults.")
    assert said in problem


@pytest.mark.parametrize("table", ["repo", "defaults", "workers", "trash", "workers.adam"])
def test_a_value_where_a_table_belongs(table: str) -> None:
    assert any(": expected a table, got 3" in problem for problem in problems(f"{table} = 3\n"))


@pytest.mark.parametrize("branch", ["-x", "a b", "a:b", "a\\\\b"])
def test_a_branch_name_cannot_become_an_option_of_git(branch: str) -> None:
    """Fails when default_branch loses its check."""
    (problem,) = problems(f'{REPO}default_branch = "{branch}"\n')
    assert "config.toml:3: repo.default_branch: not a valid branch name" in problem


@pytest.mark.parametrize(
    ("text", "line"),
    [("[repo\n", 1), ("a = 1\nb = = 2\n", 2), ('[a]\nb = """\n', 2), ("a = 1\na = 2\n", 2), ("a = [\n\n", 1)],
)
def test_syntax_errors_have_a_line(text: str, line: int) -> None:
    """Fails when the line is not taken from tomllib's message."""
    config, (problem,) = check_text(text, "config.toml")
    assert config is None
    assert (problem.line, problem.key) == (line, "")
    assert problem.message.startswith("invalid TOML: ")
    assert "at line" not in problem.message


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "1" * 5000])
def test_hostile_toml_is_a_problem_and_no_traceback(text: str) -> None:
    assert len(problems(text)) == 1


@given(st.text())
def test_any_text_gives_a_config_or_problems(text: str) -> None:
    """Fails when some text raises an exception."""
    problems(text)


_VALUES = st.recursive(
    st.sampled_from(["1", "-1", "1.5", "nan", "true", '""', '"x"', "1979-05-27", "07:32:00"]),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]")
        | inner.map(lambda item: f"{{ model = {item} }}")
    ),
    max_leaves=3,
)
_KEYS = st.sampled_from(
    [
        *(f"repo.{name}" for name in Repo.__struct_fields__),
        *(f"defaults.{name}" for name in Defaults.__struct_fields__),
        *("workers", "workers.adam", "workers.adam.model", "trash", "trash.keep_days", "what"),
    ]
)


@given(_KEYS, _VALUES)
def test_any_value_anywhere_gives_a_config_or_problems_on_its_line(key: str, value: str) -> None:
    _, found = check_text(f"{key} = {value}\n", "config.toml")
    assert all(problem.line == 1 for problem in found if problem.key != "repo.source" or key == "repo.source")


def test_load_lists_all_problems_and_says_what_to_run(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(REPO + '[defaults]\nmodle = "x"\nagent = 3\n')
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert caught.value.message.splitlines() == [
        f"{file} is invalid:",
        'config.toml:4: defaults.modle: unknown key; did you mean "model"?',
        'config.toml:5: defaults.agent: expected "claude" or "scripted", got 3',
    ]
    assert "llmc config edit" in caught.value.hint


def test_load_reads_a_good_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(REPO.replace("\n", "\r\n").encode())
    assert load_config(file).repo.source == "~/src/x"


def test_no_file_says_run_init(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        load_config(tmp_path / "config.toml")
    assert "llmc init" in caught.value.hint


def test_unreadable_files_are_config_errors(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"[repo]\nsource = '\xff'\n")
    with pytest.raises(ConfigError, match=r"config\.toml:2: not valid UTF-8"):
        load_config(file)
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path)


@pytest.mark.parametrize("name", ["a", "adam", "b2", "a-b", "auto-x", "overseer-2", "a" * 31])
def test_good_worker_names(name: str) -> None:
    assert check_worker_name(name) is None


@pytest.mark.parametrize("name", ["", "A", "2a", "-a", "a_b", "a.b", "a/b", "a\n", "ä", "a" * 32])
def test_bad_worker_names(name: str) -> None:
    """Fails when the end of the pattern is not matched: "a\\n" would pass."""
    assert "a worker name must start" in (check_worker_name(name) or "")


@pytest.mark.parametrize("name", ["overseer", "auto-1", "auto-10", "daemon", "auto", "goals"])
def test_reserved_worker_names(name: str) -> None:
    assert "reserved" in (check_worker_name(name) or "")


def test_a_problem_without_key_or_line_still_reads_well() -> None:
    assert str(Problem(file="f", key="", line=None, message="m")) == "f: m"


def test_loading_pulls_in_nothing_heavy() -> None:
    """Fails when load.py, or a module it imports, imports tomlkit, rich, click or asyncio at the top."""
    code = "import sys, llmc.config.load; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert not {"tomlkit", "rich", "click", "asyncio", "jinja2"} & set(modules.stdout.split())
