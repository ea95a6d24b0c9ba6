"""Where in a JSON text things stand, for problems that name their line. Pure."""

import re

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|\n|[^\s{}\[\],:"]+')


def json_lines(text: str) -> dict[str, int]:
    """The line in which each path of a JSON text begins; nothing where it is no JSON."""
    found: dict[str, int] = {"$": 1}
    stack: list[tuple[str, str | int]] = []  # the path of each open container, and the key or index within it
    line = 1
    path = "$"
    wants_key = False
    for token in _TOKEN.findall(text):
        if token == "\n":
            line += 1
        elif token in "{[":
            found.setdefault(path, line)
            stack.append((path, 0 if token == "[" else ""))
            wants_key = token == "{"
            path = f"{path}[0]" if token == "[" else path
        elif token in "}]":
            if not stack:
                return found
            stack.pop()
            wants_key = False
        elif token == "," and stack:
            base, at = stack[-1]
            wants_key = not isinstance(at, int)
            if isinstance(at, int):
                stack[-1] = (base, at + 1)
                path = f"{base}[{at + 1}]"
        elif token == ":":
            wants_key = False
        elif wants_key and stack:
            path = f"{stack[-1][0]}.{token[1:-1]}"
            found.setdefault(path, line)
        else:
            found.setdefault(path, line)
    return found
