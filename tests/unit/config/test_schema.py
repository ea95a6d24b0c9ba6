"""The options as data, for docs and editors."""

import json
import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.config.goal_options import Backoff, GoalPlanner, GoalPolicy, Goals, GoalStorage
from llmc.config.model import (
    Auto,
    Budget,
    Config,
    Contained,
    Defaults,
    Fleet,
    Logs,
    Notify,
    Overseer,
    Price,
    Repo,
    SelfReview,
    Trash,
    Ui,
    Worker,
)
from llmc.config.schema import json_schema, reference, to_toml


def test_every_field_of_every_table_is_in_the_reference() -> None:
    """Fails when a table is skipped."""
    tables = {
        "repo": Repo,
        "defaults": Defaults,
        "defaults.self_review": SelfReview,
        "sandbox": Contained,
        "workers.<name>": Worker,
        "trash": Trash,
        "logs": Logs,
        "notify": Notify,
        "auto": Auto,
        "ui": Ui,
        "fleet": Fleet,
        "auto.budget": Budget,
        "overseer": Overseer,
        "overseer.goals": Goals,
        "overseer.goals.backoff": Backoff,
        "overseer.goals.planner": GoalPlanner,
        "overseer.goals.policy": GoalPolicy,
        "overseer.goals.storage": GoalStorage,
        "prices.<model>": Price,
    }
    assert set(Config.__struct_fields__) == {name.partition(".")[0] for name in tables}
    expected = {f"{name}.{field}" for name, table in tables.items() for field in table.__struct_fields__}
    expected -= tables.keys()
    assert {option.key for option in reference()} == expected


def test_every_option_is_described_in_one_line() -> None:
    """Fails when a field is added without a description."""
    for option in reference():
        assert 10 < len(option.description) < 100, option.key
        assert "\n" not in option.description


@pytest.mark.parametrize(
    ("key", "kind", "default"),
    [
        ("repo.source", "string", ""),
        ("repo.copy", "array of strings", "[]"),
        ("notify.urls", "array of strings", "[]"),
        ("overseer.goals.policy.allow_agents", "array of strings", '["auto"]'),
        ("defaults.model", "string", '"opus"'),
        ("defaults.patrol_interval_secs", "duration", "60"),
        ("defaults.agent", '"claude" or "scripted"', '"claude"'),
        ("defaults.env", "table", "{}"),
        ("defaults.self_review.enabled", "true or false", "false"),
        ("workers.<name>.excluded_from_pool", "true or false", "false"),
        ("trash.keep_days", "whole number", "30"),
        ("auto.budget.day_tokens", "whole number", "0"),
        ("prices.<model>.input", "number", ""),
    ],
)
def test_an_option_says_its_type_and_default(key: str, kind: str, default: str) -> None:
    (option,) = [option for option in reference() if option.key == key]
    assert (option.type, option.default) == (kind, default)


def test_defaults_and_examples_are_toml() -> None:
    for option in reference():
        for text in filter(None, (option.default, option.example)):
            tomllib.loads(f"x = {text}")


def test_the_json_schema_lets_durations_be_texts() -> None:
    """Fails when durations stay plain numbers: an editor would mark "15m" as wrong."""
    schema = json_schema()
    assert "x-duration" not in json.dumps(schema)
    tables = schema["$defs"]
    assert isinstance(tables, dict)
    properties = tables["Defaults"]["properties"]
    assert properties["patrol_interval_secs"]["type"] == ["number", "string"]
    assert properties["model"]["type"] == "string"
    assert tables["Config"]["required"] == ["repo"]


_VALUES = st.recursive(
    st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(_VALUES)
def test_what_is_written_reads_back_equal(value: object) -> None:
    """Fails when a newline at the start of a text or a run of quotes is lost."""
    assert tomllib.loads(f"x = {to_toml(value)}") == {"x": value}


def test_what_toml_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot write None"):
        to_toml(None)


def test_structs_refuse_unknown_fields_and_changes() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"repo": {"source": "x"}, "zzz": 1}, Config)
    with pytest.raises(AttributeError):
        Trash().keep_days = 3  # type: ignore[misc]
