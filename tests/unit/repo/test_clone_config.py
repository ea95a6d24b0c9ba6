"""Which settings of the clone are undone, and that llmc reads a settings file as git does."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc.repo.git_config import Broken, rows_of
from llmc.repo.rules.clone_config import (
    FETCH,
    NO_PUSH,
    Expected,
    Place,
    changes,
    kept_attributes,
    parse_plain,
    runs_or_redirects,
)
from tests.support.planted import KEYS

#: settings of git (`git help --config`) that run nothing and redirect nothing: by section, or by full name
words = str.split
HARMLESS_SECTIONS = words("""
add advice am apply author blame branch checkout clean clone color column committer commitgraph completion
credentialcache credentialstore fastimport feature format fsck fsmonitor gitcvs gitweb grep gui i18n index
lsrefs mailinfo mailmap maintenance notes pack pretty pull rebase remotes repack rerere revert safe showbranch
sparse splitindex stash status user versionsort worktree sequencer
""")
HARMLESS = words("""
commit.cleanup commit.status commit.template commit.verbose core.abbrev core.alternaterefsprefixes core.autocrlf
core.bare core.bigfilethreshold core.checkroundtripencoding core.checkstat core.commentchar core.commentstring
core.commitgraph core.compression core.createobject core.deltabasecachelimit core.eol core.excludesfile
core.filemode core.filesreflocktimeout core.fsmonitorhookversion core.fsync core.fsyncmethod
core.fsyncobjectfiles core.hidedotfiles core.ignorecase core.ignorestat core.logallrefupdates
core.loosecompression core.maxtreedepth core.multipackindex core.notesref core.packedgitlimit
core.packedgitwindowsize core.packedrefstimeout core.precomposeunicode core.prefersymlinkrefs core.preloadindex
core.protecthfs core.protectntfs core.quotepath core.repositoryformatversion core.restrictinheritedhandles
core.safecrlf core.sharedrepository core.sparsecheckout core.sparsecheckoutcone core.splitindex core.symlinks
core.trustctime core.unsetenvvars core.untrackedcache core.usereplacerefs core.warnambiguousrefs core.whitespace
core.worktree diff.algorithm diff.autorefreshindex diff.colormoved diff.colormovedws diff.context diff.dirstat
diff.dstprefix diff.guitool diff.ignoresubmodules diff.indentheuristic diff.interhunkcontext diff.mnemonicprefix
diff.noprefix diff.orderfile diff.relative diff.renamelimit diff.renames diff.srcprefix diff.statgraphwidth
diff.statnamewidth diff.submodule diff.suppressblankempty diff.tool diff.trustexitcode diff.wordregex
diff.wserrorhighlight difftool.guidefault difftool.prompt difftool.trustexitcode extensions.compatobjectformat
extensions.objectformat extensions.preciousobjects extensions.refstorage extensions.relativeworktrees
extensions.worktreeconfig fetch.all fetch.fsckobjects fetch.negotiationalgorithm fetch.output fetch.parallel
fetch.prune fetch.prunetags fetch.recursesubmodules fetch.showforcedupdates fetch.unpacklimit
fetch.writecommitgraph gc.aggressivedepth gc.aggressivewindow gc.auto gc.autodetach gc.autopacklimit
gc.bigpackthreshold gc.cruftpacks gc.expiretofilterto gc.logexpiry gc.maxcruftsize gc.packrefs gc.pruneexpire
gc.reflogexpire gc.reflogexpireunreachable gc.repackfilter gc.repackfilterto gc.rerereresolved
gc.rerereunresolved gc.worktreepruneexpire gc.writecommitgraph help.autocorrect help.format help.htmlpath
http.lowspeedlimit http.lowspeedtime http.maxrequests http.postbuffer http.version init.defaultbranch
init.defaultobjectformat init.defaultrefformat init.defaultsubmodulepathconfig interactive.singlekey
log.abbrevcommit log.date log.decorate log.diffmerges log.excludedecoration log.follow log.graphcolors
log.initialdecorationset log.mailmap log.showroot man.viewer merge.autostash merge.branchdesc
merge.conflictstyle merge.defaulttoupstream merge.directoryrenames merge.ff merge.guitool merge.log
merge.renamelimit merge.renames merge.renormalize merge.stat merge.suppressdest merge.tool merge.verbosity
mergetool.guidefault mergetool.hideresolved mergetool.keepbackup mergetool.keeptemporaries
mergetool.meld.hasoutput mergetool.meld.useautomerge mergetool.prompt mergetool.vimdiff.layout
mergetool.writetotemp protocol.version push.autosetupremote push.default push.followtags push.negotiate
push.pushoption push.recursesubmodules push.usebitmaps push.useforceifincludes remote.pushdefault
submodule.active submodule.alternateerrorstrategy submodule.alternatelocation submodule.fetchjobs
submodule.propagatebranches submodule.recurse tag.sort tar.umask trailer.ifexists trailer.ifmissing
trailer.separators trailer.where
""")
#: the same for keys with a custom name in the middle
HARMLESS_LAST = {
    "diff": "binary cachetextconv wordregex xfuncname algorithm trustexitcode",
    "merge": "name recursive",
    "mergetool": "hideresolved trustexitcode",
    "fetch": "<msg-id> skiplist",
    "gc": "reflogexpire reflogexpireunreachable",
    "guitool": "argprompt confirm needsfile noconsole norescan prompt revprompt revunmerged title",
    "remote": "fetch mirror prune prunetags push pushurl skipdefaultupdate skipfetchall tagopt url followremotehead "
    "serveroption",
    "submodule": "active branch fetchrecursesubmodules ignore update url gitdir",
    "tar": "remote",
    "trailer": "ifexists ifmissing key where",
}


def known_to_git() -> list[str]:
    done = subprocess.run(["git", "help", "--config"], capture_output=True, text=True, check=True)
    return [line.lower() for line in done.stdout.split("\n") if "." in line and " " not in line]


def is_harmless(key: str) -> bool:
    section, _, last = key.split(".")[0], "", key.rpartition(".")[2]
    return (
        section in HARMLESS_SECTIONS
        or key in HARMLESS
        or (key.count(".") > 1 and last in HARMLESS_LAST.get(section, "").split())
    )


def test_every_setting_of_this_git_was_decided_about() -> None:
    """A new git may bring a new way to run a program: this fails until it is listed.

    Break: remove one from either list.
    """
    keys = known_to_git()
    assert len(keys) > 400
    open_ones = [key for key in keys if not is_harmless(key) and not runs_or_redirects(key, "x")]
    assert open_ones == []
    both = [key for key in keys if key in HARMLESS and runs_or_redirects(key, "x")]
    assert both == []


@pytest.mark.parametrize("key", KEYS)
def test_each_planted_key_is_undone(key: str) -> None:
    section, _, rest = key.partition(".")
    name = f"{section.lower()}.{rest.rpartition('.')[0]}.{rest.rpartition('.')[2].lower()}".replace("..", ".")
    value = KEYS[key].format(run="/evil", hooks="/evil", attributes="/evil", include="/evil")
    found = changes([(name, value)], Place.WORKTREE, Expected())
    if name == "remote.other.url":  # another remote is an agent's own; llmc does not use it
        assert found == []
        return
    assert [change.key for change in found] == [name]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("branch.x.remote", "origin"),
        ("branch.x.merge", "refs/heads/y"),
        ("user.name", "Adam"),
        ("remote.fork.url", "https://example.com/x.git"),
        ("remote.fork.fetch", "+refs/heads/*:refs/remotes/fork/*"),
        ("submodule.lib.url", "../lib"),
        ("submodule.lib.active", "true"),
        ("submodule.lib.update", "rebase"),
        ("filter.lfs.clean", "git-lfs clean -- %f"),
        ("filter.lfs.process", "git-lfs filter-process"),
        ("filter.lfs.required", "true"),
        ("lfs.repositoryformatversion", "0"),
        ("lfs.https://example.com/x.git/info/lfs.access", "basic"),
        ("core.sparsecheckout", "true"),
        ("extensions.worktreeconfig", "true"),
        ("merge.conflictstyle", "zdiff3"),
        ("merge.evil.name", "a name"),
        ("pull.rebase", "true"),
        ("gitflow.prefix.feature", "f/"),
    ],
)
def test_ordinary_settings_stay(key: str, value: str) -> None:
    assert not runs_or_redirects(key, value)


CLEAN = [
    ("extensions.worktreeconfig", "true"),
    ("remote.origin.url", "/src"),
    ("remote.origin.fetch", FETCH),
    ("remote.origin.pushurl", NO_PUSH),
]


def wrong(rows: list[tuple[str, str]], **expected: object) -> dict[str, str | None]:
    found = changes([*rows], Place.CLONE, Expected(**{"source": "/src", **expected}))  # type: ignore[arg-type]
    return {change.key: change.wanted for change in found if not change.silent}


def test_the_origin_is_what_llmc_set() -> None:
    """Break: compare only the last value, or leave other keys of the remote."""
    assert wrong(CLEAN) == {}
    assert wrong([*CLEAN, ("remote.origin.url", "/evil")]) == {"remote.origin.url": "/src"}
    assert wrong(CLEAN[:1]) == dict(CLEAN[1:])
    assert wrong([*CLEAN, ("remote.origin.tagopt", "--tags")]) == {"remote.origin.tagopt": None}
    assert wrong([*CLEAN, ("remote.origin.gh-resolved", "base")]) == {}
    assert wrong([*CLEAN, ("core.bare", "true")]) == {"core.bare": None}
    assert wrong([*CLEAN, ("core.repositoryformatversion", "99")]) == {"core.repositoryformatversion": "1"}
    elsewhere = [row for row in CLEAN if row[0] != "remote.origin.url"] + [("remote.origin.url", "/other")]
    assert wrong(elsewhere, source="") == {}  # an unreadable config.toml
    assert wrong(elsewhere, is_newer=True) == {}  # the user named another source
    assert wrong(elsewhere, written="/other") == {}  # as an older llmc wrote it


def test_attributes() -> None:
    """Break: keep `-diff`: it hides a file from review."""
    text = "# filter=x\n*.lock text\n* filter=evil\n*.c diff=cpp\n*.md -diff\n[attr]mine merge=union\n*.sh eol=lf\n"
    assert kept_attributes(text) == "# filter=x\n*.lock text\n*.sh eol=lf\n"


NAMES = st.sampled_from(["core", "Filter", "branch", "a-b", "remote", "x.y", "1"])
PIECES = st.sampled_from(
    [
        "[",
        "]",
        '"',
        "\\",
        "\n",
        "\t",
        " ",
        "=",
        "#",
        ";",
        "core",
        "fsmonitor",
        "x",
        "é",
        "\r",
        "\\\n",
        '\\"',
        "\f",
        "0",
    ]
)
LINES = st.one_of(
    st.builds("[{}]".format, NAMES),
    st.builds('[{} "{}"]'.format, NAMES, st.text('ab.\\" é/:#', max_size=6)),
    st.builds(
        "\t{} = {}".format, st.sampled_from(["fsmonitor", "Url", "x-y"]), st.text('ab c"\\#;=\t', max_size=8)
    ),
    st.builds("".join, st.lists(PIECES, max_size=8)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=6))
def test_a_plain_text_means_to_git_what_it_means_to_us(lines: list[str]) -> None:
    """What llmc reads without git means the same to git.

    Break: strip quotes, or treat a comment as a value.
    """
    data = "\n".join(lines).encode()
    plain = parse_plain(data)
    if plain is None:
        return
    listed = subprocess.run(
        ["git", "-C", "/", "config", "--file", "-", "--list", "-z"],
        input=data,
        capture_output=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    pairs = [row.partition("\n") for row in listed.stdout.decode().split("\0") if row]
    assert plain == [(key, value if newline else None) for key, newline, value in pairs]


def test_what_is_not_plain_is_asked_of_git() -> None:
    """Break: give up on odd text; nothing in it would be undone."""
    odd = b'[core] fsmonitor = "/tmp/\\x"\n'
    assert isinstance(rows_of(odd), Broken)
    odd = (
        b'\xef\xbb\xbf[core]fsmonitor=/tmp/\\\nx ; y\n[Filter "A\\"b"]\r\n\tCLEAN\r\n[remote.ORIGIN]\nurl=x\n'
    )
    assert rows_of(odd) == [
        ("core.fsmonitor", "/tmp/x"),
        ('filter.A"b.clean', None),
        ("remote.origin.url", "x"),
    ]
