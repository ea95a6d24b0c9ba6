"""Model prices: the user's own override the newer list, installed or fetched."""

import http.client
import json
import urllib.error
import urllib.request
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec

from llmc.auto.rules.costs import NoPrices, PriceList, Prices, newest, price_list
from llmc.base import given
from llmc.base.errors import LlmcError, NotFound, UsageError
from llmc.base.files import explain, private_dir, write_atomic
from llmc.repo.project import Project


def download(url: str, most_bytes: int, timeout_s: float = 30) -> bytes:
    """Fetch an http or https URL."""
    if not url.startswith(("https://", "http://")):
        raise UsageError(f"unsupported URL: {url}", hint="Pass a file or an http or https URL.")
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "llmc"})
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            body: bytes = answer.read(most_bytes + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        said = getattr(error, "reason", None) or error
        raise LlmcError(
            f"cannot fetch {url}: {said}",
            hint="Download the list yourself, then run `llmc prices update FILE`.",
        ) from error
    if len(body) > most_bytes:
        raise LlmcError(
            f"cannot fetch {url}: it is larger than {most_bytes // 10**6} MB",
            hint="Check the URL, then run `llmc prices update` again.",
        )
    return body


#: a public list in a format that `price_list` reads
PUBLIC = "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json"

MAX_BYTES = 50_000_000

_FIX = f"To use LiteLLM's price list: llmc prices update {PUBLIC}"


def prices_of(project: Project) -> Prices:
    return Prices(own=project.config.prices, listed=listed(project))


def listed(project: Project) -> PriceList:
    brought = _brought(project.root.prices)
    return newest(shipped(), brought) if brought else shipped()


@cache
def shipped() -> PriceList:
    text = files("llmc").joinpath("data/prices.json").read_bytes()
    return price_list(json.loads(text), date.min)


#: by path: mtime and contents
_read: dict[Path, tuple[int, PriceList | None]] = {}


def _brought(path: Path) -> PriceList | None:
    """The fetched list; None if it is missing or invalid."""
    try:
        written = path.stat().st_mtime_ns
        known = _read.get(path)
        if known is None or known[0] != written:
            known = (written, _parsed(path.read_bytes()))
            _read[path] = known
        return known[1]
    except OSError:
        return None


def _parsed(data: bytes) -> PriceList | None:
    try:
        return price_list(given.parse(data), date.min)
    except ValueError:
        return None


def update(project: Project, source: str) -> tuple[PriceList, PriceList]:
    """Store a list from a file or a URL; returns the previous list and the one now in use."""
    before = listed(project)
    try:
        new = price_list(given.parse(_bytes(source)), date.today())
    except NoPrices as error:
        raise LlmcError(f"{source} is not a price list: {error}", hint=_FIX) from error
    except ValueError as error:
        raise LlmcError(f"{source} is not JSON: {error}", hint=_FIX) from error
    if new.as_of < before.as_of:
        raise LlmcError(
            f"the prices were not updated: {source} ({new.as_of}) is older than the current price list ({before.as_of})",
            hint="To set a single price: llmc config set prices.MODEL.input N",
        )
    private_dir(project.root.private)
    text = json.dumps(view(msgspec.structs.replace(new, source=new.source or source)), indent=1)
    write_atomic(project.root.prices, text.encode(), mode=0o600)
    return before, listed(project)


def view(prices: PriceList) -> dict[str, object]:
    """The list in the format that `price_list` reads."""
    rows = {model: msgspec.structs.asdict(price) for model, price in sorted(prices.prices.items())}
    return {"as_of": prices.as_of, "source": prices.source, "prices": rows}


def _bytes(source: str) -> bytes:
    if "://" in source:
        return download(source, MAX_BYTES)
    path = Path(source).expanduser()
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"file not found: {path}", hint=_FIX) from error
    except OSError as error:
        raise explain(error, f"cannot read {path}") from error
