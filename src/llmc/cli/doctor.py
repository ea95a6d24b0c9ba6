"""llmc doctor"""

from typing import Any

import click
import msgspec

from llmc.base.errors import Exit, Refused, UsageError
from llmc.cli.arguments import confirm
from llmc.cli.output import json_option, note, paint, print_json, say
from llmc.config.paths import Root
from llmc.doctor import rebuild as rebuilding
from llmc.doctor.check import Repair
from llmc.doctor.registry import diagnose, examine, not_seen, notes, repair_all
from llmc.doctor.rules.facts import Facts
from llmc.doctor.rules.findings import GROUPS, Finding, summary
from llmc.repo.project import locate_root, open_project


@click.command("doctor")
@click.option("--repair", is_flag=True, help="Repair what can be repaired; shows what it would do, and asks.")
@click.option(
    "--rebuild", is_flag=True, help="Make a new state.json from worktrees, sessions and claims on tasks."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, repair: bool, rebuild: bool, yes: bool, as_json: bool) -> int:
    """Find what is wrong with a root, and mend it. Without an option it only looks.

    \b
    Examples:
      llmc doctor
      llmc doctor --repair
      llmc doctor --rebuild

    Exit code 0 means that all is well. --repair touches no worker that is held, attached or being accepted, and
    keeps in the trash whatever it removes. --rebuild keeps the old state.json.
    """
    if repair and rebuild:
        raise UsageError("--repair and --rebuild were given", hint="First --rebuild, then look again.")
    if yes and not (repair or rebuild):
        raise UsageError("--yes without --repair or --rebuild", hint="`llmc doctor` alone asks nothing.")
    root = locate_root(ctx.find_root().obj["root"])
    if rebuild:
        return _rebuild(root, yes, as_json)
    facts = examine(root)
    found = diagnose(facts)
    if not repair:
        return _show(root, facts, found, as_json)
    return _repair(root, facts, found, yes, as_json)


def _repair(root: Root, facts: Facts, found: list[Finding], yes: bool, as_json: bool) -> int:
    plan = [finding for finding in found if finding.repairable]
    if facts.config_problems:
        raise Refused(
            "nothing is repaired while config.toml cannot be used: " + "; ".join(facts.config_problems),
            hint="`llmc config edit`, then again.",
        )
    if plan:
        if not yes:
            for finding in plan:
                note(f"  {finding.line}")
        many = f"{len(plan)} problem{'s' if len(plan) > 1 else ''}"
        confirm(f"Repair {'these' if len(plan) > 1 else 'this'} {many}?", f"this repairs {many}", yes)
    project = open_project(str(root.path))
    done = repair_all(project, facts, plan)
    if done:
        project.wake()
        facts = examine(root)
        found = diagnose(facts)
    if as_json:
        print_json({**_view(root, facts, found), "repairs": [_repair_view(one) for one in done]})
        return _code(found)
    for one in done:
        line = f"{one.finding.what} -> {one.text}"
        say(paint("repaired: ", "green") + line if one.done else paint(line, "red"))
    if not done:
        return _show(root, facts, found, as_json)
    for finding in found:
        say(paint(f"left: {finding.line}", "red"))
    say(summary(found))
    return _code(found)


def _show(root: Root, facts: Facts, found: list[Finding], as_json: bool) -> int:
    if as_json:
        print_json({**_view(root, facts, found), "repairs": []})
        return _code(found)
    for group in GROUPS:
        lines = [finding.line for finding in found if finding.group == group]
        say(f"{group}:" + ("" if lines else f" {_without_finding(facts, group)}"))
        for line in lines:
            say(paint("  " + line, "red"))
    for text in notes(facts):
        note(text)
    say(summary(found))
    return _code(found)


def _without_finding(facts: Facts, group: str) -> str:
    if group in not_seen(facts):
        return f"not looked at, {not_seen(facts)[group]}"
    return paint(", ".join(_versions(facts)) if group == "programs" else "fine", "green")


def _versions(facts: Facts) -> list[str]:
    canary = [f"canary: {facts.canary.summary}"] if facts.canary is not None else []
    return [
        program.version if program.name in program.version else f"{program.name} {program.version}"
        for program in facts.programs
    ] + canary


def _code(found: list[Finding]) -> int:
    return Exit.FAILED if found else Exit.DONE


def _view(root: Root, facts: Facts, found: list[Finding]) -> dict[str, Any]:
    return {
        "root": str(root.path),
        "healthy": not found,
        "problems": len(found),
        "repairable": sum(finding.repairable for finding in found),
        "findings": [_finding_view(finding) for finding in found],
        "not_seen": not_seen(facts),
        "notes": notes(facts),
        "canary": None if facts.canary is None else msgspec.to_builtins(facts.canary),
    }


def _finding_view(finding: Finding) -> dict[str, Any]:
    return {
        "group": finding.group,
        "kind": finding.kind,
        "worker": finding.worker or None,
        "text": finding.text,
        "fix": finding.fix,
        "repairable": finding.repairable,
    }


def _repair_view(one: Repair) -> dict[str, Any]:
    return {**_finding_view(one.finding), "done": one.done, "result": one.text}


def _rebuild(root: Root, yes: bool, as_json: bool) -> int:
    project = open_project(str(root.path))
    if rebuilding.readable_state(project) is not None:
        what = f"{root.state} is valid; a new one would know less"
        confirm(f"{what}. Make a new one?", what, yes)
    done = rebuilding.rebuild(project)
    if as_json:
        rows = [
            {"name": w.name, "status": w.status, "reason": w.reason, "prompt": w.current_prompt,
             "session": w.session_id, "task_id": w.assignment.task_id if w.assignment else None,
             "unknown": done.unknown.get(w.name, [])}
            for w in done.workers
        ]  # fmt: skip
        print_json({"root": str(root.path), "kept": str(done.kept) if done.kept else None, "workers": rows})
        return Exit.DONE
    say(f"a new {root.state.name} with {len(done.workers)} workers")
    for worker in done.workers:
        task = " ".join((worker.current_subject or worker.current_prompt).split())[:60]
        claimed = f" at task {worker.assignment.task_id}" if worker.assignment else ""
        say(f"  {worker.name}: {worker.status}{claimed}" + (f"  {task}" if task else ""))
        for text in done.unknown.get(worker.name, []):
            note(f"  {worker.name}: {text}")
    if done.kept:
        say(f"the old one is {done.kept}")
    say("next: llmc doctor, then llmc up --detach")
    return Exit.DONE
