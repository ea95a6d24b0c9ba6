"""What is installed: the wheel has everything that the package needs, and runs on its own."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import llmc

TREE = Path(llmc.__file__).parent.parent.parent
#: everything that llmc requires
PROGRAMS = ("git", "tmux", "python3")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    build = [str(Path(sys.executable).with_name("hatchling")), "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=TREE, check=True, capture_output=True, timeout=60)
    (found,) = place.glob("*.whl")
    return found


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    """Break: exclude data/ or templates/ in pyproject.toml, or let *.j2 be ignored."""
    package = TREE / "src/llmc"
    ours = {
        f"llmc/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"llmc/data/prices.json", "llmc/templates/task.md.j2", "llmc/py.typed"} <= ours
    held = zipfile.ZipFile(wheel).namelist()
    assert {name for name in held if ".dist-info/" not in name} == ours


def test_it_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """Break: read a file that only the checkout has, at the start or for a price."""
    script = (
        "import llmc.auto.prices as prices, llmc.landing.prompts, sys; "
        "print(prices.shipped().as_of, llmc.__file__); from llmc.cli.app import run; sys.exit(run(['--version']))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={"PYTHONPATH": str(wheel), "HOME": str(tmp_path), "PATH": os.defpath},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert str(wheel) in done.stdout
    assert "llmc, version" in done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_installed_into_an_empty_environment_it_runs_the_demo(
    wheel: Path, tmp_path: Path, installer: str
) -> None:
    """Break: need a package, a file or a program that an installation does not provide."""
    shelf = tmp_path / "shelf"
    wanted = [str(wheel), *(["uv"] if installer == "uv" else [])]
    run([sys.executable, "-m", "pip", "download", "-q", "-d", str(shelf), *wanted], dict(os.environ))
    home, bin_dir = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    bin_dir.mkdir()
    python = os.path.realpath(sys.executable)
    for name in PROGRAMS:
        (bin_dir / name).symlink_to(python if name == "python3" else str(shutil.which(name)))
    env = {"HOME": str(home), "PATH": str(bin_dir), "LANG": "C.UTF-8", "TERM": "xterm"}
    llmc_program = install(installer, env, python, shelf, wheel)
    assert not (bin_dir / "llmc").exists()
    done = run([str(llmc_program), "demo"], env, cwd=home)
    assert "9 tasks landed" in done, done
    removal = {"pip": "-m pip uninstall llmc", "uv": "uv tool uninstall llmc"}[installer]
    script = "from llmc.cli.setting_up import how_to_remove; print(how_to_remove())"
    shebang = llmc_program.read_text().splitlines()[0].removeprefix("#!")
    assert removal in run([shebang, "-c", script], env)


def install(installer: str, env: dict[str, str], python: str, shelf: Path, wheel: Path) -> Path:
    home = Path(env["HOME"])
    if installer == "pip":
        run([python, "-m", "venv", str(home / "venv")], env)
        own = ["-m", "pip", "install", "-q", "--no-index", "--find-links", str(shelf), str(wheel)]
        run([str(home / "venv/bin/python"), *own], env)
        return home / "venv/bin/llmc"
    (uv,) = shelf.glob("uv-*.whl")
    zipfile.ZipFile(uv).extractall(home / "uv")
    (program,) = (home / "uv").glob("uv-*.data/scripts/uv")
    program.chmod(0o755)
    own = ["tool", "install", "--quiet", "--offline", "--no-index", "--find-links", str(shelf)]
    run([str(program), *own, "--python", python, str(wheel)], env)
    return home / ".local/bin/llmc"


def run(argv: list[str], env: dict[str, str], cwd: Path | None = None) -> str:
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout
