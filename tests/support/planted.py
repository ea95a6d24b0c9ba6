"""Settings that an agent could plant: each names a program that leaves a mark when it runs."""

from pathlib import Path

#: a key and its value; {run} is the program that leaves the mark
KEYS = {
    "core.fsmonitor": "{run}",
    "core.sshCommand": "{run}",
    "core.editor": "{run}",
    "core.pager": "{run}",
    "core.askPass": "{run}",
    "core.gitProxy": "{run}",
    "core.alternateRefsCommand": "{run}",
    "core.hooksPath": "{hooks}",
    "core.attributesFile": "{attributes}",
    "filter.evil.clean": "{run}",
    "filter.evil.smudge": "{run}",
    "filter.evil.required": "true",
    "filter.lfs.clean": "{run}",
    "filter.lfs.smudge": "{run}",
    "filter.lfs.process": "{run}",
    "merge.evil.driver": "{run} %O %A %B",
    "diff.evil.command": "{run}",
    "diff.evil.textconv": "{run}",
    "diff.external": "{run}",
    "gpg.program": "{run}",
    "gpg.ssh.defaultKeyCommand": "{run}",
    "gpg.openpgp.program": "{run}",
    "commit.gpgSign": "true",
    "tag.gpgSign": "true",
    "log.showSignature": "true",
    "include.path": "{include}",
    "includeIf.gitdir:/.path": "{include}",
    "url./nowhere/.insteadOf": "/",
    "alias.lfs": "!{run}",
    "alias.status": "!{run}",
    "credential.helper": "!{run}",
    "credential.https://example.com.helper": "!{run}",
    "protocol.ext.allow": "always",
    "protocol.file.allow": "never",
    "uploadpack.packObjectsHook": "{run}",
    "uploadpack.hideRefs": "refs",
    "transfer.hideRefs": "refs",
    "receive.procReceiveRefs": "refs",
    "remote.origin.uploadpack": "{run}",
    "remote.origin.receivepack": "{run}",
    "remote.origin.vcs": "evil",
    "remote.origin.promisor": "true",
    "remote.other.url": "ext::{run}",
    "remote.other.promisor": "true",
    "remote.other.uploadpack": "{run}",
    "extensions.partialClone": "other",
    "sequence.editor": "{run}",
    "interactive.diffFilter": "{run}",
    "submodule.lib.update": "!{run}",
    "pager.log": "{run}",
    "pager.diff": "{run}",
    "trailer.x.command": "{run}",
    "trailer.x.cmd": "{run}",
    "init.templateDir": "{hooks}",
    "gc.recentObjectsHook": "{run}",
    "hook.x.command": "{run}",
    "tar.tar.gz.command": "{run}",
    "difftool.x.cmd": "{run}",
    "lfs.customtransfer.x.path": "{run}",
    "lfs.standalonetransferagent": "x",
    "lfs.url": "file:///nowhere",
    "http.proxy": "http://127.0.0.1:9",
    "llmc.root": "{hooks}",
}


class Planted:
    """Writes the keys into a file, and knows which of the programs ran."""

    def __init__(self, place: Path) -> None:
        self.marks = place / "marks"
        self.marks.mkdir(parents=True)
        self.hooks = place / "hooks"
        (self.hooks / "hooks").mkdir(parents=True)
        self._values = {
            "hooks": str(self.hooks),
            "attributes": str(place / "attributes"),
            "include": str(place / "included"),
        }
        (place / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
        self.write(place / "included", {f"{key}": value for key, value in KEYS.items() if "{run}" in value})
        for name in (
            "post-checkout",
            "pre-rebase",
            "reference-transaction",
            "post-merge",
            "post-index-change",
        ):
            for folder in (self.hooks, self.hooks / "hooks"):
                self._program(f"hook-{name}", folder / name)

    def _program(self, name: str, path: Path | None = None) -> Path:
        path = path or self.marks.parent / f"run-{name.replace('/', '_')}"
        mark = self.marks / name.replace("/", "_")
        path.write_text(f"#!/bin/sh\ntouch '{mark}'\n[ -t 0 ] || cat 2>/dev/null\nexit 0\n")
        path.chmod(0o755)
        return path

    def write(self, file: Path, keys: dict[str, str] = KEYS) -> None:
        """As an agent would: whatever is in the file stays."""
        with file.open("a") as sink:
            sink.writelines(self._setting(file, key, value) for key, value in keys.items())

    def _setting(self, file: Path, key: str, value: str) -> str:
        """As `git config --add` writes it, without a process for each."""
        text = value.format(**self._values, run=self._program(f"{file.name}-{key}"))
        section, _, rest = key.partition(".")
        middle, _, name = rest.rpartition(".")
        head = f'[{section} "{middle}"]' if middle else f"[{section}]"
        return f'{head}\n\t{name} = "{text}"\n'

    def ran(self) -> list[str]:
        return sorted(path.name for path in self.marks.iterdir())

    def forget(self) -> None:
        for path in self.marks.iterdir():
            path.unlink()
