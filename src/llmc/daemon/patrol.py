"""What the daemon remembers between two patrols: how time went by, and since when each worker was left alone."""

from msgspec import Struct, field

from llmc.workers.rules.patrol import Clock, clock_jump


class Watch(Struct):
    """Ages are believed only as far as nothing stood still meanwhile: the clock, the daemon, or the worker."""

    wall: float
    monotonic: float
    _trusted_since: float = float("-inf")
    _free_since: dict[str, float] = field(default_factory=dict)
    _taken: dict[str, bool] = field(default_factory=dict)
    _rebase_failed: dict[str, float] = field(default_factory=dict)

    def begin(self, wall: float, monotonic: float) -> None:
        """From here on time is watched: what was before the first patrol was no pause."""
        self.wall, self.monotonic = wall, monotonic

    def tick(self, wall: float, monotonic: float, interval_s: float) -> str:
        """The time of a patrol; why no age can be judged for one full limit from now, "" when it can."""
        why = clock_jump(interval_s, monotonic - self.monotonic, wall - self.wall)
        self.wall, self.monotonic = wall, monotonic
        if why:
            self._trusted_since = monotonic
        return why

    def see(self, name: str, taken: bool, monotonic: float) -> None:
        """Age limits pause while a person has the worker."""
        if taken or self._taken.get(name):
            self._free_since[name] = monotonic
        self._taken[name] = taken

    def clock(self, name: str, wall: float, monotonic: float) -> Clock:
        """For one worker: no age is longer than the time since the last pause or jump."""
        since = max(self._trusted_since, self._free_since.get(name, float("-inf")))
        return Clock(wall, monotonic - since)

    def rebase_failed(self, name: str, monotonic: float) -> None:
        self._rebase_failed[name] = monotonic

    def since_rebase_failed_s(self, name: str, monotonic: float) -> float:
        return monotonic - self._rebase_failed.get(name, float("-inf"))
