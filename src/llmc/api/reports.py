"""Reports for the user: the digest, token usage and prices, and notifications."""

import time
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from llmc.auto.prices import prices_of as prices_of
from llmc.auto.prices import update as update
from llmc.auto.prices import view as view
from llmc.auto.rules.costs import PriceList as PriceList
from llmc.auto.rules.costs import Prices as Prices
from llmc.auto.rules.costs import Row, priced, sums
from llmc.auto.rules.costs import Spent as Spent
from llmc.auto.rules.costs import complaint as complaint
from llmc.auto.usage import rows
from llmc.config.model import Price as Price
from llmc.notifications import notifiers, notify
from llmc.notifications.notifiers import Result as Result
from llmc.notifications.notify import Incident as Incident
from llmc.notifications.notify import try_channels as try_channels
from llmc.notifications.rules import KINDS as KINDS
from llmc.repo.project import Project

if TYPE_CHECKING:
    from llmc.reports.rules.digest_parts import Digest

NO_TASK = "(no task)"
#: what usage can be grouped by
KEYS: dict[str, Callable[[Row], str]] = {
    "worker": lambda row: row.worker,
    "task": lambda row: NO_TASK if row.task_id is None else row.task_id,
    "day": lambda row: time.strftime("%Y-%m-%d", time.localtime(row.ts)),
    "model": lambda row: row.model,
}


def digest_json(project: Project, since: float | None, *, fleet: bool = False) -> dict[str, Any]:
    """The digest since a time; by default since the user last read it. `fleet`: of all nodes."""
    from llmc.reports.rules.digest_parts import as_json  # slow to import

    return as_json(_digest(project, since, fleet))


def _digest(project: Project, since: float | None, fleet: bool) -> "Digest":
    from llmc.reports import digest

    if not fleet:
        return digest.report(project, since)
    from llmc.reports import fleet_digest

    return fleet_digest.report(project, since)


def digest_text(
    project: Project,
    since: float | None,
    width: int,
    paint: Callable[[str, str], str],
    *,
    fleet: bool = False,
) -> str:
    """The same as text; remembers when the user read it, unless they gave a time."""
    from llmc.reports import digest

    found = _digest(project, since, fleet)
    if since is None:
        digest.remember_look(project, found)
    return digest.text_of(found, width, paint)


class Usage(Struct, frozen=True):
    """Usage by key, highest cost first (days in order), and in total."""

    lines: dict[str, Spent]
    total: Spent
    #: set if the prices are old
    complaint: str


def usage(project: Project, by: str, since_unix: float) -> Usage:
    tallies = sums((KEYS[by](row), row) for row in rows(project, since_unix))
    prices = prices_of(project)
    spent = {key: priced(prices, tally) for key, tally in tallies.items()}
    total = priced(prices, sum(tallies.values(), Spent()))
    keys = sorted(spent) if by == "day" else sorted(spent, key=lambda key: (-weight(spent[key], total), key))
    return Usage({key: spent[key] for key in keys}, total, complaint(prices.listed, date.today()))


def weight(spent: Spent, total: Spent) -> float:
    """The base of a share: cost if every price is known, else tokens."""
    return spent.tokens.new if total.unpriced or not total.cost else spent.cost


class Notices(Struct, frozen=True):
    """`on` holds the enabled kinds. The latest incidents come first."""

    on: tuple[str, ...]
    channels: list[str]
    incidents: list[Incident]


def channel_options() -> list[str]:
    """The options of [notify] that set a channel."""
    return [f"notify.{name}" for name in (*notifiers.CHANNELS, "urls")]


def notices(project: Project) -> Notices:
    settings = notify.settings_of(project)
    found = sorted(notify.Incidents(project.root).read().incidents, key=lambda one: -one.since_unix)
    return Notices(tuple(settings.on), list(notify.channels_of(settings)), found)
