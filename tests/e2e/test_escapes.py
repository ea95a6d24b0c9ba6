"""What a contained agent tries and cannot do. Each attempt is an agent's command, checked from outside.

For the network, see test_network_of_agents.py here, and tests/tools/sandbox/test_contained_network.py.
"""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from llmc.config.root_layout import tmux_server
from llmc.repo.own_repos import path_of
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

pytestmark = needs_bubblewrap

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


def tries(fleet: Fleet, script: str) -> str:
    """What an agent's script printed, with errors. It then makes a commit, so that its work is judged."""
    out = fleet.worktree("adam") / "said.txt"
    inner = shlex.quote(
        f"exec > said.txt 2>&1; {'; '.join(script.splitlines())}; true"
    )  # a directive is a line
    end = f"git add -A; {COMMIT} 'Tried'"
    fleet.llmc("start", "--worker", "adam", "--prompt", f"@sh sh -c {inner}; {end}")
    fleet.wait("adam", "needs_review")
    return out.read_text()


def files(place: Path) -> dict[str, tuple[int, float]]:
    """Every file with its size and time."""
    found = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path): (path.stat().st_size, path.stat().st_mtime) for path in found}


def test_the_person_s_repository_is_out_of_reach(contained: Fleet) -> None:
    before = files(contained.source)
    said = tries(
        contained,
        f"cat {contained.source}/README.md; touch {contained.source}/x; "
        f"git -C {contained.source} commit --allow-empty -m x; git push {contained.source} HEAD:main",
    )
    assert files(contained.source) == before
    assert "sample" not in said


def test_another_worker_is_out_of_reach(contained: Fleet) -> None:
    """Its worktree, its repository, its inbox, its home, and its branch."""
    root = contained.root
    eve = [contained.worktree("eve"), path_of(root, "eve"), root / ".llmc/inbox/eve", root / ".llmc/home/eve"]
    (contained.worktree("eve") / "secret").write_text("of eve\n")
    before = [files(place) for place in eve]
    tip = contained.git("rev-parse", "refs/heads/llmc/eve", cwd=root)
    attempts = "; ".join(f"ls {place}; touch {place}/x; mkdir -p {place}; touch {place}/x" for place in eve)
    said = tries(
        contained,
        f"{attempts}; cat {eve[0]}/secret; git -C {root} update-ref refs/heads/llmc/eve HEAD~1; "
        f"git push {root}/.git HEAD:refs/heads/llmc/eve; rm -rf {root}/.git/objects",
    )
    assert [files(place) for place in eve] == before
    assert contained.git("rev-parse", "refs/heads/llmc/eve", cwd=root) == tip
    assert "of eve" not in said
    (contained.worktree("eve") / "secret").unlink()


def test_llmc_s_own_files_are_out_of_reach(contained: Fleet) -> None:
    root = contained.root
    named = ["state.json", "config.toml", "logs/events.jsonl", ".llmc/daemon.json", ".llmc/root-id"]
    kept = {name: (root / name).stat().st_ino for name in named[1:2]}
    # The program that agents run as llmc, the socket and the hook settings are readable.
    shown = [".llmc/bin/llmc", ".llmc/agents/adam.settings.json"]
    tried = [f"cat {root}/{name} && echo READ; echo x > {root}/{name}" for name in named]
    tried += [f"echo x > {root}/{name}" for name in shown] + [f"rm -f {root}/.llmc/run/wake.sock"]
    said = tries(contained, "; ".join(tried))
    assert "READ" not in said
    assert said.count("Read-only file system") == 3
    assert {name: (root / name).stat().st_ino for name in kept} == kept
    assert json.loads((root / "state.json").read_text())["workers"]
    contained.llmc("status")


def test_settings_of_git_do_not_run_a_program_outside(contained: Fleet) -> None:
    """Config, hooks, attributes, commondir, alternates, and a replaced `.git`: llmc's git reads all of them.

    Break: take one of them out of `for_agents` in repo/own_repos.py.
    """
    ran, own = contained.dir / "ran", path_of(contained.root, "adam")
    program = f"touch {ran}"
    filter = f"git config filter.x.clean {shlex.quote(program)}; echo '* filter=x' > {own}/info/attributes"
    said = tries(
        contained,
        "\n".join(
            [
                f"git config core.fsmonitor {shlex.quote(program)} && echo SET",
                f"git config --worktree core.fsmonitor {shlex.quote(program)} && echo SET",
                f"{filter} && echo SET",
                f"printf '#!/bin/sh\\n{program}\\n' > {own}/hooks/post-checkout && echo SET",
                f"mkdir fake; cp -r {own}/. fake; echo $PWD/fake > {own}/commondir && echo SET",
                f"rm {own}/commondir && echo SET",
                f"mv {own}/config {own}/config.old && echo SET",
                f"echo $PWD/fake/objects > {own}/objects/info/alternates && echo SET",
                f"mv {own}/objects/info {own}/objects/old && echo SET",
                "mv .git old-git && echo SET; rm -f .git && echo SET; echo gitdir: $PWD/fake > .git && echo SET",
                f"ln -s $PWD/fake {own}/worktrees; rm -rf fake",
            ]
        ),
    )
    assert "SET" not in said
    contained.llmc("review", "adam")
    contained.llmc("accept", "adam")
    assert not ran.exists()


def test_a_repository_inside_the_worktree_runs_no_program_outside(contained: Fleet) -> None:
    """The clone guard checks what an agent may write (repo/clone_guard.py)."""
    ran = contained.dir / "ran-inner"
    tries(
        contained,
        f"git init -q sub; cd sub; git -c user.name=a -c user.email=b commit -q --allow-empty -m 1; "
        f"git config core.fsmonitor 'touch {ran}; false'; cd ..; git add sub",
    )
    contained.llmc("review", "adam")
    contained.llmc("reset", "adam")
    assert not ran.exists()


def test_links_lead_nowhere(contained: Fleet) -> None:
    """Nothing outside follows a link in the worktree; a hard link to a read-only file cannot be made."""
    said = tries(
        contained,
        f"ln {contained.root}/.git/HEAD hard && echo LINKED; ln -s {contained.source}/README.md soft; echo x > soft; cat soft",
    )
    assert "LINKED" not in said
    assert (contained.source / "README.md").read_text() == "sample\n"
    assert "sample" not in said


def test_links_in_its_repository_lead_nowhere(contained: Fleet) -> None:
    """git follows a link to write an index, a reflog or packed refs; llmc's git would overwrite a user's.

    Break: no `box` in repo/clone_guard.py, or llmc's own files in the repository (`llmc_file` in repo/git.py).
    """
    own, theirs = path_of(contained.root, "adam"), contained.home / "theirs"
    theirs.write_text("of a person\n")
    contained.configure({"repo.copy": '[".env"]'})
    (contained.source / ".gitignore").write_text(".env\n")
    contained.commit(".gitignore", ".env\n", "Ignore")
    (contained.source / ".env").write_text("settings\n")
    ours = ("llmc-said", "llmc-copied", "llmc-copying", "llmc-provisioned")
    logs = ("logs/HEAD", "logs/refs/heads/llmc/adam")
    links = [f"ln -sf {theirs} {own}/{name}" for name in (*logs, *ours)]
    for planted in ("; ".join(links), f"ln -sf {contained.home}/new {own}/index"):
        contained.llmc(
            "start", "--worker", "adam", "--prompt", f"@sh echo x > f; git add f; {COMMIT} 'X'; {planted}"
        )
        wait_until(lambda: contained.record("adam")["status"] not in ("idle", "working"), 40)
        contained.llmc("rebase", "adam", code=None)
        contained.llmc("reset", "adam", code=None)
        for link in (path for path in own.rglob("*") if path.is_symlink()):
            link.unlink()  # by the user, who was told that git cannot write it
        contained.llmc("reset", "adam")
    assert theirs.read_text() == "of a person\n"
    assert not (contained.home / "new").exists()
    contained.configure({"repo.copy": "[]"})


@pytest.mark.soak
def test_a_pipe_in_its_repository_holds_up_nobody(contained: Fleet) -> None:
    """Break: no check of the kind of file in `take` (repo/own_repos.py): every command waits for a writer."""
    own = path_of(contained.root, "adam")
    contained.llmc("start", "--worker", "adam", "--prompt", f"@sh mv {own}/HEAD head; mkfifo {own}/HEAD")
    wait_until((contained.worktree("adam") / "head").exists)
    contained.commit("other.txt", "x\n", "Other")
    contained.llmc(
        "start", "--worker", "eve", "--prompt", f"@sh echo e > e; git add e; {COMMIT} 'Of eve'", timeout=40
    )
    contained.wait("eve", "needs_review")
    contained.llmc("accept", "eve", timeout=40)
    assert contained.log()[0] == "Of eve"
    assert "is not a regular file" in " ".join(contained.llmc("status").out.split())
    contained.llmc("reset", "adam")


def test_other_processes_are_out_of_reach(contained: Fleet) -> None:
    """The daemon, the other agent, the tmux server: no signal, no trace, no key."""
    server = tmux_server(str(contained.root))
    with subprocess.Popen(["sleep", "60"]) as mine:
        pids = f"{mine.pid} {contained.daemon_pid()}"
        before = contained.screen("eve")
        said = tries(
            contained,
            f"for pid in {pids}; do kill -9 $pid && echo KILLED; cat /proc/$pid/environ && echo SEEN; done; "
            f"tmux -L {server} list-panes -a && echo TMUX; test -S /tmp/tmux-{os.getuid()}/{server} && echo TMUX; "
            f"tmux -L {server} send-keys -t {contained.session('eve')} hello",
        )
        assert mine.poll() is None
        mine.kill()
    assert contained.has_daemon()
    assert not {"KILLED", "SEEN", "TMUX"} & {*said.split()}
    assert contained.screen("eve") == before


def test_the_home_of_the_person_is_empty_inside(contained: Fleet) -> None:
    """And what is written there is gone."""
    (contained.home / "secret").write_text("private\n")
    said = tries(
        contained, f"ls -a {contained.home}; cat {contained.home}/secret; echo x > {contained.home}/.bashrc"
    )
    assert "private" not in said
    assert not (contained.home / ".bashrc").exists()
    (contained.home / "secret").unlink()


def test_it_cannot_become_more(contained: Fleet) -> None:
    """No new user namespace: from a mount namespace without its mounts,
    it could replace files that are mounts here.

    Break: allow `unshare` in the filter of sandbox/rules.py.
    """
    root = contained.root
    said = tries(
        contained,
        f"mount -o remount,rw,bind {root}/.git && echo MOUNTED; unshare -Ur true && echo NAMESPACE; "
        f"unshare -Urm sh -c 'mount -o remount,rw,bind {root}/.git && echo MOUNTED; touch {root}/.git/x && echo WROTE'; "
        f"echo 1 > /proc/sys/kernel/sysrq && echo WROTE; echo x > /etc/passwd && echo WROTE",
    )
    assert not {"MOUNTED", "WROTE", "NAMESPACE"} & {*said.split()}
    assert not (root / ".git/x").exists()


def test_a_broken_object_does_not_reach_the_clone(contained: Fleet) -> None:
    """Break: no transfer.fsckObjects in repo/own_repos.py: a tree with `..` in it would be checked out."""
    root = contained.root
    make = (
        "blob=$(echo evil | git hash-object -w --stdin); "
        'tree=$(printf "100644 blob $blob\\t..\\n" | git mktree --missing 2>/dev/null || '
        "printf '100644 ..\\\\0%b' \"$(echo $blob | sed 's/../\\\\\\\\x&/g')\" | git hash-object -t tree -w --literally --stdin); "
        "commit=$(git -c user.name=a -c user.email=b commit-tree -p HEAD -m evil $tree); "
        "git update-ref refs/heads/llmc/adam $commit; git log -1 --format=%s"
    )
    contained.llmc("start", "--worker", "adam", "--prompt", f"@sh {make}")
    wait_until(lambda: contained.record("adam")["status"] not in ("working", "idle"))
    tip = contained.git("rev-parse", "refs/heads/llmc/adam", cwd=path_of(root, "adam"))
    assert contained.git("log", "-1", "--format=%s", tip, cwd=path_of(root, "adam")) == "evil"
    contained.llmc("review", "adam", code=None)
    done = subprocess.run(["git", "-C", str(root), "cat-file", "-e", tip], capture_output=True)
    assert done.returncode != 0
    assert "git cannot fetch adam's commits" in contained.llmc("status").out
    assert contained.llmc("accept", "adam", code=None).code != 0
    assert "evil" not in contained.log()
    contained.llmc("reset", "adam")
    contained.llmc("doctor", "--repair", code=None)


def test_a_check_of_its_work_reaches_no_further_than_the_agent(contained: Fleet) -> None:
    """llmc runs what an agent commits before it is reviewed. Break: no `hold` in repo/user_commands.py."""
    root, theirs = contained.root, contained.home / "theirs"
    theirs.write_text("private\n")
    attempts = [
        f"cat {theirs}; echo x >> {theirs}; touch {contained.dir}/ran {contained.source}/x {root}/x",
        f"echo x > {root}/config.toml; echo x > {root}/.git/hooks/post-checkout; rm -rf {root}/.git/objects",
        f"git config core.fsmonitor 'touch {contained.dir}/ran'; env; kill -9 {contained.daemon_pid()}",
        f"tmux -L {tmux_server(str(root))} kill-server; {root}/.llmc/bin/llmc accept adam",
    ]
    check = shlex.quote("\\n".join(attempts))
    contained.llmc(
        "start",
        *("--worker", "adam", "--prompt"),
        f"@sh printf {check} > check.sh; git add -A; {COMMIT} 'Work'",
    )
    contained.wait("adam", "needs_review")
    contained.configure({"repo.validate": "sh check.sh; test -e check.sh"})
    contained.llmc("accept", "adam", A_SECRET="private")
    contained.configure({"repo.validate": ""})
    assert contained.log()[0] == "Work"
    said = (root / "logs/adam.log").read_text()
    assert "LLMC_WORKER=adam" in said
    assert "private" not in said
    assert theirs.read_text() == "private\n"
    assert not any(path.exists() for path in (contained.dir / "ran", contained.source / "x", root / "x"))
    assert (root / "config.toml").read_text().startswith("# Configuration")
    assert contained.has_daemon()
    theirs.unlink()


#: two functions with the same lines
TWINS = "\n".join(["def read():", *"abcdefg", *"--------", "def delete():", *"abcdefg", ""])
AMEND = "git -c user.name=Worker -c user.email=worker@example.com commit -q -a --amend --no-edit"


@pytest.mark.parametrize(
    ("amend", "lands"),
    [
        pytest.param(
            f"git checkout -q HEAD^ -- m.py; sed -i '21a return True' m.py; {AMEND}",
            "return True",
            id="the same lines in another function",
        ),
        pytest.param(f"{AMEND} -m '[deploy production] Work'", "[deploy production] Work", id="message"),
        pytest.param(f"{AMEND} --author 'Linus <linus@example.com>'", "Linus", id="author"),
    ],
)
def test_what_is_amended_after_the_review_was_not_reviewed(contained: Fleet, amend: str, lands: str) -> None:
    """By a process that the agent left, so no hook reports it. Break: compare less than what lands."""
    contained.plant({"m.py": TWINS})
    later = shlex.quote(f"until test -e go; do sleep 0.1; done; rm go; {amend}")
    work = f"sed -i '5a return True' m.py; git add m.py; {COMMIT} 'Work'"
    script = f"{work}; setsid sh -c {later} < /dev/null > /dev/null 2>&1 &"
    contained.llmc("start", "--worker", "adam", "--prompt", f"@sh {script}")
    contained.wait("adam", "needs_review")
    assert "+return True" in contained.llmc("review", "adam").out
    worktree = contained.worktree("adam")
    seen = contained.git("rev-parse", "HEAD", cwd=worktree)
    (worktree / "go").touch()
    wait_until(lambda: contained.git("rev-parse", "HEAD", cwd=worktree) != seen)
    done = contained.llmc("accept", "adam", "--json")
    assert done.json["reviewed"] == "changed"
    assert "differs from the one you reviewed" in done.err
    assert lands in contained.git("show", "HEAD")
