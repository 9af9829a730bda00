"""One table of everything that was measured: `make bench`.

VJUDGE_BENCH=1 (default) takes about ten minutes on two idle cores; a larger number measures on so many times the items.
VJUDGE_BENCH_OUT=FILE writes the table there as Markdown.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

SIZE = float(os.environ.get("VJUDGE_BENCH", "1"))
TABLE: list[tuple[str, str, str]] = []


class Report:
    """Takes what was measured into the table, and says it at once."""

    def add(self, what: str, measured: str, wanted: str = "") -> None:
        """A line: what, how much, and how much was wanted of it."""
        TABLE.append((what, measured, wanted))
        print(f"\n{what}: {measured}" + (f" (wanted: {wanted})" if wanted else ""))


@pytest.fixture(scope="session")
def report() -> Report:
    return Report()


@pytest.fixture(scope="session")
def size() -> float:
    return SIZE


def pytest_terminal_summary(terminalreporter) -> None:
    if not TABLE:
        return
    widths = [max(len(line[column]) for line in TABLE) for column in (0, 1)]
    terminalreporter.section("measured")
    for what, measured, wanted in TABLE:
        terminalreporter.line(f"{what:{widths[0]}}  {measured:{widths[1]}}  {wanted}")
    if out := os.environ.get("VJUDGE_BENCH_OUT"):
        lines = [
            f"{platform.machine()}, Python {platform.python_version()}",
            "",
            "| | Measured | Wanted |",
            "|---|---|---|",
        ]
        lines += [f"| {' | '.join(line)} |" for line in TABLE]
        Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")
