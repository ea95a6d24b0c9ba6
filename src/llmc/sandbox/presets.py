"""Presets: the tool chains that a repository uses, and what a contained program needs for each. Pure.

A contained program does not write the user's caches: what it leaves there would run outside. It has caches of its own.
It sees the user's settings without passwords (tool_settings.py), so that the same registries are used.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from llmc.config.model import PresetName
from llmc.sandbox.tool_settings import GO, NPM, PIP, UV, YARN, java_options, without_user


class Preset(Struct, frozen=True):
    """What one tool chain needs. `~` is the user's home; `*` in a name matches anything."""

    #: files of a repository that uses it
    marks: tuple[str, ...]
    #: the variable that names a cache, or its path if no variable does; and its directory among the caches
    caches: tuple[tuple[str, str], ...]
    #: the user's settings, and the directory among the caches where its tools look for them instead
    settings: tuple[tuple[str, str], ...]
    #: the tools themselves: the variable that names their directory, and the usual one
    programs: tuple[tuple[str, str], ...]
    #: the variables that are passed on
    variables: tuple[str, ...]
    #: where its tools download from, unless the user's settings say otherwise
    hosts: tuple[str, ...]


def _variables(start: str, keys: Iterable[str]) -> list[str]:
    """The variables that set the same keys as a tool's settings files."""
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", "-", key).replace("-", "_") for key in keys]
    return [start + (word.upper() if start.isupper() else word) for word in words]


#: variables with options for Java, some of which may be passwords
_JAVA_OPTIONS = ("MAVEN_OPTS", "MAVEN_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")

PRESETS: Mapping[PresetName, Preset] = {
    "pip": Preset(
        marks=(
            *("pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "Pipfile", "tox.ini"),
            *("uv.lock", "poetry.lock"),
        ),
        caches=(("PIP_CACHE_DIR", "pip"), ("UV_CACHE_DIR", "uv"), ("POETRY_CACHE_DIR", "poetry")),
        settings=(
            *(("/etc/pip.conf", ""), ("~/.config/pip/pip.conf", ""), ("~/.pip/pip.conf", "")),
            *(("/etc/uv/uv.toml", ""), ("~/.config/uv/uv.toml", "")),
        ),
        programs=(
            *(("PYENV_ROOT", "~/.pyenv"), ("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python")),
            *(("UV_TOOL_DIR", "~/.local/share/uv/tools"), ("PIPX_HOME", "~/.local/share/pipx")),
            ("PYTHONUSERBASE", "~/.local/lib"),
        ),
        variables=(
            *(*_variables("PIP_", PIP), *_variables("UV_", UV), "UV_INDEX", "UV_DEFAULT_INDEX"),
            *("UV_INSECURE_HOST", "UV_PYTHON", "UV_PYTHON_INSTALL_DIR", "UV_TOOL_DIR", "UV_HTTP_TIMEOUT"),
            *("UV_PROJECT_ENVIRONMENT", "UV_SYSTEM_PYTHON", "PYENV_ROOT", "PYENV_VERSION", "PYTHON*"),
            *("POETRY_HOME", "POETRY_VIRTUALENVS_*", "POETRY_INSTALLER_*", "PIPX_HOME", "TOX_PARALLEL*"),
        ),
        hosts=("pypi.org", "files.pythonhosted.org"),
    ),
    "npm": Preset(
        marks=("package.json", "package-lock.json", "yarn.lock"),
        caches=(
            *(
                ("npm_config_cache", "npm"),
                ("YARN_CACHE_FOLDER", "yarn"),
                ("YARN_GLOBAL_FOLDER", "yarn-global"),
            ),
            ("COREPACK_HOME", "corepack"),
        ),
        settings=(("/etc/npmrc", ""), ("~/.npmrc", ""), ("~/.yarnrc", ""), ("~/.yarnrc.yml", "")),
        programs=(("NVM_DIR", "~/.nvm"), ("VOLTA_HOME", "~/.volta"), ("FNM_DIR", "~/.local/share/fnm")),
        variables=(
            *(*_variables("npm_config_", NPM), *_variables("NPM_CONFIG_", NPM), *_variables("YARN_", YARN)),
            *("NODE_ENV", "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "NODE_NO_WARNINGS", "NVM_DIR"),
            *("NVM_BIN", "NVM_INC", "NVM_NODEJS_ORG_MIRROR", "VOLTA_HOME", "FNM_DIR", "FNM_MULTISHELL_PATH"),
            *("FNM_NODE_DIST_MIRROR", "YARN_REGISTRY", "COREPACK_NPM_REGISTRY", "COREPACK_ENABLE_*"),
        ),
        hosts=("registry.npmjs.org", "registry.yarnpkg.com"),
    ),
    # separate from npm, which warns about variables that it does not know
    "pnpm": Preset(
        marks=("pnpm-lock.yaml", "pnpm-workspace.yaml"),
        caches=(("npm_config_store_dir", "pnpm"), ("pnpm_config_store_dir", "pnpm")),
        settings=(("~/.config/pnpm/rc", ""),),
        programs=(("PNPM_HOME", "~/.local/share/pnpm"),),
        variables=("PNPM_HOME", *_variables("pnpm_config_", NPM)),
        hosts=("registry.npmjs.org",),
    ),
    "cargo": Preset(
        marks=("Cargo.toml",),
        caches=(("CARGO_HOME", "cargo"),),
        settings=(("~/.cargo/config.toml", "cargo"), ("~/.cargo/config", "cargo")),
        programs=(("RUSTUP_HOME", "~/.rustup"),),
        variables=(
            *("CARGO_BUILD_*", "CARGO_PROFILE_*", "CARGO_TARGET_*", "CARGO_TERM_*", "CARGO_NET_*"),
            *("CARGO_INCREMENTAL", "CARGO_HTTP_CAINFO", "CARGO_HTTP_MULTIPLEXING", "CARGO_HTTP_TIMEOUT"),
            *("CARGO_REGISTRIES_*_INDEX", "CARGO_REGISTRY_DEFAULT", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"),
            *("RUSTUP_DIST_SERVER", "RUSTUP_UPDATE_ROOT", "RUSTC", "RUSTC_WRAPPER", "RUSTFLAGS"),
            *("RUSTDOCFLAGS", "RUST_BACKTRACE", "RUST_LOG", "RUST_MIN_STACK", "RUST_TEST_THREADS"),
        ),
        hosts=("crates.io", "static.crates.io", "index.crates.io"),
    ),
    "go": Preset(
        marks=("go.mod", "go.work"),
        caches=(("GOMODCACHE", "go-mod"), ("GOCACHE", "go-build")),
        settings=(("~/.config/go/env", ""),),
        programs=(("GOROOT", "~/sdk"),),
        variables=tuple(GO),
        hosts=("proxy.golang.org", "sum.golang.org"),
    ),
    "maven": Preset(
        marks=("pom.xml",),
        caches=(("~/.m2/repository", "maven"), ("~/.m2/wrapper", "maven-wrapper")),
        settings=(("~/.m2/settings.xml", ""),),
        programs=(("SDKMAN_CANDIDATES_DIR", "~/.sdkman/candidates"), ("", "/etc/maven"), ("", "/etc/java-*")),
        variables=("MAVEN_HOME", "M2_HOME", "JAVA_HOME", *_JAVA_OPTIONS),
        hosts=("repo.maven.apache.org",),
    ),
}


def found(paths: Iterable[str]) -> tuple[PresetName, ...]:
    """The presets of a repository with these files, in any of its directories."""
    names = {path.rpartition("/")[2] for path in paths}
    return tuple(
        name
        for name, preset in PRESETS.items()
        if any(fnmatchcase(one, mark) for mark in preset.marks for one in names)
    )


class Needs(Struct, frozen=True):
    """What contained programs need for some presets."""

    #: caches, by the variable or path that the tools know
    caches: dict[str, str]
    #: the user's settings files, and where they are shown
    settings: dict[str, str]
    #: directories to read
    programs: tuple[str, ...]


def needs(names: Iterable[PresetName], cache: str, environ: Mapping[str, str]) -> Needs:
    """What these presets need, with all caches in the directory `cache`."""
    chosen = [PRESETS[name] for name in names]
    home = environ.get("HOME", "")
    settings = [one for preset in chosen for one in preset.settings]
    programs = [one for preset in chosen for one in preset.programs]
    return Needs(
        {_at(key, home): f"{cache}/{name}" for preset in chosen for key, name in preset.caches},
        {
            _at(path, home): f"{cache}/{folder}/{path.rpartition('/')[2]}" if folder else _at(path, home)
            for path, folder in settings
        },
        tuple(environ.get(variable) or _at(usual, home) for variable, usual in programs),
    )


def _at(place: str, home: str) -> str:
    return home + place[1:] if place.startswith("~") else place


_IS_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|(API|PRIVATE|ACCESS)_?KEY", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a variable is a secret, judging by its name."""
    return _IS_SECRET.search(name) is not None


def passed_on(environ: Mapping[str, str], names: Iterable[PresetName]) -> dict[str, str]:
    """The user's variables for these tool chains, without passwords."""
    patterns = [pattern for name in names for pattern in PRESETS[name].variables]
    wanted = (name for name in environ if any(fnmatchcase(name, pattern) for pattern in patterns))
    found = {name: _value(name, environ[name]) for name in wanted if not is_secret(name)}
    return {name: value for name, value in found.items() if value is not None}


def _value(name: str, value: str) -> str | None:
    return java_options(value) if name in _JAVA_OPTIONS else without_user(value)


_HOST_OF_URL = re.compile(r"https?://([A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?)")
_LOCAL_URL = re.compile(r"file://(/[^\s\"'<>,|]*)")
_LOCAL_VALUE = re.compile(r"(?im)^\s*(?:pip_|uv_)?(?:find[_-]links|cert|cafile)\s*=(.*)$")


def hosts(names: Iterable[PresetName], settings: Iterable[str]) -> list[str]:
    """Hosts that the tools may download from: the usual registries, and those in these settings as shown."""
    usual = [host for name in names for host in PRESETS[name].hosts]
    named = [host for text in settings for host in _HOST_OF_URL.findall(text)]
    return list(dict.fromkeys([*usual, *named]))


def local_places(settings: Sequence[str]) -> list[str]:
    """Directories and files on this machine that settings (or `NAME=VALUE`) name as registries or certificates."""
    named = [place for text in settings for place in _LOCAL_URL.findall(text)]
    values = [value for text in settings for value in _LOCAL_VALUE.findall(text)]
    return list(
        dict.fromkeys([*named, *(word for value in values for word in value.split() if word[0] == "/")])
    )
