"""Every vendored file of the web page is listed, with its hash and license, and there are no others."""

import hashlib
import tomllib

from llmc.web.html import HERE

VENDOR = HERE / "static/vendor"


def test_every_vendored_file_is_in_the_table() -> None:
    """Break: change a byte of a vendored file."""
    table = tomllib.loads((VENDOR / "assets.toml").read_text())
    files = {path.name for path in VENDOR.iterdir()} - {"assets.toml"}
    assert {name for name in files if not name.startswith("LICENSE.")} == set(table)
    for name, about in table.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == about["sha256"], name
        assert all(about[key] for key in ("package", "version", "path", "licence")), name
    assert {"LICENSE.htmx", "LICENSE.xterm"} <= files
