"""What votes become: human scores in a collection, preferences between judges, error tags, and files of all three."""

from __future__ import annotations

import math
from pathlib import Path

import datasets
import pandas as pd
from scipy import stats

from vjudge import plots
from vjudge.metrics import agreement, feedback_preference
from vjudge.review.review import Review


def collection(items: datasets.Dataset, review: Review) -> datasets.Dataset:
    """The items that somebody scored, with the scores as `human_scores`.

    Args:
        items: the collection under review.
        review: its votes.

    Returns:
        The collection's rows and columns, in its order, and a column `annotators`: `human_scores[i]` is the score of
        `annotators[i]`, NaN where that annotator gave none. Scores that the collection held before are replaced. Where
        `next_best` chose some of the items, a column `weight` says how many items each stands for (`Review.weights`).

    Raises:
        ValueError: nobody scored an item yet.
    """
    scores = review.human_scores()
    scored = scores.notna().any(axis=1).to_numpy()
    if not scored.any():
        raise ValueError("no item has a score yet: vote first")
    kept = items.select([index for index, has in enumerate(scored) if has])
    number = datasets.Value("float64")
    columns = {
        "human_scores": (scores[scored].to_numpy().tolist(), datasets.Sequence(number)),
        "annotators": ([list(scores.columns)] * len(kept), datasets.Sequence(datasets.Value("string"))),
    }
    if (weights := review.weights()) is not None:
        columns["weight"] = (weights[scored].tolist(), number)
    for name, (values, kind) in columns.items():
        kept = kept.remove_columns([name]) if name in kept.column_names else kept
        kept = kept.add_column(name, values, feature=kind)
    order = [*items.column_names, *(name for name in columns if name not in items.column_names)]
    return kept.select_columns(order)


def preferences(review: Review) -> pd.DataFrame:
    """Which of two judges' feedback people found better.

    Returns:
        One row a vote: `id`, `annotator`, `answer` (a judge's name, "both good" or "both bad"), `blind`.
    """
    votes = review.votes()
    found = votes[votes["field"] == "better"].rename(columns={"value": "answer"})
    return found[["id", "annotator", "answer", "blind"]].reset_index(drop=True)


def preference(review: Review, *, blind: bool | None = None) -> pd.DataFrame:
    """Whose feedback people found better, as shares with intervals.

    Args:
        blind: blind votes alone, others alone, or all.

    Returns:
        As `vjudge.metrics.feedback_preference`; "left" is the first judge of the review and "right" the second,
        wherever they stood, and `attrs["words"]` has each row in words with their names; where several people voted on
        one item, `attrs["agreement"]` has Krippendorff's nominal alpha, its bounds and the number of such items.
        `vjudge.plots.preference_bars` draws it.
    """
    votes = preferences(review)
    if blind is not None:
        votes = votes[votes["blind"] == blind]
    first, second = review.judges
    labels = {first: "left", second: "right", "both good": "both good", "both bad": "both bad"}
    shared = votes["id"].duplicated().any()
    table = feedback_preference(votes["answer"], labels=labels, groups=votes["id"] if shared else None)
    if shared:
        answers = votes.pivot_table(index="id", columns="annotator", values="answer", aggfunc="last")
        alpha = agreement(answers, level="nominal", n_resamples=2_000).loc["alpha_nominal"]
        table.attrs["agreement"] = {name: float(alpha[name]) for name in ("estimate", "low", "high", "n")}
    table.attrs["words"] = {
        "left": f"{first} is better",
        "right": f"{second} is better",
        "both_good": "both are good",
        "both_bad": "both are bad",
        "left_as_good_or_better": f"{first} as good or better",
        "right_as_good_or_better": f"{second} as good or better",
        "left_of_decided": f"{first} of decided",
        "left_ties_half": f"{first}, ties half",
    }
    return table


def error_tags(review: Review, *, confidence: float = 0.95) -> pd.DataFrame:
    """How often each error tag was given to each judge's feedback.

    Args:
        confidence: coverage of the intervals.

    Returns:
        One row a judge and tag: `judge`, `tag`, `count`, `n` (reviews: pairs of an annotator and an item with any
        vote), `share` in [0, 1] with `low` and `high` (Wilson intervals; reviews are taken as independent).
    """
    votes = review.votes()
    n = len(votes[["id", "annotator"]].drop_duplicates())
    tagged = votes.loc[votes["field"] == "tags", "value"]
    rows = []
    for judge in review.judges:
        for tag in review.tags:
            count = sum(tag in value.get(judge, ()) for value in tagged)
            low = high = math.nan
            if n:
                low, high = stats.binomtest(count, n).proportion_ci(confidence_level=confidence, method="wilson")
            rows.append(
                {"judge": judge, "tag": tag, "count": count, "n": n, "share": count / n if n else math.nan}
                | {"low": low, "high": high}
            )
    return pd.DataFrame(rows)


def export(items: datasets.Dataset, review: Review, folder: str | Path) -> list[Path]:
    """Write what the votes became.

    Args:
        items: the collection under review.
        folder: made where absent; files of these names are replaced.

    Returns:
        The paths: `votes.csv` and `votes.jsonl` (every vote), `collection` (a `datasets` folder with `human_scores`,
        where anybody scored), `error_tags.csv` and `.tex`, and where feedbacks were compared `preferences.csv` and
        `.tex` and the figure `preference_bars`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    votes = review.votes()
    made = [folder / "votes.csv", folder / "votes.jsonl"]
    votes.to_csv(made[0], index=False)
    votes.to_json(made[1], orient="records", lines=True, force_ascii=False)
    if (votes["field"] == "score").any():
        made.append(folder / "collection")
        collection(items, review).save_to_disk(made[-1])
    people = f"{len(review.annotators)} annotator(s), {votes['id'].nunique()} items"
    caption = f"Error tags given to each judge's feedback; Wilson intervals; {people}."
    made += plots.save_table(error_tags(review), "error_tags", caption=caption, folder=folder).values()
    if (votes["field"] == "better").any():
        made += _export_preference(review, folder, people)
    return made


def _export_preference(review: Review, folder: Path, people: str) -> list[Path]:
    """The four answers as a table and as bars."""
    table = preference(review)
    words = table.attrs["words"]
    blind = int(preferences(review)["blind"].sum())
    caption = plots.caption(f"Which judge's feedback is better; {people}; {blind} votes blind", table)
    rows = table.rename(index=words).rename_axis("answer").reset_index()
    made = [*plots.save_table(rows, "preferences", caption=caption, folder=folder).values()]
    fig = plots.preference_bars({tuple(review.judges): table})
    return made + [*plots.save_figure(fig, "preference_bars", caption=caption, data=rows, folder=folder).values()]
