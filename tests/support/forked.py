"""Runs `llmc` in a fork of the test's own process: the same code and exit code without the cost of its imports."""

import importlib
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

from llmc.__main__ import main
from llmc.cli.app import COMMANDS
from tests.support.fleet import Result

#: Python 3.12 warns of threads (the test runner has some); the child only runs one command
FORK_WARNING = "ignore:.*multi-threaded.*:DeprecationWarning"


def run(argv: list[str], cwd: Path, env: Mapping[str, str]) -> Result:
    for name in COMMANDS:
        importlib.import_module(f"llmc.cli.{name}")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _become_llmc(argv, cwd, env, out.fileno(), err.fileno())
        _, status = os.waitpid(pid, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
    return Result(subprocess.CompletedProcess(argv, os.waitstatus_to_exitcode(status), *texts))


def _become_llmc(argv: list[str], cwd: Path, env: Mapping[str, str], out: int, err: int) -> None:
    """Never returns: whatever happens, the child must not go on with the test."""
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", closefd=False, encoding="utf-8", errors="surrogateescape")
        sys.stderr = open(2, "w", closefd=False, encoding="utf-8", errors="backslashreplace")
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["llmc", *argv]
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
