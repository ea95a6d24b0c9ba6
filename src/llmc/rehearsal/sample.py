"""The sample repository of the demo: small, real, with a test that can fail; and its plan of nine tasks.

Lines that start with @ are directives for the scripted agent; a real agent does not get them.
"""

from pathlib import Path

from llmc.repo import git

FILES = {
    "README.md": "# greeter\n\nA program that greets. Run the tests with `python3 -m unittest`.\n",
    "greeter.py": 'def greet():\n    return "Hello!"\n\n\nif __name__ == "__main__":\n    print(greet())\n',
    "test_greeter.py": (
        "import unittest\n\nfrom greeter import greet\n\n\n"
        "class GreetTest(unittest.TestCase):\n"
        "    def test_greets(self):\n"
        '        self.assertIn("Hello", greet())\n'
    ),
    ".gitignore": "__pycache__/\n",
}
NAME, EMAIL = "Sam Sample", "sam@example.com"
#: for git in a clone, where no user is configured
IDENTITY = f"-c user.name='{NAME}' -c user.email={EMAIL}"
#: the command that must pass before work lands
VALIDATE = "python3 -m unittest -q"


def create(path: Path) -> None:
    path.mkdir(parents=True)
    git.git(path, "init", "--quiet", "-b", "main")
    git.git(path, "config", "user.name", NAME)
    git.git(path, "config", "user.email", EMAIL)
    for name, text in FILES.items():
        (path / name).write_text(text)
    git.git(path, "add", "--all")
    git.git(path, "commit", "--quiet", "-m", "Add a program that greets")


_COMMIT = "git add -A && git commit -q -m"
_MAIN = 'if __name__ == "__main__":\\n    print(greet())\\n'
_BOTH = 'def greet(name="world"):\\n    return f"Hello, {name}! Nice to see you."\\n\\n\\n' + _MAIN
_FAREWELL_TEST = """printf 'import unittest\\n\\nfrom farewell import farewell\\n\\n\\nclass FarewellTest(unittest.TestCase):\\n    def test_a_name(self):\\n        self.assertEqual(farewell("Ada"), "Goodbye, Ada!")\\n' > test_farewell.py"""

TASKS = {
    "by-name": f"""\
---
label: core
priority: 1
---
# Greet by name

Let greet() take an optional name; without a name, keep greeting the world. Add a test.

@sleep 1
@sh printf 'def greet(name="world"):\\n    return f"Hello, {{name}}!"\\n\\n\\n{_MAIN}' > greeter.py
@sh printf '\\n    def test_greets_by_name(self):\\n        self.assertIn("Ada", greet("Ada"))\\n' >> test_greeter.py
@sh {_COMMIT} "Greet by name"
@on-conflict printf '{_BOTH}' > greeter.py && git add -A && git -c core.editor=: rebase --continue
""",
    "warmer": f"""\
---
label: text
priority: 1
---
# A warmer greeting

Add "Nice to see you." to the greeting.

@sleep 1
@sh printf 'def greet():\\n    return "Hello! Nice to see you."\\n\\n\\n{_MAIN}' > greeter.py
@sh {_COMMIT} "Greet more warmly"
@on-conflict printf '{_BOTH}' > greeter.py && git add -A && git -c core.editor=: rebase --continue
""",
    "farewell": f"""\
---
label: api
priority: 1
---
# Say goodbye

In farewell.py, add farewell(), which says goodbye by name.

@sh printf 'def farewell(name="world"):\\n    return f"Goodbye, {{name}}!"\\n' > farewell.py
@sh {_COMMIT} "Say goodbye"
""",
    "farewell-tests": f"""\
---
label: tests
after: farewell
verify: python3 -m unittest -q test_farewell
---
# Tests for farewell()

Cover farewell() in test_farewell.py, with and without a name.

@sh {_FAREWELL_TEST}
@sh {_COMMIT} "Test farewell()"
""",
    "command-line": f"""\
---
label: cli
after: by-name, farewell
---
# Add a command line

Make `python3 cli.py NAME` greet NAME, and say goodbye with `--bye`.

@sh printf 'import argparse\\n\\nfrom farewell import farewell\\nfrom greeter import greet\\n\\nparser = argparse.ArgumentParser()\\nparser.add_argument("name", nargs="?", default="world")\\nparser.add_argument("--bye", action="store_true")\\noptions = parser.parse_args()\\nprint((farewell if options.bye else greet)(options.name))\\n' > cli.py
@sh {_COMMIT} "Add a command line"
""",
    "document": f"""\
---
label: docs
after: command-line
---
# Document the command line

Document cli.py in the README.

@sh printf '\\n`python3 cli.py Ada` greets Ada; `--bye` says goodbye.\\n' >> README.md
@sh {_COMMIT} "Document the command line"
""",
    "languages": f"""\
---
label: core
after: by-name, warmer
---
# Greet in other languages

Add languages.py with a table of greetings: English, German, French.

@sh printf 'GREETINGS = {{"en": "Hello", "de": "Hallo", "fr": "Bonjour"}}\\n' > languages.py
@sh {_COMMIT} "Greet in other languages"
""",
    "language-tests": f"""\
---
label: tests
after: languages
verify: python3 -m unittest -q test_languages
---
# Tests for the languages

Test that every greeting starts with a capital letter.

@sh printf 'import unittest\\n\\nfrom languages import GREETINGS\\n\\n\\nclass LanguagesTest(unittest.TestCase):\\n    def test_capitals(self):\\n        self.assertTrue(all(word.istitle() for word in GREETINGS.values()))\\n' > test_languages.py
@sh {_COMMIT} "Test the languages"
""",
    "release-notes": f"""\
---
label: docs
after: farewell-tests, document, language-tests
---
# Release notes

List the changes in CHANGES.md.

@sh printf '# Changes\\n\\n- greets by name, and more warmly\\n- says goodbye\\n- adds a command line\\n- greets in three languages\\n' > CHANGES.md
@sh {_COMMIT} "Write release notes"
""",
}


def write(folder: Path, *, scripted: bool) -> None:
    """Write the files of the plan; a real agent gets them without directives."""
    folder.mkdir()
    for name, text in TASKS.items():
        lines = [line for line in text.splitlines() if scripted or not line.startswith("@")]
        (folder / f"{name}.md").write_text("\n".join(lines).rstrip() + "\n")


def prompt(name: str) -> str:
    """A task of the plan as a prompt, without its front matter. The first version of `farewell` has no test."""
    text = TASKS[name].split("---\n", 2)[2].removeprefix("# ")
    if name == "farewell":
        text += f"@on-reject {_FAREWELL_TEST} && git add -A && git commit -q --amend --no-edit\n"
    return text


#: for a plan with up to this many tasks
LANGUAGES = {
    "Arabic": "Marhaban", "Basque": "Kaixo", "Bulgarian": "Zdravei", "Catalan": "Hola", "Croatian": "Bok",
    "Czech": "Ahoj", "Danish": "Hej", "Dutch": "Hoi", "Estonian": "Tere", "Finnish": "Moi", "French": "Bonjour",
    "German": "Hallo", "Greek": "Geia", "Hawaiian": "Aloha", "Hebrew": "Shalom", "Hindi": "Namaste",
    "Hungarian": "Szia", "Icelandic": "Halló", "Indonesian": "Halo", "Irish": "Dia duit", "Italian": "Ciao",
    "Japanese": "Konnichiwa", "Korean": "Annyeong", "Latvian": "Sveiki", "Lithuanian": "Labas", "Maori": "Kia ora",
    "Norwegian": "Hei", "Polish": "Czesc", "Swahili": "Jambo", "Turkish": "Merhaba",
}  # fmt: skip


def write_languages(folder: Path, count: int) -> None:
    """Write a plan of `count` tasks, one greeting each; every fifth one waits for the one five before it."""
    folder.mkdir()
    for number, (language, greeting) in enumerate(list(LANGUAGES.items())[:count], start=1):
        after = f"---\nafter: {number - 5:02}\n---\n" if number > 5 and number % 5 == 0 else ""
        script = f"mkdir -p greetings && echo '{greeting}' > greetings/{language.lower()}.txt"
        commit = f"git add -A && git {IDENTITY} commit -q -m 'Greet in {language}'"
        text = f"{after}# Greet in {language}\n\nAdd a greeting in {language}.\n\n@sh {script} && {commit}\n"
        (folder / f"{number:02}.md").write_text(text)
