"""Packages from files on this machine, for real package managers without a network."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path


def wheel_of(name: str, folder: Path) -> Path:
    """A wheel of a distribution installed here: its own files, as listed in RECORD."""
    installed = distribution(name)
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{installed.name}-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path in installed.files or ():
            if ".." not in path.parts and "__pycache__" not in path.parts:
                archive.write(str(path.locate()), str(path))
    return made


def node_package(name: str, files: Mapping[str, str], folder: Path) -> Path:
    """An archive like one from `npm pack`."""
    about = json.dumps({"name": name, "version": "1.0.0", "main": "index.js"})
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-1.0.0.tgz"
    with tarfile.open(made, "w:gz") as archive:
        for path, text in {"package.json": about, **files}.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made
