"""Code in worktrees changes files through base/inside.py, which follows no link of an agent."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import llmc

SOURCE = Path(llmc.__file__).parent

#: what works in worktrees, in slots, and in the repositories of contained workers
WORK_THERE = (
    *("repo/trash.py", "repo/provision.py", "repo/copied_files.py", "repo/serena.py", "repo/worktrees.py"),
    *("repo/submodules.py", "repo/user_commands.py", "repo/indexes.py"),
    *(
        f"{folder}/{path.name}"
        for folder in ("landing", "workers")
        for path in (SOURCE / folder).glob("*.py")
    ),
)

#: what changes, moves, copies or walks by path, and follows links in it: of modules, as methods, and of llmc
OF_MODULES = {
    "os": "chmod link makedirs mkdir remove removedirs rename renames replace rmdir symlink truncate unlink utime walk",
    "shutil": "copy copy2 copyfile copymode copystat copytree move rmtree",
}
METHODS = {
    *("chmod", "hardlink_to", "mkdir", "rename", "rglob", "rmdir", "symlink_to", "touch", "unlink"),
    *("write_bytes", "write_text"),
}
FUNCTIONS = {"append_line", "edit_file", "rewrite", "write_atomic"}

#: such calls on places that no contained agent can replace, by function
ON_OUR_OWN = {
    # llmc's files beside a slot, and git's entry of a slot in the clone
    "landing/slots.py:taken": "touch unlink",
    "landing/slots.py:_exactly": "touch unlink unlink",
    "landing/slots.py:clear_away": "unlink",
    "landing/validation.py:_copy": "shutil.copyfile",
    "landing/validation.py:_remember": "write_atomic",
    "landing/validation.py:_forget_set_up": "unlink",
    "landing/validation.py:base_passes": "write_atomic",
    # a directory that only llmc writes
    "landing/merging.py:_write": "rename touch write_bytes",
    # exclude lists, which are read-only for agents, and what llmc keeps in the git directory
    "repo/copied_files.py:_add_lines": "mkdir write_atomic",
    "repo/copied_files.py:copy_files": "write_atomic",
    "repo/copied_files.py:_copy": "shutil.copy2 unlink",
    "repo/provision.py:set_up": "unlink write_atomic",
    "repo/provision.py:_say_once": "append_line",
    "landing/validation.py:_try": "unlink write_atomic",
    "landing/validation.py:end_killed_try": "unlink",
    # unguessable names, where git writes them
    "repo/indexes.py:drop": "unlink",
    "repo/indexes.py:inexact": "mkdir",
    # the tasks of trash entries, in one of llmc's directories
    "repo/trash.py:_keep_task": "write_atomic",
    "workers/restore.py:_remove": "unlink",
    # Serena's own list, in the user's home
    "repo/serena.py:_change_list": "edit_file mkdir",
    # the output of a command, in one of llmc's directories
    "repo/user_commands.py:run_in_slot": "unlink",
    # the directory around the worktrees, and a name directly in a worktree
    "repo/worktrees.py:_add": "mkdir",
    "repo/worktrees.py:_link_to_new_entry": "os.rename os.rmdir",
    # a worktree as a whole, and names directly in it
    "workers/nuke.py:move_into_trash": "os.rename",
    "workers/nuke.py:_keep_submodules": "os.rename",
    "workers/nuke.py:_prune": "unlink",
    "workers/nuke.py:_forget": "unlink",
    # a copy in a user's directory
    "workers/restore.py:restore_directory": "mkdir os.rename unlink",
    "workers/restore.py:prune_by_itself": "write_atomic",
}

#: what recurses for each level of a tree, or opens a file for each
RECURSIVE = {"copytree", "fwalk", "rglob", "rmtree"}

#: such calls on trees that no agent and no check wrote, by module
SHALLOW = {
    # a clone or repositories that llmc is creating, and git's entry of a worktree that was not contained
    "repo/setup.py": "rmtree",
    "repo/own_repos.py": "copytree copytree rmtree rmtree rmtree",
    # scratch directories with the scripted agent, and databases
    "rehearsal/demo.py": "rmtree",
    "rehearsal/drills/losses.py": "rglob",
    "rehearsal/drills/run.py": "rmtree rmtree rmtree",
    "rehearsal/drills/tasks_and_workers.py": "rmtree",
    "rehearsal/fleet_demo.py": "rmtree rmtree",
    "rehearsal/postgres.py": "rmtree",
}


def calls(module: str) -> Iterator[tuple[str, str]]:
    """Function and call, for each call in a module that uses a path instead of an open directory."""
    for function in ast.walk(ast.parse((SOURCE / module).read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        found = (by_path(node) for node in ast.walk(function) if isinstance(node, ast.Call))
        yield from ((f"{module}:{function.name}", called) for called in found if called)


def by_path(node: ast.Call) -> str:
    if any("dir_fd" in (key.arg or "") for key in node.keywords):
        return ""
    match node.func:
        case ast.Name(id=name) if name in FUNCTIONS:
            return name
        case ast.Attribute(value=ast.Name(id=of), attr=name) if of in OF_MODULES:
            return f"{of}.{name}" if name in OF_MODULES[of].split() else ""
        case ast.Attribute(attr=name) if name in METHODS or (name == "replace" and len(node.args) == 1):
            return name if name != "replace" or not node.keywords else ""
    return ""


def test_files_of_agents_are_changed_by_open_directories() -> None:
    """A new call goes through base/inside.py; on llmc's own places it is listed above, with that place.

    Seen to fail for: `os.unlink(worktree / name)` in `trash.remove_untracked`.
    """
    found = defaultdict(list)
    for module in WORK_THERE:
        for function, called in calls(module):
            found[function].append(called)
    assert {function: " ".join(sorted(names)) for function, names in found.items()} == ON_OUR_OWN


def recursive(module: Path) -> str:
    """The recursive calls in a module; `os.walk` is one before Python 3.12."""
    called = [node.func for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call)]
    found = [func for func in called if isinstance(func, ast.Attribute)]
    walks = [ast.unparse(func) for func in found if ast.unparse(func) == "os.walk"]
    return " ".join(sorted([*walks, *(func.attr for func in found if func.attr in RECURSIVE)]))


def test_trees_of_agents_are_walked_and_removed_at_any_depth() -> None:
    """A new call goes through base/inside.py or `remove_tree`.

    Seen to fail for: `shutil.rmtree` in `nuke._forget`.
    """
    found = {str(path.relative_to(SOURCE)): recursive(path) for path in sorted(SOURCE.rglob("*.py"))}
    assert {module: names for module, names in found.items() if names} == SHALLOW
