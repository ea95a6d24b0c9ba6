"""JSON of other programs is read by base/given.py: two decoders differ in what they accept, and a difference is a hole."""

import ast
from pathlib import Path

import llmc

SOURCE = Path(llmc.__file__).parent

#: what else decodes JSON, and who wrote that; the scripted agent and the rehearsals are programs of their own
OTHERS = {
    # llmc itself, with msgspec or json
    "api/sign_ins.py": "sign-ins",
    "config/trust.py": "the registry of roots",
    "doctor/canary.py": "the canary's verdict",
    "fleet/sightings.py": "the nodes that were seen",
    "goals/store/rows.py": "the goal store",
    "goals/ticks.py": "ticks",
    "landing/validation.py": "trees that passed",
    "launch.py": "the launch, and pids from bubblewrap",
    "notifications/notify.py": "what was notified",
    "records/store.py": "state.json",
    "repo/trash.py": "tasks of pins",
    "reports/digest.py": "the last look",
    "reviews/comments.py": "comments, with bytes that are not UTF-8",
    "sandbox/network.py": "the list of hosts, and the proxy's refusals",
    "sandbox/proxy.py": "the launcher's orders",
    "sandbox/reaching.py": "the list of hosts",
    "sessions/requests.py": "requests of `llmc` in a box; any other is refused, which frees nothing",
    "workers/restore.py": "ages of pins",
    # the schema and the prices of this package
    "auto/prices.py": "the list of prices in the package",
    "config/schema.py": "the schema of the configuration",
    # hooks: msgspec first, because an agent waits; what it refuses goes to base/given.py
    "records/inbox.py": "hooks",
    # replies of a model: duplicate keys are errors; text is cleaned, or refused with its place
    "goals/drive/updates.py": "reports",
    "goals/plan/plan_check.py": "plans",
    # files of the user that llmc writes back as they were
    "agents/claude/trusted_dirs.py": "the client's settings",
    "repo/serena.py": "a quoted path, to compare",
}
APART = ("agents/scripted/", "rehearsal/")
DECODERS = {"loads", "load", "decode", "Decoder", "raw_decode"}


def decodes(module: Path) -> bool:
    """Whether a module calls a decoder of json or msgspec."""
    called = (node.func for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call))
    names = {
        ast.unparse(func) for func in called if isinstance(func, ast.Attribute) and func.attr in DECODERS
    }
    return any(name.split(".")[-2] in ("json", "msgspec_json") for name in names)


def test_json_of_other_programs_has_one_reader() -> None:
    """A new reader of foreign JSON uses base/given.py; one of llmc's own files is listed above.

    Seen to fail for: `json.loads` in agents/claude/client.py and config/suggest.py.
    """
    paths = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
    found = {name for name, path in paths.items() if not name.startswith(APART) and decodes(path)}
    assert found == {*OTHERS}
