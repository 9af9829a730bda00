"""What a notebook shows of items, and what votes become: scores, preferences, error tags, files.

Texts come from data and models: they are escaped, never typeset as mathematics, and control
characters are named.
"""

from __future__ import annotations

import html
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
from IPython.display import HTML
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vjudge import images, plots
from vjudge.data import canonical, rows_of
from vjudge.metrics import feedback_preference
from vjudge.metrics.tables import shares
from vjudge.plots.save import write_csv
from vjudge.records import Item, is_missing
from vjudge.review.review import Review, ReviewCase
from vjudge.runs import replace_file

ASSETS = files("vjudge") / "assets"
CSS = Markup((ASSETS / "review.css").read_text("utf-8"))


_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    r"\ud800-\uf8ff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f\U000f0000-\U0010ffff]"
)


def plain(value: Any) -> str:
    """Text with control, format, surrogate and private characters by their code; joiners stay."""
    if isinstance(value, Markup):
        return value
    text = str(value).replace("\r\n", "\n")
    return _CONTROL.sub(lambda mark: f"<U+{ord(mark[0]):04X}>", text)


def escape(text: Any) -> str:
    """Text as HTML that shows it as it is."""
    return html.escape(plain(text))


def _number(score: Any) -> str:
    return "none" if is_missing(score) else f"{float(score):g}"


_environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=plain)
_environment.filters["number"] = _number
_lines = (ASSETS / "review.html").read_text("utf-8").splitlines()
TEMPLATES: Any = _environment.from_string("".join(map(str.strip, _lines))).module
"""The macros of assets/review.html, which escape every text."""


def framed(body: str) -> str:
    """HTML with its style sheet; both generations of MathJax would typeset "$5 or $6"."""
    return f'<div class="vj tex2jax_ignore mathjax_ignore"><style>\n{CSS}</style>{body}</div>'


def show(item: Mapping[str, Any], *, image_size: int = 320) -> HTML:
    """Show one item whole, the true score marked in its rubric.

    Args:
        item: a row with the canonical columns (else ValueError). An image that can't be opened
            shows why.
        image_size: pixels of an image's longer side.

    >>> from vjudge.review import show
    >>> item = {"id": "a", "instruction": "What is it?", "response": "A cat.", "gold": 4}
    >>> "A cat." in show(item).data
    True
    """
    shown = Item.from_row(rows_of([item])[0])
    return HTML(framed(TEMPLATES.item(shown, pictures(shown.images, image_size))))


def show_case(items: Sequence[Mapping[str, Any]], *, image_size: int = 320) -> HTML:
    """Show the responses to one question side by side, lowest true score first.

    `items` are the rows of one case, as `vjudge.data.cases` finds them; `image_size` as in `show`.
    ValueError: the questions differ.
    """
    rows = map(Item.from_row, rows_of(items))
    case = sorted(rows, key=lambda item: (math.isnan(item.gold), item.gold))
    same = ("instruction", "reference_answer", "rubric", "group")
    unlike = []
    for name in same:
        if any(getattr(item, name) != getattr(case[0], name) for item in case):
            unlike.append(name)
    if unlike:
        remedy = "pass the rows of one case, see vjudge.data.cases"
        raise ValueError(f"the items differ in {', '.join(unlike)}: {remedy}")
    return HTML(framed(TEMPLATES.responses(case, pictures(case[0].images, image_size))))


def contact_sheet(
    sources: Sequence[Any], *, captions: Sequence[str] = (), image_size: int = 120
) -> HTML:
    """Show images small, each with a caption, else with its size in pixels."""
    return HTML(framed(TEMPLATES.sheet(pictures(sources, image_size, captions))))


def case_html(case: ReviewCase, image_size: int) -> Markup:
    """A case as its annotator may see it; the truth only where the case is revealed."""
    marks: list[Any] = []
    if case.revealed:
        marks.append((case.item.gold, "true score", "vj-true"))
    for place, verdict in case.sides.items():
        marks.append((verdict.get("score"), verdict.get("judge", place), ""))
    marks.append((case.votes.get("score"), "you", "vj-own"))
    return TEMPLATES.case(case, pictures(case.item.images, image_size), marks)


def pictures(
    sources: Sequence[Any], image_size: int, captions: Sequence[str] = ()
) -> list[tuple[str, str, int, int]]:
    """Label, data URI, width and height of each picture; the reason and no URI where it fails."""
    shown = []
    for source, caption in zip(sources, captions or [""] * len(sources), strict=True):
        try:
            image = images.open_image(source)
        except images.ImageError as error:
            shown.append((f"no image: {error}", "", 0, 0))
            continue
        small = images.thumbnail(image, size=image_size)
        # PNG keeps a drawing sharp; of a photograph it is slow and large.
        drawing = small.getcolors(2_000) is not None
        uri = images.data_uri(small, format="png" if drawing else "jpeg")
        scale = image_size / max(small.size)
        shown.append(
            (
                caption or f"{image.width} x {image.height}",
                uri,
                round(small.width * scale),
                round(small.height * scale),
            )
        )
    return shown


def collection(items: Any, review: Review) -> datasets.Dataset:
    """The items of a review, as it took them, that somebody scored, in their order.

    `human_scores[i]` is the score of `annotators[i]`, NaN for none, in place of earlier ones.
    ValueError: nobody scored.
    """
    scores = review.human_scores()
    scored = scores.notna().any(axis=1).to_numpy()
    if not scored.any():
        raise ValueError("no item has a score yet: vote first")
    columns = {
        "human_scores": scores[scored].to_numpy().tolist(),
        "annotators": [list(scores)] * int(scored.sum()),
    }
    rows = canonical(items).select(scored.nonzero()[0])
    rows = rows.remove_columns([name for name in columns if name in rows.column_names])
    return datasets.concatenate_datasets([rows, datasets.Dataset.from_dict(columns)], axis=1)


def preference(review: Review) -> pd.DataFrame:
    """Whose feedback people found better, as `vjudge.metrics.feedback_preference` counts it.

    "left" is the review's first judge; `attrs["words"]` has each row in words, and
    `vjudge.plots.preference_bars` draws it. ValueError: not two judges.
    """
    if len(review.judges) != 2:
        listed = ", ".join(review.judges)
        raise ValueError(f"a preference is between two judges; under review: {listed}")
    first, second = review.judges
    votes = review.votes("better")
    answers = votes["value"].replace({first: "left", second: "right"})
    several = votes["id"].duplicated().any()
    table = feedback_preference(answers, groups=votes["id"] if several else None)
    words = {
        "left": f"{first} is better",
        "right": f"{second} is better",
        "both_good": "both good",
        "both_bad": "both bad",
        "left_as_good_or_better": f"{first} as good or better",
        "right_as_good_or_better": f"{second} as good or better",
        "left_of_decided": f"{first} of decided",
        "left_ties_half": f"{first}, ties half",
    }
    table.attrs["words"] = words
    return table


def error_tags(review: Review) -> pd.DataFrame:
    """How often each error tag was given to each judge's feedback: one row a `judge` and `tag`.

    `estimate` is a share of `n`, the pairs of an annotator and an item with any vote, with `low`
    and `high` (95 % Wilson intervals, by item where several people voted on one).
    """
    pairs = review.votes()[["id", "annotator"]].drop_duplicates()
    given = review.votes("tags").set_index(["id", "annotator"])["value"].to_dict()
    values = [given.get(tuple(pair), {}) for pair in pairs.to_numpy()]
    rows = []
    for judge, tag in itertools.product(review.judges, review.tags):
        hits = np.array([tag in value.get(judge, ()) for value in values])
        rows.append(((judge, tag), hits, np.ones(len(hits))))
    several = pairs["id"].duplicated().any()
    return shares(
        rows,
        groups=pairs["id"] if several else None,
        unit="reviews",
        index=["judge", "tag"],
    )


def export(items: Any, review: Review, folder: str | Path) -> list[Path]:
    """Write what the votes on items became into a folder; files of these names are replaced.

    Returns:
        The paths: `votes.csv`; `collection` (a `datasets` folder), `error_tags` and `preferences`
        (.csv, .tex) where anybody gave such votes; `review.html`, in which nothing can run, of the
        listed items as the annotator may see them. In CSV files a formula begins with "'".
    """
    folder = Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    votes = review.votes()
    paths = [folder / "votes.csv"]
    write_csv(votes, paths[0])
    fields = set(votes["field"])
    if "score" in fields:
        paths.append(folder / "collection")
        collection(items, review).save_to_disk(paths[-1])

    tables = {}
    if "tags" in fields:
        text = "Error tags given to each judge's feedback"
        tables["error_tags"] = (error_tags(review), text)
    if "better" in fields:
        table = preference(review)
        table = table.rename(index=table.attrs["words"]).rename_axis("answer")
        blind = votes.loc[votes["field"] == "better", "blind"].sum()
        tables["preferences"] = (table, f"Which judge's feedback is better; {blind} votes blind")
    for name, (table, text) in tables.items():
        text = plots.caption(text, table)
        paths += plots.save_table(table, name, caption=text, folder=folder).values()

    cases = [(case_html(case, 360), case.votes) for case in review.cases()]
    paths.append(folder / "review.html")
    replace_file(paths[-1], str(TEMPLATES.page(review, CSS, cases)))
    return paths
