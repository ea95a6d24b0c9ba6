"""What a repository's tool chains need inside, and what of the user's stays outside."""

from typing import get_args

import pytest

from llmc.config.model import PresetName
from llmc.sandbox.presets import (
    PRESETS,
    found,
    hosts,
    local_places,
    needs,
    passed_on,
    without_passwords,
)

PERSON = {"HOME": "/home/p"}


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["README.md", "src/main.c"], ()),
        (["pyproject.toml"], ("pip",)),
        (["requirements-dev.txt"], ("pip",)),
        (["uv.lock"], ("pip",)),
        (["web/package.json", "api/setup.py"], ("pip", "npm")),
        (["package.json", "pnpm-lock.yaml"], ("npm", "pnpm")),
        (["Cargo.toml", "go.mod", "pom.xml"], ("cargo", "go", "maven")),
        (["docs/my-package.json"], ()),
    ],
)
def test_presets_are_found_by_the_files_of_a_repository(files: list[str], names: tuple[str, ...]) -> None:
    assert found(files) == names


def test_every_name_of_the_configuration_is_a_preset() -> None:
    assert set(PRESETS) == {*get_args(PresetName)}


def test_no_cache_is_the_user_s() -> None:
    """Break: the user's own directory as a cache: what a contained program leaves there runs outside."""
    for name in PRESETS:
        caches = needs([name], "/root/.llmc/cache/adam", PERSON).caches
        assert caches
        assert all(place.startswith("/root/.llmc/cache/adam/") for place in caches.values())
    every = [{*needs([name], "/c", PERSON).caches.values()} for name in PRESETS]
    assert sum(map(len, every)) == len(set().union(*every))


def test_variables_and_places_name_the_caches() -> None:
    wanted = needs(["cargo", "maven"], "/c", PERSON)
    assert wanted.caches["CARGO_HOME"] == "/c/cargo"
    assert wanted.caches["/home/p/.m2/repository"] == "/c/maven"
    # Cargo reads its settings in CARGO_HOME, which is the cache.
    assert wanted.settings["/home/p/.cargo/config.toml"] == "/c/cargo/config.toml"
    assert wanted.settings["/home/p/.m2/settings.xml"] == "/home/p/.m2/settings.xml"


def test_tools_are_where_the_user_has_them() -> None:
    assert "/home/p/.pyenv" in needs(["pip"], "/c", PERSON).programs
    assert "/opt/py" in needs(["pip"], "/c", {**PERSON, "PYENV_ROOT": "/opt/py"}).programs


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[global]\nindex-url = https://me:s3cret@pip.example/simple\n", "[global]\nindex-url = https://pip.example/simple\n"),
        ("[global]\nindex-url = https://token:s3cret@pip.example/\n", "[global]\nindex-url = https://pip.example/\n"),
        ("registry=https://npm.example/\n//npm.example/:_authToken=s3cret\nfund=false\n", "registry=https://npm.example/\nfund=false\n"),
        ("//npm.example/:_auth = s3cret\n//npm.example/:_password=s3cret\n", ""),
        ("npmAuthToken: s3cret\nnpmRegistryServer: https://npm.example\n", "npmRegistryServer: https://npm.example\n"),
        ('[registries.own]\nindex = "sparse+https://cargo.example/"\ntoken = "s3cret"\n', '[registries.own]\nindex = "sparse+https://cargo.example/"\n'),
        ("<servers>\n<server><password>s3cret</password></server>\n</servers><mirrors/>", "<mirrors/>"),
        ("<proxy><host>h</host><password>s3cret</password></proxy>", "<proxy><host>h</host></proxy>"),
    ],
)  # fmt: skip
def test_settings_are_shown_without_passwords(text: str, shown: str) -> None:
    """Break: one of `_PASSWORDS` less."""
    assert without_passwords(text) == shown


def test_registries_of_the_user_are_found_in_their_settings() -> None:
    settings = ["index-url = https://me:s3cret@pip.example:8443/simple", "registry=http://npm.example/\n"]
    assert hosts(["pip"], settings) == [
        "pypi.org",
        "files.pythonhosted.org",
        "pip.example:8443",
        "npm.example",
    ]
    assert hosts([], []) == []


def test_a_proxy_of_the_user_is_no_registry() -> None:
    """Break: every URL in the settings: who may connect to a proxy may connect to anything."""
    settings = [
        "# see https://comment.example\nproxy=http://corp.example:8080\nhttps-proxy = http://corp.example\nregistry=https://npm.example/\n",
        "[global]\nproxy = http://corp.example:3128\nindex-url = https://pip.example/simple\n",
        "<settings><proxies><proxy><host>http://corp.example</host></proxy></proxies><url>https://maven.example/</url></settings>",
        "GOPROXY=https://go.example\n",
    ]
    assert hosts([], settings) == ["npm.example", "pip.example", "maven.example", "go.example"]
    assert not [text for text in map(without_passwords, settings) if "corp.example" in text]


def test_registries_on_this_machine_are_found() -> None:
    settings = [
        "find-links = /srv/wheels /srv/more relative",
        "extra-index-url = file:///srv/simple",
        "PIP_FIND_LINKS=/srv/last",
        "cafile=/srv/ca.pem",
        "prefix=/home/p/.npm-global",
    ]
    assert local_places(settings) == [
        "/srv/simple",
        "/srv/wheels",
        "/srv/more",
        "/srv/last",
        "/srv/ca.pem",
    ]


def test_variables_of_the_tools_are_passed_on_without_passwords() -> None:
    """Break: no `_IS_SECRET`: a token to publish reaches code that nobody has looked at."""
    person = {
        "PIP_INDEX_URL": "https://me:s3cret@pip.example/",
        "npm_config_registry": "https://npm.example",
        "UV_PUBLISH_TOKEN": "t",
        "npm_config__authToken": "t",
        "NODE_AUTH_TOKEN": "t",
        "PIP_CERT": "/c",
        "GOOGLE_APPLICATION_CREDENTIALS": "/k.json",
        "GOPROXY": "https://go.example",
        "PATH": "/bin",
    }
    assert passed_on(person, []) == {}
    assert passed_on(person, ["pip"]) == {"PIP_INDEX_URL": "https://pip.example/", "PIP_CERT": "/c"}
    assert passed_on(person, ["npm"]) == {"npm_config_registry": "https://npm.example"}
    assert passed_on(person, ["go"]) == {"GOPROXY": "https://go.example"}
