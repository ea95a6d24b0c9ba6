"""What the daemon saw of the other nodes, in a file for the screens, which do not query the database."""

import msgspec

from llmc.base.files import write_atomic
from llmc.config.paths import Root
from llmc.fleet.rules import Sighting


def remember(root: Root, sighting: Sighting) -> None:
    write_atomic(root.nodes, msgspec.json.encode(sighting))


def remembered(root: Root) -> Sighting | None:
    """None if this root has seen no other nodes yet."""
    try:
        return msgspec.json.decode(root.nodes.read_bytes(), type=Sighting)
    except (OSError, msgspec.DecodeError):
        return None
