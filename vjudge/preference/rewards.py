"""Rewards: what a judge makes of candidates, the preference pairs that follow, and the files that trainers read.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd

from vjudge import calls, metrics
from vjudge.calls import ORDERS, POINTS
from vjudge.data import CollectionError, Problem, n_words, rows_of
from vjudge.images import fingerprint, open_image
from vjudge.metrics._tables import design_of, tabulate
from vjudge.records import NAN, unit_of
from vjudge.runs import replace_file

Rows = Sequence[Mapping[str, Any]]
TEXTS = ("instruction", "chosen", "rejected")
ANSWERED = {"responses", "times", "drawn", "true_scores"}
_SENTENCE_END = re.compile(r"\(\d+\)|[.!?。！？\n]+")


# A judge's rewards


def reward(
    judge: Any, candidates: Rows, *, by: str = "scores", out: str | Path | None = None, **options: Any
) -> pd.DataFrame:
    """Let a judge reward candidates.

    Args:
        judge: a `Judge`; for `by="pairs"` one that compares two responses.
        candidates: from `draw`; questions with fewer than two distinct responses are not put to the judge.
        by: "scores" grades each response, "pairs" compares every two of them in both orders.
        out, options: of `Judge.grade` or `Judge.compare`: an interrupted call goes on in `out`.

    Returns:
        As `rewards_of_scores` or `rewards_of_pairs`.

    Raises:
        ValueError: an unknown `by`; no question has two distinct responses.
        CollectionError, RunError: as `Judge.grade`.
    """
    if by not in ("scores", "pairs"):
        raise ValueError(f'by={by!r}: use "scores" or "pairs"')
    rows = [row for row in rows_of(candidates) if len(row["responses"]) > 1]
    if not rows:
        raise ValueError(f"none of {len(candidates)} questions has two distinct responses: raise the temperature")
    if by == "scores":
        return rewards_of_scores(rows, judge.grade(list(singles_of(rows)), out=out, **options))
    return rewards_of_pairs(rows, judge.compare(list(pairs_of(rows)), orders="both", out=out, **options))


def singles_of(candidates: Rows) -> Iterator[dict[str, Any]]:
    """Every candidate as a row to grade, named "id/i"; `gold` is its true score where `true_scores` has it."""
    for row in rows_of(candidates):
        for place, single in enumerate(calls.parts_of([row], "scores")):
            yield _own(row, single) | ({"gold": row["true_scores"][place]} if "true_scores" in row else {})


def pairs_of(candidates: Rows) -> Iterator[dict[str, Any]]:
    """Every two candidates as a row to compare, named "id/i-j"; `gold_a` and `gold_b` where `true_scores` has them."""
    for row in rows_of(candidates):
        truths = combinations(row.get("true_scores") or [None] * len(row["responses"]), 2)
        for (a, b), pair in zip(truths, calls.parts_of([row], "pairs"), strict=True):
            yield _own(row, pair) | ({} if a is None else {"gold_a": a, "gold_b": b})


def rewards_of_scores(candidates: Rows, graded: pd.DataFrame) -> pd.DataFrame:
    """Rewards from scores, of candidates and what `Judge.grade` gave on `singles_of(candidates)`.

    Returns:
        One row a candidate: id, candidate (its place), response, times, reward (the expected score, else the score;
        NaN where there is none), missing (verdicts without a score), words, group, and true_score where known.
    """
    scores = graded.set_index("id")["score"].astype(float)
    if "expected_score" in graded:
        scores = graded.set_index("id")["expected_score"].astype(float).fillna(scores)
    places = [(row, place) for row in rows_of(candidates) for place in range(len(row["responses"]))]
    values = [float(scores[f"{row['id']}/{place}"]) for row, place in places]
    rows = [_reward_row(*at, value, missing=int(math.isnan(value))) for at, value in zip(places, values, strict=True)]
    return pd.DataFrame(rows)


def rewards_of_pairs(candidates: Rows, compared: pd.DataFrame) -> pd.DataFrame:
    """Rewards from comparisons: r_i = sum_k a_ki - sum_l a_il over all ordered pairs.

    A response that was drawn several times counts as often among the others. One with a verdict missing in either order
    has no reward, since with one order alone the place would count again.

    Args:
        candidates: the rows that were compared.
        compared: from `Judge.compare` on `pairs_of(candidates)`; with one order only, r_i keeps the bias for a place.

    Returns:
        As `rewards_of_scores`, and flipped: the candidates against which the two orders chose differently, a list.
    """
    orders = [order for order in ORDERS if f"verdict_{order}" in compared]
    verdicts = {row["id"]: row for row in compared.to_dict("records")}
    rows = []
    for row in rows_of(candidates):
        n = len(row["responses"])
        times = list(row.get("times") or [1] * n)
        sums, missing, flipped = [0.0] * n, [0] * n, [list[int]() for _ in range(n)]
        for i, j in combinations(range(n), 2):
            pair = verdicts[f"{row['id']}/{i}-{j}"]
            points = [POINTS[pair[f"verdict_{order}"]] for order in orders if pair[f"verdict_{order}"] in POINTS]
            for here, there, sign in ((i, j, 1), (j, i, -1)):
                sums[here] += sign * times[there] * sum(points)
                missing[here] += len(orders) - len(points)
                flipped[here] += [there] if pair.get("consistent") is False else []
        for i in range(n):
            value = NAN if missing[i] else sums[i]
            rows.append(_reward_row(row, i, value, missing=missing[i], flipped=flipped[i]))
    return pd.DataFrame(rows)


def _own(row: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in ANSWERED} | {"group": unit_of(row)}


def _reward_row(row: Mapping[str, Any], place: int, value: float, **counts: Any) -> dict[str, Any]:
    response, times, truth = row["responses"][place], row.get("times"), row.get("true_scores")
    entry = {"id": str(row["id"]), "candidate": place, "response": response, "times": times[place] if times else 1}
    entry |= {"reward": value, **counts, "words": n_words(response), "group": unit_of(row)}
    return entry | ({} if truth is None else {"true_score": float(truth[place])})


# Preference pairs


def repetition(text: str) -> float:
    """The share of a text's sentences that it made before, in the same words; 0 for a text without sentences.

    Sentences end in a full stop, a question or exclamation mark, a line's end, or a number such as "(2)".

    >>> repetition("It is red. It is red."), repetition("It is red and round.")
    (0.5, 0.0)
    """
    sentences = [" ".join(part.casefold().split()) for part in _SENTENCE_END.split(text)]
    sentences = [sentence for sentence in sentences if sentence]
    return 1 - len(set(sentences)) / len(sentences) if sentences else 0.0


def make_pairs(
    candidates: Rows,
    rewards: pd.DataFrame,
    *,
    choose: str = "extremes",
    min_margin: float = 0.0,
    max_length_ratio: float = math.inf,
    consistent_only: bool = False,
    leave_out: Mapping[str, Callable[[str], Any]] | None = None,
) -> pd.DataFrame:
    """Choose the pairs that a policy learns from.

    Args:
        candidates, rewards: from `draw`, and from `reward` on them.
        choose: "extremes" pairs the best with the worst response of a question, as published (of several that tie, the
            one drawn first); "all" takes every two responses.
        min_margin: the difference of rewards must be larger; at 0, ties make no pair.
        max_length_ratio: the most words of the longer response for one of the shorter.
        consistent_only: whether to leave out pairs on which the two orders of a direct comparison disagree.
        leave_out: name -> a check of a response's text; where it holds, the response makes no pair, as in
            `{"repeats itself": repetition}` for a judge that overpays it.

    Returns:
        One row a pair: id ("question/i-j", the chosen one first), question, instruction, images, chosen, rejected,
        reward_chosen, reward_rejected, margin, group, and true_chosen, true_rejected where known. `attrs` counts
        questions, without_pair (questions), answers (drawn), failed (of them), distinct (of the others) and `left_out`:
        reason -> number of questions, responses or pairs, as the reason's first word says.

    Raises:
        ValueError: an unknown choice, or a filter on the order of rewards that were not made from pairs.
    """
    if choose not in ("extremes", "all"):
        raise ValueError(f'choose={choose!r}: use "extremes" or "all"')
    if consistent_only and "flipped" not in rewards:
        raise ValueError('order consistency is known of rewards by="pairs" alone: leave the filter out')
    candidates = list(rows_of(candidates))
    by_id = {id: part.to_dict("records") for id, part in rewards.groupby("id", sort=False)}
    left_out: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    for question in candidates:
        usable = []
        for entry in by_id.get(str(question["id"]), ()):
            mark = next((name for name, check in (leave_out or {}).items() if check(entry["response"])), None)
            if reason := mark or ("without a reward" if math.isnan(entry["reward"]) else None):
                left_out[f"response: {reason}"] += 1
            else:
                usable.append(entry)
        if len(usable) < 2:
            left_out["question: fewer than two distinct responses to choose from"] += 1
            continue
        ends = [max(usable, key=lambda entry: entry["reward"]), min(usable, key=lambda entry: entry["reward"])]
        for one, other in combinations(usable, 2) if choose == "all" else [ends]:
            better, worse = (one, other) if one["reward"] >= other["reward"] else (other, one)
            margin, (shorter, longer) = better["reward"] - worse["reward"], sorted((better["words"], worse["words"]))
            faults = {
                "a tie": margin == 0,
                f"margin not above {min_margin:g}": margin <= min_margin,
                f"one response more than {max_length_ratio:g} times as long": longer > max_length_ratio * shorter,
                "the orders disagree": consistent_only and worse["candidate"] in better["flipped"],
            }
            if reason := next((fault for fault, holds in faults.items() if holds), None):
                left_out[f"pair: {reason}"] += 1
                continue
            pair: dict[str, Any] = {"id": f"{question['id']}/{better['candidate']}-{worse['candidate']}"}
            pair |= {"question": str(question["id"]), "instruction": question["instruction"]}
            pair |= {"images": list(question.get("images") or ()), "margin": margin, "group": better["group"]}
            for name, entry in {"chosen": better, "rejected": worse}.items():
                pair |= {name: entry["response"], f"reward_{name}": entry["reward"]}
                pair |= {f"true_{name}": entry["true_score"]} if "true_score" in entry else {}
            rows.append(pair)
    frame = pd.DataFrame(rows) if rows else pd.DataFrame(columns=["id", "question", "images", *TEXTS])
    answers = sum(row.get("drawn", len(row["responses"])) for row in candidates)
    frame.attrs = {
        "questions": len(candidates),
        "without_pair": len(candidates) - frame["question"].nunique(),
        "answers": answers,
        "failed": answers - sum(sum(row.get("times") or [1] * len(row["responses"])) for row in candidates),
        "distinct": sum(len(row["responses"]) for row in candidates),
        "left_out": dict(left_out),
    }
    return frame


def true_order(pairs: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """How often the chosen response is truly the better one, of pairs with true_chosen and true_rejected.

    Returns:
        As `metrics.pairwise_accuracy`, which takes the options: in with_ties a pair of truly equal responses is an
        error, without_ties leaves those out. Intervals count groups.

    Raises:
        ValueError: the pairs have no true scores.
    """
    if "true_chosen" not in pairs:
        raise ValueError("the pairs have no true scores: give the candidates `true_scores` before rewards are made")
    gap = pairs["true_chosen"] - pairs["true_rejected"]
    truth = ["a" if value > 0 else "b" if value < 0 else "tie" if value == 0 else None for value in gap]
    return metrics.pairwise_accuracy(["a"] * len(pairs), truth, groups=list(pairs["group"]), **options)


# Best of n


def best_of_n(rewards: pd.DataFrame, *, value: str = "true_score", **options: Any) -> pd.DataFrame:
    """The exact mean value of the answer that the reward prefers among n, over all ways to take n of a question's own.

    Args:
        rewards: from `reward`; answers with equal rewards are preferred as often.
        value: the column of what the preferred answer is worth: "true_score", a second judge's score, or "reward".
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        Index n, from 1 to the fewest answers of any question; columns estimate, low, high, n (questions), missing
        (questions without a reward or a value), best_possible (the value itself choosing) and share_of_possible (the
        gain over n = 1 as a share of the possible gain).

    Raises:
        ValueError: the column is not there.

    Source: LLaVA-Critic (arXiv 2410.02712) chooses the best of five so.
    """
    if value not in rewards:
        raise ValueError(f"rewards have no column {value!r}: add the value of every answer")
    curves, limits, groups = [], [], []
    questions = rewards.groupby("id", sort=False)
    for _, part in questions:
        if not part[["reward", value]].isna().any(axis=None):
            preferred, worth = (np.repeat(part[name].to_numpy(float), part["times"]) for name in ("reward", value))
            curves.append(expected_best(preferred, worth))
            limits.append(expected_best(worth, worth))
            groups.append(part["group"].iloc[0])
    fewest, left_out = min(map(len, curves), default=0), len(questions) - len(curves)
    if not fewest:
        raise ValueError(f"no question has a reward and a {value} for every answer ({left_out} left out)")
    chosen, possible = (np.array([curve[:fewest] for curve in side]) for side in (curves, limits))
    frame = tabulate(
        lambda weights: chosen.T @ weights / weights.sum(axis=0),
        list(range(1, fewest + 1)),
        design_of(np.arange(len(chosen)), groups, np.ones(len(chosen), dtype=bool)),
        n=len(chosen),
        missing=left_out,
        method="t",
        unit="questions",
        index="n",
        **{"confidence": 0.95, "n_resamples": 10_000, "seed": 0, **options},
    )
    frame["best_possible"] = possible.mean(axis=0)
    with np.errstate(invalid="ignore"):
        gains = [column - column.iloc[0] for column in (frame["estimate"], frame["best_possible"])]
        frame["share_of_possible"] = gains[0] / gains[1]
    return frame


def expected_best(rewards: Any, values: Any) -> Any:
    """The mean value of the answer with the highest reward among n, over all choices of n answers, n = 1 to all."""
    k = len(rewards)
    levels, level = np.unique(rewards, return_inverse=True)
    mean = np.array([values[level == place].mean() for place in range(len(levels))])
    upto = np.cumsum(np.bincount(level, minlength=len(levels)))
    ways = np.array([[math.comb(int(count), n) for count in [0, *upto]] for n in range(1, k + 1)], dtype=float)
    return np.diff(ways, axis=1) @ mean / ways[:, -1]


# Files


def checked(pairs: Any, *, spells: str | None = None) -> list[dict[str, Any]]:
    """Pairs as rows, or an error that names every one without a text, or with an instruction that spells a mark."""
    rows, problems = rows_of(pairs), []
    for index, row in enumerate(rows):
        for name in TEXTS:
            if not isinstance(text := row.get(name), str) or not text.strip():
                problems.append((index, name, "is missing or blank", "fill it in or leave the pair out"))
            elif name == "instruction" and spells and spells in text:
                problems.append((index, name, f"spells {spells}", "its reader deletes it: leave the pair out"))
    if problems:
        named = [Problem(index, str(rows[index].get("id")), *rest) for index, *rest in problems]
        raise CollectionError(f"{len(named)} texts of {len(rows)} pairs can't be used:", named)
    return [{**row, "images": list(row.get("images") or ())} for row in rows]


def to_trl(pairs: Any) -> datasets.Dataset:
    """Pairs as TRL's DPOTrainer reads them, ready for `save_to_disk` or the hub.

    Args:
        pairs: from `make_pairs`, or rows with its columns id, instruction, images, chosen and rejected.

    Returns:
        id; prompt, chosen and rejected as messages, an image's place before the instruction; images. TRL's own
        processing reads control tokens in such texts; `train` encodes them as plain text.

    Raises:
        CollectionError: every pair without a text.

    Source: huggingface/trl docs/source/dataset_formats.md, preference and vision data sets.
    """

    def turn(role: str, text: str, n_images: int = 0) -> list[dict[str, Any]]:
        return [{"role": role, "content": [*[{"type": "image"}] * n_images, {"type": "text", "text": text}]}]

    rows = []
    for row in checked(pairs):
        answers = {name: turn("assistant", row[name]) for name in ("chosen", "rejected")}
        prompt = turn("user", row["instruction"], len(row["images"]))
        rows.append({"id": str(row["id"]), "prompt": prompt, **answers, "images": row["images"]})
    text = datasets.Value("string")
    messages = datasets.List({"role": text, "content": datasets.List({"type": text, "text": text})})
    features = {"id": text, **dict.fromkeys(("prompt", "chosen", "rejected"), messages)}
    features["images"] = datasets.List(datasets.Image())
    return datasets.Dataset.from_list(rows, features=datasets.Features(features))


def write_llava_next(pairs: Any, folder: str | Path) -> Path:
    """Write pairs as LLaVA-NeXT's DPO code reads them: `pairs.json`, and the images in `images/`.

    Args:
        pairs: as for `to_trl`.
        folder: made where it is not there; `--data_path FOLDER/pairs.json --image_folder FOLDER/images`.

    Returns:
        The path of `pairs.json`: a list of {id, image, prompt, chosen, rejected}. `image` is a file named by its
        pixels, a list of them where there are several, and absent without one.

    Raises:
        CollectionError: every pair without a text, or whose instruction spells "<image>", which that code would delete.

    Source: LLaVA-VL/LLaVA-NeXT llava/train/train_dpo.py (DPODataset), which puts the image's mark before the prompt.
    """
    path, images = Path(folder) / "pairs.json", Path(folder) / "images"
    rows, entries = checked(pairs, spells="<image>"), []
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
