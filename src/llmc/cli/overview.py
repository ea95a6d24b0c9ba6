"""The text of `llmc status`: groups, ages, and the next command for each worker. Pure."""

from collections.abc import Callable

from llmc.api.status_view import AT_WORK, UP, UP_AUTO, Page, Raw, counts
from llmc.api.status_view import WORDS as _WORDS
from llmc.base.text import age as age
from llmc.base.text import (
    cells,
    counted,
    padded,
    printable,
    shortened,
    shortened_at_start,
    wrap,
    wrap_command,
)

#: width of output to a pipe or a file
PLAIN_WIDTH = 80
#: longer lines are hard to read
MOST_WIDTH = 160
#: maximum number of lines of an error; `llmc status --json` has all of it
ERROR_LINES = 3
#: minimum width of a task that shares its line with a command or its worker, and of the root
LEAST_TASK, LEAST_ROOT = 20, 12

#: (text, style) -> text; a style is a value of STYLES, bold or dim
Paint = Callable[[str, str], str]

NEEDS_YOU, ACTIVE, INACTIVE = "Needs you", "Active", "Inactive"
_COUNTED = {NEEDS_YOU: "need you", ACTIVE: "active", INACTIVE: "inactive"}
STYLES = {
    "idle": "green",
    "no_changes": "green",
    "working": "blue",
    "reviewing": "blue",
    "rejected": "blue",
    "rebasing": "magenta",
    "needs_review": "yellow",
    "needs_input": "yellow",
    "error": "red",
    "offline": "dim",
}
#: reasons that add nothing to the status
_PLAIN_REASONS = (
    *("added", "ready", "reset", "accepted", "prompt arrived", "late receipt", "stopped with commits"),
)
#: items that a worker's row shows anyway
_IN_THE_ROW = ("review", "input", "error", "conflict")


def needs_a_person(worker: Raw) -> bool:
    return any(counts(item["severity"]) for item in worker["items"])


def group_of(worker: Raw) -> str:
    """The group of a worker; NEEDS_YOU takes precedence."""
    if needs_a_person(worker):
        return NEEDS_YOU
    return ACTIVE if worker["status"] in AT_WORK or worker["accept_step"] else INACTIVE


def next_of(worker: Raw) -> str:
    """The command of the most urgent item, else the most useful one."""
    return str(next((item["next"] for item in worker["items"] if item["next"]), worker["next"]))


def with_items(view: Raw) -> Raw:
    """The view with each item in its worker, and all other items in `others`."""
    names = {worker["name"] for worker in view["workers"]}
    of_worker: dict[str, list[Raw]] = {name: [] for name in names}
    for item in view["attention"]:
        if item["who"] in names:
            of_worker[item["who"]].append(item)
    workers = [{**worker, "items": of_worker[worker["name"]]} for worker in view["workers"]]
    others = [item for item in view["attention"] if item["who"] not in names]
    return {**view, "workers": workers, "others": others}


def render(view: Raw, now: float, width: int, paint: Paint) -> str:
    """The whole status. `width` is in cells; every line fits."""
    width, view = max(40, min(width, MOST_WIDTH)), with_items(view)
    shown = [worker for worker in view["workers"] if not worker["auto"] or needs_a_person(worker)]
    groups = {title: [w for w in shown if group_of(w) is title] for title in _COUNTED}
    # "Needs you" counts items, as in the digest; the others count workers.
    numbers = {title: len(found) for title, found in groups.items()}
    numbers[NEEDS_YOU] = sum(counts(item["severity"]) for item in view["attention"])
    lines = [_title(view, numbers, width, paint)]
    lines += attention_lines(view["others"], now, width, paint)
    overseer = overseer_lines(view["overseer"], now, width, paint) if view["overseer"] else []
    if not view["workers"]:
        return "\n".join([*lines, "no workers yet; next: llmc add adam", *overseer])
    columns = _Columns(view["workers"], now, width, paint)
    for title, found in groups.items():
        if found:
            lines += ["", paint(title, "bold"), *columns.rows(found, apart=title is NEEDS_YOU)]
    if auto := [_as_used(worker, view["auto"]) for worker in view["workers"] if worker not in shown]:
        told = view["auto"]["start"] if view["auto"] and not view["auto"]["running"] else ""
        lines += ["", paint("Auto Workers", "bold"), *columns.rows(auto, apart=False, told=told)]
    if view["auto"] is not None:
        lines += ["", *wrap(auto_summary(view["auto"], now), width, 3)]
        if not view["auto"]["running"]:
            lines += [f"  {line}" for line in wrap_command(f"next: {view['auto']['start']}", width - 2)]
    return "\n".join([*lines, *overseer])


def _as_used(worker: Raw, auto: Raw | None) -> Raw:
    """An auto worker; one beyond the current concurrency says that it is not used."""
    number = worker["name"].rpartition("-")[2]
    if auto is None or not auto["running"] or worker["status"] != "offline" or not number.isdecimal():
        return worker
    if int(number) <= auto["workers"]:
        return worker
    return {**worker, "reason": f"not used (concurrency is {auto['workers']})", "error_reason": ""}


_SEVERITY_STYLES = {"blocked": "red", "waiting": "yellow", "notice": "dim"}


def attention_lines(items: list[Raw], now: float, width: int, paint: Paint) -> list[str]:
    """Items that are not about one worker."""
    if not items:
        return []
    lines = ["", paint("Attention", "bold")]
    for item in items:
        head = f"  {paint(item['severity'], _SEVERITY_STYLES[item['severity']])}  {age(now - item['since_unix'])}"
        text = wrap(printable(f"{item['who']}: {item['text']}"), width - 4, ERROR_LINES)
        lines += [head, *(f"    {line}" for line in text)]
        if item["next"]:
            command = wrap_command(printable(f"next: {item['next']}"), width - 4)
            lines += ["    " + paint(line, "bold") for line in command]
    return lines


_OVERSEER_STYLES = {"running": "green", "remediating": "yellow", "terminated": "red"}


def overseer_lines(overseer: Raw, now: float, width: int, paint: Paint) -> list[str]:
    """The supervisor: its state, its daemon, and its latest events."""
    state = overseer["state"]
    about = [f"pid {overseer['pid']}" if overseer["pid"] else ""]
    if overseer["daemon_pid"]:
        about.append(f"daemon {overseer['daemon_pid']} up {age(overseer['uptime_s'] or 0.0)}")
    if overseer["attempt"]:
        about.append(f"remediation attempt {overseer['attempt']}")
    head = paint("Overseer", "bold") + "  " + paint(state.capitalize(), _OVERSEER_STYLES.get(state, "dim"))
    if (
        state == "terminated" and overseer["code"] == 0
    ):  # stopped on request or finished: nothing to investigate
        ended = f"{age(now - (overseer['ended_unix'] or now))} ago: {printable(overseer['why'])}"
        return ["", f"{head}  {shortened(ended, width - cells('Overseer  Terminated  '))}"]
    rest = "  ".join(text for text in about if text)
    room = width - cells(f"Overseer  {state}  ")
    lines = ["", f"{head}  {shortened(rest, room)}".rstrip()]
    if state == "terminated":
        lines += [f"  {line}" for line in wrap(printable(overseer["why"]), width - 2, ERROR_LINES)]
    for event in overseer["events"]:
        when = age(now - event["ts"]).rjust(4)
        lines.append(shortened(f"  {when} ago  {printable(event['text'])}", width))
    return lines


def auto_summary(auto: Raw, now: float) -> str:
    """One line about auto mode."""
    done = f"{counted(auto['workers'], 'worker')}, {counted(auto['tasks_completed'], 'task')} completed"
    if not auto["running"] and auto["finished_reason"]:
        ended = f"finished {age(now - auto['finished_unix'])} ago: {auto['finished_reason']}"
        return f"Auto Mode: {ended}; {done}"
    if not auto["running"]:
        return f"Auto Mode: not running; {done}"
    counts = f"{done}, {counted(auto['errors'], 'error')}"
    until = auto["parked_until_unix"]
    if until is None:
        return f"Auto Mode: {counts}"
    wait = f"for {age(until - now)} more" if until > now else "until a retry succeeds"
    return f"Auto Mode: {counts}; parked {wait} ({_WORDS.get(auto['parked_cause'], auto['parked_cause'])})"


def _title(view: Raw, numbers: dict[str, int], width: int, paint: Paint) -> str:
    """The root, the daemon and the counts. On a narrow screen, the least useful parts are left out first."""
    daemon = view["daemon"]
    pid = f" {daemon['pid']}" if daemon["pid"] else ""
    auto = view["auto"] or {}
    short = "daemon running" if daemon["running"] else "daemon not running"
    full = (
        f"daemon{pid} running"
        if daemon["running"]
        else f"{short} ({auto['start'] if auto.get('wanted') else UP})"
    )
    counts = [f"{count} {_COUNTED[title]}" for title, count in numbers.items() if count]
    counts = ["1 needs you" if text == "1 need you" else text for text in counts]
    root = printable(view["root"])
    least = min(cells(root), LEAST_ROOT)
    forms = [(least, full, counts), (least, short, counts)]
    forms += [(0, short, counts[:count]) for count in range(len(counts), -1, -1)]
    for least, runs, said in forms:
        rest = "  ".join(["", runs, *([", ".join(said)] if said else [])])
        room = width - cells(rest)
        if room >= least or (not least and room >= -2):
            break
    head = paint(shortened_at_start(root, room), "bold") if least else ""
    painted = runs if daemon["running"] or auto.get("finished_reason") else paint(runs, "red")
    return (head + rest.replace(runs, painted, 1)).lstrip()


class _Columns:
    """Lays out workers in columns."""

    def __init__(self, workers: list[Raw], now: float, width: int, paint: Paint) -> None:
        self.now, self.width, self.paint = now, width, paint
        self.badge = max(cells(w["status"]) for w in workers) + 2
        self.age = max(cells(age(now - w["since_unix"])) for w in workers)
        rest = self.badge + 2 + self.age
        self.name = min(max(cells(w["name"]) for w in workers), width - 4 - rest)
        self.indent = min(2 + self.name + 2, width // 2)
        #: room for a task beside its worker; 0 if the task needs its own line
        room = width - 4 - self.name - rest - 2
        self.room = room if room >= LEAST_TASK else 0

    def rows(self, workers: list[Raw], *, apart: bool, told: str = "") -> list[str]:
        """With `apart`, the command has its own lines; else it shares the worker's line, if it fits.

        `told`: a command that is shown below, once for all workers.
        """
        tasks = [self._task(worker) for worker in workers]
        commands = [command if (command := next_of(worker)) != told else "" for worker in workers]
        longest = max(map(cells, tasks))
        column = min(longest, self.room - max(map(cells, commands)) - 2)
        apart = apart or not self.room or column < min(LEAST_TASK, longest)
        lines = []
        for worker, task, command in zip(workers, tasks, commands, strict=True):
            if apart:
                lines += [self._line(worker, shortened(task, self.room) if self.room else "")]
                lines += [] if self.room else self._under(task, "", 1)
                lines += self._details(worker)
                below = (
                    wrap_command(printable(f"next: {command}"), self.width - self.indent) if command else []
                )
                lines += [" " * self.indent + self.paint(line, "bold") for line in below]
            else:
                shown = padded(shortened(task, column), column) + "  " if longest else ""
                lines += [self._line(worker, shown + self.paint(command, "dim")), *self._details(worker)]
        return lines

    def _line(self, worker: Raw, rest: str) -> str:
        badge = f"[{worker['status']}]"
        fill = " " * (self.badge - cells(badge))
        when = age(self.now - worker["since_unix"]).rjust(self.age)
        shown = shortened(worker["name"], self.name)
        name = self.paint(shown, "bold") + " " * (self.name - cells(shown))
        coloured = self.paint(badge, STYLES.get(worker["status"], "dim"))
        return f"  {name}  {coloured}{fill}  {when}  {rest}".rstrip()

    def _task(self, worker: Raw) -> str:
        marks = [f"({word})" for word in ("held", "attached", "reviewed") if worker[word]]
        if worker["accept_step"]:
            marks.append(f"(accepting: {worker['accept_step']})")
        lines = [line.strip() for line in worker["prompt"].splitlines() if line.strip()]
        first = lines[0] + (" …" if len(lines) > 1 else "") if lines else ""
        if worker["task_subject"]:
            first = worker["task_subject"]
        if worker["task_id"]:
            first = f"{worker['task_id']}: {worker['task_subject']}"
        return printable(" ".join([*marks, first])).strip()

    def _details(self, worker: Raw) -> list[str]:
        commit = (
            f"{worker['commit_sha'][:8]} {worker['subject']}"
            if worker["subject"] and worker["commit_sha"]
            else ""
        )
        is_bad = worker["status"] == "error"
        said = [item for item in worker["items"] if item["kind"] not in _IN_THE_ROW]
        lines = self._under(commit, "", 1)
        if not said or worker["status"] in ("error", "needs_review"):
            lines += self._under(why(worker), "red" if is_bad else "dim", ERROR_LINES if is_bad else 2)
        for item in said:
            lines += self._under(item["text"], _SEVERITY_STYLES[item["severity"]], ERROR_LINES)
        return lines

    def _under(self, text: str, style: str, most: int) -> list[str]:
        wrapped = wrap(printable(text), self.width - self.indent, most)
        return [" " * self.indent + (self.paint(line, style) if style else line) for line in wrapped]


def why(worker: Raw) -> str:
    """The reason for a worker's status, if it adds anything."""
    if worker["status"] == "rebasing" and worker["conflicted_files"]:
        return f"conflicts in {', '.join(worker['conflicted_files'])}"
    reason = _WORDS.get(worker["reason"], worker["reason"])
    parts = [] if reason in _PLAIN_REASONS else [reason]
    if worker["self_review"] == "due":
        parts.append("self-review is due")
    parts.append(worker["error_reason"])
    return ": ".join(part for part in dict.fromkeys(parts) if part)


def goals_lines(page: Page, width: int) -> list[str]:
    """The goals, as of the last tick; does not open the store."""
    return wrap(printable(_goals(page)), max(40, min(width, MOST_WIDTH)), ERROR_LINES)


def _goals(page: Page) -> str:
    if not page.goals_enabled:
        return ""
    seen = page.goals
    if seen is None:
        return "Goals: not checked yet" + (
            "" if page.daemon_runs else f" ({(page.view['auto'] or {}).get('start', UP_AUTO)})"
        )
    by_state = {"active": seen["active"], "paused": seen["paused"], "completed": seen["completed"]}
    parts = [", ".join(f"{count} {word}" for word, count in by_state.items() if count) or "none"]
    if seen["total"]:
        parts.append(f"{seen['done']} of {seen['total']} plan items done ({seen['percent']}%)")
    questions = sum(item["kind"] == "goal_question" for item in page.view["attention"])
    if questions:
        parts.append(f"{counted(questions, 'open question')} (llmc inbox)")
    if not seen["ok"]:
        parts.append(f"the last check failed: {seen['problem']}")
    when = "" if page.daemon_runs else f" (as of {age(page.now - seen['ended_at'])} ago; daemon not running)"
    return "Goals: " + "; ".join(parts) + when
