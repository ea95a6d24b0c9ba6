"""`llmc usage` as a table and as JSON, from a log with and without prices; and times for --since."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from llmc.base.errors import UsageError
from llmc.cli.app import cli
from llmc.cli.arguments import parse_since
from llmc.config.paths import Root
from llmc.records.store import Store
from tests.support.command_tree import context

NOW = 1_800_000_000.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two workers; one of two models has a known price. The price list will not be old for a while."""
    (tmp_path / ".llmc").mkdir()
    brought = {"as_of": "2100-01-01", "prices": {"claude-x": {"input": 1, "output": 1}}}
    (tmp_path / ".llmc/prices.json").write_text(json.dumps(brought))
    (tmp_path / "config.toml").write_text('[repo]\nsource = "/none"\n')
    store = Store(Root(tmp_path))
    store.create()
    with store.transaction() as tx:
        for worker, task, model, output, cost in (
            ("auto-1", "12", "claude-opus-4-8", 100, 2.5),
            ("auto-2", None, "model-4.5", 300, None),
            ("auto-1", "13", "model-4.5", 50, None),
        ):
            kinds = {"input_tokens": 0, "output_tokens": output, "cache_read_input_tokens": 9000}
            tx.emit("usage_recorded", worker=worker, task_id=task, model=model, **kinds, cost=cost)
        tx.emit("auto_started", concurrency=2)
    return tmp_path


def run(root: Path, *args: str) -> Result:
    done = CliRunner().invoke(cli, ["--root", str(root), "usage", *args], standalone_mode=False)
    assert done.exception is None
    return done


def lines(root: Path, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(root, *args, "--json").stdout)["lines"]
    return found


@pytest.mark.req("5-011")
def test_a_table_with_its_sum_and_what_has_no_price(root: Path) -> None:
    """Break: silently leave a missing price out of the sum."""
    done = run(root)
    assert done.stdout == (
        "worker  input  output  cache write  cache read  toward limit       cost  share\n"
        "auto-2      0     300            0       9,000           300          ?    67%\n"
        "auto-1      0     150            0      18,000           150  $2.50 + ?    33%\n"
        "total       0     450            0      27,000           450  $2.50 + ?   100%\n"
    )
    assert done.stderr == (
        "no price for model-4.5; run `llmc prices update FILE|URL`, or "
        "set its prices in dollars per million tokens: "
        "llmc config set 'prices.\"model-4.5\".input' N; llmc config set 'prices.\"model-4.5\".output' N\n"
    )


@pytest.mark.req("5-011")
def test_work_without_a_task_and_without_a_price_is_null(root: Path) -> None:
    found = {line["task"]: (line["output_tokens"], line["cost"]) for line in lines(root, "--by", "task")}
    assert found == {None: (300, None), "12": (100, 2.5), "13": (50, None)}


@pytest.mark.req("5-005", "5-011")
def test_a_price_that_is_set_later_makes_the_cost_known_and_the_share_one_of_money(root: Path) -> None:
    """Break: price only the rows that have a cost."""
    with (root / "config.toml").open("a") as file:
        file.write('[prices."model-4.5"]\ninput = 1\noutput = 1000\ncache_read = 0\n')
    found = {line["model"]: (line["cost"], line["share"]) for line in lines(root, "--by", "model")}
    assert found == {"claude-opus-4-8": (2.5, 0.8772), "model-4.5": (0.35, 0.1228)}


def test_an_old_list_of_prices_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: silently calculate with old prices."""
    (root / ".llmc/prices.json").unlink()
    monkeypatch.setattr("llmc.api.reports.date", type("Later", (), {"today": lambda: date(2100, 1, 1)}))
    assert re.search(
        r"model prices are from 20\d\d-\d\d-\d\d\. To update them: llmc prices update FILE", run(root).stderr
    )


def test_nothing_used_is_said(root: Path) -> None:
    done = run(root, "--since", "2100-01-01")
    assert (done.stdout, done.stderr) == ("", "no usage in this period (--since 2100-01-01)\n")
    assert lines(root, "--since", "2100-01-01") == []


def test_by_is_completed() -> None:
    offered = ShellComplete(cli, {}, "llmc", "_LLMC_COMPLETE").get_completions(["usage", "--by"], "")
    assert [item.value for item in offered] == ["worker", "task", "day", "model"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("1700000000.5", 1_700_000_000.5),
        ("2026-01-31T08:00:00+00:00", 1_769_846_400.0),
        ("12h", NOW - 43_200),
        ("1d12h", NOW - 129_600),
    ],
)
def test_times_for_since(text: str, seconds: float) -> None:
    """Break: read 12h before unix seconds, so that "90" is a minute and a half ago."""
    assert parse_since(text, NOW) == seconds


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "99999-01-01", "-12h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid time"):
        parse_since(text, NOW)


def test_help_has_an_example() -> None:
    command = cli.get_command(context(cli), "usage")
    assert command is not None
    assert "Examples:" in (command.help or "")
