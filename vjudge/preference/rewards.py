"""A policy's candidates, a judge's rewards, the preference pairs that follow, best of n; and, for Scenes, the truth.

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
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vjudge.asking import ORDERS, Images, Question, ask_faults
from vjudge.comparing import POINTS, check_rows, parts_of
from vjudge.data import check_pictures, n_words, rows_of, scenes
from vjudge.data.scenes import ASPECTS, COLOURS, N_CLAIMS, SHAPES
from vjudge.engines.engine import Answer, Ask
from vjudge.grading import collect
from vjudge.images import Pictures, fingerprint, open_image
from vjudge.judge import Judge
from vjudge.metrics.tables import design_of, tabulate
from vjudge.prompts import Prompt
from vjudge.records import NAN, unit_of
from vjudge.runs import replace_file

DRAWS = {"samples": 5, "temperature": 0.7, "top_p": 0.9}
"""How `draw` draws unless told otherwise: as LLaVA-Critic (arXiv 2410.02712), section on preference learning."""
SAID: dict[str, Any] = {"count": scenes.NUMBERS, "colour": COLOURS, "size": scenes.SIZES}
SAID |= {
    "shape": SHAPES,
    "position": SHAPES,
}  # in claims of an aspect; in the others', "present" or "absent"


def prompt_of(policy: Judge, question: Mapping[str, Any]) -> Prompt:
    """What a policy reads for a question: its images, if it sees any, then its instruction as plain text."""
    row, template = rows_of([question])[0], policy.template
    return template.conversation.wrap(
        row["instruction"], len(row.get("images") or ()) * template.sees_images
    )


def respond(
    policy: Judge,
    questions: Any,
    *,
    samples: int = 1,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    batch_size: int | str = "auto",
    max_new_tokens: int = 1024,
    out: str | Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Have a policy, any model that `load_judge` loads, answer the instruction of every question about its images,
    without a judge's wording around it; options, and what is raised, are as of `Judge.grade`.

    Returns:
        One row an answer, in the collection's order: id, policy, sample (from 0), response (None where there is none),
        failure (None or the reason; a blank answer is one), finished (whether the policy ended the answer itself),
        n_prompt_tokens, n_new_tokens, seconds, group. What failed or was cut off is said on one line.

    >>> import vjudge as vj
    >>> (question,) = vj.load_collection("scenes", split="test", limit=1)
    >>> policy = vj.load_judge("tiny-policy", device="cpu")
    >>> vj.preference.respond(policy, [question], max_new_tokens=4, progress=False)["n_new_tokens"].tolist()
    [4]
    """
    decoding: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": top_p,
    }
    ask, rows = Ask(batch_size=batch_size, **decoding), rows_of(questions)
    if faults := ask_faults(ask, samples=samples, seed=seed):
        raise ValueError("; ".join(faults))
    sound = [
        isinstance(row.get("instruction"), str) and row["instruction"].strip() != "" for row in rows
    ]
    check_rows(rows, "instruction", sound, "is missing or blank", "fill it in or leave the row out")
    if policy.template.sees_images:
        check_pictures(rows)
    questions = []
    for place, row in enumerate(rows):
        prompt = prompt_of(policy, row)
        for sample in range(samples):
            questions.append(Question(place, str(row["id"]), prompt, sample))
    about: dict[str, Any] = {
        "policy": policy.name,
        "conversation": policy.template.conversation.name,
        "note": {},
    }
    about["decoding"] = {**decoding, "samples": samples, "seed": seed}
    places = [one.row for one in questions] if policy.template.sees_images else []
    images = Images(rows, places, Pictures())
    ask = replace(ask, seeds=[question.seed(seed) for question in questions])

    def record(answer: Answer, question: Question) -> dict[str, Any]:
        text = answer.text.strip()
        failure = answer.failure or (None if text else "the answer is blank")
        own = {
            name: getattr(answer, name) for name in ("n_prompt_tokens", "n_new_tokens", "seconds")
        }
        return {
            "response": None if failure else text,
            "failure": failure,
            **own,
            "finished": answer.finish == "stop",
        }

    answers = collect(
        policy.engine,
        questions,
        images,
        ask,
        record,
        about,
        unit="answer",
        out=out,
        progress=progress,
    )
    work = {"finished": bool, "n_prompt_tokens": int, "n_new_tokens": int, "seconds": float}
    frame = pd.DataFrame(
        answers, columns=["id", "policy", "sample", "response", "failure", *work], dtype=object
    )
    frame = frame.astype({"sample": int, **work}).assign(policy=policy.name)
    frame["group"] = [unit_of(row) for row in rows for _ in range(samples)]
    cut_off = frame["failure"].isna() & ~frame["finished"]
    if remarks := Counter(frame["failure"].dropna()) + Counter(
        {"cut off by a limit": int(cut_off.sum())}
    ):
        listed = ", ".join(f"{n} x {remark}" for remark, n in remarks.most_common())
        print(f"of {len(frame)} answers {listed}", file=sys.stderr)
    return frame


def draw(policy: Judge, questions: Any, **options: Any) -> list[dict[str, Any]]:
    """Draw candidates, several answers of a policy to each question, by `DRAWS` and the options of `respond`: a row a
    question with its own columns, such as a rubric, without those of earlier responses; `responses` (distinct, in the
    order drawn) and `times` (how often each was drawn)."""
    options, earlier = (
        DRAWS | options,
        ("response", "gold", "feedback", "human_scores", "true_scores", "ranks"),
    )
    answers, rows = respond(policy, questions, **options)["response"], []
    for place, question in enumerate(rows_of(questions)):
        counts = Counter(
            answers[place * options["samples"] : (place + 1) * options["samples"]].dropna()
        )
        own = {name: value for name, value in question.items() if name not in earlier}
        rows.append({**own, "responses": list(counts), "times": list(counts.values())})
    return rows


def reward(
    judge: Any, candidates: Sequence[Mapping[str, Any]], *, by: str = "scores", **options: Any
) -> pd.DataFrame:
    """Let a judge reward candidates, by a score of each or by comparing every two of a question in both orders.

    Args:
        judge: a `Judge`; for `by="pairs"` one that compares two responses.
        candidates: from `draw`; questions with fewer than two distinct responses are not put to the judge.
        by, options: "scores" or "pairs", and those of `Judge.grade` or `Judge.compare`, its errors too.

    Returns:
        One row a candidate: id, candidate (its place), response, times, true_score (NaN where the candidates have no
        `true_scores`), words, group and reward, NaN where a verdict is missing. By scores it is the expected score
        where there is one, else the score; by pairs r_i, in which a response drawn several times counts as often.
    """
    if by not in ("scores", "pairs"):
        raise ValueError(f'by={by!r}: use "scores" or "pairs"')
    rows, cells = [row for row in rows_of(candidates) if len(row["responses"]) > 1], []
    if not rows:
        raise ValueError(
            f"none of {len(candidates)} questions has two distinct responses: raise the temperature"
        )
    for row in rows:
        texts, n = row["responses"], len(row["responses"])
        columns = texts, row.get("times") or [1] * n, row.get("true_scores") or [NAN] * n
        for place, (text, times, truth) in enumerate(zip(*columns, strict=True)):
            cells.append(
                (str(row["id"]), place, text, times, float(truth), n_words(text), unit_of(row))
            )
    table = pd.DataFrame(
        cells, columns=["id", "candidate", "response", "times", "true_score", "words", "group"]
    )
    parts = list(parts_of(rows, by))
    if by == "scores":
        graded = judge.grade(parts, **options)
        scores = graded.get("expected_score", graded["score"]).fillna(graded["score"])
        return table.assign(reward=scores.to_numpy(dtype=float))
    duels = [
        duel for _, part in table.groupby("id", sort=False) for duel in combinations(part.index, 2)
    ]
    (a, b), times, truths = (
        np.transpose(duels),
        table["times"].to_numpy(),
        table["true_score"].to_numpy(),
    )
    # A judge is not shown gold_a and gold_b; a simulated one is told so.
    parts = [
        part | {"gold_a": truths[i], "gold_b": truths[j]}
        for part, i, j in zip(parts, a, b, strict=True)
    ]
    run = judge.compare(parts, **options)
    verdicts = run[[f"verdict_{order}" for order in ORDERS if f"verdict_{order}" in run]]
    points = (
        verdicts.map(lambda verdict: POINTS.get(verdict, NAN)).sum(axis=1, skipna=False).to_numpy()
    )
    rewards = np.zeros(len(table))
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
    candidates: Sequence[Mapping[str, Any]],
    rewards: pd.DataFrame,
    *,
    every: bool = False,
    min_margin: float = 0.0,
    max_length_ratio: float = math.inf,
    leave_out: Callable[[str], Any] | None = None,
) -> pd.DataFrame:
    """Choose the pairs that a policy learns from: the best with the worst response of a question, as published.

    Args:
        candidates, rewards: from `draw`, and from `reward` on them; of responses that tie the first drawn is taken.
        every: whether to take every two responses instead.
        min_margin: the difference of rewards must be larger; ties never make a pair.
        max_length_ratio: the most words of the longer response for one of the shorter.
        leave_out: a check of a response's text, such as `repetition`; where it holds, the response makes no pair.

    Returns:
        One row a pair: id ("question/i-j", the chosen one first), question, instruction, images, margin, group, chosen,
        rejected, and of both reward_chosen, true_chosen and so on. `attrs` counts questions, without_pair (questions)
        and `left_out`: reason -> number of questions, responses or pairs, as the reason's first word says.
    """
    questions = {str(row["id"]): row for row in rows_of(candidates)}
    unfit = rewards["response"].map(leave_out or (lambda text: False)).astype(bool)
    blank = rewards["reward"].isna() & ~unfit
    left_out, n_sound, rows = Counter[str](), 0, []
    left_out["response: left out by its text"] = int(unfit.sum())
    left_out["response: without a reward"] = int(blank.sum())
    for id, part in rewards[~unfit & ~blank].groupby("id", sort=False):
        answers, question = part.to_dict("records"), questions[id]
        n_sound += len(answers) > 1
        duels = combinations(answers, 2) if every else [answers] if len(answers) > 1 else []
        for duel in duels:
            better, worse = (pick(duel, key=itemgetter("reward")) for pick in (max, min))
            margin, words = (
                better["reward"] - worse["reward"],
                sorted([better["words"], worse["words"]]),
            )
            if margin <= max(min_margin, 0):
                left_out[
                    "pair: a tie" if margin == 0 else f"pair: margin not above {min_margin:g}"
                ] += 1
            elif words[1] > max_length_ratio * words[0]:
                left_out[f"pair: one response more than {max_length_ratio:g} times as long"] += 1
            else:
                name, images = (
                    f"{id}/{better['candidate']}-{worse['candidate']}",
                    list(question.get("images") or ()),
                )
                sides = [
                    side[column]
                    for side in (better, worse)
                    for column in ("response", "reward", "true_score")
                ]
                rows.append(
                    (name, id, question["instruction"], images, margin, better["group"], *sides)
                )
    left_out["question: fewer than two distinct responses to choose from"] = (
        len(questions) - n_sound
    )
    names = "id question instruction images margin group chosen reward_chosen true_chosen rejected reward_rejected"
    frame = pd.DataFrame(rows, columns=[*names.split(), "true_rejected"])
    without = len(questions) - frame["question"].nunique()
    frame.attrs = {
        "questions": len(questions),
        "without_pair": without,
        "left_out": dict(+left_out),
    }
    return frame


def best_of_n(rewards: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """The exact mean true score of the answer that the reward prefers among n, over all ways to take n of a question's.

    Args:
        rewards: from `reward`; for the true score a second judge's may stand. Equal rewards are preferred as often.
        options: confidence, n_resamples and seed, see `metrics.correlate`; groups are resampled.

    Returns:
        A row for each n, 1 to the fewest answers of any question: estimate, low, high, n (questions) and missing (those
        without a reward or a true score).
    """
    curves, groups = [], []
    for _, part in rewards.groupby("id", sort=False):
        preferred, worth = (
            np.repeat(part[name].to_numpy(float), part["times"])
            for name in ("reward", "true_score")
        )
        if not np.isnan([preferred, worth]).any():
            curves.append(expected_best(preferred, worth))
            groups.append(part["group"].iloc[0])
    missing = rewards["id"].nunique() - len(curves)
    if not curves:
        raise ValueError(
            f"no question has a reward and a true score for every answer ({missing} left out)"
        )
    table = pd.DataFrame(curves, columns=range(1, max(map(len, curves)) + 1)).dropna(
        axis=1
    )  # up to the fewest
    return mean_of(table, groups, missing=missing, unit="questions", index="n", **options)


def expected_best(rewards: Any, values: Any) -> Any:
    """The mean value of the answer with the highest reward among n, over all choices of n answers, n = 1 to all."""
    levels, level = np.unique(rewards, return_inverse=True)
    means = np.array([values[level == place].mean() for place in range(len(levels))])
    upto = [0, *np.cumsum(np.bincount(level)).tolist()]
    ways = np.array(
        [[math.comb(count, n) for count in upto] for n in range(1, len(rewards) + 1)], dtype=float
    )
    return np.diff(ways, axis=1) @ means / ways[:, -1]


def mean_of(values: pd.DataFrame, groups: Any, *, mark: Any = None, **options: Any) -> pd.DataFrame:
    """The mean of each column; with a mark, the mean where it holds less the mean where it does not.

    Values, groups and marks, such as whether it says something twice, have one entry an answer; one with a value that
    is NaN is left out, and groups are resampled. Columns and options of the table are those of `metrics.correlate`.
    """
    valid = values.notna().all(axis=1).to_numpy()
    numbers, holds = (
        values[valid].to_numpy(float),
        np.asarray(valid if mark is None else mark, dtype=float)[valid],
    )

    def statistic(weights: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = [
                numbers.T @ (weights * side[:, None]) / (side @ weights)
                for side in (holds, 1 - holds)
            ]
        return means[0] if mark is None else means[0] - means[1]

    design = design_of(np.arange(len(numbers)), list(groups), valid)
    return tabulate(statistic, list(values), design, **{"unit": "answers"} | options)


def checked(pairs: Any) -> list[dict[str, Any]]:
    """Pairs as rows, or a CollectionError that names every one without a text, and pairs without any picture column."""
    rows = rows_of(pairs)
    check_pictures(rows)
    for name in ("instruction", "chosen", "rejected"):
        sound = [isinstance(row.get(name), str) and row[name].strip() != "" for row in rows]
        check_rows(rows, name, sound, "is missing or blank", "fill it in or leave the pair out")
    return [{**row, "images": list(row.get("images") or ())} for row in rows]


def write_llava_next(pairs: Any, folder: str | Path) -> Path:
    """Write pairs as LLaVA-NeXT's DPO code reads them, `pairs.json` (its --data_path), and the images in `images/`.

    CollectionError: a pair without a text, or whose instruction spells "<image>", which that code would delete.

    Source: LLaVA-VL/LLaVA-NeXT llava/train/train_dpo.py (DPODataset), which puts the image's mark before the prompt.
    """
    path, images = Path(folder) / "pairs.json", Path(folder) / "images"
    rows, entries = checked(pairs), []
    sound = ["<image>" not in row["instruction"] for row in rows]
    check_rows(
        rows, "instruction", sound, "spells <image>", "its reader deletes it: leave the pair out"
    )
    images.mkdir(parents=True, exist_ok=True)
    for row in rows:
        names = []
        for image in map(open_image, row["images"]):
            names.append(f"{fingerprint(image)[:24]}.png")
            image.save(images / names[-1])
        shown = {"image": names[0] if len(names) == 1 else names} if names else {}
        texts = {"prompt": row["instruction"], "chosen": row["chosen"], "rejected": row["rejected"]}
        entries.append({"id": str(row["id"]), **shown, **texts})
    replace_file(path, json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    return path


def scene_questions(split: str = "test", *, limit: int | None = None) -> list[dict[str, Any]]:
    """The questions of Scenes, two a picture and at most `limit`, for a policy to answer, with aspect.

    They are candidates too, whose order is known without any policy: `responses` are Scenes' own five, and true_scores
    1 to 5 in random order. They have no reference answer, which would tell a judge what the picture shows.
    """
    size, questions = N_CLAIMS + 1, []
    rows = scenes.rows(split, limit=None if limit is None else limit * size)
    for case in (rows[start : start + size] for start in range(0, len(rows), size)):
        first, answers = case[0], {"responses": [row["response"] for row in case]}
        own = {
            name: first[name]
            for name in ("images", "instruction", "criteria", "descriptions", "group")
        }
        own |= {"id": first["id"].rpartition("-")[0], "aspect": scenes.ASPECT_OF[first["criteria"]]}
        questions.append(own | answers | {"true_scores": [row["gold"] for row in case]})
    return questions


def true_score(question: Mapping[str, Any], response: str) -> dict[str, Any]:
    """Score one answer, to a row of `scene_questions`, by the scene, without the judge.

    The score is five, less one for each wrong or unreadable claim and for each of four that is missing, and 1 at the
    least. Beside it stand the claims that are right, wrong (different ones), missing and repeated, and the sentences
    that are unreadable: no claim about what was asked.
    """
    aspect, (kind, split, index) = question["aspect"], (question["group"].split("-") + ["", ""])[:3]
    if kind != "scenes" or not index.isdigit():
        raise ValueError(
            f"group {question['group']!r} names no scene: true scores are known of scene_questions alone"
        )
    scene = scenes.sample(split, 0, int(index))
    sentences = [
        sentence for piece in re.split(r"\(\d+\)", response) if (sentence := piece.strip())
    ]
    claims = [
        claim
        for sentence in sentences
        if (claim := _claims(aspect).get(sentence.removesuffix(".")))
    ]
    different = set(claims)
    right = sum(scene.shows(aspect, key) == word for key, word in different)
    wrong, unreadable = len(different) - right, len(sentences) - len(claims)
    missing = max(0, N_CLAIMS - len({key for key, _ in different}))
    score, repeated = float(max(1, 5 - wrong - unreadable - missing)), len(claims) - len(different)
    counts = {
        "right": right,
        "wrong": wrong,
        "missing": missing,
        "repeated": repeated,
        "unreadable": unreadable,
    }
    return {"score": score, **counts}


@cache
def _claims(aspect: str) -> dict[str, tuple[str, str]]:
    """Every sentence of an aspect's wordings -> its claim, a key and what is said there, such as ("top", "star")."""
    keys = (*COLOURS, *SHAPES) if aspect in ("count", "presence") else scenes.PLACES
    claims: dict[str, tuple[str, str]] = {}
    for wording, key, article in product(ASPECTS[aspect].wordings, keys, ("a", "something")):
        for form, state in zip(wording.split("|"), ("present", "absent"), strict=False):
            for said in SAID.get(aspect, (state,)):
                claims.setdefault(
                    form.format(key=key, said=said, thing=f"{article} {key}"), (key, said)
                )
    return claims
