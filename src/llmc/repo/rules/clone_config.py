"""What agents may write into the git settings of the root's clone, and what is reverted. Pure.

Every worktree shares the clone's `config`, so ordinary git commands of agents write there: new branches, a user, another
remote, submodules, LFS. All these stay. A setting that runs a program or redirects git is reverted: it would apply to
llmc's own commands and to the user's.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from llmc.base.text import pattern

#: agents must not push by accident; llmc lands by explicit path or URL
NO_PUSH = "llmc-workers-do-not-push"
FETCH = "+refs/heads/*:refs/remotes/origin/*"

#: the git settings of a root's clone
CLONE_SETTINGS = {
    "extensions.worktreeConfig": "true",
    "remote.origin.pushurl": NO_PUSH,
    "rerere.enabled": "true",
    "rerere.autoupdate": "true",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # A missing large file stays a pointer, and no checkout fails.
    "lfs.skipdownloaderrors": "true",
}

#: a key as git prints it (section and name in lower case), and its value; None: no value
Row = tuple[str, str | None]


class Place(StrEnum):
    """The kind of a settings file."""

    #: of the clone, which all worktrees share
    CLONE = "clone"
    #: of the root itself, which has no checkout
    ROOT = "root"
    #: of one worktree
    WORKTREE = "worktree"
    #: of a submodule, or of another repository inside a worktree
    INNER = "inner"


class Change(NamedTuple):
    """A key to change; `wanted` None: remove it."""

    key: str
    found: tuple[str, ...]
    wanted: str | None
    #: not reported: the user changed the source, or an older llmc wrote it
    silent: bool = False


class Expected(NamedTuple):
    """What llmc itself set. `source`: where work lands, without a password; "" if unknown."""

    source: str = ""
    #: the source as in config.toml, which older versions of llmc wrote into the clone
    written: str = ""
    #: whether config.toml is newer than the file: the user may have changed the source
    is_newer: bool = False
    #: the worktree of a submodule, from its own settings
    worktree: str = ""


def changes(rows: Sequence[Row], place: Place, expected: Expected) -> list[Change]:
    """What to revert in one file, each key once."""
    found: dict[str, tuple[str, ...]] = {}
    for key, value in rows:
        found[key] = (*found.get(key, ()), "" if value is None else value)
    wrong = [
        Change(key, values, None)
        for key, values in found.items()
        if any(runs_or_redirects(key, value) for value in values)
    ]
    wrong += _misplaced(found, place, expected) + _not_ours(found, place, expected)
    return list({change.key: change for change in wrong}.values())


def _misplaced(found: dict[str, tuple[str, ...]], place: Place, expected: Expected) -> list[Change]:
    """Wrong settings about the checkout: the root has no checkout, a worktree has one, a submodule has its own."""
    wrong = []
    bare = found.get("core.bare", ())
    if bare and place in (Place.CLONE, Place.WORKTREE):
        wrong.append(Change("core.bare", bare, None))
    if place is Place.ROOT and bare != ("true",):
        wrong.append(Change("core.bare", bare, "true"))
    tree = found.get("core.worktree", ())
    wanted = (expected.worktree,) if place is Place.INNER and expected.worktree else ()
    if tree and tree != wanted:
        wrong.append(Change("core.worktree", tree, wanted[0] if wanted else None))
    return wrong


def _not_ours(found: dict[str, tuple[str, ...]], place: Place, expected: Expected) -> list[Change]:
    """Required settings of the clone that are wrong, and `remote.origin.*` keys that are not allowed in the file."""
    if place is Place.INNER:
        return []
    wanted: dict[str, str] = {}
    if place is Place.CLONE:
        wanted = {"extensions.worktreeconfig": "true", "remote.origin.pushurl": NO_PUSH}
        wanted |= {"remote.origin.fetch": FETCH} | ({_URL: expected.source} if expected.source else {})
        if found.get("core.repositoryformatversion", ("0",)) not in (("0",), ("1",)):
            wanted["core.repositoryformatversion"] = "1"
    kept = (*wanted, _URL, _OF_GITHUB) if place is Place.CLONE else ()
    others = [key for key in found if key.startswith("remote.origin.") and key not in kept]
    return [Change(key, found[key], None) for key in others] + [
        Change(key, found.get(key, ()), value, _is_silent(key, found.get(key, ()), expected))
        for key, value in wanted.items()
        if found.get(key, ()) != (value,)
    ]


_URL = "remote.origin.url"
#: written by GitHub's `gh`
_OF_GITHUB = "remote.origin.gh-resolved"


def _is_silent(key: str, values: tuple[str, ...], expected: Expected) -> bool:
    return key == _URL and (expected.is_newer or values == (expected.written,))


#: keys that run a program or redirect git, with any value
_RUNS = pattern(
    r"core\.(fsmonitor|hookspath|sshcommand|editor|pager|attributesfile|askpass|gitproxy|alternaterefscommand)"
    r"|(include|includeif|url|alias|credential|http|https|ftp|gpg|pager|hook|bundle|promisor|trace2|llmc|ssh)\..*"
    r"|(protocol|uploadpack|uploadpackfilter|uploadarchive|receive|transfer|sendemail|imap|instaweb|web)\..*|help\.browser"
    r"|(difftool|mergetool|guitool|browser|man)\..+\.(cmd|path)"
    r"|(commit|tag|push)\.gpgsign|tag\.forcesignannotated|merge\.verifysignatures|log\.showsignature"
    r"|diff\.external|diff\..+\.(command|textconv)|merge\..+\.driver|trailer\..+\.(command|cmd)|tar\..+\.command"
    r"|sequence\.editor|interactive\.difffilter|init\.templatedir|gc\.recentobjectshook|attr\.tree|fetch\.bundleuri"
    r"|remote\..+\.(uploadpack|receivepack|vcs|promisor|partialclonefilter|proxy|proxyauthmethod|lfsurl|lfspushurl)"
    r"|lfs\.(.+\.)?(url|pushurl|storage|standalonetransferagent|path|args|clean|smudge|sshtransfer)",
    re.DOTALL,
)
#: harmless keys of these sections: sizes, times, versions
_MILD = frozenset(
    [
        "http.postbuffer",
        "http.lowspeedlimit",
        "http.lowspeedtime",
        "http.maxrequests",
        "http.version",
        "protocol.version",
    ]
)
#: written by `git lfs install`, and by llmc without git-lfs
_OF_LFS = {
    "filter.lfs.clean": ("git-lfs clean -- %f", ""),
    "filter.lfs.smudge": ("git-lfs smudge -- %f", "git-lfs smudge --skip -- %f", ""),
    "filter.lfs.process": ("git-lfs filter-process", "git-lfs filter-process --skip", ""),
    "filter.lfs.required": ("true", "false"),
}
#: any other extension makes git refuse the repository, or fetch missing objects
_EXTENSIONS = [
    "worktreeconfig",
    "objectformat",
    "compatobjectformat",
    "refstorage",
    "preciousobjects",
    "relativeworktrees",
    "noop",
]


def runs_or_redirects(key: str, value: str) -> bool:
    """Whether a setting is reverted in any file."""
    section, _, rest = key.partition(".")
    match section:
        case "filter":
            return value not in _OF_LFS.get(key, ())
        case "extensions":
            return rest not in _EXTENSIONS
        case "submodule":
            return rest.endswith(".update") and value.lstrip().startswith("!")
        case "remote" if ":" in rest.rpartition(".")[0]:
            return True  # named like a URL: git would take it for that URL
    return key not in _MILD and _RUNS.fullmatch(key) is not None


#: attributes that pass files to a program or a merge driver; allowed in a commit, but not in the clone
_STEERS = pattern(r"(?:^|\s)[-!]?(?:filter|merge|diff|binary|working-tree-encoding)(?:=|\s|$)")


def kept_attributes(text: str) -> str:
    """The text of `info/attributes` without the lines that set these attributes."""
    lines = text.split("\n")
    return "\n".join(line for line in lines if line.lstrip().startswith("#") or not _STEERS.search(line))


_HEADER = pattern(r'\[([A-Za-z0-9-]+)(?: "((?:[^"\\]|\\["\\])*)")?\]')
_ENTRY = pattern(r"([A-Za-z][A-Za-z0-9-]*)(?:[ \t]*=[ \t]*([^\"\\#;\t]*))?")


def parse_plain(data: bytes) -> list[Row] | None:
    """The settings of a plain file, as git itself writes it; None: only git can parse it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if "\r" in text or "\0" in text or text.startswith("\ufeff"):
        return None
    rows: list[Row] = []
    section = ""
    for line in (line.strip(" \t") for line in text.split("\n")):
        if not line or line[0] in "#;":
            continue
        if header := _HEADER.fullmatch(line):
            inner = header[2]
            section = header[1].lower() + ("" if inner is None else "." + re.sub(r"\\(.)", r"\1", inner))
        elif section and (entry := _ENTRY.fullmatch(line)):
            value = entry[2]
            rows.append((f"{section}.{entry[1].lower()}", None if value is None else value.rstrip(" \t")))
        else:
            return None
    return rows
