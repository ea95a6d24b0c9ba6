"""The attention list, as each surface shows it."""

import json
from typing import Any

from llmc.config.model import Notify
from llmc.records.items import KINDS
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until
from tests.support.webhook import Webhook

Item = dict[str, Any]

#: every item sends a notification, whatever its kind
TOLD_OF_ALL = {"notify.on": '["blocked", "waiting", "notice"]'}
#: as by default, plus items that can wait
TOLD_OF_MORE = {"notify.on": json.dumps([*Notify().on, "waiting"])}


def listed(fleet: Fleet) -> dict[str, Item]:
    return {item["key"]: item for item in fleet.llmc("status", "--json").json["attention"]}


def flat(text: str) -> str:
    return " ".join(text.split())


def on_every_surface(fleet: Fleet, *keys: str) -> dict[str, Item]:
    """These items are on all four surfaces, which show the same list."""
    items = wait_until(lambda: if_all(listed(fleet), keys), 20, lambda: str(listed(fleet)) + fleet.story())
    report = fleet.llmc("digest", "--json").json
    assert {item["key"] for item in report["waiting"]} == {item["key"] for item in report["attention"]}
    status, digest = flat(fleet.llmc("status").out), flat(fleet.llmc("digest").out)
    for key in keys:
        item = items[key]
        assert item["kind"] in KINDS
        assert item["since_unix"] > 0, key
        again = next(one for one in report["attention"] if one["key"] == key)
        if item["kind"] == "disk":  # its start time is unknown
            again["since_unix"] = item["since_unix"]
        assert again == item, key
        words = flat(item["text"])[:40]
        assert words in status or item["kind"] in ("review", "input", "error", "conflict", "login"), (
            key,
            status,
        )
        assert words in digest or item["next"] in digest, (key, digest)
        assert item["next"] in status, (key, status)
    return items


def if_all(found: dict[str, Item], keys: tuple[str, ...]) -> dict[str, Item] | None:
    return found if set(keys) <= found.keys() else None


def is_told(hook: Webhook, *keys: str) -> None:
    wait_until(lambda: set(keys) <= {body["key"] for body in hook.got}, 20, lambda: str(hook.kinds()))
