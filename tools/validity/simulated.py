"""Simulation, and nothing else: judges whose scores are drawn, with planted biases of known size, and a collection.

A simulated judge scores an item by its true score, which it is told, plus noise plus what is planted; it looks at what
it is given only to see which part of an item was changed. It is called "simulated" wherever its name is shown. Nothing
it says is evidence about any model; it proves the probes.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import datasets
import numpy as np
import pandas as pd
from PIL import Image
from scipy import special

from vjudge.data import canonical, rows_of
from vjudge.images import open_image
from vjudge.judging.comparing import combine
from vjudge.metrics.array_types import Floats
from vjudge.records import is_missing, unit_of

WORDS = "the a one of and with it is was has there here this that small plain light dark round left right".split()
N_CRITERIA = 6
N_SYSTEMS = 7  # beside the judge's own


def collection(
    n: int, *, per_group: int = 1, median_words: float = 60, spread: float = 1.0, better_is_longer: float = 0.0,
    seed: int = 0,
) -> datasets.Dataset:  # fmt: skip
    """Make a collection of five-level rubrics whose texts say nothing and whose gold scores are drawn.

    `n` items, `per_group` an image. A response of the middle score has `median_words`, with `better_is_longer`
    doublings more a gold point and a standard deviation of `spread`; whose
    response it is (`model`: the judge's "own" or one of seven others) goes with its gold score, from a fifth of the
    judge's own to three fifths.
    """
    rng = np.random.default_rng(seed)
    gold = rng.integers(1, 6, n).astype(float)
    doublings = np.log2(median_words) + better_is_longer * (gold - 3) + rng.normal(0, spread, n)
    words = np.clip(np.rint(2**doublings), 4, 2000).astype(int)
    own = np.random.default_rng([seed, 1]).random(n) < 0.2 + 0.1 * (
        gold - 1
    )  # better responses are more often the judge's own
    system = np.random.default_rng([seed, 2]).integers(N_SYSTEMS, size=n)
    rows: list[dict[str, Any]] = []
    for index in range(n):
        group = index // per_group
        if index % per_group == 0:  # the items of a group are responses to one question
            criterion, reference = int(rng.integers(N_CRITERIA)), _text(rng, 40)
        rows.append(
            {
                "id": f"simulated-{index}",
                "images": [_picture(group)],
                "instruction": f"Question number {group}: what is there?",
                "response": _text(rng, words[index]),
                "reference_answer": reference,
                "criteria": f"Criterion {criterion}: is {WORDS[criterion]} right?",
                "descriptions": [
                    f"Level {level} of criterion {criterion}." for level in range(1, 6)
                ],
                "gold": gold[index],
                "group": f"picture-{group}",
                "model": "own" if own[index] else f"system {system[index] + 1}",
                "own_answer": f"It is {WORDS[group % len(WORDS)]}.",
            }
        )
    return canonical(rows)


def _text(rng: np.random.Generator, n: int) -> str:
    """n words in sentences of ten."""
    words = rng.choice(WORDS, size=n)
    return " ".join(
        " ".join(words[start : start + 10]).capitalize() + "." for start in range(0, n, 10)
    )


def _picture(group: int) -> dict[str, Any]:
    pixels = np.empty((24, 24, 3), dtype=np.uint8)
    pixels[:] = group * 37 % 256, group * 91 % 256, group // 4 % 256
    pixels[::2, : 12 + group % 12] = 255 - pixels[::2, : 12 + group % 12]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return {"bytes": file.getvalue(), "path": None}


@dataclass(frozen=True)
class Planted:
    """What is planted in a simulated judge; as it is, one without bias that sees and reads everything.

    With g an item's gold score, m the middle of the scale and w the share of its knowledge that it keeps, a score is
    m + leniency + w (g - m) + length (log2 words - its mean) + shifts + noise, rounded and clipped to the scale unless
    `whole` is False. Errors of an item and a group are made again and again; noise changes with the prompt.
    """

    # Shares of its knowledge drawn from the image and the rubric: w is 1 less sight where the image is removed or
    # another, and 1 - 2 reading with the levels reversed.
    sight: float = 1.0
    reading: float = 1.0
    wording: float = 0.0  # score points where the rubric is put in other words
    anchoring: float = 0.0  # score points towards another judge's score that is shown
    led: float = 0.0  # score points that it gives away, and takes back once it has answered first
    liking: float = 0.0  # score points on its own responses
    tastes: float = 0.0  # standard deviation of score points on each other system's responses
    length: float = 0.0  # score points per doubling of the words of the response
    formatting: float = 0.0  # score points for Markdown
    injection: float = 0.0  # score points towards the score that an injected verdict asks for
    leniency: float = 0.0  # score points on all items
    position: float = 0.0  # log-odds in comparisons for the response shown first
    pairwise_length: float = 0.0  # and for twice the words
    item: float = 0.3  # standard deviations of errors, in score points
    group: float = 0.3
    noise: float = 0.5
    grey: bool = False  # whether it gives the lowest score to images in one colour
    whole: bool = True  # numbers on the scale; else as an expected score would be


class Truth:
    """What a simulated judge is told: a collection with `gold` on every row."""

    def __init__(self, items: Any) -> None:
        rows = [dict(row) for row in rows_of(items)]
        if bad := [str(row["id"]) for row in rows if is_missing(row.get("gold"))]:
            raise ValueError(
                f"{len(bad)} items have no gold score, which a simulated judge must be told: {bad[:20]}"
            )
        self.items = {str(row["id"]): (place, row) for place, row in enumerate(rows)}
        scales = [(int(row.get("lowest") or 1), len(row["descriptions"])) for row in rows]
        self.lowest, self.highest = (
            min(low for low, _ in scales),
            max(low + n - 1 for low, n in scales),
        )
        self.doublings = float(np.mean([_doublings(row["response"]) for row in rows]))
        self.group_codes = np.unique([unit_of(row) for row in rows], return_inverse=True)[
            1
        ].reshape(-1)

    def view(self, items: Any) -> pd.DataFrame:
        """What a judge makes of a collection, the one it was told or a perturbation of it: a row an item.

        Image and reversed are 1 where that part is another than was told; direction is
        that of a verdict written into the response, +1, -1 or 0. `attrs["stamp"]` depends on all texts, for the noise.
        """
        lines, stamp = [], 0
        for row in rows_of(items):
            place, old = self.items[str(row["id"])]
            image, levels, response, before = (
                _image(row),
                list(row["descriptions"]),
                row["response"],
                old["response"],
            )
            added = response.replace(before, " ") if before in response else ""
            asked = row["instruction"].replace(old["instruction"], " ")
            shown = re.findall(r"a score of (\d+)", asked)
            told = (row["criteria"], levels) == (old["criteria"], list(old["descriptions"]))
            reworded = (
                not told
                and old["criteria"] in row["criteria"]
                and old["criteria"] != row["criteria"]
            )
            stated = re.findall(r"(?:score (?:is|of) |\[RESULT\] |Final Score: )(\d+)", added)
            lines.append(
                {
                    "id": str(row["id"]),
                    "group": unit_of(old),
                    "place": place,
                    "gold": float(old["gold"]),
                    "image": image != _image(old) and not _alike(row, old),
                    "grey": image != _image(old) and _plain(row),
                    "reworded": reworded,
                    "shown": np.sign(float(shown[-1]) - (self.lowest + self.highest) / 2)
                    if shown
                    else 0.0,
                    "committed": "Your own answer" in asked,
                    "own": row.get("model") == "own",
                    "system": str(row.get("model")),
                    "reversed": levels == list(old["descriptions"])[::-1]
                    and row["criteria"] == old["criteria"],
                    "doublings": _doublings(response) - self.doublings,
                    "marked": any(
                        response.count(mark) > before.count(mark) for mark in ("**", "- ")
                    ),
                    "direction": np.sign(float(stated[-1]) - (self.lowest + self.highest) / 2)
                    if stated
                    else 0.0,
                }
            )
            texts = [lines[-1]["id"], response, row["instruction"], row["criteria"], levels]
            text = json.dumps([*texts, row.get("reference_answer")])
            stamp = zlib.crc32(f"{text}{image}".encode("utf-8", "surrogatepass"), stamp)
        view = pd.DataFrame(lines).astype(
            {name: float for name in lines[0] if name not in ("id", "group", "place", "system")}
        )
        view.attrs["stamp"] = stamp
        return view


@dataclass
class SimulatedJudge:
    """A judge with planted biases that has `grade` and `compare` as `vjudge.Judge` has them.

    `truth` is the collection it was told, a `Truth` or its items. Two judges of one seed make the same errors on items
    and groups.
    """

    truth: Any
    planted: Planted = field(default_factory=Planted)
    seed: int = 0
    name: str = "unbiased"
    sees_images = True

    def __post_init__(self) -> None:
        self.truth = self.truth if isinstance(self.truth, Truth) else Truth(self.truth)
        self.name = self.name if self.name.startswith("simulated") else f"simulated: {self.name}"

    def scores(self, view: pd.DataFrame, *, sample: int = 0) -> Floats:
        """Scores of the items of a view, shape (n,)."""
        plan, truth = self.planted, self.truth
        lasting = np.random.default_rng([self.seed, 1])
        by_item = lasting.normal(0, plan.item, len(truth.items))
        by_group = lasting.normal(0, plan.group, truth.group_codes.max() + 1)[truth.group_codes]
        fresh = np.random.default_rng([self.seed, 2, view.attrs["stamp"], sample]).normal(
            0, plan.noise, len(view)
        )
        v = {name: view[name].to_numpy() for name in view}
        middle = (truth.lowest + truth.highest) / 2
        rest = (1 - plan.sight * v["image"]) * (1 - 2 * plan.reading * v["reversed"])
        score = middle + plan.leniency + rest * (v["gold"] - middle)
        score += plan.length * v["doublings"] + plan.formatting * v["marked"]
        score += (
            plan.injection * v["direction"]
            + plan.wording * v["reworded"]
            + plan.anchoring * v["shown"]
            - plan.led * v["committed"]
            + plan.liking * v["own"]
            + (by_item + by_group)[v["place"]]
            + fresh
        )
        if plan.tastes:
            liked = np.random.default_rng([self.seed, 4]).normal(0, plan.tastes, N_SYSTEMS)
            by_system = {f"system {place + 1}": value for place, value in enumerate(liked)}
            score += np.array([by_system.get(name, 0.0) for name in v["system"]])
        if plan.grey:
            score = np.where(v["grey"] > 0, truth.lowest, score)
        return np.clip(np.rint(score), truth.lowest, truth.highest) if plan.whole else score

    def run(self, view: pd.DataFrame, *, samples: int = 1, first: int = 0) -> pd.DataFrame:
        """A run over a view, with so many verdicts an item; another number of the first sample draws other noise."""
        drawn = [self.scores(view, sample=first + sample) for sample in range(samples)]
        ids, gold, group = (
            view[name].to_numpy().repeat(samples) for name in ("id", "gold", "group")
        )
        number = {"sample": np.tile(np.arange(samples), len(view))} if samples > 1 else {}
        score = np.stack(drawn, axis=1).reshape(-1)
        columns = {
            "id": ids,
            "judge": self.name,
            **number,
            "score": score,
            "gold": gold,
            "group": group,
        }
        scale = {"lowest": float(self.truth.lowest), "highest": float(self.truth.highest)}
        return pd.DataFrame(columns).assign(**scale)

    def grade(self, items: Any, *, samples: int = 1, **ignored: Any) -> pd.DataFrame:
        """Grade a collection as `Judge.grade` does, whose further options are accepted and change nothing."""
        run = self.run(self.truth.view(items), samples=samples)
        return run.assign(failure=None, closed=False, sees_image=True)

    def not_simulated(self, *args: Any, **options: Any) -> Any:
        """What a simulated judge has no numbers for."""
        raise NotImplementedError("a simulated judge grades and compares alone")

    rank = render = plan = not_simulated

    def compare(self, pairs: Any, *, orders: str = "both", **ignored: Any) -> pd.DataFrame:
        """Compare pairs of `probes.pairs_of_items`: log-odds are the difference of gold, plus what is planted."""
        rows = list(rows_of(pairs))
        cells = {
            name: [row.get(name) for row in rows]
            for name in ("id", "group", "criteria", "preference")
        }
        gold = np.array([[row["gold_a"], row["gold_b"]] for row in rows], dtype=float)
        words = np.array([[_doublings(row[f"response_{side}"]) for side in "ab"] for row in rows])
        return self.choose(cells, gold, words, orders=orders)

    def choose(
        self, cells: Mapping[str, Any], gold: Floats, doublings: Floats, *, orders: str = "both"
    ) -> pd.DataFrame:
        """`compare` on arrays: gold and log2 words of a and b, shape (n, 2); cells are further columns, id first."""
        plan, rng = self.planted, np.random.default_rng([self.seed, 3])
        ahead = gold[:, 0] - gold[:, 1] + plan.pairwise_length * (doublings[:, 0] - doublings[:, 1])
        ahead = ahead + rng.normal(0, plan.item, len(ahead))
        frame = pd.DataFrame({"id": cells["id"], "judge": self.name})
        for order, sign in (("ab", 1), ("ba", -1))[: 2 if orders == "both" else 1]:
            first = rng.random(len(ahead)) < special.expit(sign * ahead + plan.position)
            frame[f"verdict_{order}"] = np.where(first == (order == "ab"), "a", "b")
        choices = frame.iloc[:, 2:].itertuples(index=False, name=None)
        frame["verdict"], frame["consistent"] = zip(*map(combine, choices), strict=True)
        return frame.assign(**{name: values for name, values in cells.items() if name != "id"})


def _doublings(text: str) -> float:
    return float(np.log2(max(1, len(text.split()))))


def _image(row: Mapping[str, Any]) -> Any:
    """What tells images apart, without decoding them."""
    return tuple(
        zlib.crc32(image["bytes"])
        if isinstance(image, Mapping) and image.get("bytes")
        else str(image)
        for image in row.get("images") or ()
    )


def _plain(row: Mapping[str, Any]) -> bool:
    """Whether a row's images have one colour."""
    pixels = [np.asarray(open_image(image)) for image in row.get("images") or ()]
    return bool(pixels) and all((one == one[0, 0]).all() for one in pixels)


def _alike(row: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether two rows' images look alike: the mean difference of their pixels is below 4 of 255."""
    sides = [
        [np.asarray(open_image(image), dtype=float) for image in own.get("images") or ()]
        for own in (row, old)
    ]
    pairs = list(zip(*sides, strict=False))
    return bool(pairs) and all(a.shape == b.shape and np.abs(a - b).mean() < 4 for a, b in pairs)
