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
    """Break: use the user's own directory as a cache: what a contained program leaves there runs outside."""
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


def test_registries_of_the_user_are_found_in_their_settings() -> None:
    settings = ["index-url = https://pip.example:8443/simple", "registry=http://npm.example/\n"]
    assert hosts(["pip"], settings) == [
        "pypi.org",
        "files.pythonhosted.org",
        "pip.example:8443",
        "npm.example",
    ]
    assert hosts([], []) == []


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
    """Break: pass on every variable that starts with the tool's name: passwords may have any name."""
    person = {
        "PIP_INDEX_URL": "https://me:s3cret@pip.example/",
        "PIP_EXTRA_INDEX_URL": "https://a.example/ https://me:s3@cret@b.example/?key=s3cret",
        "UV_INDEX": "own=https://me:s3cret@uv.example/",
        "npm_config_registry": "https://npm.example",
        "UV_PUBLISH_TOKEN": "s3cret",
        "UV_INDEX_OWN_USERNAME": "s3cret",
        "npm_config__authToken": "s3cret",
        "npm_config_//npm.example/:_password": "s3cret",
        "npm_config_otp": "s3cret",
        "npm_config_https_proxy": "http://corp.example",
        "NODE_AUTH_TOKEN": "s3cret",
        "CARGO_REGISTRIES_OWN_TOKEN": "s3cret",
        "CARGO_REGISTRIES_OWN_INDEX": "sparse+https://me:s3cret@cargo.example/",
        "CARGO_HTTP_PROXY": "http://corp.example",
        "PIP_CERT": "/c@1/ca.pem",
        "GOOGLE_APPLICATION_CREDENTIALS": "/k.json",
        "GOPROXY": "https://me:s3cret@go.example,direct",
        "GOAUTH": "s3cret",
        "MAVEN_OPTS": "-Xmx1g -Dgithub.token=s3cret -Dfile.encoding=UTF-8",
        "PATH": "/bin",
    }
    assert passed_on(person, []) == {}
    assert passed_on(person, ["pip"]) == {
        "PIP_INDEX_URL": "https://pip.example/",
        "PIP_EXTRA_INDEX_URL": "https://a.example/ https://b.example/",
        "UV_INDEX": "own=https://uv.example/",
        "PIP_CERT": "/c@1/ca.pem",
    }
    assert passed_on(person, ["npm", "pnpm"]) == {"npm_config_registry": "https://npm.example"}
    assert passed_on(person, ["cargo"]) == {"CARGO_REGISTRIES_OWN_INDEX": "sparse+https://cargo.example/"}
    assert passed_on(person, ["go"]) == {"GOPROXY": "https://go.example,direct"}
    assert passed_on(person, ["maven"]) == {"MAVEN_OPTS": "-Xmx1g -Dfile.encoding=UTF-8"}
