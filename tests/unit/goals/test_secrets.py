"""What must not be stored: each kind is found and named, look-alikes pass, and nothing is too long."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.base.errors import Exit, Refused
from llmc.goals import model
from llmc.goals.drive import clean as cleaning
from llmc.goals.drive.clean import CAP, CAPS, KEYS, MOST_DATA, clean, cut, redact, scan
from llmc.goals.model import Change, Event, Evidence
from llmc.goals.model import Tested as Ran
from tests.support.goal_records import assignment, crystallization, dispatch, full_change, goal, node

#: built at run time: other scanners would stop at a file that contains such things
SECRETS = {
    "private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----",
    "AWS key": "AKIA" + "IOSFODNN7EXAMPLE",
    "GitHub token": "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "GitLab token": "glpat-" + "AbCdEf0123456789xyzw",
    "Slack token": "xoxb-" + "123456789012-abcdefABCDEF",
    "Slack webhook": "https://hooks.slack.com/services/" + "T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "Anthropic key": "sk-ant-" + "api03-AbCdEf0123456789",
    "API key": "sk-proj-" + "AbCdEf0123456789AbCdEf01",
    "JSON Web Token": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "bearer token": "Authorization: Bearer " + "a1b2c3d4e5f6g7h8i9j0",
    "authorization header": "authorization: Basic " + "dXNlcjpwYXNzd29yZA==",
    "password in a URL": "postgres://app:" + "s3cr3t-pw@db.example.com/app",
    "password on a command line": "mysql --password=" + "hunter2hunter2",
    "cookie": "Cookie: session=" + "8f3b2a1c9d; theme=dark",
    "secret value": "DB_PASSWORD=" + "correct-horse",
    "phone number": "call me: +49 170 1234567",
}
MORE = [
    ("secret value", 'api_key: "' + 'ab12cd34ef56"'),
    ("secret value", "X-Api-Key: " + "ab12cd34ef56"),
    ("secret value", "export OPENAI_API_KEY=" + "abcdef"),
    ("secret value", "aws_secret_access_key = " + "wJalrXUtnFEMIK7MDENG"),
    ("API key", "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"),
    ("API key", "AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY"),
    ("password on a command line", "curl -u ada:" + "pa55word https://example.com"),
    ("phone number", "(555) 123-4567"),
    ("phone number", "555-123-4567"),
    ("phone number", "+1 415 555 2671"),
    ("phone number", "tel: 030 12345678"),
    ("private key", "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow"),
]
HARMLESS = [
    "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d is on main",
    "4f8a0c1e-0000-4000-8000-0123456789ab",
    "goal_1f0c9a7e42 A_5b1e03c9d2 S1.2.3 D_0123456789",
    "localhost:8080, 127.0.0.1:5432, version 1.22.333, 2026-11-15T21:32:23Z",
    "2026-11-15 to 2026-12-24, call 2026-11-15 the day",
    "needs OPENAI_API_KEY, see docs/setup.md",
    "API key: missing; password: required; token = get_token()",
    "token=token, secret=None, password=os.environ['PW'], api_key=<your key>",
    "export GITHUB_TOKEN=$GITHUB_TOKEN && PASSWORD_FILE=/run/secrets/pw make",
    "max_tokens=4096 MAX_TOKENS=200000 TOKEN_LIMIT=100000",
    "https://user:$PASS@example.com and https://example.com:8443/a?b=c@d",
    "the bearer of this letter; Bearer authentication is used",
    "a task-management-tool-with-a-very-long-name, scikit sk-learn-pipelines-and-estimators",
    "Set-Cookie: is sent by the server; cookies: yes",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "mysql --password-file=/run/pw; git log --since=2026-01-01 -n 20",
    "error +12, -34 lines; 3.14159265; 1700000000; 1794779518.38",
    "-----BEGIN PUBLIC KEY-----",
]


@pytest.mark.req("3-016")
@pytest.mark.parametrize(("kind", "text"), [*SECRETS.items(), *MORE])
def test_each_kind_of_secret_is_found_and_taken_out(kind: str, text: str) -> None:
    """Break: take a rule out of _RULES."""
    around = f"before, {text}\nafter"
    (found,) = scan(around)
    assert found.kind == kind
    mended = redact(around)
    assert mended.startswith("before, ")
    assert mended.endswith("\nafter") or kind == "private key", "an unfinished key takes all that follows"
    assert f"[{kind} removed]" in mended
    assert around[found.start : found.end] not in mended
    assert scan(mended) == (), "a placeholder is not a secret"


@pytest.mark.req("3-016")
@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_passes(text: str) -> None:
    """Break: drop `holds` of a rule."""
    assert scan(text) == ()
    assert redact(text) == text


@given(st.text(alphabet=st.sampled_from("abc =:/@+-_0123\n\"'sk.ghpBearer TOKEN"), max_size=200))
def test_nothing_is_left_after_a_redaction(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "unit",
    ["a.", "a-", "1 ", "12-", "eyJ-", "curl -u ", "://a:", "-----BEGIN A ", "token ", "+1 234 ", "é", "x=y;"],
)
def test_no_text_takes_for_ever(unit: str) -> None:
    """Break: `[a-z0-9+.-]*` for `[a-z0-9+.-]{0,30}` in the rule of URLs.

    Work may grow with the text, not with its square.
    """
    began = time.process_time()
    scan(unit * (100_000 // len(unit)))
    assert time.process_time() - began < 10, "it takes tenths of a second, or minutes"


@pytest.mark.req("3-016")
@pytest.mark.parametrize("kind", SECRETS)
def test_what_a_person_typed_is_refused_by_its_kind_and_never_shown(kind: str) -> None:
    """Break: `keep = _cleaned` for both."""
    change = Change(goal=goal(constraints=("fine", f"use {SECRETS[kind]}")))
    with pytest.raises(Refused) as refused:
        clean(change, typed=True)
    assert refused.value.exit_code is Exit.REFUSED
    assert f"found a secret in the constraints ({kind}, at character " in refused.value.message
    assert SECRETS[kind] not in refused.value.message + refused.value.hint


@pytest.mark.req("3-016", "3-065", "3-074", "3-075")
def test_what_a_machine_said_is_kept_without_its_secrets() -> None:
    """Break: skip tuples, dicts or records inside records in `mapped`."""
    token = SECRETS["GitHub token"]
    change = Change(
        goal=goal(planner_inputs={"repo": f"token {token}"}, raw_planner_output_json=f'{{"a": "{token}"}}'),
        nodes=(node("S1.1.1", objective=f"push with {token}"),),
        assignments=(
            assignment(
                last_instruction_text=f"use {token}", dispatch_history=(dispatch(notes=f"said {token}"),)
            ),
        ),
        crystallizations=(
            crystallization(
                summary=f"pushed with {token}",
                evidence=Evidence(
                    commands_run=(f"curl -H 'Authorization: Bearer {'ab12' * 5}'",),
                    tests_run=(Ran(command="x", result=token),),
                ),
            ),
        ),
        events=(Event(ts=1.0, type="x", data={"a": {"b": [token]}}),),
    )
    kept = clean(change, typed=False)
    text = repr(kept)
    assert token not in text
    assert "ab12ab12" not in text
    assert text.count("[GitHub token removed]") == 8
    assert kept.goal is not None
    assert msgspec.json.decode(kept.goal.raw_planner_output_json) == {"a": "[GitHub token removed]"}
    assert clean(kept, typed=True) == kept


def test_a_secret_in_an_id_is_refused_because_ids_are_never_altered() -> None:
    """Break: `_cleaned` redacts KEYS too."""
    with pytest.raises(Refused, match=r"found a secret in the node id \(GitHub token"):
        clean(Change(nodes=(replace(node("S1.1.1"), node_id=SECRETS["GitHub token"]),)), typed=False)


@pytest.mark.req("3-063", "3-015")
def test_a_whole_record_of_every_kind_passes_unchanged() -> None:
    assert clean(full_change(), typed=False) == full_change()
    assert clean(full_change(), typed=True) == full_change()


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_an_amount_that_json_cannot_keep_is_refused(odd: float) -> None:
    """Break: let `_mapped_value` pass every float; it would be stored as null, and be unreadable."""
    for typed in (True, False):
        with pytest.raises(Refused, match="nothing was saved"):
            clean(Change(goal=goal(budget_usd=odd)), typed=typed)


@pytest.mark.req("3-014", "3-015", "3-074")
def test_no_text_is_longer_than_its_cap_whoever_wrote_it() -> None:
    """Break: `_cleaned` returns the redacted text without `cut`."""
    long = "é" * 200_000
    change = Change(
        goal=goal(planner_inputs={"x": long}),
        nodes=(node("S1.1.1", objective=long),),
        assignments=(assignment(last_instruction_text=long, dispatch_history=(dispatch(notes=long),)),),
        crystallizations=(crystallization(summary=long, next_actions=(long,) * 600),),
        events=(Event(ts=1.0, type="x", data={f"k{i}": long for i in range(40)}),),
    )
    kept = clean(change, typed=False)
    given, said = kept.assignments[0], kept.crystallizations[0]
    assert 16_000 < len(given.last_instruction_text.encode()) <= 16 * 1024
    assert given.last_instruction_text.endswith("[truncated: 400000 bytes in total]")
    assert len(given.dispatch_history[0].notes.encode()) <= CAPS["notes"]
    assert len(said.summary.encode()) <= CAP
    assert (len(said.next_actions), said.next_actions[-1]) == (500, "[101 more]")
    assert len(msgspec.json.encode(kept.events[0].data)) <= MOST_DATA + 100
    assert clean(kept, typed=False) == kept, "a cut text is not cut again"
    with pytest.raises(Refused, match="the problem statement must be at most 16384 bytes long"):
        clean(Change(goal=goal(problem_statement=long)), typed=True)
    with pytest.raises(Refused, match="raw planner output json must be at most"):
        clean(Change(goal=goal(raw_planner_output_json=long * 2)), typed=False)


@given(st.text(max_size=300), st.integers(60, 300))
def test_a_cut_text_fits_and_is_a_beginning(text: str, most: int) -> None:
    cut_ = cut(text, most)
    assert len(cut_.encode("utf-8", "surrogatepass")) <= most
    assert text.startswith(cut_.partition("\n[truncated: ")[0])


@pytest.mark.req("3-015", "3-016")
def test_every_text_of_every_record_goes_through_the_one_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: return the record itself from `mapped` for Dispatch.
    A new text field is covered without being listed.
    """
    seen: set[str] = set()

    def watch(name: str, text: str) -> str:
        seen.add(name)
        return text

    monkeypatch.setattr(cleaning, "_cleaned", watch)
    clean(full_change(), typed=False)
    rows = [kind for kind in vars(model).values() if isinstance(kind, type) and issubclass(kind, model.Row)]
    texts = {
        field.name
        for kind in rows
        for field in msgspec.structs.fields(kind)
        if field.type in (str, tuple[str, ...], dict[str, str])
    }
    assert texts <= seen
    assert texts - KEYS, "not everything is an id"
