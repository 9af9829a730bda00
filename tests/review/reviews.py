"""Six items, two judges' verdicts on them, and what reads a page, for the tests of the review."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser

import numpy as np
import pandas as pd
from PIL import Image

from vjudge import data
from vjudge.review import Review

N = 6
GOLD = [1.0, 2.0, 3.0, 4.0, 5.0, np.nan]
SCORES = {"first": [1.0, 4.0, 3.0, np.nan, 5.0, 2.0], "second": [5.0, 2.0, 3.0, 4.0, 1.0, 2.0]}
HOSTILE = (
    '</div></style><script>alert(1)</script><img src=x onerror="alert(2)"><style>*{display:none}</style> **b** $x$'
    " \u202e\x1b[2J"
)


def rows():
    return [
        {
            "id": f"i{n}", "images": [Image.new("RGB", (8, 8), (40 * n, 0, 0))], "instruction": f"Question {n}?",
            "response": f"Answer {n}.", "reference_answer": None, "criteria": ("even", "odd")[n % 2],
            "descriptions": ["one", "two", "three", "four", "five"], "gold": GOLD[n], "group": f"g{n}",
        }
        for n in range(N)
    ]  # fmt: skip


def judged(name, scores=None):
    scores = SCORES[name] if scores is None else scores
    failures = ["no verdict marker" if np.isnan(score) else None for score in scores]
    table = {"id": [f"i{n}" for n in range(N)], "judge": name, "score": scores, "failure": failures}
    return pd.DataFrame(table | {"feedback": [f"{name} about {n}" for n in range(N)]})


def runs(*names):
    return {name: judged(name) for name in names or SCORES}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that tags close in order."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], "", []
        self.feed(page)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> out of order"

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text += data + " "


@cache
def items():
    return data.canonical(rows())


def open_review(path, annotator="ann", *, folder="votes", judges=("first", "second"), **options):
    return Review(items(), runs(*judges), out=path / folder, annotator=annotator, **options)
