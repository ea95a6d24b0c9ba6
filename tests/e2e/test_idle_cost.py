"""An idle daemon sleeps: nothing it does may wake it up again."""

import time

from tests.support.fleet import Fleet
from tests.support.waiting import wait_until


def cpu_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_an_idle_daemon_uses_no_processor_time(scripted: Fleet) -> None:
    """Break: let the daemon's own locks wake it (Project.in_daemon)."""
    scripted.set_up("adam", "baker")
    scripted.up("--no-patrol", cold=True)
    scripted.llmc("message", "adam", "hello")
    wait_until(lambda: scripted.client_status("adam") == "idle")
    pid = scripted.daemon_pid()

    def quiet_for_a_second() -> bool:
        before = cpu_ticks(pid)
        time.sleep(1)
        return cpu_ticks(pid) - before <= 1

    wait_until(quiet_for_a_second, 20)
    before = cpu_ticks(pid)
    time.sleep(2)
    assert cpu_ticks(pid) - before <= 1, "the daemon is busy doing nothing"
