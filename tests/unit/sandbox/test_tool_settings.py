"""The user's settings for package managers, as contained programs see them."""

import tomllib

import pytest

from llmc.sandbox.presets import PRESETS, hosts
from llmc.sandbox.tool_settings import shown, without_user

PIP = """
# https://comment.example
[global]
index-url = https://me:s3@cret@pip.example:8443/simple?key=s3cret
extra-index-url =
    https://a.example/simple
    https://token:s3cret@b.example/simple
proxy = http://me:s3cret@corp.example:3128
client-cert = /s3cret.pem
keyring-provider = s3cret
[install]
find_links: /srv/wheels
trusted-host = pip.example
key = s3cret
"""
NPM = """
registry=https://npm.example/
@own:registry = "https://me:s3cret@own.example/"
//npm.example/:_authToken=s3cret
//npm.example/:_password = s3cret
//npm.example/:username=s3cret
_auth=s3cret
_password = s3cret
email=s3cret
key=s3cret
proxy=http://corp.example:8080
https-proxy = http://corp.example
cafile=/srv/ca.pem
; https://comment.example
fund=false
public-hoist-pattern[]=*types*
"""
YARN = """
registry "https://me:s3cret@npm.example/"
"@own:registry" "https://own.example/"
strict-ssl false
https-proxy "http://corp.example"
"//npm.example/:_authToken" "s3cret"
"""
YARN_YAML = """
npmRegistryServer: "https://npm.example"
npmAuthToken: s3cret
npmAuthIdent: "me:s3cret"
httpsProxy: "http://corp.example"
nodeLinker: node-modules
enableStrictSsl: false
npmScopes:
  own:
    npmRegistryServer: "https://me:s3cret@own.example"
    npmAuthToken: s3cret
  other:
    npmAuthToken: s3cret
npmRegistries:
  "//npm.example":
    npmAuthToken: s3cret
    npmRegistryServer: https://s3cret.example
"""
CARGO = """
paths = ["/s3cret"]
[source.crates-io]
replace-with = "own"
[source.own]
registry = "sparse+https://me:s3cret@cargo.example/"
[registries.own]
index = "https://cargo.example/index"
token = "s3cret"
credential-provider = "s3cret"
[registry]
token = "s3cret"
[http]
proxy = "http://me:s3cret@corp.example"
cainfo = "/srv/ca.pem"
[env]
DATABASE_URL = "s3cret"
[target.x86_64-unknown-linux-gnu]
rustflags = ["-C", "link-arg=-fuse-ld=lld"]
[build]
jobs = 4
"""
UV = """
index-url = "https://me:s3cret@pip.example/simple"
publish-url = "https://s3cret.example"
[[index]]
name = "own"
url = "https://me:s3cret@own.example/simple"
authenticate = "s3cret"
[pip]
extra-index-url = ["https://a.example/simple", "https://me:s3/cret@b.example/"]
"""
GO = "GOPROXY=https://me:s3cret@go.example,direct\nGOAUTH=netrc s3cret\nGOFLAGS=-mod=mod\nKEY=s3cret\n"
MAVEN = """<?xml version="1.0"?>
<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0">
  <!-- https://comment.example s3cret -->
  <servers><server><id>own</id><username>me</username><password>s3cret</password></server></servers>
  <proxies><proxy><host>corp.example</host><password>s3cret</password></proxy></proxies>
  <mirrors><mirror><id>own</id><mirrorOf>*</mirrorOf><url>https://me:s3cret@maven.example/</url></mirror></mirrors>
  <profiles><profile><id>p</id>
    <properties><github.token>s3cret</github.token></properties>
    <repositories><repository><id>r</id><url>https://repo.example/</url></repository></repositories>
  </profile></profiles>
  <activeProfiles><activeProfile>p</activeProfile></activeProfiles>
</settings>
"""
#: by file: what the user has, and the hosts that tools may connect to because of it
FILES = {
    "pip.conf": (PIP, ["pip.example:8443", "a.example", "b.example"]),
    ".npmrc": (NPM, ["npm.example", "own.example"]),
    ".yarnrc": (YARN, ["npm.example", "own.example"]),
    ".yarnrc.yml": (YARN_YAML, ["npm.example", "own.example"]),
    "config.toml": (CARGO, ["cargo.example"]),
    "uv.toml": (UV, ["pip.example", "own.example", "a.example"]),
    "env": (GO, ["go.example"]),
    "settings.xml": (MAVEN, ["maven.example", "repo.example"]),
}


@pytest.mark.parametrize("name", FILES)
def test_no_password_and_no_proxy_is_shown(name: str) -> None:
    """Whatever its name. Break: hide only what looks like a password: not `key`, `github.token`, `[env]`."""
    text, wanted = FILES[name]
    found = shown(f"/home/p/{name}", text)
    assert not [word for word in ("s3cret", "s3@", "corp.example", "comment.example") if word in found], found
    assert hosts([], [found]) == wanted


def test_what_tools_need_is_shown() -> None:
    seen = {name: shown(name, text) for name, (text, _) in FILES.items()}
    assert seen["pip.conf"] == (
        "[global]\nindex-url = https://pip.example:8443/simple\n"
        "extra-index-url = https://a.example/simple https://b.example/simple\n"
        "[install]\nfind-links = /srv/wheels\ntrusted-host = pip.example\n"
    )
    assert seen[".npmrc"] == (
        "registry=https://npm.example/\n@own:registry=https://own.example/\ncafile=/srv/ca.pem\n"
        "fund=false\npublic-hoist-pattern[]=*types*\n"
    )
    assert '"@own:registry" "https://own.example/"\n"strict-ssl" false\n' in seen[".yarnrc"]
    assert "nodeLinker: " in seen[".yarnrc.yml"]
    assert '  "own":\n    npmRegistryServer: "https://own.example"\n' in seen[".yarnrc.yml"]
    assert tomllib.loads(seen["config.toml"]) == {
        "source": {
            "crates-io": {"replace-with": "own"},
            "own": {"registry": "sparse+https://cargo.example/"},
        },
        "registries": {"own": {"index": "https://cargo.example/index"}},
        "http": {"cainfo": "/srv/ca.pem"},
        "target": {"x86_64-unknown-linux-gnu": {"rustflags": ["-C", "link-arg=-fuse-ld=lld"]}},
        "build": {"jobs": 4},
    }
    assert tomllib.loads(seen["uv.toml"])["index"] == [{"name": "own", "url": "https://own.example/simple"}]
    assert seen["env"] == "GOPROXY=https://go.example,direct\nGOFLAGS=-mod=mod\n"
    assert "<activeProfile>p</activeProfile>" in seen["settings.xml"]
    assert "<mirrorOf>*</mirrorOf><url>https://maven.example/</url>" in seen["settings.xml"]


@pytest.mark.parametrize("name", FILES)
def test_of_a_file_that_cannot_be_read_nothing_is_shown(name: str) -> None:
    assert shown(name, "\0<[{ s3cret") == ""


def test_every_file_of_the_presets_can_be_read() -> None:
    """Break: no reader for a file: its tool chain would block every launch."""
    for preset in PRESETS.values():
        for path, _ in preset.settings:
            assert shown(path, "") == ""


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("https://a.example/x", "https://a.example/x"),
        ("https://user:p@ss@a.example/x", "https://a.example/x"),
        ("https://user:p#s?s@a.example/x", "https://a.example/x"),
        ("https://user@a.example", "https://a.example"),
        ("https://[::1]:8080/", "https://[::1]:8080/"),
        ("https://a.example/x?token=t#y", "https://a.example/x"),
        ("file:///srv/x", "file:///srv/x"),
        ("https://user:p/ss@a.example/x", None),
        ("https://user:1/ss@a.example/x", None),
        ("https://user:p,w@a.example/x", None),
        ("https://user:p w@a.example/x", None),
        ("//user:pw@a.example/x", None),
        ("git@a.example:x", None),
        ("--index-url=https://user:pw@a.example/", "--index-url=https://a.example/"),
        ("https://a.example/x?to=me@b.example", None),
        ("/opt/python@3.11/lib", "/opt/python@3.11/lib"),
        ("true", "true"),
        ("", ""),
    ],
)
def test_a_url_has_no_user(value: str, seen: str | None) -> None:
    """An unknown value is not shown. Break: use a URL only up to its first `@`."""
    assert without_user(value) == seen
