"""What a notebook shows of items, and what votes become: scores, preferences, error tags, files.

Texts come from data and models: they are escaped, never typeset as mathematics, and control
characters are named.
"""

from __future__ import annotations

import html
import itertools
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from scipy import stats

from vjudge import images, plots
from vjudge.data import rows_of
from vjudge.metrics import feedback_preference
from vjudge.plots.save import write_csv
from vjudge.records import Item, is_missing
from vjudge.review.review import Review, ReviewCase
from vjudge.runs import replace_file

ASSETS = files("vjudge") / "assets"
CSS = Markup((ASSETS / "review.css").read_text("utf-8"))


def plain(value: Any) -> str:
    """Text with control, format, surrogate and private characters by their code; joiners stay."""
    if isinstance(value, Markup):
        return value
    shown = []
    for mark in str(value).replace("\r\n", "\n"):
        odd = unicodedata.category(mark) in ("Cc", "Cf", "Cs", "Co")
        if odd and mark not in "\n\t\u200c\u200d":
            mark = f"<U+{ord(mark):04X}>"
        shown.append(mark)
    return "".join(shown)


def escape(text: Any) -> str:
    """Text as HTML that shows it as it is."""
    return html.escape(plain(text))


def vote_words(votes: Mapping[str, Any]) -> str:
    """An annotator's votes on one item in words."""
    words = []
    if "score" in votes:
        words.append(f"score {votes['score']}")
    answer = votes.get("better")
    if answer in ("left", "right"):
        words.append(f"better feedback: {answer}")
    elif answer:
        words.append(answer)
    for place, tags in votes.get("tags", {}).items():
        words.append(f"{place}: {', '.join(tags)}")
    if "note" in votes:
        words.append(f"note: {votes['note']}")
    return "; ".join(words)


def _number(score: Any) -> str:
    return "none" if is_missing(score) else f"{float(score):g}"


_environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=plain)
_environment.filters["number"] = _number
_environment.filters["words"] = vote_words
_lines = (ASSETS / "review.html").read_text("utf-8").splitlines()
TEMPLATES: Any = _environment.from_string("".join(map(str.strip, _lines))).module
"""The macros of assets/review.html, which escape every text."""


class View:
    """Something shown as HTML where there is a notebook and as its text elsewhere."""

    def __init__(self, body: str) -> None:
        self.body = body
        # Both generations of MathJax would typeset "$5 or $6".
        ignored = "vj tex2jax_ignore mathjax_ignore"
        self.html = f'<div class="{ignored}"><style>\n{CSS}</style>{body}</div>'

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        text = re.sub("</strong></div><div[^>]*>", ": ", self.body)
        text = re.sub("</(?:div|li|tr|figure|th|td)>", "\n", text)
        text = re.sub("<[^>]*>", "", text)
        return html.unescape("\n".join(line for line in text.split("\n") if line.strip()))


def show(item: Item | Mapping[str, Any], *, verdict: Any = None, image_size: int = 320) -> View:
    """Show one item whole, with a judge's verdict where there is one.

    Args:
        item: an `Item`, or a row with the canonical columns. An image that can't be opened shows
            why.
        verdict: a row of `Judge.grade`'s table (a Series or mapping), as far as its fields are
            there. The rubric marks its level beside the true one, with the probability of each.
        image_size: pixels of an image's longer side at most; it is embedded at that size.

    ValueError: the verdict is of another item, or the item is no canonical row.

    >>> from vjudge.review import show
    >>> show({"id": "a", "instruction": "What is it?", "response": "A cat.", "gold": 4})
    Item a
    Instruction: What is it?
    Response: A cat.
    Reference answer: none given
    Rubric: none given
    True score: 4
    """
    item = _item(item)
    given = None
    marks: list[Any] = [(item.gold, "true score", "vj-true")]
    if verdict is not None:
        given = {name: verdict[name] for name in verdict.keys() if not is_missing(verdict[name])}
        if str(given.get("id", item.id)) != item.id:
            what = f"the verdict is of item {given['id']!r}, the item is {item.id!r}"
            raise ValueError(f"{what}: pass its own row")
        marks.append((given.get("score"), "judge", "vj-judge"))
        for level, share in (given.get("probabilities") or {}).items():
            marks.append((int(level), f"{float(share):.0%}", ""))
    return View(TEMPLATES.item(item, pictures(item.images, image_size), marks, given))


def show_case(items: Sequence[Mapping[str, Any]], *, image_size: int = 320) -> View:
    """Show the responses to one question side by side, lowest true score first.

    `items` are `Item`s or rows of one case, as `vjudge.data.cases` finds them; `image_size` as in
    `show`. ValueError: the questions differ.
    """
    case = sorted(map(_item, items), key=lambda item: (math.isnan(item.gold), item.gold))
    same = ("instruction", "reference_answer", "rubric", "group")
    unlike = []
    for name in same:
        if any(getattr(item, name) != getattr(case[0], name) for item in case):
            unlike.append(name)
    if unlike:
        remedy = "pass the rows of one case, see vjudge.data.cases"
        raise ValueError(f"the items differ in {', '.join(unlike)}: {remedy}")
    return View(TEMPLATES.responses(case, pictures(case[0].images, image_size)))


def contact_sheet(
    sources: Sequence[Any], *, captions: Sequence[str] = (), image_size: int = 120
) -> View:
    """Show images small, each with a caption, else with its size in pixels."""
    return View(TEMPLATES.sheet(pictures(sources, image_size, captions)))


def case_html(case: ReviewCase, image_size: int, *, truth: bool = False) -> Markup:
    """A case as its annotator may see it; the truth only where the case is revealed."""
    shown = truth and case.revealed
    marks: list[Any] = []
    if shown:
        marks.append((case.item.gold, "true score", "vj-true"))
    texts = []
    for place, verdict in case.sides.items():
        marks.append((verdict.get("score"), verdict.get("judge", place), ""))
        feedback = verdict.get("feedback", "not graded by this judge")
        texts.append(str(feedback or verdict.get("raw") or "no feedback"))
    marks.append((case.votes.get("score"), "you", "vj-own"))
    seen = pictures(case.item.images, image_size, enlarge=True)
    return TEMPLATES.case(case, seen, marks, texts, shown)


def pictures(
    sources: Sequence[Any], image_size: int, captions: Sequence[str] = (), enlarge: bool = False
) -> list[Any]:
    """Label, data URI, width and height of each picture; the reason and no URI where it fails."""
    shown: list[tuple[Any, ...]] = []
    for source, caption in zip(sources, captions or [""] * len(sources), strict=True):
        try:
            image = images.open_image(source)
        except images.ImageError as error:
            shown.append((f"no image: {error}", "", 0, 0))
            continue
        small = images.thumbnail(image, size=image_size)
        # PNG keeps a drawing sharp; of a photograph it is slow and large.
        drawing = small.getcolors(2_000) is not None
        uri = Markup(images.data_uri(small, format="png" if drawing else "jpeg"))
        scale = max(1.0, image_size / max(small.size)) if enlarge else 1.0
        label = caption or f"{image.width} x {image.height}"
        shown.append((label, uri, round(small.width * scale), round(small.height * scale)))
    return shown


def _item(row: Item | Mapping[str, Any]) -> Item:
    return row if isinstance(row, Item) else Item.from_row(rows_of([row])[0])


def collection(items: datasets.Dataset, review: Review) -> datasets.Dataset:
    """The items of a review that somebody scored, in their order.

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
    rows = items.select(scored.nonzero()[0])
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
    names = {"left": first, "right": second}
    words = {row: " ".join(names.get(word, word) for word in row.split("_")) for row in table.index}
    words["left"] = f"{first} is better"
    words["right"] = f"{second} is better"
    words["left_ties_half"] = f"{first}, ties half"
    table.attrs["words"] = words
    return table


def error_tags(review: Review) -> pd.DataFrame:
    """How often each error tag was given to each judge's feedback: one row a `judge` and `tag`.

    `count` of `n` (pairs of an annotator and an item with any vote, taken as independent), `share`
    in [0, 1] with `low` and `high` (95 % Wilson intervals).
    """
    n = len(review.votes()[["id", "annotator"]].drop_duplicates())
    given: list[tuple[str, str]] = []
    for vote in review.votes("tags")["value"]:
        for judge, tags in vote.items():
            given.extend((judge, tag) for tag in tags)
    rows = []
    for judge, tag in itertools.product(review.judges, review.tags):
        count = given.count((judge, tag))
        low, high = math.nan, math.nan
        if n:
            low, high = stats.binomtest(count, n).proportion_ci(method="wilson")
        rows.append((judge, tag, count, n, count / n if n else math.nan, low, high))
    columns = ["judge", "tag", "count", "n", "share", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def export(items: datasets.Dataset, review: Review, folder: str | Path) -> list[Path]:
    """Write what the votes on items became into a folder; files of these names are replaced.

    Returns:
        The paths: `votes.csv` and `votes.jsonl`, `collection` (a `datasets` folder, where anybody
        scored), `error_tags` and, where feedbacks were compared, `preferences` (.csv, .tex), and
        `review.html`, in which nothing can run, of the listed items as the annotator may see them.
        In CSV files a formula begins with "'".
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    votes = review.votes()
    paths = [folder / "votes.csv", folder / "votes.jsonl"]
    write_csv(votes, paths[0])
    votes.to_json(paths[1], orient="records", lines=True, force_ascii=False)
    if "score" in set(votes["field"]):
        paths.append(folder / "collection")
        collection(items, review).save_to_disk(paths[-1])
    people = f"{len(review.annotators)} annotator(s), {votes['id'].nunique()} items"
    text = f"Error tags given to each judge's feedback; Wilson intervals; {people}."
    tables = plots.save_table(error_tags(review), "error_tags", caption=text, folder=folder)
    paths += tables.values()
    better = votes[votes["field"] == "better"]
    if len(better):
        shares = preference(review)
        text = f"Which judge's feedback is better; {people}; {better['blind'].sum()} votes blind"
        text = plots.caption(text, shares)
        table = shares.rename(index=shares.attrs["words"]).rename_axis("answer").reset_index()
        paths += plots.save_table(table, "preferences", caption=text, folder=folder).values()
    cases = [(case_html(case, 360, truth=True), case.votes) for case in review.cases()]
    paths.append(folder / "review.html")
    replace_file(paths[-1], str(TEMPLATES.page(review, CSS, cases)))
    return paths
