"""The user's package manager settings, as a contained program sees them: an allow-list. Pure.

Settings may hold passwords under any name, so only what is listed here is shown: where packages come from, and how they
are built. URLs are shown without user, password and query. Proxies are not listed: inside there is another one.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

#: the keys of a table that are shown, `*` for any other; a key without keys of its own is a single value
Kept: TypeAlias = "Mapping[str, Kept]"


def _keys(words: str) -> dict[str, Kept]:
    return {word: {} for word in words.split()}


_ANY: dict[str, Kept] = {}
_ANY["*"] = _ANY

PIP = _keys(
    "index-url extra-index-url find-links no-index trusted-host cert timeout retries pre prefer-binary no-binary "
    "only-binary require-virtualenv break-system-packages disable-pip-version-check no-input"
)
UV = _keys(
    "index-url extra-index-url find-links no-index index-strategy allow-insecure-host native-tls system-certs "
    "python-preference python-downloads python-install-mirror pypy-install-mirror resolution prerelease exclude-newer "
    "link-mode compile-bytecode offline no-binary no-build no-build-isolation required-version concurrent-downloads"
)
_UV_FILE = {**UV, "pip": UV, "index": _keys("name url default explicit format")}
NPM = _keys(
    "registry strict-ssl cafile legacy-peer-deps engine-strict save-exact save-prefix prefer-offline prefer-online "
    "offline node-linker hoist hoist-pattern public-hoist-pattern shamefully-hoist auto-install-peers fund audit "
    "strict-peer-dependencies package-lock maxsockets fetch-retries fetch-timeout loglevel progress ignore-scripts "
    "package-import-method resolution-mode link-workspace-packages network-concurrency network-timeout"
)
YARN = _keys(
    "npmRegistryServer nodeLinker enableStrictSsl httpsCaFilePath caFilePath compressionLevel enableGlobalCache "
    "enableScripts enableTelemetry httpTimeout httpRetry networkConcurrency nmMode pnpMode"
)
_CARGO: dict[str, Kept] = {
    **dict.fromkeys(("build", "profile", "target", "term", "net", "alias", "unstable"), _ANY),
    "source": {"*": _keys("registry replace-with local-registry directory git branch tag rev")},
    "registries": {"*": _keys("index protocol")},
    "registry": _keys("default index"),
    "http": _keys("cainfo check-revoke multiplexing timeout ssl-version low-speed-limit"),
}
GO = _keys(
    "GOPROXY GOSUMDB GOPRIVATE GONOPROXY GONOSUMDB GOINSECURE GOFLAGS GOROOT GOTOOLCHAIN GOOS GOARCH GOEXPERIMENT "
    "GO111MODULE CGO_ENABLED CGO_CFLAGS CGO_CPPFLAGS CGO_CXXFLAGS CGO_LDFLAGS"
)
_POLICY = _keys("enabled updatePolicy checksumPolicy")
_REPOSITORY = {**_keys("id name url layout"), "releases": _POLICY, "snapshots": _POLICY}
_MAVEN: dict[str, Kept] = {
    **_keys("offline interactiveMode"),
    "mirrors": {"mirror": _keys("id name url mirrorOf layout mirrorOfLayouts blocked")},
    "profiles": {
        "profile": {
            **_keys("id"),
            "activation": _keys("activeByDefault jdk"),
            "repositories": {"repository": _REPOSITORY},
            "pluginRepositories": {"pluginRepository": _REPOSITORY},
        }
    },
    "activeProfiles": _keys("activeProfile"),
    "pluginGroups": _keys("pluginGroup"),
}

_URL = re.compile(
    r"(?P<scheme>(?:[\w-]+=)?[A-Za-z][A-Za-z0-9+.-]*://)(?:[^/\s]*@)?"
    r"(?P<place>(?:[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])?(?::[0-9]+)?(?:/[^\s?#@]*)?)(?:[?#][^\s@]*)?"
)
#: the Java options that are shown; any other property may be a password
_OF_JAVA = re.compile(
    r"-X\S+|--add-\S+|-D(file\.encoding|user\.(language|country|timezone)|java\.awt\.headless)=\S+"
)
_YAML_LINE = re.compile(r"(?P<indent> *)[\"']?(?P<key>@?[\w./-]+)[\"']?:[ \t]*(?P<value>.*)")


def without_user(value: str) -> str | None:
    """The value with user, password and query removed from its URLs; None if it may still contain a password."""
    parts = re.split(r"([\s,|]+)", value)
    cleaned = [_word(part) for part in parts]
    return None if None in cleaned else "".join(part or "" for part in cleaned)


def _word(word: str) -> str | None:
    if "://" in word:
        found = _URL.fullmatch(word)
        return None if found is None else found["scheme"] + found["place"]
    is_path = word.startswith(("/", "-")) and not word.startswith("//")
    return word if is_path or "@" not in word else None


def java_options(value: str) -> str:
    """The options that set how a Java program runs, without properties that may be passwords."""
    return " ".join(word for word in value.split() if _OF_JAVA.fullmatch(word))


def shown(path: str, text: str) -> str:
    """What is shown of a settings file; nothing if it cannot be parsed."""
    try:
        return _READERS[path.rpartition("/")[2]](text)
    except ValueError:
        return ""


def _ini(text: str) -> str:
    """pip's settings. A value of several lines becomes one line, which means the same."""
    from configparser import Error, RawConfigParser

    parser = RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except Error as error:
        raise ValueError(str(error)) from error
    lines = []
    for section in parser.sections():
        lines.append(f"[{section}]")
        found = (
            (key.replace("_", "-"), " ".join((value or "").split())) for key, value in parser.items(section)
        )
        lines += [f"{key} = {value}" for key, value in _cleaned(found, PIP)]
    return _joined(lines)


def _npmrc(text: str) -> str:
    return _joined(f"{key}={value}" for key, value in _cleaned(_pairs(text, "="), NPM))


def _yarnrc(text: str) -> str:
    found = _cleaned(_pairs(text, " "), NPM)
    return _joined(
        f'"{key}" {value if value in ("true", "false") else json.dumps(value)}' for key, value in found
    )


def _go_env(text: str) -> str:
    return _joined(f"{key}={value}" for key, value in _cleaned(_pairs(text, "="), GO))


def _pairs(text: str, separator: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, _, value = line.strip().partition(separator)
        if key[:1] not in ("#", ";"):
            yield key.strip().strip("\"'"), value.strip().strip("\"'")


def _cleaned(pairs: Iterable[tuple[str, str]], kept: Kept) -> Iterator[tuple[str, str]]:
    """The pairs that are shown; `@scope:registry` is a registry."""
    for key, value in pairs:
        name = key.partition(":")[2] if key.startswith("@") else key.removesuffix("[]")
        if name in kept and (found := without_user(value)) is not None:
            yield key, found


def _yarn_yaml(text: str) -> str:
    """Plain values, and the registries of scopes."""
    rows, scopes, scope, is_scope = [], {}, "", False
    for line in text.splitlines():
        found = _YAML_LINE.fullmatch(line)
        if found is None:
            continue
        key, value = found["key"], without_user(found["value"].strip().strip("\"'"))
        if not found["indent"]:
            is_scope = key == "npmScopes"
            rows += [(key, value)] if key in YARN and value else []
        elif is_scope and value == "":
            scope = key
        elif is_scope and key == "npmRegistryServer" and value:
            scopes[scope] = value
    lines = [f"{key}: {value if value in ('true', 'false') else json.dumps(value)}" for key, value in rows]
    lines += ["npmScopes:"] if scopes else []
    lines += [
        f"  {json.dumps(name)}:\n    npmRegistryServer: {json.dumps(url)}" for name, url in scopes.items()
    ]
    return _joined(lines)


def _toml(text: str, kept: Kept) -> str:
    import tomllib

    found = _picked(tomllib.loads(text), kept)
    return _joined(f"{json.dumps(key)} = {_as_toml(value)}" for key, value in (found or {}).items())


def _picked(value: Any, kept: Kept) -> Any:
    """What is shown of a value; None for nothing."""
    match value:
        case dict():
            inner = {key: kept[key] if key in kept else kept.get("*") for key in value}
            found = {key: _picked(value[key], keys) for key, keys in inner.items() if keys is not None}
            return {key: one for key, one in found.items() if one is not None} or None
        case list():
            return [one for one in (_picked(one, kept) for one in value) if one is not None]
        case str():
            return without_user(value)
        case bool() | int() | float():
            return value
    return None


def _as_toml(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {_as_toml(one)}" for key, one in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_as_toml, value)) + "]"
    return json.dumps(value)


def _xml(text: str) -> str:
    """Maven's settings, without namespaces and attributes, which it does not need."""
    from xml.etree import ElementTree

    try:
        found = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error
    return ElementTree.tostring(_copied(found, "settings", _MAVEN), encoding="unicode") + "\n"


def _copied(element: "Element", name: str, kept: Kept) -> "Element":
    from xml.etree.ElementTree import Element

    made = Element(name)
    if not kept:
        made.text = without_user((element.text or "").strip()) or ""
    for child in element:
        inner = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else ""
        if inner in kept:
            made.append(_copied(child, inner, kept[inner]))
    return made


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


#: by the name of the file
_READERS: Mapping[str, Callable[[str], str]] = {
    "pip.conf": _ini,
    "uv.toml": lambda text: _toml(text, _UV_FILE),
    **dict.fromkeys(("npmrc", ".npmrc", "rc"), _npmrc),
    ".yarnrc": _yarnrc,
    ".yarnrc.yml": _yarn_yaml,
    **dict.fromkeys(("config.toml", "config"), lambda text: _toml(text, _CARGO)),
    "env": _go_env,
    "settings.xml": _xml,
}
