"""Six items and two judges' verdicts on them, for the tests of the review."""

from functools import cache

from numpy import nan
from pandas import DataFrame
from PIL import Image

from vjudge import data
from vjudge.review import Review

N = 6
GOLD = [1.0, 2.0, 3.0, 4.0, 5.0, nan]
SCORES = {"first": [1.0, 4.0, 3.0, nan, 5.0, 2.0], "second": [5.0, 2.0, 3.0, 4.0, 1.0, 2.0]}
HOSTILE = (
    '</div></style><script>alert(1)</script><img src=x onerror="alert(2)"><style>*{display:none}</style> **b** $x$'
    " \u202e\x1b[2J"
)


def rows():
    return [
        {
            "id": f"i{n}", "images": [Image.new("RGB", (8, 8), (40 * n, 0, 0))], "instruction": f"Question {n}?",
            "response": f"Answer {n}.", "reference_answer": None, "criteria": ("even", "odd")[n % 2],
            "descriptions": "one two three four five".split(), "gold": GOLD[n], "group": f"g{n}",
        }
        for n in range(N)
    ]  # fmt: skip


def judged(name, scores=None):
    table = {"id": [f"i{n}" for n in range(N)], "score": scores or SCORES[name]}
    return DataFrame(table | {"feedback": [f"{name} about {n}" for n in range(N)]})


def runs(*names):
    return {name: judged(name) for name in names or SCORES}


@cache
def items():
    return data.canonical(rows())


def open_review(path, annotator="ann", *, folder="votes", judges=("first", "second"), **options):
    return Review(items(), runs(*judges), out=path / folder, annotator=annotator, **options)
