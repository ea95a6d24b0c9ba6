"""Find and repair problems: `llmc doctor`."""

import click

from llmc.api import health
from llmc.api.health import GROUPS, Facts, Finding, Health, summary
from llmc.api.roots import Root
from llmc.base.errors import Exit, UsageError
from llmc.base.text import counted
from llmc.cli.arguments import Row, confirm, root_of, yes_option
from llmc.cli.elapsed import Elapsed
from llmc.cli.output import json_option, note, paint, plain, print_json, say


@click.command("doctor")
@click.option("--repair", is_flag=True, help="Repair the problems that llmc can fix (asks for confirmation)")
@click.option(
    "--rebuild", is_flag=True, help="Rebuild state.json from the worktrees, agent sessions and assigned tasks"
)
@yes_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, repair: bool, rebuild: bool, yes: bool, as_json: bool) -> int:
    """Find and repair problems with a root

    Without options, doctor only reports problems. --repair skips workers that are on hold, attached or being accepted,
    and moves everything it removes to the trash. --rebuild keeps a copy of the old state.json. Exits with 0 if no
    problems are left, and with 1 otherwise.

    \b
    Examples:
      llmc doctor
      llmc doctor --repair
      llmc doctor --rebuild
    """
    if repair and rebuild:
        raise UsageError(
            "--repair and --rebuild cannot be used together",
            hint="Run `llmc doctor --rebuild`, then `llmc doctor --repair`.",
        )
    if yes and not (repair or rebuild):
        raise UsageError("--yes requires --repair or --rebuild", hint="Run: llmc doctor --repair --yes")
    root = root_of(ctx)
    if rebuild:
        return _rebuild(root, yes, as_json)
    with Elapsed("checking the root"):
        found = health.look(root)
    return _repair(root, found, yes, as_json) if repair else _show(root, found, as_json)


def _repair(root: Root, found: Health, yes: bool, as_json: bool) -> int:
    plan = found.repairable
    health.require_usable(found)
    if plan:
        if not yes:
            for finding in plan:
                note(f"  {finding.line}")
        many = f"{len(plan)} problem{'s' if len(plan) > 1 else ''}"
        confirm(f"Repair {'these' if len(plan) > 1 else 'this'} {many}?", f"this would repair {many}", yes)
    done = health.repair(root, found)
    if done:
        found = health.look(root)
    if as_json:
        repairs = [{**_finding_view(one.finding), "done": one.done, "result": one.text} for one in done]
        print_json({**_view(root, found), "repairs": repairs})
        return _code(found)
    for one in done:
        line = f"{one.finding.what} -> {one.text}"
        say(paint("repaired: ", "green") + line if one.done else paint(line, "red"))
    if not done:
        return _show(root, found, as_json)
    for finding in found.findings:
        say(paint(f"remaining: {finding.line}", "red"))
    say(summary(found.findings))
    return _code(found)


def _show(root: Root, found: Health, as_json: bool) -> int:
    if as_json:
        print_json({**_view(root, found), "repairs": []})
        return _code(found)
    for group in GROUPS:
        lines = [finding.line for finding in found.findings if finding.group == group]
        say(f"{group}:" + ("" if lines else f" {_without_finding(found, group)}"))
        for line in lines:
            say(paint("  " + line, "red"))
    for text in found.notes:
        note(text)
    say(summary(found.findings))
    return _code(found)


def _without_finding(found: Health, group: str) -> str:
    if group in found.not_seen:
        return f"not checked: {found.not_seen[group]}"
    shown = {"programs": ", ".join(_versions(found.facts)), "containment": found.facts.contained}
    return paint(shown.get(group, "ok"), "green")


def _versions(facts: Facts) -> list[str]:
    canary = [f"canary: {facts.canary.summary}"] if facts.canary is not None else []
    return [
        program.version if program.name in program.version else f"{program.name} {program.version}"
        for program in facts.programs
    ] + canary


def _code(found: Health) -> int:
    return Exit.FAILED if found.findings else Exit.DONE


def _view(root: Root, found: Health) -> Row:
    return {
        "root": str(root.path),
        "healthy": not found.findings,
        "problems": len(found.findings),
        "repairable": len(found.repairable),
        "findings": [_finding_view(finding) for finding in found.findings],
        **plain(found, "not_seen", "notes"),
        "canary": None if found.facts.canary is None else plain(found.facts.canary),
    }


def _finding_view(finding: Finding) -> Row:
    fields = plain(finding, "group", "kind", "text", "fix", "repairable")
    return {**fields, "worker": finding.worker or None}


def _rebuild(root: Root, yes: bool, as_json: bool) -> int:
    if health.has_state(root):
        what = f"{root.state} is valid; rebuilding it would lose information"
        confirm(f"{what}. Rebuild it anyway?", what, yes)
    done = health.rebuild(root)
    if as_json:
        rows = [
            {
                **plain(worker, "name", "status", "reason"),
                "prompt": worker.current_prompt,
                "session": worker.session_id,
                "task_id": worker.assignment.task_id if worker.assignment else None,
                "unknown": done.unknown.get(worker.name, []),
            }
            for worker in done.workers
        ]
        print_json({"root": str(root.path), "kept": str(done.kept) if done.kept else None, "workers": rows})
        return Exit.DONE
    say(f"rebuilt {root.state.name} with {counted(len(done.workers), 'worker')}")
    for worker in done.workers:
        task = " ".join((worker.current_subject or worker.current_prompt).split())[:60]
        claimed = f" on task {worker.assignment.task_id}" if worker.assignment else ""
        say(f"  {worker.name}: {worker.status}{claimed}" + (f"  {task}" if task else ""))
        for text in done.unknown.get(worker.name, []):
            note(f"  {worker.name}: {text}")
    if done.kept:
        say(f"the old file was saved as {done.kept}")
    say("next: llmc doctor, then llmc up --detach")
    return Exit.DONE
