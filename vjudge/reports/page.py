"""A report card as one HTML file that needs no other; texts of data and models are escaped."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import pandas as pd
from jinja2 import Environment

from vjudge import plots
from vjudge.metrics.tables import format_interval, format_p
from vjudge.plots.save import sentences
from vjudge.plots.style import clean


def to_html(card: Any, claims: Mapping[str, str]) -> str:
    """A card as HTML.

    Args:
        card: a `reports.Card`.
        claims: part -> its claim, in the page's order.
    """
    rows = []
    for name, claim in claims.items():
        parts = {part.judge: part for part in card.parts if part.name == name}
        if parts:
            rows.append((claim, [parts.get(judge) for judge in card.judges]))
    absent: dict[str, list[str]] = {}
    for judge, what, why in card.absent:
        absent.setdefault(f"{what}: {why}", []).append(judge)
    figures = []
    for one in card.figures:
        picture = base64.b64encode(_pixels(one.figure)).decode()
        figures.append((sentences(one.caption, str(one.figure.get_label())), picture))
    text = (files("vjudge") / "assets/report.html").read_text(encoding="utf-8")
    template = Environment(autoescape=True).from_string(text)
    about = {"rows": rows, "figures": figures, "absent": absent, "numbers": _numbers}
    return clean(template.render(card=card, **about))


def _numbers(table: pd.DataFrame) -> list[list[str]]:
    """A part's numbers as texts: measure, estimate with interval, unit, n and p."""
    lines = []
    for row in table.to_dict("records"):
        p = "" if pd.isna(row["p_holm"]) else "p " + format_p(row["p_holm"])
        lines.append([row["measure"], interval_text(row), row["unit"], f"n = {row['n']:,}", p])
    return lines


def interval_text(row: Any) -> str:
    """An estimate and its bounds as the card prints them."""
    digits = 0 if str(row.get("unit")).startswith("tokens") else 2
    text = format_interval(row["estimate"], row["low"], row["high"], digits, zero=False)
    return text.replace("-", "\N{MINUS SIGN}")


def _pixels(figure: Any) -> bytes:
    """A figure as PNG."""
    file = io.BytesIO()
    with plots.page():
        figure.savefig(file, format="png", dpi=200, metadata={"Software": None})
    return file.getvalue()
