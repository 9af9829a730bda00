"""A report card as one HTML file that needs no other; texts of data and models are escaped."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment

from vjudge import plots
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
    figures = []
    for figure, caption, _ in card.figures.values():
        picture = base64.b64encode(_pixels(figure)).decode()
        figures.append((sentences(caption, figure.get_label()), picture))
    text = (files("vjudge") / "assets/report.html").read_text(encoding="utf-8")
    template = Environment(autoescape=True).from_string(text)
    return clean(template.render(card=card, rows=rows, figures=figures))


def _pixels(figure: Any) -> bytes:
    """A figure as PNG."""
    file = io.BytesIO()
    with plots.page():
        figure.savefig(
            file,
            format="png",
            dpi=200,
            metadata={"Software": None},
        )
    return file.getvalue()
