"""The sample repository of the demo: small, real, with a test that can fail."""

from pathlib import Path

from llmc.tools import git

FILES = {
    "README.md": "# greeter\n\nA program that greets. `python3 -m unittest` checks it.\n",
    "greeter.py": 'def greet():\n    return "Hello!"\n\n\nif __name__ == "__main__":\n    print(greet())\n',
    "test_greeter.py": (
        "import unittest\n\nfrom greeter import greet\n\n\n"
        "class GreetTest(unittest.TestCase):\n"
        "    def test_greets(self):\n"
        '        self.assertIn("Hello", greet())\n'
    ),
    ".gitignore": "__pycache__/\n",
}

#: what a model would do by itself, spelled out for the scripted agent
TASK = """\
Let greet() take a name, and keep greeting the world without one.

@sh printf 'def greet(name="world"):\\n    return f"Hello, {name}!"\\n\\n\\nif __name__ == "__main__":\\n    print(greet())\\n' > greeter.py
@sh printf '\\n    def test_greets_by_name(self):\\n        self.assertEqual(greet("Ada"), "Hello, Ada!")\\n' >> test_greeter.py
@sh git add -A && git commit -q -m "Greet by name" -m "greet() takes a name and defaults to the world."
@say greet() takes a name now; the tests cover it.
"""


def create(path: Path) -> None:
    path.mkdir(parents=True)
    git.git(path, "init", "--quiet", "-b", "main")
    git.git(path, "config", "user.name", "Sam Sample")
    git.git(path, "config", "user.email", "sam@example.com")
    for name, text in FILES.items():
        (path / name).write_text(text)
    git.git(path, "add", "--all")
    git.git(path, "commit", "--quiet", "-m", "A program that greets")
