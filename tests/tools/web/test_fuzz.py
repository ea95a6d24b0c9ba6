"""Whatever is sent to a route, its answer is an intended one."""

import re
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.web import PARAMETERS, Web, faults, routes

WORDS = st.one_of(
    st.sampled_from(
        [
            "w1",
            "take",
            "root",
            "board",
            "c1",
            "f.py",
            "0",
            "-1",
            "",
            "9" * 25,
            "9" * 5000,
            "..",
            "1e9",
            "²",
            "\x00",
            "nan",
        ]
    ),
    st.sampled_from(
        [
            "screen",
            "log",
            "split",
            "yes",
            "no",
            "12h",
            "99999999d",
            "job_page",
            "worker",
            "review",
            "night",
            "hold",
        ]
    ),
    st.text(max_size=20),
)
NAMES = ["since", "view", "tab", "page", "about", "worker", "action", "row", "path", "comment", "text", "rev", "commit",
         "closed", "viewed", "task", "question", "goal", "name", "next", "link"]  # fmt: skip
FIELDS = st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=5)), WORDS, max_size=4)
#: they change things for real, or need an agent, and take longer
SLOW = ("/fleet/", "/stream")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_request_is_an_internal_error(hostile: Web, data: st.DataObject) -> None:
    """Break: `int`, `[...]` or `.index` on what a browser sent."""
    known = [(method, path) for method, path in routes(hostile.place.site) if method not in ("WS", "HEAD")]
    method, path = data.draw(st.sampled_from([one for one in known if not re.search("|".join(SLOW), one[1])]))
    if data.draw(st.booleans()):
        pieces = [
            quote(data.draw(WORDS), safe="")
            if piece in PARAMETERS.values() and data.draw(st.booleans())
            else piece
            for piece in path.split("/")
        ]
        path = "/".join(pieces)
    if path == "/logout" or not path.startswith("/"):
        return
    query, form = data.draw(FIELDS), data.draw(FIELDS)
    headers = {"hx-request": "true"} if data.draw(st.booleans()) else {}
    body = data.draw(st.one_of(st.none(), st.binary(max_size=40)))
    sent = (
        {"content": body}
        if body is not None and method != "GET"
        else {"data": form}
        if method != "GET"
        else {}
    )
    done = hostile.request(method, path, params=query, headers=headers, **sent)  # type: ignore[arg-type]
    assert done.status_code < 500, (method, path, query, form, done.text)
    if done.headers.get("content-type", "").startswith("text/html"):
        assert faults(done.text) == [], (method, path, query, form)
