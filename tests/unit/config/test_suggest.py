"""What `init` proposes from a repository's own files: its check command, and a name for its task list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.agents.claude.layout import list_name
from llmc.config.suggest import LOOKED_AT, suggested_check, task_list_id

NPM_INIT = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'
JEST = '{"scripts": {"test": "jest"}}'


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"Makefile": "test: build\n\tpytest\n"}, "make test"),
        ({"Makefile": "check:\n\ttrue\n"}, "make check"),
        ({"Makefile": "check:\n\ttrue\ntest:\n\ttrue\n"}, "make test"),
        ({"Makefile": "lint  test : deps\n\ttrue\n"}, "make test"),
        ({"Makefile": "test::\n\ttrue\n"}, "make test"),
        ({"Makefile": "lint \\\n  test: deps\n\ttrue\n"}, "make test"),
        ({"Makefile": "include x.mk\r\ntest:\r\n\ttrue\r\n"}, "make test"),
        ({"Makefile": "all:\n", "GNUmakefile": "test:\n"}, "make test"),
        ({"Makefile": "test:\n", "GNUmakefile": "all:\n"}, None),
        ({"Makefile": ".PHONY: test\nall:\n\techo test: no\n# test: x\n"}, None),
        ({"Makefile": "test := 1\nall:\n"}, None),
        ({"Makefile": "test ::= 1\ntest :::= 2\ntests: x\ncheck = a:b\n"}, None),
        ({"Makefile": "define help\ntest: runs the tests\nendef\n$(info test: x)\n"}, None),
        ({"Makefile": "test:\n", "package.json": JEST, "tox.ini": "", "go.mod": ""}, "make test"),
        ({"Makefile": "all:\n", "package.json": JEST, "tox.ini": "", "go.mod": ""}, "npm test"),
        ({"tox.ini": "", "Cargo.toml": "", "go.mod": ""}, "tox"),
        ({"package.json": JEST}, "npm test"),
        ({"package.json": JEST, "pnpm-lock.yaml": ""}, "pnpm test"),
        ({"package.json": JEST, "yarn.lock": ""}, "yarn test"),
        ({"package.json": JEST, "bun.lockb": ""}, "bun run test"),
        ({"package.json": "\ufeff" + JEST}, "npm test"),
        ({"package.json": NPM_INIT}, None),
        ({"package.json": '{"scripts": {"test": ["jest"]}}'}, None),
        ({"package.json": '{"scripts": []}'}, None),
        ({"package.json": "["}, None),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest"),
        ({"pyproject.toml": '[dependency-groups]\ndev = ["pytest>=8"]\n', "uv.lock": ""}, "uv run pytest"),
        (
            {"pyproject.toml": '[tool.poetry.dependencies]\npytest = "^8"\n', "poetry.lock": ""},
            "poetry run pytest",
        ),
        (
            {"pyproject.toml": '[project.optional-dependencies]\ntest = ["pytest[x] ; a"]\n'},
            "python3 -m pytest",
        ),
        ({"pyproject.toml": '[project]\ndependencies = ["pytest-asyncio"]\n'}, None),
        ({"pyproject.toml": "[tool.tox]\n"}, "tox"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "tox.ini": ""}, "tox"),
        ({"noxfile.py": "", "pytest.ini": ""}, "nox"),
        ({"pytest.ini": ""}, "python3 -m pytest"),
        ({"setup.cfg": "[tool:pytest]\n"}, "python3 -m pytest"),
        ({"pyproject.toml": "[tool.black]\n"}, None),
        ({"pyproject.toml": "tool ="}, None),
        ({"Cargo.toml": ""}, "cargo test"),
        ({"go.mod": "module x"}, "go test ./..."),
        ({"go.mod": "", "Makefile": "test:\n"}, "make test"),
        ({"Cargo.toml": "", "package.json": NPM_INIT}, "cargo test"),
        ({}, None),
    ],
)
def test_the_check_that_the_files_name(files: dict[str, str], command: str | None) -> None:
    """Break: treat a recipe line, a variable or .PHONY as a target, or npm's placeholder as tests."""
    assert set(files) <= set(LOOKED_AT)
    found = suggested_check(files)
    assert (found.command if found else None) == command


@given(
    st.dictionaries(st.sampled_from(LOOKED_AT), st.text() | st.sampled_from([JEST, "test:\n", "[tool]", "{"]))
)
def test_no_text_breaks_it(files: dict[str, str]) -> None:
    found = suggested_check(files)
    assert found is None or (found.command and found.because)


@pytest.mark.parametrize(
    ("source", "begins"),
    [
        ("/home/me/src/greeter", "greeter-"),
        ("/srv/git/greeter.git", "greeter-"),
        ("https://example.com/team/My App.git", "My-App-"),
        ("git@example.com:greeter.git", "greeter-"),
        ("/home/me/…", "repo-"),
        ("/home/me/" + "x" * 200, "x" * 40 + "-"),
    ],
)
def test_a_task_list_is_called_like_the_repository(source: str, begins: str) -> None:
    """Break: leave out the root's mark, so that two roots of a repository share one list."""
    found = task_list_id(source, "/home/me/llmc")
    assert found.startswith(begins)
    assert list_name(found) == found, "the client writes other characters differently"
    assert found == task_list_id(source, "/home/me/llmc")
    assert found != task_list_id(source, "/home/me/llmc-2")
