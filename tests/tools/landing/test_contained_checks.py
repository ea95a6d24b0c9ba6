"""Validation, `verify` and setup run an agent's code: contained, it reaches its checkout and nothing else.

Each attempt is a check's command; its effects are looked for outside.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.base.errors import LlmcError
from llmc.base.proc import ShuttingDown
from llmc.base.processes import marked
from llmc.config.edit import set_value
from llmc.landing import slots, validation
from llmc.landing.failing_base import BaseFails
from llmc.landing.slots import NoSlot
from llmc.records.worker import Assignment, WorkerRecord
from llmc.repo import provision, setup
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed
from llmc.sandbox import probe, rules
from llmc.sandbox.rules import Problem
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import in_soak
from tests.support.repos import (
    Mold,
    Repo,
    Worktree,
    add_worker,
    make_library,
    make_project,
    project_at,
    worker_of,
)
from tests.support.waiting import wait_until
from tests.support.web_server import web_server

pytestmark = needs_bubblewrap


def make(place: Path) -> None:
    (place / "home").mkdir()
    made = Repo(place / "so'ur ce")
    made.commit(".gitignore", "*.cache\n.env\nvenv/\n")
    made.commit("a.txt", "good\n")
    project = make_project(str(made.path), place / "ro ot")
    project = configured(project, {"sandbox.checks": "on"})
    add_worker(project, "w1")
    add_worker(project, "w2")


@pytest.fixture
def tmp_path(mold: Mold) -> Path:
    """With a home, a source, and a root with two workers."""
    return mold.place(make)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return project_at(tmp_path / "ro ot")


def configured(project: Project, settings: dict[str, str]) -> Project:
    for key, value in settings.items():
        set_value(project.root.config, key, value)
    return setup.new_project(project.root)


def work(project: Project) -> tuple[WorkerRecord, str, str]:
    """A worker's commit, and its base."""
    record, worktree = worker_of(project)
    base = worktree.head()
    return record, worktree.commit("b.txt", f"{base}\n"), base


def check(project: Project, command: str, *, where: str = "slot", task: Assignment | None = None) -> str:
    """The output of a check, whether it passed or failed.

    `where`: in a slot, in the worktree, or in the worktree of a contained worker, which has its own repository.
    """
    kind = "slot" if where == "slot" else "worktree"
    project = configured(project, {"repo.validate": command, "repo.validate_in": kind})
    record, commit, base = work(project)
    provision.settle_repository(project, record, contained=where == "own")
    log = project.root.log("w1")
    before = len(log.read_text()) if log.exists() else 0
    worktree = Path(record.worktree_path)
    with suppress(CommandFailed, NoSlot, BaseFails):
        if where == "slot":
            validation.check_commit(project, "w1", commit, base, worktree=worktree, task=task)
        else:
            validation.in_worktree(project, record, commit, base, task)
    return log.read_text()[before:]


#: GET through the proxy, and without it; prints what arrived, but not as it is written here
FETCH = (
    "import os, sys, urllib.request as r\n"
    "for name in ('no_proxy', 'NO_PROXY'): os.environ.pop(name, '')\n"
    "for o in (r.build_opener(r.ProxyHandler({'http': 'http://127.0.0.1:3128'})), r.build_opener(r.ProxyHandler({}))):\n"
    "    try: print('GOT-' + o.open(sys.argv[1], timeout=5).read().decode())\n"
    "    except Exception as e: print('NO-' + type(e).__name__)"
)


def test_it_connects_to_what_is_listed_and_the_rest_is_told(project: Project) -> None:
    """Break: without `network` in `hold` of repo/containment.py it reaches nothing;
    with a shared network, everything.
    """
    with web_server() as port:
        fetch = f"{sys.executable} -c {shlex.quote(FETCH)} http://127.0.0.1:{port}/"
        assert "GOT-" not in (said := check(project, fetch)).replace("'GOT-'", "")
        assert f"a check could not connect to 127.0.0.1:{port}" in said
        refused = [row for row in event_rows(project) if row["action"] == "host_refused"]
        assert [row["host"] for row in refused][:1] == [f"127.0.0.1:{port}"]
        project = configured(project, {"sandbox.hosts": f'["{refused[0]["allow"]}"]'})
        assert check(project, fetch).count("GOT-hello") >= 2


def event_rows(project: Project) -> list[dict[str, Any]]:
    return [json.loads(line) for line in project.root.events.read_text().splitlines()]


#: no other process on this machine sleeps that long
SLEEP = f"sleep 4711.{os.getpid()}"
WHERE = pytest.mark.parametrize("where", ["slot", *in_soak("worktree", "own")])


@WHERE
def test_it_writes_its_checkout_and_nothing_else(project: Project, tmp_path: Path, where: str) -> None:
    """Break: no `hold` in repo/user_commands.py."""
    root = project.root.path
    (tmp_path / "home/.bashrc").write_text("mine\n")
    other = Path(worker_of(project, "w2")[0].worktree_path)
    places = [root, root / ".llmc", root / ".git", root / ".git/hooks", root / ".llmc/slots", root / "logs"]
    places += [other, tmp_path / "home", tmp_path / "so'ur ce", tmp_path]
    named = " ".join(shlex.quote(str(place)) for place in places)
    beside = f"/tmp/there-{os.getpid()}"
    said = check(
        project,
        f'for place in {named}; do touch "$place/planted"; done; echo evil >> ~/.bashrc; '
        f"echo x > {shlex.quote(str(project.root.state))}; touch here.cache {beside} && echo WROTE-HERE",
        where=where,
    )
    assert said.count("WROTE-HERE") == 2  # once in the command itself
    assert not [place for place in places if (place / "planted").exists()]
    assert not Path(beside).exists()
    assert (tmp_path / "home/.bashrc").read_text() == "mine\n"
    assert project.store.read().workers


@pytest.mark.soak
@WHERE
def test_it_reads_nothing_of_the_user_s(project: Project, tmp_path: Path, where: str) -> None:
    """The home, the source, another worker, the state, and the variables of the user's shell."""
    reads_nothing(project, tmp_path, where)


@pytest.mark.parametrize("where", ["own", *in_soak("slot", "worktree")])
def test_a_root_and_a_source_below_a_directory_of_the_system_are_not_seen(
    project: Project, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below /opt.

    Break: no `covered` in repo/containment.py; or drop what is below /opt in `_widest`: git fails.
    """
    monkeypatch.setattr(rules, "SYSTEM", (*rules.SYSTEM, str(tmp_path)))
    (tmp_path / "tool").write_text("")
    programs = tmp_path / "so'ur ce/venv/bin"
    programs.mkdir(parents=True)
    (programs / "of-the-project").write_text("#!/bin/sh\necho RAN-IT\n")
    (programs / "of-the-project").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    said = reads_nothing(
        project,
        tmp_path,
        where,
        f"ls {shlex.quote(str(tmp_path))}; git log -1 --format=READS-%s; of-the-project",
    )
    assert {"tool", "READS-Add b.txt", "RAN-IT"} <= {*said.splitlines()}


def reads_nothing(project: Project, tmp_path: Path, where: str, more: str = "true") -> str:
    secrets = {
        tmp_path / "home/.ssh/id": "of-home",
        Path(worker_of(project, "w2")[0].worktree_path, "x"): "of-w2",
        tmp_path / "so'ur ce/.env": "of-source",
        project.root.logs / "x": "of-logs",
    }
    for path, text in secrets.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text[:3]}{text[3:].upper()}\n")
    reads = "; ".join(f"cat {shlex.quote(str(path))}" for path in [*secrets, project.root.state])
    said = check(project, f"{reads}; ls -A ~ | sed s/^/SEEN-/; {more}", where=where)
    assert not [text for text in secrets.values() if f"{text[:3]}{text[3:].upper()}" in said]
    assert "session_id" not in said
    assert "SEEN-." not in said
    return said


@pytest.mark.parametrize("target", ["/planted", *in_soak("")])
def test_a_link_where_something_is_mounted_leads_nowhere(
    project: Project, tmp_path: Path, target: str
) -> None:
    """bubblewrap follows it out of the box. Break: no `clear` in repo/containment.py."""
    project = configured(project, {"sandbox.presets": '["cargo"]'})
    made = "mkdir" if not target else f"ln -s {shlex.quote(f'/oldroot{tmp_path}{target}')}"
    assert "PLANTED" in check(project, f'{made} "$CARGO_HOME/config.toml" && echo PLANTED')
    settings = tmp_path / "home/.cargo/config.toml"
    settings.parent.mkdir()
    settings.write_text("[build]\njobs = 4\n")
    assert '"jobs" = 4' in check(project, 'cat "$CARGO_HOME/config.toml"')
    assert not list(tmp_path.rglob("planted"))


def test_no_secret_of_the_environment_is_in_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: pass on the whole environment in repo/containment.py."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "s3cret-key")
    monkeypatch.setenv("GITHUB_TOKEN", "s3cret-token")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:s3cret@db/x")
    project = configured(
        project, {"defaults.env": '{ TESTS = "few", ANTHROPIC_AUTH_TOKEN = "s3cret-login" }'}
    )
    said = check(project, "env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'")
    assert "s3cret" not in said
    assert "TESTS=few" in said
    assert "LLMC_WORKER=w1" in said


@pytest.mark.parametrize("where", ["slot", *in_soak("worktree")])
def test_settings_of_git_do_not_run_a_program_outside(project: Project, tmp_path: Path, where: str) -> None:
    """llmc's git reads the clone's settings after a check. Break: a writable clone in repo/containment.py."""
    ran = shlex.quote(f"touch {shlex.quote(str(tmp_path / 'ran'))}; false")
    said = check(
        project,
        f"git config core.fsmonitor {ran} && echo SET1; git config --worktree core.fsmonitor {ran} && echo SET2; "
        f'd=$(git rev-parse --git-dir); c=$(git rev-parse --git-common-dir); echo {ran} > "$c/hooks/post-checkout" && echo SET3; '
        'echo "* filter=x" > "$c/info/attributes" && echo SET4; echo /tmp > "$d/commondir" && echo SET5; '
        "mv .git old && echo SET6; rm -f .git && echo SET7; git update-ref refs/heads/llmc/w2 HEAD && echo SET8; "
        'rm -rf "$c/objects" && echo SET9; git status --short && git log -1 --format=READS-%s',
        where=where,
    )
    lines = {*said.splitlines()}
    assert not {f"SET{number}" for number in range(1, 10)} & lines
    assert "READS-Add b.txt" in lines
    check(project, "true", where=where)
    assert not (tmp_path / "ran").exists()


@pytest.mark.soak
def test_a_submodule_s_settings_do_not_run_a_program_outside(project: Project, tmp_path: Path) -> None:
    """A check replaces the `.git` of a submodule, which is in its checkout; llmc's git reads it next time.

    Break: no check of `_gitlinks` in repo/clone_guard.py.
    """
    make_library(Worktree(tmp_path / "so'ur ce"), tmp_path)
    _, worktree = worker_of(project)
    provision.refresh_base(project)
    worktree.git("fetch", "-q", "origin")
    worktree.git("reset", "-q", "--hard", "origin/main")
    ran = shlex.quote(f"touch {shlex.quote(str(tmp_path / 'ran'))}; false")
    said = check(
        project,
        'cd lib && cp -r "$(git rev-parse --git-dir)" copy && rm .git && mv copy .git && '
        f"git config --unset core.worktree; git config filter.x.clean {ran} && git config filter.x.smudge {ran} && "
        "echo '* filter=x' > .git/info/attributes && echo spoilt > lib.c && git status && echo PLANTED",
    )
    assert said.count("PLANTED") == 2
    check(project, "test -e lib/lib.c && echo BACK")
    assert not (tmp_path / "ran").exists()


@WHERE
def test_nothing_stays_behind(project: Project, where: str) -> None:
    """Not even for a moment. Break: no `--unshare-pid`, or no `_wait_for` in launch.py."""
    check(
        project,
        f"for i in $(seq 200); do setsid {SLEEP} & done; (trap '' TERM HUP; {SLEEP}) & true",
        where=where,
    )
    assert not sleeping()


def sleeping() -> list[str]:
    """The processes of a check that sleeps."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == SLEEP.encode().split():
            found.append(pid)
    return found


@pytest.mark.soak
@WHERE
def test_one_that_takes_too_long_is_ended_with_all_it_started(project: Project, where: str) -> None:
    """Break: no `--die-with-parent`; or only `kill_group` in `run_logged`,
    which kills bubblewrap and not its program.
    """
    project = configured(project, {"repo.validate_timeout_s": "2"})
    said = check(project, f"for i in $(seq 200); do setsid {SLEEP} & done; {SLEEP}", where=where)
    assert "(stopped by llmc after 2 s)" in said
    assert "exit code 124" in said
    assert not sleeping()


@pytest.mark.soak
def test_one_is_ended_with_llmc(project: Project) -> None:
    """Told to stop, or killed."""
    project = configured(project, {"repo.validate": f"setsid {SLEEP} & {SLEEP}"})
    record, commit, base = work(project)
    stopping = replace(project, stopping=lambda: bool(sleeping()))
    with pytest.raises(ShuttingDown):
        validation.check_commit(stopping, "w1", commit, base, worktree=Path(record.worktree_path))
    assert not sleeping()
    script = """
import sys
from contextlib import suppress
from pathlib import Path
from llmc.landing import validation
from llmc.repo import setup
from llmc.config.paths import Root
project = setup.new_project(Root(Path(sys.argv[1])))
validation.check_commit(project, "w1", sys.argv[2], sys.argv[3], worktree=Path("/w"))
"""
    process = subprocess.Popen([sys.executable, "-c", script, str(project.root.path), commit, base])
    wait_until(sleeping, 20)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    wait_until(lambda: not sleeping())
    assert not marked(slots.MARK, str(slots.every(project)[0].path))


@pytest.mark.soak
@pytest.mark.parametrize("contained", ["on", "off"])
@pytest.mark.parametrize(
    ("command", "code"), [("exit 7", 7), ("nothing-here", 127), ("/", 126), ("kill -9 $$", 137)]
)
def test_exit_codes_are_the_same(project: Project, contained: str, command: str, code: int) -> None:
    """Break: return a negative number for a death by signal, as subprocess does."""
    said = check(configured(project, {"sandbox.checks": contained}), command)
    assert f"exit code {code}\n" in said


@pytest.mark.soak
@WHERE
def test_its_output_is_in_the_worker_s_log_which_it_cannot_change(project: Project, where: str) -> None:
    """Break: give it the log itself: it could truncate it."""
    log = project.root.log("w1")
    log.parent.mkdir(exist_ok=True)
    log.write_text("from before\n")
    said = check(project, "echo out; pwd; echo err >&2; : > /proc/self/fd/1; echo last", where=where)
    assert log.read_text().startswith("from before\n")
    assert "last\n" in said
    _, worktree = worker_of(project)
    said = check(project, "echo out; pwd; echo err >&2", where=where)
    assert f"\nout\n{worktree.path}\nerr\n" in said


@pytest.mark.parametrize("where", ["slot", *in_soak("worktree", "own")])
@pytest.mark.parametrize("contained", ["on", *in_soak("off")])
def test_it_cannot_make_the_worker_s_log_grow(project: Project, where: str, contained: str) -> None:
    """A sparse file of a terabyte, copied, fills the disk. Break: no `untrusted` in `_run_check`."""
    project = configured(project, {"sandbox.checks": contained})
    said = check(project, "echo err > /dev/stderr; truncate -s 50M /proc/self/fd/1; echo last", where=where)
    assert project.root.log("w1").stat().st_size < 1 << 20
    assert {"err", "last"} < {*said.splitlines()}


def test_setup_and_verify_are_contained_too(project: Project, tmp_path: Path) -> None:
    """In a new worktree, and in a slot. Break: `run_in_log` for one of them."""
    plant = f"touch {shlex.quote(str(tmp_path / 'ran'))}; touch"
    project = configured(project, {"repo.setup": f"{plant} set.cache"})
    record, _ = add_worker(project, "w3")
    assert Path(record.worktree_path, "set.cache").exists()
    task = Assignment(task_id="1", claim="c", since_unix=0.0, verify=f"{plant} verified.cache")  # type: ignore[arg-type]
    check(project, f"{plant} validated.cache", task=task)
    slot = slots.every(project)[0].path
    assert all((slot / f"{name}.cache").exists() for name in ("set", "validated", "verified"))
    _, worktree = worker_of(project)
    check(project, f"{plant} validated.cache", task=task, where="worktree")
    assert all((worktree.path / f"{name}.cache").exists() for name in ("validated", "verified"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.soak
def test_tools_have_caches_of_their_own(project: Project, tmp_path: Path) -> None:
    """Break: one cache for all: another worker's agent would run what a check left there."""
    Worktree(tmp_path / "so'ur ce").commit("pyproject.toml")
    provision.refresh_base(project)
    (tmp_path / "home/.config/pip").mkdir(parents=True)
    settings = "[global]\nindex-url = https://me:s3cret@pip.example/simple\n"
    (tmp_path / "home/.config/pip/pip.conf").write_text(settings)
    said = check(
        project, 'cat ~/.config/pip/pip.conf; touch "$PIP_CACHE_DIR/kept" && echo "CACHE $PIP_CACHE_DIR"'
    )
    slot = slots.every(project)[0]
    kept = project.root.cache(slot.path) / "pip/kept"
    assert kept.exists()
    assert f"CACHE {kept.parent}\n" in said
    assert "index-url = https://pip.example/simple\n" in said
    assert "s3cret" not in said
    assert "FOUND" in check(project, 'test -e "$PIP_CACHE_DIR/kept" && echo FOUN"D"')
    _, worktree = worker_of(project)
    assert "FOUND" not in check(project, 'test -e "$PIP_CACHE_DIR/kept" && echo FOUN"D"', where="worktree")
    assert project.root.cache(worktree.path).is_dir()
    slots.clear_away(project, slot)
    assert not kept.exists()


@pytest.mark.soak
def test_the_user_opens_what_a_check_needs(project: Project, tmp_path: Path) -> None:
    (tmp_path / "home/data").mkdir()
    (tmp_path / "home/data/x").write_text("DATA\n")
    (tmp_path / "shared").mkdir()
    project = configured(
        project, {"sandbox.read": '["~/data", "/not/there"]', "sandbox.write": f'["{tmp_path}/shared"]'}
    )
    shared = shlex.quote(f"{tmp_path}/shared")
    said = check(project, f"cat ~/data/x; touch ~/data/y; touch {shared}/z")
    assert "\nDATA\n" in said
    assert not (tmp_path / "home/data/y").exists()
    assert (tmp_path / "shared/z").exists()


def test_a_machine_that_cannot_contain_them(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` continues and says so until it can; `on` checks nothing."""
    lack = Problem("bubblewrap is not installed", "install it")
    with monkeypatch.context() as without:
        without.setattr(probe, "problem", lambda: lack)
        with pytest.raises(LlmcError, match="cannot contain checks: bubblewrap is not installed") as refused:
            check(project, "true")
        assert "llmc config set sandbox.checks off" in refused.value.hint
        project = configured(project, {"sandbox.checks": "auto"})
        assert "exit code 0" in check(project, "true")
        (item,) = project.store.read().attention.values()
        assert item.text == "checks are not contained: bubblewrap is not installed"
    check(project, "true")
    assert not project.store.read().attention


#: leaves a submodule whose `.git` file git could read differently than the guard
SUBMODULE = """
[ -e sub/.git ] && exit 0
git init -q sub && cd sub
echo one > f && git add f && git -c user.name=a -c user.email=b commit -q -m 1
echo two > f
echo '* filter=e' > .gitattributes
mv .git x && cp -r x ' x'
git config --file ' x/config' filter.e.clean "touch @RAN@; cat"
printf 'gitdir:  x\\n' > .git
"""


def test_a_submodule_that_a_check_left_runs_nothing(project: Project, tmp_path: Path) -> None:
    """git in a slot has the user's rights.

    Break: strip a pointer's text in `_led_to` (repo/clone_guard.py).
    """
    project = configured(project, {"repo.validate": "sh ./t.sh", "repo.validate_in": "slot"})
    record, worktree = worker_of(project)
    base = worktree.head()
    worktree.commit("t.sh", SUBMODULE.replace("@RAN@", shlex.quote(str(tmp_path / "home/ran"))))
    worktree.git("update-index", "--add", "--cacheinfo", f"160000,{base},sub")
    for subject in ("first", "again", "and again"):
        worktree.git("commit", "-q", "--allow-empty", "-m", subject)
        with suppress(LlmcError):
            validation.check_commit(project, "w1", worktree.head(), base, worktree=Path(record.worktree_path))
        assert not (tmp_path / "home/ran").exists(), subject


#: leaves a repository in the slot, with an index or a reflog behind a link
LINKED = """
[ -e sub/.git ] && exit 0
rm -rf sub; mkdir sub; cd sub; git init -q .
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
echo x > x && git add x && git commit -q -m x
rm -rf .git/index .git/logs; mkdir .git/logs
ln -s @THEIRS@ .git/index; ln -s @THEIRS@ .git/logs/HEAD
"""


def test_no_link_in_a_repository_that_a_check_left_is_followed(project: Project, tmp_path: Path) -> None:
    """Break: let git enter a directory `.git` in a slot (`_inner` in repo/clone_guard.py)."""
    theirs = tmp_path / "home/.bashrc"
    theirs.write_text("of a person\n")
    project = configured(project, {"repo.validate": "sh ./t.sh", "repo.validate_in": "slot"})
    record, worktree = worker_of(project)
    base = worktree.head()
    worktree.write(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ./nothing\n')
    worktree.git("add", ".gitmodules")
    worktree.commit("t.sh", LINKED.replace("@THEIRS@", shlex.quote(str(theirs))))
    worktree.git("update-index", "--add", "--cacheinfo", f"160000,{base},sub")
    for subject in ("first", "again", "and again"):
        worktree.git("commit", "-q", "--allow-empty", "-m", subject)
        with suppress(LlmcError):
            validation.check_commit(project, "w1", worktree.head(), base, worktree=Path(record.worktree_path))
        assert theirs.read_text() == "of a person\n", subject
