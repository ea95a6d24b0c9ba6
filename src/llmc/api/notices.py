"""Notifications: kinds, channels and incidents."""

from msgspec import Struct

from llmc.notifications import notifiers, notify
from llmc.notifications.notifiers import Outcome as Outcome
from llmc.notifications.notifiers import Result as Result
from llmc.notifications.notify import Incident as Incident
from llmc.notifications.notify import try_channels as try_channels
from llmc.notifications.rules import KINDS as KINDS
from llmc.repo.project import Project


class Notices(Struct, frozen=True):
    """`on` holds the enabled kinds. The latest incidents come first."""

    on: tuple[str, ...]
    channels: list[str]
    incidents: list[Incident]


def options() -> list[str]:
    """The options of [notify] that set a channel."""
    return [f"notify.{name}" for name in (*notifiers.CHANNELS, "urls")]


def notices(project: Project) -> Notices:
    settings = notify.settings_of(project)
    found = sorted(notify.Incidents(project.root).read().incidents, key=lambda one: -one.since_unix)
    return Notices(tuple(settings.on), list(notify.channels_of(settings)), found)
