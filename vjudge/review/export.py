"""What votes become: human scores in a collection, a preference between judges, error tags, and files of all three."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pandas as pd
from scipy import stats

from vjudge import plots
from vjudge.metrics import feedback_preference
from vjudge.plots.save import write_csv
from vjudge.review.review import ANSWERS, Review
from vjudge.review.show import CSS, TEMPLATES, case_html
from vjudge.runs import replace_file

IMAGE_SIZE = 360  # pixels of an image's longer side at most


def collection(items: datasets.Dataset, review: Review) -> datasets.Dataset:
    """The items of a review that somebody scored, in their order, with the scores as `human_scores`.

    Returns:
        The items' rows and `annotators`: `human_scores[i]` is the score of `annotators[i]`, NaN for none, in place of
        earlier ones. Where `next_best` chose items, `weight` is that of `Review.weights`. ValueError: none is scored.
    """
    scores, weights = review.human_scores(), review.weights()
    scored = scores.notna().any(axis=1).to_numpy()
    if not scored.any():
        raise ValueError("no item has a score yet: vote first")
    rows, number = items.select(scored.nonzero()[0]), datasets.Value("float64")
    columns = {
        "human_scores": (scores[scored].to_numpy().tolist(), datasets.Sequence(number)),
        "annotators": ([list(scores)] * len(rows), datasets.Sequence(datasets.Value("string"))),
    }
    if weights is not None:
        columns["weight"] = (weights[scored].tolist(), number)
    rows = rows.remove_columns([name for name in columns if name in rows.column_names])
    for name, (values, kind) in columns.items():
        rows = rows.add_column(name, values, feature=kind)
    return rows.select_columns([*items.column_names, *(name for name in columns if name not in items.column_names)])


def preference(review: Review) -> pd.DataFrame:
    """Whose feedback people found better, as shares with intervals; ValueError where not two judges are under review.

    Returns:
        As `vjudge.metrics.feedback_preference`, "left" being the review's first judge and "right" its second;
        `attrs["words"]` has each row in words. `vjudge.plots.preference_bars` draws it.
    """
    if len(review.judges) != 2:
        raise ValueError(f"a preference is between two judges; under review: {', '.join(review.judges)}")
    votes, (first, second) = review.votes("better"), review.judges
    labels = {first: "left", second: "right"} | {answer: answer for answer in ANSWERS[2:]}
    several = votes["id"].duplicated().any()
    table = feedback_preference(votes["value"].map(labels), groups=votes["id"] if several else None)
    table.attrs["words"] = {
        "left": f"{first} is better", "right": f"{second} is better",
        "both_good": "both are good", "both_bad": "both are bad",
        "left_as_good_or_better": f"{first} as good or better",
        "right_as_good_or_better": f"{second} as good or better",
        "left_of_decided": f"{first} of decided", "left_ties_half": f"{first}, ties half",
    }  # fmt: skip
    return table


def error_tags(review: Review) -> pd.DataFrame:
    """How often each error tag was given to each judge's feedback.

    Returns:
        One row a judge and tag: `judge`, `tag`, `count`, `n` (pairs of an annotator and an item with any vote, taken as
        independent), `share` in [0, 1] with `low` and `high` (95 % Wilson intervals).
    """
    n = len(review.votes()[["id", "annotator"]].drop_duplicates())
    given = [(judge, tag) for vote in review.votes("tags")["value"] for judge, tags in vote.items() for tag in tags]
    table = pd.MultiIndex.from_product([review.judges, review.tags], names=["judge", "tag"]).to_frame(index=False)
    table["count"] = [given.count(pair) for pair in zip(table["judge"], table["tag"], strict=True)]
    table["n"], table["share"] = n, table["count"] / (n or np.nan)
    bounds = [stats.binomtest(k, n).proportion_ci(method="wilson") if n else (np.nan, np.nan) for k in table["count"]]
    return table.assign(low=[low for low, _ in bounds], high=[high for _, high in bounds])


def save_page(review: Review, path: str | Path) -> Path:
    """Write the listed items of a review into one self-contained HTML file, which is replaced, and give its path.

    What its annotator may see is written: in a blind review, unvoted items stay hidden.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    cases = [(case_html(case, IMAGE_SIZE, truth=True), case.votes) for case in review.cases()]
    replace_file(path, str(TEMPLATES.page(review, CSS, cases)))
    return path


def export(items: datasets.Dataset, review: Review, folder: str | Path) -> list[Path]:
    """Write what the votes on items became into a folder; files of these names are replaced.

    Returns:
        The paths: `votes.csv` and `votes.jsonl`, `collection` (a `datasets` folder, where anybody scored), `error_tags`
        and, where feedbacks were compared, `preferences` (.csv, .tex), and `review.html` of what is listed. In CSV
        files a text that a spreadsheet would take for a formula begins with "'".
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    votes = review.votes()
    better = votes[votes["field"] == "better"]
    paths = [folder / "votes.csv", folder / "votes.jsonl"]
    write_csv(votes, paths[0])
    votes.to_json(paths[1], orient="records", lines=True, force_ascii=False)
    if (votes["field"] == "score").any():
        paths.append(folder / "collection")
        collection(items, review).save_to_disk(paths[-1])
    people = f"{len(review.annotators)} annotator(s), {votes['id'].nunique()} items"
    caption = f"Error tags given to each judge's feedback; Wilson intervals; {people}."
    paths += plots.save_table(error_tags(review), "error_tags", caption=caption, folder=folder).values()
    if len(better):
        shares = preference(review)
        text = f"Which judge's feedback is better; {people}; {better['blind'].sum()} votes blind"
        table = shares.rename(index=shares.attrs["words"]).rename_axis("answer").reset_index()
        caption = plots.caption(text, shares)
        paths += plots.save_table(table, "preferences", caption=caption, folder=folder).values()
    return [*paths, save_page(review, folder / "review.html")]
