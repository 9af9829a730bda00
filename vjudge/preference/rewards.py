"""Rewards: what a judge makes of candidates, the preference pairs that follow, best of n, and a file for trainers.

With a_ij the points of the response shown second, j, against the one shown first, i (1, -1, or 0 for a tie), the
published reward is r_i = sum_k a_ki - sum_l a_il. A judge that adds c to every a_ij, because it likes one of the
places, adds (K - 1) c - (K - 1) c = 0 to it: what depends on the order alone cancels.

Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning; the code that makes the a_ij was not published
(LLaVA-VL/LLaVA-NeXT#372, #384), so the sign is stated here.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.calls import ORDERS, POINTS, check_rows, parts_of
from vjudge.data import check_pictures, n_words, rows_of
from vjudge.images import fingerprint, open_image
from vjudge.metrics._tables import design_of, tabulate
from vjudge.records import NAN, unit_of
from vjudge.runs import replace_file

Rows = Sequence[Mapping[str, Any]]


def reward(judge: Any, candidates: Rows, *, by: str = "scores", **options: Any) -> pd.DataFrame:
    """Let a judge reward candidates, by a score of each or by comparing every two of a question in both orders.

    Args:
        judge: a `Judge`; for `by="pairs"` one that compares two responses.
        candidates: from `draw`; questions with fewer than two distinct responses are not put to the judge.
        by, options: "scores" or "pairs", and those of `Judge.grade` or `Judge.compare`, its errors too.

    Returns:
        One row a candidate: id, candidate (its place), response, times, words, group, true_score (NaN where the
        candidates have no `true_scores`) and reward, NaN where a verdict is missing. By scores it is the expected score
        where there is one, else the score; by pairs r_i, in which a response drawn several times counts as often.
    """
    if by not in ("scores", "pairs"):
        raise ValueError(f'by={by!r}: use "scores" or "pairs"')
    golds, places, parts = ("gold",) if by == "scores" else ("gold_a", "gold_b"), [], []
    for row in rows_of(candidates):
        texts, group = row["responses"], unit_of(row)
        truths, times = row.get("true_scores") or [NAN] * len(texts), row.get("times") or [1] * len(texts)
        if len(texts) > 1:
            for place, (text, *own) in enumerate(zip(texts, times, map(float, truths), strict=True)):
                places.append((str(row["id"]), place, text, *own, n_words(text), group))
            for part, known in zip(parts_of([row], by), combinations(truths, len(golds)), strict=True):
                parts.append({**part, "group": group, **dict(zip(golds, known, strict=True))})
    if not parts:
        raise ValueError(f"none of {len(candidates)} questions has two distinct responses: raise the temperature")
    table = pd.DataFrame(places, columns=["id", "candidate", "response", "times", "true_score", "words", "group"])
    if by == "scores":
        graded = judge.grade(parts, **options)
        scores = graded[[name for name in ("expected_score", "score") if name in graded]].astype(float)
        return table.assign(reward=scores.bfill(axis=1).iloc[:, 0].to_numpy())
    compared = judge.compare(parts, **options)
    verdicts = compared[[f"verdict_{order}" for order in ORDERS if f"verdict_{order}" in compared]]
    points = verdicts.map(lambda verdict: POINTS.get(verdict, NAN)).sum(axis=1, skipna=False).to_numpy()
    duels = [duel for _, part in table.groupby("id", sort=False) for duel in combinations(part.index, 2)]
    (a, b), times, rewards = np.transpose(duels), table["times"].to_numpy(), np.zeros(len(table))
    np.add.at(rewards, a, times[b] * points)
    np.add.at(rewards, b, -times[a] * points)
    return table.assign(reward=rewards)


def repetition(text: str) -> float:
    """The share of a text's sentences that it made before, in the same words; 0 for a text without sentences.

    Sentences end in a full stop, a question or exclamation mark, a line's end, or a number such as "(2)".

    >>> repetition("It is red. It is red."), repetition("It is red and round.")
    (0.5, 0.0)
    """
    parts = re.split(r"\(\d+\)|[.!?。！？\n]+", text)
    sentences = [" ".join(part.casefold().split()) for part in parts if part.strip()]
    return 1 - len(set(sentences)) / len(sentences) if sentences else 0.0


def make_pairs(
    candidates: Rows,
    rewards: pd.DataFrame,
    *,
    choose: str = "extremes",
    min_margin: float = 0.0,
    max_length_ratio: float = math.inf,
    leave_out: Mapping[str, Callable[[str], Any]] | None = None,
) -> pd.DataFrame:
    """Choose the pairs that a policy learns from.

    Args:
        candidates, rewards: from `draw`, and from `reward` on them.
        choose: "extremes" pairs the best with the worst response of a question, as published (of several that tie, the
            one drawn first); "all" takes every two responses.
        min_margin: the difference of rewards must be larger; at 0, ties make no pair.
        max_length_ratio: the most words of the longer response for one of the shorter.
        leave_out: name -> a check of a response's text; where it holds, the response makes no pair, as in
            `{"repeats itself": repetition}` for a judge that overpays it.

    Returns:
        One row a pair: id ("question/i-j", the chosen one first), question, instruction, images, margin, group, chosen,
        rejected, and of both reward_chosen, true_chosen and so on. `attrs` counts questions, without_pair (questions)
        and `left_out`: reason -> number of questions, responses or pairs, as the reason's first word says.
    """
    if choose not in ("extremes", "all"):
        raise ValueError(f'choose={choose!r}: use "extremes" or "all"')
    questions = {str(row["id"]): row for row in rows_of(candidates)}
    checks = {f"response: {name}": check for name, check in (leave_out or {}).items()}
    marks = [
        next((name for name, check in checks.items() if check(text)), "response: without a reward" if none else "")
        for text, none in zip(rewards["response"], rewards["reward"].isna(), strict=True)
    ]
    usable, duels, n_sound = rewards[[not mark for mark in marks]].reset_index(drop=True), [], 0
    for _, part in usable.groupby("id", sort=False):
        values, n_sound = part["reward"], n_sound + (len(part) > 1)
        if choose == "all":
            duels += [sorted(duel, key=values.get, reverse=True) for duel in combinations(part.index, 2)]
        elif len(part) > 1:
            duels.append([values.idxmax(), values.idxmin()])
    better, worse = (usable.loc[[duel[side] for duel in duels]].reset_index(drop=True) for side in (0, 1))
    margin, words = better["reward"] - worse["reward"], [better["words"], worse["words"]]
    unequal = np.maximum(*words) > max_length_ratio * np.minimum(*words)
    faults = {"pair: a tie": margin == 0, f"pair: margin not above {min_margin:g}": margin <= min_margin}
    faults |= {f"pair: one response more than {max_length_ratio:g} times as long": unequal}
    reasons = np.select(list(faults.values()), list(faults), default="")
    own = [questions[id] for id in better["id"]]
    places = zip(better["id"], better["candidate"], worse["candidate"], strict=True)
    columns = {"id": [f"{id}/{i}-{j}" for id, i, j in places], "question": better["id"]}
    columns |= {"instruction": [row["instruction"] for row in own], "margin": margin, "group": better["group"]}
    columns |= {"images": [list(row.get("images") or ()) for row in own]}
    for side, table in {"chosen": better, "rejected": worse}.items():
        columns |= {side: table["response"], f"reward_{side}": table["reward"], f"true_{side}": table["true_score"]}
    frame = pd.DataFrame(columns)[reasons == ""].reset_index(drop=True)
    counts = Counter({"question: fewer than two distinct responses to choose from": len(questions) - n_sound})
    frame.attrs = {"questions": len(questions), "without_pair": len(questions) - frame["question"].nunique()}
    frame.attrs["left_out"] = dict(counts + Counter(filter(None, [*marks, *reasons.tolist()])))
    return frame


def best_of_n(rewards: pd.DataFrame, *, value: str = "true_score", **options: Any) -> pd.DataFrame:
    """The exact mean value of the answer that the reward prefers among n, over all ways to take n of a question's own.

    Args:
        rewards: from `reward`; answers with equal rewards are preferred as often.
        value: the column of what the preferred answer is worth: "true_score", a second judge's score, or "reward".
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        A row for each n, 1 to the fewest answers of any question: estimate, low, high, n (questions), missing (those
        without a reward or a value), best_possible (the value itself choosing) and share_of_possible, of its gain.
    """
    curves, groups = [], []
    for _, part in rewards.groupby("id", sort=False):
        preferred, worth = (np.repeat(part[name].to_numpy(float), part["times"]) for name in ("reward", value))
        if not np.isnan([preferred, worth]).any():
            curves.append((expected_best(preferred, worth), expected_best(worth, worth)))
            groups.append(part["group"].iloc[0])
    missing = rewards["id"].nunique() - len(curves)
    if not curves:
        raise ValueError(f"no question has a reward and a {value} for every answer ({missing} left out)")
    fewest = min(len(chosen) for chosen, _ in curves)
    chosen, possible = (np.array([curve[side][:fewest] for curve in curves]) for side in (0, 1))
    frame = tabulate(
        lambda weights: chosen.T @ weights / weights.sum(axis=0),
        list(range(1, fewest + 1)),
        design_of(np.arange(len(chosen)), groups, np.ones(len(chosen), dtype=bool)),
        missing=missing,
        unit="questions",
        index="n",
        **options,
    )
    frame["best_possible"] = possible.mean(axis=0)
    gains = frame[["estimate", "best_possible"]] - frame[["estimate", "best_possible"]].iloc[0]
    return frame.assign(share_of_possible=gains["estimate"] / gains["best_possible"])


def expected_best(rewards: Any, values: Any) -> Any:
    """The mean value of the answer with the highest reward among n, over all choices of n answers, n = 1 to all."""
    levels, level = np.unique(rewards, return_inverse=True)
    means = np.array([values[level == place].mean() for place in range(len(levels))])
    upto = [0, *np.cumsum(np.bincount(level)).tolist()]
    ways = np.array([[math.comb(count, n) for count in upto] for n in range(1, len(rewards) + 1)], dtype=float)
    return np.diff(ways, axis=1) @ means / ways[:, -1]


def checked(pairs: Any) -> list[dict[str, Any]]:
    """Pairs as rows, or a CollectionError that names every one without a text, and pairs without any picture column."""
    rows = rows_of(pairs)
    check_pictures(rows)
    for name in ("instruction", "chosen", "rejected"):
        sound = [isinstance(row.get(name), str) and row[name].strip() != "" for row in rows]
        check_rows(rows, name, sound, "is missing or blank", "fill it in or leave the pair out")
    return [{**row, "images": list(row.get("images") or ())} for row in rows]


def write_llava_next(pairs: Any, folder: str | Path) -> Path:
    """Write pairs as LLaVA-NeXT's DPO code reads them: `pairs.json`, and the images in `images/`.

    Its code takes `--data_path FOLDER/pairs.json --image_folder FOLDER/images`. The former, whose path is returned,
    lists {id, image, prompt, chosen, rejected}; `image` is a file named by its pixels, a list of them where there are
    several, and absent without one. CollectionError for pairs, from `make_pairs` or rows with its columns, without a
    text or whose instruction spells "<image>", which that code would delete.

    Source: LLaVA-VL/LLaVA-NeXT llava/train/train_dpo.py (DPODataset), which puts the image's mark before the prompt.
    """
    path, images = Path(folder) / "pairs.json", Path(folder) / "images"
    rows, entries = checked(pairs), []
    sound = ["<image>" not in row["instruction"] for row in rows]
    check_rows(rows, "instruction", sound, "spells <image>", "its reader deletes it: leave the pair out")
    images.mkdir(parents=True, exist_ok=True)
    for row in rows:
        names = []
        for source in row["images"]:
            image = open_image(source)
            names.append(f"{fingerprint(image)[:24]}.png")
            image.save(images / names[-1])
        shown = {"image": names[0] if len(names) == 1 else names} if names else {}
        texts = {"prompt": row["instruction"], "chosen": row["chosen"], "rejected": row["rejected"]}
        entries.append({"id": str(row["id"]), **shown, **texts})
    replace_file(path, json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    return path
