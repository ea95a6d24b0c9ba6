"""The price list: installed with a date, imported from outside, and overridden by the user's own."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from llmc.auto.prices import shipped
from llmc.auto.rules.costs import (
    OLD_DAYS,
    NoPrices,
    PriceList,
    Prices,
    complaint,
    cost_of,
    newest,
    price_list,
)
from llmc.base.errors import LlmcError
from llmc.cli.app import cli
from llmc.config.model import Price
from llmc.config.paths import Root
from llmc.doctor.looking import config_advice, open_any
from llmc.doctor.registry import notes
from llmc.doctor.rules.facts import Facts
from llmc.records.store import Store
from llmc.records.worker import Tokens

TODAY = date(2026, 11, 16)
#: the client's current opus, sonnet, haiku and fable, and an older one
CURRENT = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-2", "claude-opus-4-8")


def test_current_models_have_a_price_as_installed() -> None:
    """Break: leave data/prices.json out, or the date in it."""
    found = shipped()
    assert date(2026, 11, 1) <= date.fromisoformat(found.as_of)
    prices = Prices(listed=found)
    for model in CURRENT:
        price = prices.of(model)
        assert price is not None, model
        assert None not in (price.input, price.output, price.cache_write, price.cache_read)
        assert price.cache_read < price.input < price.cache_write < price.output


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("claude-opus-4-5", True),
        ("claude-opus-4-5-20251101", True),
        ("claude-opus-4-20250514", True),
        ("claude-opus-5-5[1m]", True),
        ("claude-opus-5-6", False),
        ("claude-opus-50", False),
        ("claude-opus-5-5-fast", False),
        ("claude-opus", False),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", False),
        ("", False),
    ],
)
def test_a_model_that_is_not_listed_has_no_price(model: str, known: bool) -> None:
    """Break: let a listed name stand for all that start with it; a new model would get an old one's price."""
    assert (Prices(listed=shipped()).of(model) is not None) is known


def test_a_persons_numbers_go_over_the_list() -> None:
    """Break: prefer the list, or keep its cache prices where the user has another input price."""
    listed = PriceList(prices={"claude-a-1": Price(input=4.0, output=20.0, cache_write=5.0, cache_read=0.2)})
    own = Prices(own={"claude-a": Price(output=10.0)}, listed=listed)
    assert own.of("claude-a-1") == Price(input=4.0, output=10.0, cache_write=5.0, cache_read=0.2)
    own = Prices(own={"claude-a": Price(input=8.0)}, listed=listed)
    assert own.of("claude-a-1") == Price(input=8.0, output=20.0)
    assert cost_of(own, "claude-a-1", Tokens(cache_read_input_tokens=1_000_000)) == 0.8
    assert own.of("claude-a-2") is None, "half a price is no price"


def test_the_newest_list_wins_and_keeps_what_only_the_other_has() -> None:
    """Break: let an imported list override a newer one that came with an update of llmc."""
    old = PriceList(
        as_of="2026-01-01", prices={"a": Price(input=1.0, output=1.0), "b": Price(input=1.0, output=1.0)}
    )
    new = PriceList(as_of="2026-02-01", source="x", prices={"a": Price(input=2.0, output=2.0)})
    for found in (newest(old, new), newest(new, old)):
        assert (found.as_of, found.source) == ("2026-02-01", "x")
        assert (found.prices["a"].input, found.prices["b"].input) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("as_of", "is_old"), [("2026-11-16", False), ("2026-07-19", False), ("2026-07-18", True), ("", True)]
)
def test_a_list_grows_old(as_of: str, is_old: bool) -> None:
    """Break: change OLD_DAYS, or ignore a list without a date."""
    assert OLD_DAYS == 120
    assert bool(complaint(PriceList(as_of=as_of), TODAY)) is is_old


def test_the_list_of_litellm_is_understood() -> None:
    """Break: take dollars per token as dollars per million, or use the lower of two bands."""
    row: dict[str, Any] = {
        "litellm_provider": "anthropic",
        "input_cost_per_token": 5e-06,
        "input_cost_per_token_above_200k_tokens": 1e-05,
        "output_cost_per_token": 2.5e-05,
        "cache_creation_input_token_cost": 6.25e-06,
        "cache_creation_input_token_cost_above_1hr": 9e-05,
        "cache_read_input_token_cost": 5e-07,
        "max_tokens": 64000,
    }
    other = {**row, "litellm_provider": "bedrock"}
    data = {
        "sample_spec": {},
        "claude-a": row,
        "claude-b": other,
        "gpt": row,
        "claude-c": {**row, "output_cost_per_token": 0},
    }
    found = price_list(data, TODAY)
    assert found.as_of == "2026-11-16"
    assert found.prices == {"claude-a": Price(input=10.0, output=25.0, cache_write=6.25, cache_read=0.5)}


@pytest.mark.parametrize(
    "data",
    [
        *([], None, {}, {"prices": {}}, {"prices": {"a": {"input": 1, "output": 1}}}),
        {"as_of": "soon", "prices": {"a": {"input": 1, "output": 1}}},
        {
            "as_of": "2026-01-01",
            "prices": {"a": {"input": 0, "output": 1}, "b": {"input": True, "output": 2}},
        },
        {"as_of": "2026-01-01", "prices": {"a": {"input": 1e300, "output": 1}, "b": 5, "c": {"input": "1"}}},
    ],
)
def test_what_is_no_list_is_refused(data: object) -> None:
    """Break: accept a price of zero; a budget would never be spent."""
    with pytest.raises(NoPrices):
        price_list(data, TODAY)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=4,
    )
)
def test_no_value_breaks_it(data: object) -> None:
    for one in (data, {"as_of": "2026-01-01", "prices": {"a": data}}, {"claude-a": data}):
        try:
            price_list(one, TODAY)
        except NoPrices:
            pass


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text('[repo]\nsource = "/none"\n[prices.claude-opus-5-5]\noutput = 1\n')
    Store(Root(tmp_path)).create()
    return tmp_path


def run(root: Path, *args: str) -> Result:
    return CliRunner().invoke(cli, ["--root", str(root), "prices", *args], standalone_mode=False)


def test_a_newer_list_is_brought_from_a_file(root: Path) -> None:
    """Break: write it without checking its date, or do not read it again."""
    new = {"as_of": "2100-01-01", "prices": {"claude-new-1": {"input": 7, "output": 9}}}
    file = root / "new.json"
    file.write_text(json.dumps(new))
    done = run(root, "update", str(file))
    assert done.exception is None
    assert "claude-new-1: no price -> 7/9" in done.stdout
    shown = json.loads(run(root, "list", "--json").stdout)
    assert shown["as_of"] == "2100-01-01"
    assert shown["prices"]["claude-new-1"]["input"] == 7
    assert "claude-opus-5-5" in shown["prices"]
    assert shown["own"] == {
        "claude-opus-5-5": {"input": None, "output": 1.0, "cache_write": None, "cache_read": None}
    }
    rows = run(root, "list").stdout.splitlines()
    assert rows[1].startswith("claude-opus-5-5 ")
    assert rows[1].endswith("config.toml")
    file.write_text(json.dumps({**new, "as_of": "2099-01-01"}))
    again = run(root, "update", str(file))
    assert isinstance(again.exception, LlmcError)
    assert "older than the current price list" in again.exception.message
    file.write_text(json.dumps(shown))
    assert run(root, "update", str(file)).exception is None, "the output of list --json is accepted"
    file.write_text(
        json.dumps({"as_of": "2100-01-02", "prices": {"claude-new-1": {"input": 8, "output": 9}}})
    )
    assert "claude-new-1: 7/9 -> 8/9" in run(root, "update", str(file)).stdout, "a daemon reads it again, too"


@pytest.mark.parametrize("text", ["", "[", "{}", '{"as_of": "2100-01-01", "prices": {}}'])
def test_nothing_is_written_of_what_is_no_list(root: Path, text: str) -> None:
    (root / "bad.json").write_text(text)
    done = run(root, "update", str(root / "bad.json"))
    assert isinstance(done.exception, LlmcError)
    assert "bad.json is not" in done.exception.message
    assert not (root / ".llmc/prices.json").exists()


def test_a_broken_file_in_the_root_leaves_the_installed_list(root: Path) -> None:
    """Break: use no prices at all, and every budget stops."""
    (root / ".llmc").mkdir(exist_ok=True)
    (root / ".llmc/prices.json").write_text("{")
    assert json.loads(run(root, "list", "--json").stdout)["as_of"] == shipped().as_of


def test_doctor_says_that_the_list_is_old(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: leave the list out of doctor's checks."""
    later = type("Later", (), {"today": lambda: date(2100, 1, 1)})
    monkeypatch.setattr("llmc.doctor.looking.date", later)
    project, problems = open_any(Root(root))
    assert problems == ()
    (said,) = notes(Facts(now=0.0, config_advice=config_advice(project)))
    assert "llmc prices update" in said
