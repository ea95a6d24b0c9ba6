"""Which names of a package its commands reach: by reading the code, without running it.

A name is a function, a class or a constant of a module, or a part of a class: a method, a property, a field,
a member of an enum. What a reached name uses is reached, in any way: a call, a table, a base class, a type. A
part is reached if its class is and some reached code reads an attribute of that name, or that JSON key. Types
are not known here, so a dead part may hide behind a used one of the same name.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

#: what a module does when it is imported
BODY = "<body>"

#: base classes that call nothing defined in subclasses, except by Python's own names
_PLAIN_BASES = {
    *(
        "Struct",
        "Enum",
        "StrEnum",
        "IntEnum",
        "IntFlag",
        "Flag",
        "NamedTuple",
        "Protocol",
        "Generic",
        "TypedDict",
    ),
    *("Exception", "ValueError", "RuntimeError", "OSError", "KeyError", "object", "str", "int", "ABC"),
}

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Name(NamedTuple):
    """A name of a module; `inner` is the part of a class."""

    module: str
    top: str
    inner: str = ""

    def __str__(self) -> str:
        return ".".join(part for part in self if part)


class Uses:
    """What a piece of code uses: names of the package, and attributes of anything."""

    def __init__(self) -> None:
        self.names: set[Name] = set()
        self.attributes: set[str] = set()


#: what a name means in a scope: a name of the package, or, with an empty `top`, a module of it
Scope = dict[str, Name]


class Package:
    """The modules below a folder, and what each of their names uses."""

    def __init__(self, folder: Path) -> None:
        texts = {_module_name(folder, path): path.read_text() for path in folder.rglob("*.py")}
        self.modules = {module: ast.parse(text) for module, text in texts.items()}
        self.folders = {_module_name(folder, path) for path in folder.rglob("__init__.py")}
        #: modules that look up attributes by name
        self.by_text = {module for module, text in texts.items() if "getattr(" in text}
        self.uses: dict[Name, Uses] = {}
        self.parts: dict[Name, list[Name]] = {}
        #: what a module re-exports: `from p.rules import used as used`
        self.shared: dict[Name, Name] = {}
        for module, tree in self.modules.items():
            self._read_module(module, tree)

    def unreached(self, roots: Iterable[Name], known: Iterable[str] = ()) -> list[str]:
        """The names that cannot be reached from `roots`; `known` are attributes that outside code reads."""
        reached = self._reach(set(roots), set(known))
        return sorted(str(name) for name in self.uses if name.top != BODY and name not in reached)

    def _reach(self, new: set[Name], asked: set[str]) -> set[Name]:
        reached: set[Name] = set()
        waiting: dict[str, set[Name]] = {}  # parts of reached classes that nothing reached uses yet
        while new:
            name = new.pop()
            if name in reached or name not in self.uses:
                new |= self._handed_on(name) - reached
                continue
            reached.add(name)
            new |= self.uses[name].names | {Name(name.module, BODY)}
            for part in self.parts.get(name, ()):
                (new if part.inner in asked else waiting.setdefault(part.inner, set())).add(part)
            for attribute in self.uses[name].attributes - asked:
                asked.add(attribute)
                new |= waiting.pop(attribute, set())
        return reached

    def _handed_on(self, name: Name) -> set[Name]:
        """What a module re-exports under a name: another module's name, or one that it re-exports in turn."""
        meant = self.shared.get(Name(name.module, name.top))
        if meant is None:
            return set()
        return {Name(meant.module, name.inner)} if name.inner and not meant.top else {meant}

    def _read_module(self, module: str, tree: ast.Module) -> None:
        scope = self._imported(_own_nodes(tree))
        tops = {name for node in tree.body for name in _defined(node)}
        scope |= {name: Name(module, name) for name in tops}
        self.shared |= {Name(module, name): meant for name, meant in scope.items() if name not in tops}
        for node in tree.body:
            for name in _defined(node) or [BODY]:
                self._read(Name(module, name), node, scope, module in self.by_text)

    def _read(self, name: Name, node: ast.stmt, scope: Scope, by_text: bool) -> None:
        uses = self.uses.setdefault(name, Uses())
        for owner in _registered_with(node):  # `@command.command("add")`: reaching `command` runs this, too
            if owner in scope and scope[owner].top:
                self.uses.setdefault(scope[owner], Uses()).names.add(name)
        if not isinstance(node, ast.ClassDef):
            self._collect(node, scope, uses, by_text)
            return
        for part in [*node.bases, *node.keywords, *node.decorator_list]:
            self._collect(part, scope, uses, by_text)
        # a library's base class may call any method
        called = not all(_is_plain(base) or self._is_ours(base, scope) for base in node.bases)
        for child in node.body:
            inner = _part(child)
            if inner is None or (called and isinstance(child, _FUNCTIONS)):
                self._collect(child, scope, uses, by_text)
                continue
            part_name = Name(name.module, name.top, inner)
            self.parts.setdefault(name, []).append(part_name)
            of_part = self.uses.setdefault(part_name, Uses())
            # the type of a field, and the value of a member, come with the class
            self._collect(child, scope, of_part if isinstance(child, _FUNCTIONS) else uses, by_text)

    def _is_ours(self, base: ast.expr, scope: Scope) -> bool:
        root = base.value if isinstance(base, (ast.Attribute, ast.Subscript)) else base
        return isinstance(root, ast.Name) and root.id in scope

    def _collect(self, node: ast.AST, scope: Scope, uses: Uses, by_text: bool) -> None:
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            scope = self._inside(node, scope)
        elif isinstance(node, ast.Name) and node.id in scope and not isinstance(node.ctx, ast.Store):
            uses.names.add(scope[node.id])
        elif isinstance(node, ast.Attribute):
            self._attribute(node, scope, uses)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._text(node.value, scope, uses, by_text)
        elif isinstance(node, ast.MatchClass):
            uses.attributes |= set(node.kwd_attrs)
        elif (key := _key(node)) is not None:
            uses.attributes.add(key)
        for child in ast.iter_child_nodes(node):
            self._collect(child, scope, uses, by_text)

    def _attribute(self, node: ast.Attribute, scope: Scope, uses: Uses) -> None:
        if isinstance(node.ctx, ast.Load):
            uses.attributes.add(node.attr)
        of, *path = _dotted(node)
        if (meant := scope.get(of)) is not None and not meant.top and len(path) <= 2:
            uses.names.add(Name(meant.module, *path))

    def _text(self, text: str, scope: Scope, uses: Uses, by_text: bool) -> None:
        if by_text and text.isidentifier():
            uses.attributes |= {text, f"_{text}"}
        top, _, inner = text.partition(".")
        if (meant := scope.get(top)) is not None:  # a type in quotes
            uses.names.add(meant if meant.top else Name(meant.module, inner))
        for module in (text, f"{text}.__main__"):  # `python -m llmc.agents.scripted`, a table of modules
            if module in self.modules and module not in self.folders:
                uses.names |= {Name(module, BODY), Name(module, "command")}

    def _inside(self, node: ast.AST, scope: Scope) -> Scope:
        """What names mean in a function: its own names are not the module's."""
        own = _own_nodes(node)
        bound = {one.arg for one in own if isinstance(one, ast.arg)}
        bound |= {one.id for one in own if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        shared = {name for one in own if isinstance(one, ast.Global) for name in one.names}
        kept = {name: meant for name, meant in scope.items() if name not in bound - shared}
        return kept | self._imported(own)

    def _imported(self, nodes: Iterable[ast.AST]) -> Scope:
        scope: Scope = {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    scope[alias.asname or alias.name] = (
                        Name(whole, "") if whole in self.modules else Name(node.module, alias.name)
                    )
        return {name: meant for name, meant in scope.items() if meant.module in self.modules}


def words_of(folder: Path) -> set[str]:
    """Every word in the tags of the templates: what they read from their input."""
    templates = [*folder.rglob("*.j2"), *folder.rglob("templates/**/*.html")]
    tags = [tag for path in templates for tag in re.findall(r"\{[{%].*?[}%]\}", path.read_text(), re.DOTALL)]
    return {word for tag in tags for word in re.findall(r"[A-Za-z_]\w*", tag)}


def _module_name(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _own_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes of a scope, without those of nested functions and classes."""
    found: list[ast.AST] = []
    open_ones = list(ast.iter_child_nodes(node))
    while open_ones:
        one = open_ones.pop()
        found.append(one)
        if not isinstance(one, (*_DEFINITIONS, ast.Lambda)):
            open_ones += ast.iter_child_nodes(one)
    return found


def _dotted(node: ast.AST) -> list[str]:
    """The names of `a.b.c`; the first is empty if it is not a name."""
    if isinstance(node, ast.Attribute):
        return [*_dotted(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


def _key(node: ast.AST) -> str | None:
    """The field that is read from JSON: `row["pid"]`, `row.get("pid")`."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key: ast.AST = node.slice
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and node.args
    ):
        key = node.args[0]
    else:
        return None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _defined(node: ast.stmt) -> list[str]:
    """What a statement of a module defines."""
    if isinstance(node, _DEFINITIONS):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        names = [one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        return [name for name in names if not name.startswith("__")]
    return []


def _registered_with(node: ast.stmt) -> Iterator[str]:
    for decorator in getattr(node, "decorator_list", ()):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            yield called.value.id


def _part(node: ast.stmt) -> str | None:
    """The part of a class that must be used to be reached; None for what comes with the class."""
    return next((name for name in _defined(node) if not name.startswith("__")), None)


def _is_plain(base: ast.expr) -> bool:
    return ast.unparse(base).partition("[")[0].rpartition(".")[2] in _PLAIN_BASES
