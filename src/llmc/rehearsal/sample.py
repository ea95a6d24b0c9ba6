"""The sample repository of the demo: small, real, with a test that can fail."""

from pathlib import Path

from llmc.repo import git

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

#: Three tasks in plain words. The directives below each spell out for the scripted agent what a model would do by itself.
BY_NAME = """\
Let greet() take a name, and keep greeting the world without one.

@sh printf 'def greet(name="world"):\\n    return f"Hello, {name}!"\\n\\n\\nif __name__ == "__main__":\\n    print(greet())\\n' > greeter.py
@sh printf '\\n    def test_greets_by_name(self):\\n        self.assertEqual(greet("Ada"), "Hello, Ada!")\\n' >> test_greeter.py
@sh git add -A && git commit -q -m "Greet by name" -m "greet() takes a name and defaults to the world."
@say greet() takes a name now; the tests cover it.
"""

WARMER = """\
Make the greeting warmer: it should say that it is nice to see you.

@sh printf 'def greet():\\n    return "Hello! Nice to see you."\\n\\n\\nif __name__ == "__main__":\\n    print(greet())\\n' > greeter.py
@sh git commit -q -a -m "Greet more warmly"
@say It says that it is nice to see you.
@on-conflict printf 'def greet(name="world"):\\n    return f"Hello, {name}! Nice to see you."\\n\\n\\nif __name__ == "__main__":\\n    print(greet())\\n' > greeter.py && sed -i 's/Hello, Ada!/Hello, Ada! Nice to see you./' test_greeter.py && git add -A && git -c core.editor=: rebase --continue
"""

FAREWELL = """\
Add farewell(), which says goodbye.

@sh printf 'def farewell():\\n    return "Goodbye!"\\n' > farewell.py
@sh git add -A && git commit -q -m "Say goodbye" -m "farewell() is the counterpart of greet()."
@say farewell() is there.
@on-reject printf 'import unittest\\n\\nfrom farewell import farewell\\n\\n\\nclass FarewellTest(unittest.TestCase):\\n    def test_says_goodbye(self):\\n        self.assertEqual(farewell(), "Goodbye!")\\n' > test_farewell.py && git add -A && git commit -q --amend --no-edit
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
