"""Review, reject, accept: what the user sees is what lands, or llmc says otherwise."""

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.api import acceptance, orders
from llmc.repo.project import open_project
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

IDENTITY = "git -c user.name=Worker -c user.email=worker@example.com"
COMMIT = f"{IDENTITY} commit -q -m"
AMEND = f"{IDENTITY} commit -q --amend -m"


@pytest.fixture(scope="module")
def shared() -> Iterator[Fleet]:
    """A running fleet, shared by tests that each start with idle workers."""
    fleet = Fleet("scripted")
    fleet.set_up("adam", "baker")
    fleet.up("--no-patrol")
    yield fleet
    fleet.close()


@pytest.fixture
def running(shared: Fleet) -> Iterator[Fleet]:
    yield shared.new_case()
    shared.rest("adam", "baker")


def work(fleet: Fleet, text: str, worker: str = "adam", path: str = "f.txt", subject: str = "Work") -> None:
    """A worker's commit that waits for review; a worker that already waits amends."""
    line = f"@sh printf '%b\\n' '{text}' > {path} && git add -A && "
    if fleet.record(worker)["status"] == "needs_review":
        fleet.llmc("message", worker, f"{line}{AMEND} '{subject}'")
    else:
        fleet.llmc("start", "--worker", worker, "--prompt", f"Do it\n{line}{COMMIT} '{subject}'")
    fleet.wait(worker, "needs_review")


def sent(fleet: Fleet, prompt_id: str) -> str:
    """A prompt as recorded in the agent's transcript, which may lag behind its hooks."""
    mark = f"[llmc {prompt_id}]"
    return str(wait_until(lambda: next((text for text in fleet.user_turns() if mark in text), None)))


@pytest.mark.req("1-014", "1-108", "2-013")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_reject_twice_then_accept_is_one_amended_commit(fleet: Fleet) -> None:
    """Break: send `reject` with /clear (@on-reject is forgotten), or without `then=REJECTED`."""
    fleet.set_up("adam")
    fleet.up()
    redo = f"@on-reject echo again >> f.txt && git add f.txt && {AMEND} 'Better work'"
    first = f"@sh echo one > f.txt && git add f.txt && {COMMIT} 'Work'"
    fleet.llmc("start", "--prompt", f"Write f.txt\n{first}\n{redo}")
    fleet.wait("adam", "needs_review")
    file = fleet.dir / "words"
    file.write_text("Once more, please\n")
    for words in (["Once more, please"], ["--file", str(file)]):
        assert fleet.llmc("review", "--json").json["worker"] == "adam"
        receipt = fleet.llmc("reject", *words, "--json").json
        assert receipt["outcome"] == "acknowledged"
        assert receipt["prompt_id"].startswith("reject-")
        fleet.wait("adam", "needs_review")
    moves = [(row["from"], row["to"]) for row in fleet.events("status_changed")]
    assert moves.count(("needs_review", "rejected")) == 2
    assert moves.count(("rejected", "needs_review")) == 2
    assert len([row for row in fleet.events("session_started") if row["source"] == "clear"]) == 1
    prompt = sent(fleet, receipt["prompt_id"])
    assert "Once more, please" in prompt
    assert "\n+one\n+again\n" in prompt
    seen = fleet.llmc("review", "--json").json
    assert [row["subject"] for row in seen["commits"]] == ["Better work"]
    accepted = fleet.llmc("accept", "--json").json
    assert accepted["reviewed"] == "same"
    assert fleet.log() == ["Better work", "First commit"]
    assert (fleet.source / "f.txt").read_text() == "one\nagain\nagain\n"


ODD = '-- it\'s "odd": $HOME `id` \\ %s ünï 🙂\n/clear\n!ls\n#{pane_id} \ttab; \\; end\\'


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_odd_characters_arrive_as_they_are_and_a_long_diff_is_cut(fleet: Fleet) -> None:
    """Break: render the feedback with autoescape, or pass it through a shell; or quote the whole diff."""
    fleet.set_up("adam")
    fleet.up()
    work(fleet, "@sh touch harm\\r@sh touch harm {{ 7 * 7 }}")
    fleet.llmc("review", "--json")
    receipt = fleet.llmc("reject", "--file", "-", "--json", stdin=ODD).json
    assert receipt["outcome"] == "acknowledged"
    fleet.wait("adam", "needs_review")
    prompt = sent(fleet, receipt["prompt_id"])
    assert ODD.replace("\t", "    ") in prompt
    assert "{{ 7 * 7 }}" in prompt
    assert not (fleet.worktree("adam") / "harm").exists()
    fleet.llmc("accept")
    long = "@sh seq 1 20000 > long.txt; git add long.txt"
    fleet.llmc("start", "--prompt", f"{long}; {COMMIT} 'Long'")
    fleet.wait("adam", "needs_review")
    fleet.llmc("review", "--json")
    receipt = fleet.llmc("reject", "too long", "--json").json
    assert receipt["outcome"] == "acknowledged"
    fleet.wait("adam", "needs_review")
    prompt = sent(fleet, receipt["prompt_id"])
    assert len(prompt.encode()) < 33_000
    assert "more lines are not shown" in prompt


@pytest.mark.req("1-106", "1-109")
@pytest.mark.soak
def test_review_shows_the_longest_waiting_first(running: Fleet) -> None:
    """Break: sort by name instead of by since_unix."""
    work(running, "b", "baker", "b.txt", "Of baker")
    work(running, "a", "adam", "a.txt", "Of adam")
    shown = running.llmc("review")
    for text in ("baker", "Do it", "Of baker", "+1 -0", "diff --git a/b.txt b/b.txt", "+b"):
        assert text in shown.out
    assert "llmc accept baker" in shown.err
    assert "Of adam" in running.llmc("review", "adam").out
    running.llmc("review", "baker", "--json")
    assert running.llmc("accept", "--json").json["worker"] == "baker"
    assert running.llmc("accept", "--json").json == {
        "worker": "adam",
        "commit": running.git("rev-parse", "main"),
        "subject": "Of adam",
        "reviewed": "same",
    }


def test_accept_without_a_name_asks_when_several_wait(running: Fleet) -> None:
    """Break: remember the last reviewed worker beyond the work that was reviewed."""
    work(running, "a1", "adam", "a1.txt")
    running.llmc("review", "adam")
    running.llmc("accept")
    work(running, "b2", "baker", "b2.txt")
    work(running, "a2", "adam", "a2.txt")
    assert "adam, baker" in running.llmc("accept", code=2).err
    assert "llmc review" in running.llmc("reject", "for whom is this?", code=3).err


def test_status_says_what_was_reviewed(running: Fleet) -> None:
    """Break: compare nothing, and show every needs_review worker as reviewed."""
    work(running, "s1")
    assert "llmc review adam" in running.llmc("status").out
    running.llmc("review", "adam", "--name-only")
    assert not running.status("adam")["reviewed"]
    running.llmc("review", "adam")
    assert running.status("adam")["reviewed"]
    assert "(reviewed)" in running.llmc("status").out
    assert "llmc accept adam" in running.llmc("status").out
    work(running, "s2")
    assert not running.status("adam")["reviewed"]
    assert "(reviewed)" not in running.llmc("status").out


def test_what_changed_after_the_review_is_said(running: Fleet) -> None:
    """Break: `git patch-id --stable` (misses white space), no comparison at all,
    or a warning only after the landing.
    """
    work(running, "if x: pass")
    running.llmc("review", "adam")
    work(running, "  if x: pass")
    # On a terminal, llmc asks; a no leaves everything as it was.
    tip = running.git("rev-parse", "main")
    assert running.answered(b"n\n", "accept", "adam") != 0
    assert (running.git("rev-parse", "main"), running.status("adam")["accept_step"]) == (tip, None)
    assert "accept:adam" not in {item["key"] for item in running.llmc("status", "--json").json["attention"]}
    said = running.llmc("accept", "adam").err
    assert said.index("differs from the one you reviewed") < said.index("landing the commit"), (
        "before it lands"
    )
    assert said.count("differs from the one you reviewed") == 1
    assert running.events("accepted")[-1]["reviewed"] == "changed"


def test_message_and_author_are_shown_before_they_land(running: Fleet) -> None:
    """Break: show only the subject; ask without saying what would land."""
    body = "\"$(printf 'See \\033[31mthe issue')\""
    script = f"echo m1 > f.txt; git add -A; {COMMIT} Work -m {body}"
    running.llmc("start", "--worker", "adam", "--prompt", f"@sh {script}")
    running.wait("adam", "needs_review")
    shown = running.llmc("review", "adam").out
    assert "\nAuthor: Worker <worker@example.com>\nDate:   20" in shown
    assert "\n    Work\n\n    See ^[[31mthe issue\n" in shown
    found = running.llmc("review", "adam", "--json").json
    assert found["message"] == "Work\n\nSee \x1b[31mthe issue\n"
    assert found["author"] == "Worker <worker@example.com>"
    running.llmc("message", "adam", f"@sh {AMEND} Work -m 'Fixes 1' --author 'Linus <linus@example.com>'")
    running.wait("adam", "needs_review")
    asked = running.on_terminal("accept", "adam", typed=b"n\n").replace("\r\n", "\n")
    assert "Author: Linus <linus@example.com>\n    Work\n\n    Fixes 1\n" in asked
    assert asked.index("Fixes 1") < asked.index("Land it anyway?")
    assert running.status("adam")["status"] == "needs_review"


def test_a_yes_lands_what_was_asked_about(running: Fleet) -> None:
    """Break: after a yes, land whatever exists by then."""
    project = open_project(str(running.root))
    work(running, "y1")
    running.llmc("review", "adam")
    work(running, "y2")
    with pytest.raises(acceptance.Unseen) as asked:
        acceptance.accept(project, "adam", str, only_seen=True)
    work(running, "y3")
    with pytest.raises(acceptance.Unseen) as again:
        acceptance.accept(project, "adam", str, only_seen=True, agreed=asked.value.lands)
    done = acceptance.accept(project, "adam", str, only_seen=True, agreed=again.value.lands)
    assert done.reviewed == "changed"
    assert running.git("show", "HEAD:f.txt") == "y3"


def test_a_commit_made_after_the_question_does_not_land(running: Fleet) -> None:
    """The screen and the web page ask about a commit. A leftover process amends it, without a hook.

    Break: compare that commit only with the record, not with HEAD.
    """
    go = running.marks / "go"
    later = shlex.quote(f"until test -e {go}; do sleep 0.1; done; {AMEND} Evil")
    script = (
        f"echo q1 > f.txt; git add -A; {COMMIT} Work; setsid sh -c {later} < /dev/null > /dev/null 2>&1 &"
    )
    running.llmc("start", "--worker", "adam", "--prompt", f"@sh {script}")
    running.wait("adam", "needs_review")
    project, tip = open_project(str(running.root)), running.git("rev-parse", "main")
    asked = running.record("adam")["commit_sha"]
    go.touch()
    head = wait_until(
        lambda: running.git("rev-parse", "HEAD", cwd=running.worktree("adam")).replace(asked, "")
    )
    said = orders.accept(project, "adam", asked)[1](str)
    assert f"changed from {asked[:9]} to {head[:9]} before you confirmed" in said.outcome
    assert (running.git("rev-parse", "main"), running.status("adam")["accept_step"]) == (tip, None)


@pytest.mark.req("1-106")
def test_a_rebase_alone_is_the_same_change(running: Fleet) -> None:
    """Break: compare commit ids, hash the hunk headers, or review without a rebase."""
    running.commit("long.txt", "".join(f"{n}\n" for n in range(40)), "A long file")
    running.llmc("start", "--worker", "adam", "--prompt", f"@sh echo end >> long.txt; {COMMIT} 'End' -a")
    running.wait("adam", "needs_review")
    running.llmc("review", "adam")
    running.commit("long.txt", "begin\n" + "".join(f"{n}\n" for n in range(40)), "Main moves")
    running.llmc("hold", "adam")
    held = running.llmc("review", "adam", "--json").json
    assert held["behind"] == 1
    assert "adam is on hold" in held["not_rebased"]
    assert (
        "main is 1 commit ahead; the commits were not rebased (adam is on hold;"
        in running.llmc("review", "adam").out
    )
    running.llmc("release", "adam")
    fresh = running.llmc("review", "adam", "--json").json
    assert (fresh["behind"], fresh["not_rebased"]) == (0, "")
    assert fresh["base"] == running.git("rev-parse", "main")
    assert running.llmc("accept", "adam", "--json").json["reviewed"] == "same"
    assert (running.source / "long.txt").read_text().startswith("begin\n")


def test_the_review_of_one_task_is_not_that_of_the_next(running: Fleet) -> None:
    """Break: keep `seen` when a worker becomes idle."""
    work(running, "n1")
    running.llmc("review", "adam")
    running.llmc("accept", "adam")
    work(running, "n2")
    done = running.llmc("accept", "adam", "--json")
    assert done.json["reviewed"] == "not_reviewed"
    assert "reviewed" not in done.err


def test_binary_rename_and_names_that_are_no_text(running: Fleet) -> None:
    """Break: split the numstat by lines, or print a name's bytes as JSON."""
    running.commit("old.txt", "".join(f"{n}\n" for n in range(20)), "To be renamed")
    make = "printf '\\0\\1\\2' > b.bin; git mv old.txt new.txt; printf x > \"$(printf 'n\\377\\n@sh.txt')\""
    running.llmc("start", "--worker", "adam", "--prompt", f"@sh {make}; git add -A; {COMMIT} 'Odd files'")
    running.wait("adam", "needs_review")
    seen = running.llmc("review", "adam", "--json").json
    files = {row["path"]: row for row in seen["files"]}
    assert files["b.bin"] == {"path": "b.bin", "added": None, "deleted": None, "renamed_from": None}
    assert files["new.txt"]["renamed_from"] == "old.txt"
    assert len(files) == 3
    assert "Binary files" in seen["diff"]
    assert "rename from old.txt" in seen["diff"]
    assert "binary" in running.llmc("review", "adam").out
    assert "new.txt" in running.llmc("review", "adam", "--name-only").out.splitlines()
    running.llmc("reject", "adam", "not like this", "--json")
    running.wait("adam", "needs_review")


def test_an_empty_diff_and_files_not_committed(running: Fleet) -> None:
    empty = f"@sh {IDENTITY} commit -q --allow-empty -m 'Nothing'; echo x > left.txt; echo y >> README.md"
    running.llmc("start", "--worker", "adam", "--prompt", empty)
    running.wait("adam", "needs_review")
    seen = running.llmc("review", "adam", "--json").json
    assert (seen["diff"], seen["files"]) == ("", [])
    assert sorted(seen["dirty"]) == ["README.md", "left.txt"]
    done = running.llmc("review", "adam")
    assert "no changes" in done.out
    assert "left.txt" in done.out
    other = "llmc reject adam, or llmc console adam (commit or discard the changes there)"
    assert f"next: {other}" in done.err
    (item,) = running.llmc("status", "--json").json["attention"]
    assert item["next"] == other, "an accept would be refused"
    running.llmc("accept", "adam", code=3)


@pytest.mark.req("2-013")
def test_refusals(running: Fleet) -> None:
    """Break: leave the status check out of the service."""
    for args in (
        ["reject", "adam", "no"],
        ["review"],
        ["reject", "--worker", "adam", "no"],
    ):
        assert running.llmc(*args, "--json", code=3).json["hint"]
    assert "adma" in running.llmc("review", "adma", code=4).err
    assert "adma" in running.llmc("reject", "adma", "no good", code=4).err
    running.llmc("reject", "adma", "--file", "x", code=4)
    slip = running.llmc("reject", "adma", code=4)
    assert "If this is the message" in slip.err
    running.llmc("reject", "adam", "text", "--worker", "baker", code=2)
    running.llmc("reject", "adam", "a\x1b", code=2)


def test_a_held_worker_is_not_rejected(running: Fleet) -> None:
    """Break: record `rejected` before the prompt is received."""
    work(running, "h1")
    running.llmc("hold", "adam")
    refused = running.llmc("reject", "adam", "no good", "--json", code=3).json
    assert refused["outcome"] == "refused"
    assert "on hold" in refused["reason"]
    assert running.status("adam")["status"] == "needs_review"
    running.llmc("release", "adam")


def test_an_interrupted_accept_and_a_source_that_is_away(scripted: Fleet) -> None:
    """No daemon is running. A rejection does not finish the accept;
    a missing source is reported, and the work is shown.

    Break: call finish_interrupted before checking the journal; or let a failed fetch end the review.
    """
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    work(scripted, "i1")
    scripted.kill_daemon()
    scripted.llmc("accept", "adam", code=-9, LLMC_FAULT="accept.validate:before:kill")
    assert (
        "its work is being accepted (step validate)" in scripted.llmc("reject", "adam", "no good", code=3).err
    )
    assert scripted.llmc("review", "adam", "--json").json["so_far"] == "being accepted"
    assert scripted.log() == ["First commit"]
    assert scripted.llmc("accept", "adam", "--json").json["reviewed"] == "not_reviewed"
    assert scripted.log() == ["Work", "First commit"]
    work(scripted, "away")
    scripted.source.rename(scripted.dir / "away")
    scripted.source.mkdir()
    shown = scripted.llmc("--root", str(scripted.root), "review", "adam", cwd=scripted.dir).out
    assert "cannot fetch main" in shown
    assert "+away" in shown
    assert scripted.llmc("--root", str(scripted.root), "status", "--json").json["workers"][0]["reviewed"]


@pytest.mark.req("1-106")
@pytest.mark.soak
def test_conflicts_found_by_a_review_and_a_worker_that_is_offline(scripted: Fleet) -> None:
    """Break: show the old diff instead of the conflict, or refuse an offline worker's commits."""
    scripted.commit("a.txt", "one\n", "Add a.txt")
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    resolve = (
        f"printf 'main\\nmine\\n' > a.txt; git add a.txt; {IDENTITY} -c core.editor=true rebase --continue"
    )
    task = f"@sh echo mine > a.txt; {COMMIT} 'Mine' -a\n@on-conflict {resolve}"
    scripted.llmc("start", "--prompt", task)
    scripted.wait("adam", "needs_review")
    scripted.commit("a.txt", "main\n", "Theirs")
    found = scripted.llmc("review", code=1)
    assert (
        "adam's commits conflict with main in a.txt; adam is resolving the conflicts. Run `llmc review adam` again once"
        in found.err
    )
    assert scripted.wait("adam", "needs_review")["reason"] == "conflicts resolved"
    assert "+mine" in scripted.llmc("review").out
    scripted.llmc("down")
    scripted.commit("b.txt", "more\n", "More")
    head = scripted.git("rev-parse", "HEAD", cwd=scripted.worktree("adam"))
    shown = scripted.llmc("review", "adam")
    assert "not rebased (adam is offline)" in shown.out
    assert "+mine" in shown.out
    assert "llmc up" in shown.err
    assert scripted.git("rev-parse", "HEAD", cwd=scripted.worktree("adam")) == head


def test_the_message_from_an_editor(running: Fleet) -> None:
    """Markdown stays as it was written. Break: drop every line with #, or keep the lines below the cut."""
    work(running, "e1")
    written = "# From the editor\n\n## Steps\n#include <stdio.h>\n"
    program = f"import sys; at = sys.argv[1]; now = open(at).read(); open(at, 'w').write({written!r} + now)"
    script = running.dir / "write.py"
    script.write_text(program)
    editor = f"{sys.executable} {script}"
    receipt = running.llmc("reject", "adam", "--json", EDITOR=editor).json
    running.wait("adam", "needs_review")
    prompt = sent(running, receipt["prompt_id"])
    assert written.strip() in prompt
    assert "is ignored" not in prompt
    refused = running.llmc("start", "--worker", "adam", code=3, EDITOR=editor)
    (path,) = re.findall("your text was saved in (.*)", refused.err)
    assert Path(path).read_text() == written
    os.unlink(path)


def fake(fleet: Fleet, name: str, script: str) -> dict[str, str]:
    """An environment in which a program of that name is installed."""
    folder = fleet.dir / f"bin-{name}"
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{fleet.env['PATH']}"}


@pytest.mark.req("1-107", "2-012")
def test_the_interfaces(running: Fleet) -> None:
    """Break: choose difftastic only on request."""
    work(running, "interface text")
    assert "difft is not installed" in running.llmc("review", "adam", "-i", "difftastic", code=1).err
    assert "--interface diff" in running.llmc("review", "adam", "-i", "vscode", code=1).err
    difft = fake(running, "difft", 'echo "difftastic sees $1"')
    assert "difftastic sees f.txt" in running.llmc("review", "adam", **difft).out
    assert "+interface text" in running.llmc("review", "adam", "-i", "diff", **difft).out
    code = fake(running, "code", f'echo "$1 $2"; cat "$4" > {running.dir}/seen')
    assert "--wait --diff" in running.llmc("review", "adam", "-i", "vscode", **code).out
    assert (running.dir / "seen").read_text() == "interface text\n"


def test_on_a_terminal_it_goes_through_the_persons_pager_in_colour(running: Fleet) -> None:
    """Break: page only git's own output, or lose GIT_PAGER with the other GIT_ variables."""
    work(running, "paged text")
    paged = running.dir / "paged"
    env = {k: v for k, v in running.env.items() if k != "NO_COLOR"} | {"GIT_PAGER": f"cat > {paged}"}
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(running.source)
        os.execve(sys.executable, [sys.executable, "-m", "llmc", "review", "adam"], env)
    try:
        wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0])
    finally:
        os.close(fd)
    text = paged.read_text()
    assert "\x1b[32m" in text
    assert "paged text" in text
    assert "waiting for" in text


@pytest.mark.parametrize(
    ("pager", "counts"), [("nosuch-pager", True), ("exit 3", False), ("head -c1 >/dev/null", True)]
)
def test_a_change_that_no_pager_showed_is_not_reviewed(
    running: Fleet, monkeypatch: pytest.MonkeyPatch, pager: str, counts: bool
) -> None:
    """Without a pager, llmc prints the diff itself. Break: ignore the exit code of the pager."""
    work(running, f"text for {pager}".replace(">/dev/null", ""))
    monkeypatch.setitem(running.env, "GIT_PAGER", pager)
    shown = running.on_terminal("review", "adam")
    assert ("diff --git a/f.txt" in shown) == (pager == "nosuch-pager"), shown
    assert ("failed with exit code 3; the work is not marked as reviewed" in shown) == (not counts), shown
    assert ("GIT_PAGER=cat llmc review adam" in shown) == (not counts)
    assert bool(running.events("reviewed")) == counts
    assert (running.record("adam").get("reviewed_sha") is not None) == counts


def test_completion_and_help(running: Fleet) -> None:
    def complete(words: str) -> str:
        env = {"_LLMC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        argv = [str(Path(sys.executable).with_name("llmc"))]
        return subprocess.run(
            argv, cwd=running.source, env={**running.env, **env}, capture_output=True, text=True
        ).stdout

    assert "review" in complete("llmc rev")
    assert "adam" in complete("llmc review ad")
    assert "baker" in complete("llmc reject --worker ba")
