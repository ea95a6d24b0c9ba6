"""The benchmarks on a loaded machine: a slow machine is not a failure, a slow program is."""

from pathlib import Path

from bench import hook_to_state
from bench.measure import QUIET_MS, row
from bench.report import table


def test_a_line_that_is_half_written_is_not_read(tmp_path: Path) -> None:
    """Break: parse every existing line, or start in the middle of one."""
    log = tmp_path / "events.jsonl"
    before = '{"seq": 1, "action": "agent_stopped", "event": "1-2.json"}\n'
    stopped = '{"seq": 2, "action": "agent_stopped", "event": "7000-8.json"}\n'
    log.write_text(f'{before}{stopped}{{"seq": 3, "act')
    assert hook_to_state._stop_ns(log, len(before)) == 7000
    assert hook_to_state._stop_ns(log, len(before) - 5) == 7000


def test_a_limit_in_milliseconds_allows_for_a_slow_machine() -> None:
    """Break: judge only by the limit; or excuse a slow result on an idle machine."""
    slow = [4 * QUIET_MS] * 5
    limit = {"floor": "100 ms", "floor_ms": 100.0, "target": 1.0}
    quiet = row("b", "quiet", [390.0] * 5, **limit, pace_ms=[QUIET_MS] * 5)
    loaded = row("b", "loaded", [390.0] * 5, **limit, pace_ms=slow)
    assert (quiet.ok, loaded.ok) == (False, True)
    assert not row("b", "slower still", [410.0] * 5, **limit, pace_ms=slow).ok
    assert not row("b", "without a pace", [390.0] * 5, **limit).ok
    assert "100 ms x 4.0 (a slow machine)  ok" in table([loaded])
