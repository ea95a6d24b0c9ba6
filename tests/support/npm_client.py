"""What the tests need from npm: other versions of the Claude Code client, and axe-core.

Kept outside the repository, checked against a known hash.

python -m tests.support.npm_client      # fetch them all; `make soak` does that first
"""

import base64
import fcntl
import hashlib
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

#: version -> what npm's registry says about the package's archive
INTEGRITY = {
    "2.1.197": "rIlKmrY0QMyHgPRX/MYWNj039vbypICvI9jVe3rs9Xy2RnNklySjyPxqh62QadznzoftEO23uYQ1tFePcQ//bg==",
}
PACKAGE = "@anthropic-ai/claude-code-linux-x64"
FETCH_S = 170
#: as they were before the tests turned them into traps: npm finds its registry by its own settings
_ENVIRONMENT = dict(os.environ)


AXE = "axe-core@4.14.0"
AXE_INTEGRITY = "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ=="


class Unavailable(Exception):
    """The package is not available here; the text says why."""


def find_npm_client(version: str) -> Path:
    """The program of this version, fetched if needed."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Unavailable(f"the client {version} is fetched for Linux on x86_64 only")
    return _find(f"claude-{version}", f"{PACKAGE}@{version}", INTEGRITY[version], "claude")


def find_axe() -> Path:
    """The script that checks a page for accessibility."""
    return _find(AXE.replace("@", "-"), AXE, AXE_INTEGRITY, "axe.min.js")


def _find(name: str, package: str, integrity: str, member: str) -> Path:
    """A file of a package, fetched if needed."""
    folder = _cache() / name
    wanted = folder / member
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of one run want it at the same moment
        if not wanted.exists():
            _fetch(package, integrity, wanted)
    return wanted


def _cache() -> Path:
    given = _ENVIRONMENT.get("XDG_CACHE_HOME")
    home = Path(_ENVIRONMENT.get("HOME", tempfile.gettempdir()))
    return (Path(given) if given else home / ".cache") / "llmc-tests"


def _fetch(package: str, integrity: str, wanted: Path) -> None:
    with tempfile.TemporaryDirectory(dir=wanted.parent) as directory:
        _pack(package, directory)
        archive = next(Path(directory).glob("*.tgz"))
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != integrity:
            raise Unavailable(f"npm sent another archive for {package}: sha512-{found}")
        with tarfile.open(archive) as packed:
            packed.extract(f"package/{wanted.name}", directory, filter="data")
        program = Path(directory) / "package" / wanted.name
        program.chmod(0o755)
        program.rename(wanted)


def _pack(package: str, directory: str) -> None:
    argv = ["npm", "pack", "--loglevel=error", "--pack-destination", directory, package]
    try:
        done = subprocess.run(
            argv, cwd=directory, env=_ENVIRONMENT, capture_output=True, text=True, timeout=FETCH_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{package} cannot be fetched: {error}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "npm said nothing").splitlines()[:2]
        raise Unavailable(f"{package} cannot be fetched: {'; '.join(said)}")


def main() -> int:
    for version in INTEGRITY:
        try:
            sys.stdout.write(f"client {version}: {find_npm_client(version)}\n")
        except Unavailable as error:
            sys.stderr.write(f"client {version}: {error}; its tests WILL BE SKIPPED\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
