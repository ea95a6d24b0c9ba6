"""The texts of the pane and of the full pages: task, talk, receipts, tasks, goals, night, events, help and log."""

from collections.abc import Callable, Mapping, Sequence

from rich.text import Text

from llmc.api import goal_views, night_view, reviews, tasks, workers
from llmc.api.night_view import Night, Span
from llmc.api.roots import Project
from llmc.api.said import BAD, GOOD, Said
from llmc.api.subscription import EventLine
from llmc.base.clock import now_unix
from llmc.base.text import moment, printable, shortened, wrap
from llmc.tui import drawing, keys
from llmc.tui.drawing import Brush

TITLES = {
    "tasks": "Tasks",
    "goals": "Goals",
    "night": "Night",
    "events": "Events",
    "roots": "Your roots (press {enter} to open one)",
    "help": "Keys",
    "log": "This session's commands",
    "commit": "Landed commit",
    "node": "Another node (press {copy} to copy the command)",
}


def title(view: str, key_names: Mapping[str, str]) -> str:
    return TITLES.get(view, view).format_map(key_names)


def task(project: Project, worker: str, events: Sequence[EventLine], width: int, brush: Brush) -> list[Text]:
    """The task as the user wrote it, with the worker's state."""
    found = workers.details(project, worker)
    lines = [
        Text(f"{name:<10} {printable(value)}", style=brush.theme.muted)
        for name, value in found.facts
        if value
    ]
    return [*lines, Text(""), *drawing.plain_lines(found.prompt or "no task", width, brush.theme.text)]


def talk(project: Project, worker: str, events: Sequence[EventLine], width: int, brush: Brush) -> list[Text]:
    """The end of the conversation."""
    lines: list[Text] = []
    names = {"user": "you", "assistant": worker, "error": "error"}
    for turn in workers.talk(project, worker):
        look = {"user": "asks", "error": "broken"}.get(turn.role, "works")
        lines.append(
            Text(
                f"{names.get(turn.role, turn.role)} {drawing.clock(turn.at_unix)}",
                style=f"bold {brush.look(look)}",
            )
        )
        lines += drawing.plain_lines(turn.text, width, brush.theme.text)
        lines.append(Text(""))
    return lines or [Text("no conversation yet", style=brush.theme.muted)]


def receipts(
    project: Project, worker: str, events: Sequence[EventLine], width: int, brush: Brush
) -> list[Text]:
    """What was sent to the worker today, latest first."""
    mine = [
        one
        for one in events
        if one.worker == worker and one.action in ("prompt_delivered", "question_answered")
    ]
    lines = [Text(f"{drawing.clock(one.at_unix)}  {printable(one.text)}") for one in reversed(mine)]
    return lines or [Text("nothing was sent today", style=brush.theme.muted)]


def tasks_page(project: Project, width: int, brush: Brush) -> list[Text]:
    board = tasks.board(project)
    drawn = [Text(shortened(printable(line), width)) for line in tasks.drawn(board, mermaid=False)]
    return drawn or [Text("no tasks; add one with :tasks add", style=brush.theme.muted)]


def goals_page(project: Project, width: int, brush: Brush) -> list[Text]:
    lines: list[Text] = []
    for view in goal_views.goals(project).views:
        title, *plan = (
            printable("".join(part for part, _ in one)) for one in goal_views.plan_tree(view, width)
        )
        lines.append(Text(shortened(title, width), style="bold"))
        lines += [Text(shortened(one, width)) for one in plan]
        lines.append(Text(""))
    return lines or [Text("no goals; create one with :goal create", style=brush.theme.muted)]


def night_page(project: Project, width: int, brush: Brush) -> list[Text]:
    """The digest in numbers, with sparklines and a lane for each worker."""
    found = night_view.night(project)
    muted = brush.theme.muted
    total = sum(found.cost)
    first = moment(found.starts[0], now_unix()) if found.starts else ""
    lines = [
        Text(
            f"since {first}: {len(found.digest.accepted)} landed, {len(found.digest.undone)} undone, ${total:.2f}",
            style="bold",
        ),
        Text(""),
        Text.assemble(
            ("landed  ", muted), drawing.sparkline(found.landed, plain=brush.plain), f"  {sum(found.landed)}"
        ),
        Text.assemble(
            ("cost    ", muted), drawing.sparkline(found.cost, plain=brush.plain), f"  ${total:.2f}"
        ),
        Text(""),
    ]
    names = max((len(name) for name in found.lanes), default=0)
    room = max(10, width - names - 2)
    for worker, spans in found.lanes.items():
        lines.append(
            Text.assemble((f"{printable(worker):<{names}}  ", muted), lane(spans, found, room, brush))
        )
    if found.lanes:
        legend = "  ".join(f"{brush.glyph(name)} {word}" for name, word in LANE_WORDS.items())
        lines += [Text(""), Text(legend, style=muted)]
    waits = [f"{item.what}  {item.command}" for item in found.digest.waits]
    return (
        lines
        + ([Text(""), Text("Waiting for you", style="bold")] if waits else [])
        + [Text(shortened(printable(line), width)) for line in waits]
    )


LANE_WORDS = {
    "works": "working",
    "asks": "needs you",
    "idle": "idle",
    "broken": "error",
    "offline": "offline",
}


def lane(spans: Sequence[Span], night: Night, room: int, brush: Brush) -> Text:
    """One row of glyphs: what a worker did, over the whole period."""
    begin = night.starts[0]
    length = max(1.0, night.starts[-1] + night.step_s - begin)
    text = Text()
    for at in range(room):
        middle = begin + (at + 0.5) * length / room
        state = next((one.state for one in spans if one.start_unix <= middle < one.end_unix), "")
        text.append(brush.glyph(state) if state else " ", style=brush.look(state) if state else "")
    return text


def events(rows: Sequence[EventLine], width: int, brush: Brush, words: str = "") -> list[Text]:
    lines = []
    for one in rows:
        plain = f"{drawing.clock(one.at_unix)}  {one.worker:<10} {one.action:<18} {one.text}"
        plain += f" by {one.by}" if one.by else ""
        if words and words not in plain.lower():
            continue
        lines.append(Text(shortened(printable(plain), width)))
    return lines or [Text("no events today", style=brush.theme.muted)]


OF_THE_MOUSE = (
    "To select text with the mouse, hold Shift (in most terminals) or press {mouse} to turn the mouse off."
)
#: more lines than any help text has
MOST_HELP = 100


def help_lines(
    where: str, width: int, brush: Brush, remapped: Mapping[str, str] = keys.DEFAULT
) -> list[Text]:
    """Every key that works in a view."""
    found = keys.of(where, remapped)
    room = max(len(key.shown) for key in found)
    lines = []
    for key in found:
        first, *rest = wrap(key.help, width - room - 4, MOST_HELP)
        lines.append(Text.assemble((f"  {key.shown:<{room}}  ", f"bold {brush.theme.text}"), first))
        lines += [Text(" " * (room + 4) + line) for line in rest]
    about = OF_THE_MOUSE.format_map(keys.names(remapped))
    return [*lines, Text(""), *(Text(f"  {line}") for line in wrap(about, width - 2, MOST_HELP))]


def log_lines(said: Sequence[Said], width: int, brush: Brush) -> list[Text]:
    """Every command of this session, with its outcome."""
    theme = brush.theme
    colours = {GOOD: theme.good, BAD: theme.error}
    lines: list[Text] = []
    for one in said:
        if one.outcome == "...":
            continue
        lines.append(Text(f"{drawing.clock(one.at_unix)}  {printable(one.command)}", style=theme.muted))
        lines += drawing.plain_lines(f"  {one.outcome}", width, colours.get(one.tone, theme.text))
        lines += (
            drawing.plain_lines(one.detail, width, theme.text)
            if one.detail and one.detail.strip() != one.outcome
            else []
        )
    return lines or [Text("no commands yet", style=theme.muted)]


def commit_lines(project: Project, commit: str, width: int, brush: Brush) -> list[Text]:
    """A landed commit as git shows it."""
    styles = {"+": brush.theme.good, "-": brush.theme.error, "@": brush.theme.muted}
    text = reviews.commit_text(project, commit).expandtabs()
    return [
        drawn
        for line in text.splitlines()
        for drawn in drawing.plain_lines(line, width, styles.get(line[:1], ""))
    ]


#: pages that are read from the root
READ: Mapping[str, Callable[[Project, int, Brush], list[Text]]] = {
    "tasks": tasks_page,
    "goals": goals_page,
    "night": night_page,
}
#: tabs of the pane that are read for a worker
TABS: Mapping[str, Callable[[Project, str, Sequence[EventLine], int, Brush], list[Text]]] = {
    "task": task,
    "talk": talk,
    "receipts": receipts,
}
