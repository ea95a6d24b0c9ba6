"""The rows of a run as a table, as Markdown and as JSON."""

import dataclasses
from typing import Any

from bench.measure import Row

HEADER = ["benchmark", "case", "runs", "median", "p95", "floor", "ratio", "target", "", "note"]


def as_json(date: str, machine: dict[str, str], rows: list[Row]) -> dict[str, Any]:
    found = [{**dataclasses.asdict(row), "ratio": row.ratio, "ok": row.ok} for row in rows]
    return {"date": date, "machine": machine, "rows": found}


def table(rows: list[Row]) -> str:
    cells = [HEADER, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def markdown(date: str, machine: dict[str, str], rows: list[Row]) -> str:
    where = ", ".join(f"{key} {value}" for key, value in machine.items())
    lines = ["| " + " | ".join(line) + " |" for line in [HEADER, ["---"] * len(HEADER), *map(_cells, rows)]]
    return "\n".join([f"Measured {date}: {where}.", "", *lines])


def _cells(row: Row) -> list[str]:
    judged = " (p95)" if row.judged == "p95" else ""
    return [
        row.bench,
        row.case,
        str(row.runs),
        _ms(row.median_ms),
        _ms(row.p95_ms),
        f"{row.floor}: {_ms(row.floor_ms)}",
        f"{row.ratio:.3g}x{judged}",
        ""
        if row.target is None
        else f"{row.target:.3g}x = {_ms(row.target * row.floor_ms)}{_allowance(row)}",
        "" if row.target is None else "ok" if row.ok else "short",
        row.note,
    ]


def _allowance(row: Row) -> str:
    return f" x {row.slower:.1f} (a slow machine)" if row.slower > 1.0 else ""


def _ms(value: float) -> str:
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
