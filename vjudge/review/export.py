"""What votes become: human scores in a collection, a preference between judges, error tags, and files of all three."""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path
from string import Template

import datasets
import pandas as pd
from scipy import stats

from vjudge import plots
from vjudge.metrics import agreement, feedback_preference
from vjudge.plots.save import write_csv
from vjudge.review.review import ANSWERS, Review
from vjudge.review.show import View, case_html, escape, pictures, vote_lines
from vjudge.runs import replace_file

IMAGE_SIZE = 360  # pixels of an image's longer side at most


def collection(items: datasets.Dataset, review: Review) -> datasets.Dataset:
    """The items that somebody scored, with the scores as `human_scores`.

    Args:
        items: the collection under review.
        review: its votes.

    Returns:
        The collection's rows in its order, and `annotators`: `human_scores[i]` is the score of `annotators[i]`, NaN for
        none, in place of earlier ones. Where `next_best` chose items, `weight` is that of `Review.weights`.

    Raises:
        ValueError: nobody scored an item yet.
    """
    scores = review.human_scores()
    scored = scores.notna().any(axis=1).to_numpy()
    if not scored.any():
        raise ValueError("no item has a score yet: vote first")
    rows, score = items.select(scored.nonzero()[0]), datasets.Value("float64")
    columns = {
        "human_scores": (scores[scored].to_numpy().tolist(), datasets.Sequence(score)),
        "annotators": ([list(scores.columns)] * len(rows), datasets.Sequence(datasets.Value("string"))),
    }
    if (weights := review.weights()) is not None:
        columns["weight"] = (weights[scored].tolist(), score)
    names = [*items.column_names, *(name for name in columns if name not in items.column_names)]
    rows = rows.remove_columns([name for name in columns if name in rows.column_names])
    for name, (values, kind) in columns.items():
        rows = rows.add_column(name, values, feature=kind)
    return rows.select_columns(names)


def preference(review: Review) -> pd.DataFrame:
    """Whose feedback people found better, as shares with intervals.

    Returns:
        As `vjudge.metrics.feedback_preference`, "left" being the review's first judge and "right" its second;
        `attrs["words"]` has each row in words; where several people voted on one item, `attrs["agreement"]` has
        Krippendorff's nominal alpha, its bounds and n. `vjudge.plots.preference_bars` draws it.

    Raises:
        ValueError: not two judges are under review.
    """
    if len(review.judges) != 2:
        raise ValueError(f"a preference is between two judges; under review: {', '.join(review.judges)}")
    votes, (first, second) = review.votes("better"), review.judges
    labels = {first: "left", second: "right"} | {answer: answer for answer in ANSWERS[2:]}
    shared = votes["id"].duplicated().any()
    table = feedback_preference(votes["value"].map(labels), groups=votes["id"] if shared else None)
    if shared:
        answers = votes.pivot(index="id", columns="annotator", values="value")
        alpha = agreement(answers, level="nominal", n_resamples=2_000).loc["alpha_nominal"]
        table.attrs["agreement"] = {name: float(alpha[name]) for name in ("estimate", "low", "high", "n")}
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
    votes, rows = review.votes("tags")["value"], []
    for judge in review.judges:
        for tag in review.tags:
            count = sum(tag in tags.get(judge, ()) for tags in votes)
            share, low, high = math.nan, math.nan, math.nan
            if n:
                share, (low, high) = count / n, stats.binomtest(count, n).proportion_ci(method="wilson")
            rows.append({"judge": judge, "tag": tag, "count": count, "n": n, "share": share, "low": low, "high": high})
    return pd.DataFrame(rows)


def save_page(review: Review, path: str | Path, *, title: str = "Review of judges' feedback") -> Path:
    """Write the listed items of a review into one self-contained HTML file.

    Args:
        review: what its annotator may see is written: in a blind review, unvoted items stay hidden.
        path: the file; replaced where it exists.
        title: the page's title.

    Returns:
        The path. The review's list and position stay as they are.
    """
    cases = []
    for case in review.cases():
        votes = f"Votes of {review.annotator}: {'; '.join(vote_lines(case.votes)) or 'none'}"
        body = case_html(case, pictures=pictures(case.item, IMAGE_SIZE), truth=True)
        cases.append(View(f'{body}<div class="vj-text" dir="auto">{escape(votes)}</div>').html)
    counts, template = review.progress, (resources.files("vjudge") / "assets" / "review.html").read_text("utf-8")
    text = Template(template).substitute(
        title=escape(title),
        counts=f"{counts.listed} of {counts.items} items, {counts.voted} of them with a vote of",
        annotator=escape(review.annotator),
        judges=escape(", ".join(review.judges)),
        blind=" (hidden until an item has its vote)" if review.blind else "",
        cases="".join(cases),
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text)
    return path


def export(items: datasets.Dataset, review: Review, folder: str | Path) -> list[Path]:
    """Write what the votes became.

    Args:
        items: the collection under review.
        folder: made where absent; files of these names are replaced.

    Returns:
        The paths: `votes.csv` and `votes.jsonl`, `collection` (a `datasets` folder, where anybody scored), `error_tags`
        and, where feedbacks were compared, `preferences` (.csv, .tex), and `review.html` of what is listed. In CSV
        files a text that a spreadsheet would take for a formula begins with "'".
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    votes = review.votes()
    paths = [folder / "votes.csv", folder / "votes.jsonl"]
    write_csv(votes, paths[0])
    votes.to_json(paths[1], orient="records", lines=True, force_ascii=False)
    if (votes["field"] == "score").any():
        paths.append(folder / "collection")
        collection(items, review).save_to_disk(paths[-1])
    people = f"{len(review.annotators)} annotator(s), {votes['id'].nunique()} items"
    caption = f"Error tags given to each judge's feedback; Wilson intervals; {people}."
    paths += plots.save_table(error_tags(review), "error_tags", caption=caption, folder=folder).values()
    if (votes["field"] == "better").any():
        shares = preference(review)
        blind = int(review.votes("better")["blind"].sum())
        caption = plots.caption(f"Which judge's feedback is better; {people}; {blind} votes blind", shares)
        table = shares.rename(index=shares.attrs["words"]).rename_axis("answer").reset_index()
        paths += plots.save_table(table, "preferences", caption=caption, folder=folder).values()
    return [*paths, save_page(review, folder / "review.html")]
