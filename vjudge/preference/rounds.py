"""Rounds: candidates, rewards, pairs, DPO; each round starts from the policy that the last one left.

Everything a round makes is in its folder, and the call that was interrupted goes on where it stopped: answers and
verdicts one by one, training from its last checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from vjudge.preference import candidates as drawing
from vjudge.preference import pairs as pairing
from vjudge.preference import rewards as rewarding
from vjudge.preference.dpo import DpoSettings, train
from vjudge.preference.policy import load_policy
from vjudge.runs import plain, replace_file

PUBLISHED_ROUNDS = 3
"""Source: LLaVA-Critic (arXiv 2410.02712), section on preference learning."""


@dataclass(frozen=True)
class Round:
    """What one round made.

    Args:
        number: from 1.
        candidates: rows of `candidates.draw`.
        rewards: from `rewards.reward`.
        pairs: from `pairs.make_pairs`.
        record: of `dpo.train`.
        policy: the folder of the policy that the round left.
    """

    number: int
    candidates: list[dict[str, Any]]
    rewards: pd.DataFrame
    pairs: pd.DataFrame
    record: dict[str, Any]
    policy: Path


@dataclass(frozen=True)
class Recipe:
    """What every round does; the defaults are the published recipe's, by scores.

    Args:
        samples, temperature, top_p: of candidates.
        by: "scores" or "pairs": how candidates are rewarded.
        reward, pairs: options of `rewards.reward` and `pairs.make_pairs`.
        answering: further options of `Policy.respond`, such as max_new_tokens.
        settings: of DPO; its seed grows by one a round.
        seed: of candidates; each round draws with its own.
    """

    samples: int = 5
    temperature: float = 0.7
    top_p: float = 0.9
    by: str = "scores"
    reward: Mapping[str, Any] = field(default_factory=dict)
    pairs: Mapping[str, Any] = field(default_factory=dict)
    answering: Mapping[str, Any] = field(default_factory=dict)
    settings: DpoSettings = field(default_factory=DpoSettings)
    seed: int = 0


def run_rounds(
    policy: str | Path,
    questions: Sequence[Any],
    judge: Any,
    out: str | Path,
    *,
    rounds: int = PUBLISHED_ROUNDS,
    recipe: Recipe | None = None,
    enrich: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None,
    load: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> list[Round]:
    """Improve a policy by a judge's preferences over rounds.

    Args:
        policy: the checkpoint that the first round starts from.
        questions: what the policy answers in each round, the same in all; rows with a rubric where the judge needs one.
        judge: a `Judge`.
        out: gets a folder a round: `round-1` with candidates, rewards, pairs.json, policy, and so on.
        rounds: how many.
        recipe: None for the published one, by scores.
        enrich: applied to each round's candidates before they are rewarded; `with_true_scores` on Scenes.
        load: options of `load_policy` for drawing candidates, such as device or engine.
        progress: whether to show progress bars.

    Returns:
        What each round made.

    Raises:
        RunError, ValueError: a folder holds a round of another call.
        CollectionError: bad questions; no pairs are left in some round.
    """
    recipe, out, start = recipe or Recipe(), Path(out), Path(policy)
    made: list[Round] = []
    for number in range(1, rounds + 1):
        folder = out / f"round-{number}"
        name = f"{Path(policy).name}, {number - 1} rounds"
        rows = _draw(start, name, questions, folder / "candidates", recipe, number, load or {}, progress)
        rows = enrich(rows) if enrich else rows
        asked = {"by": recipe.by, **recipe.reward}
        rewards = rewarding.reward(judge, rows, out=folder / "rewards", progress=progress, **asked)
        pairs = pairing.make_pairs(rows, rewards, **recipe.pairs)
        _keep(pairs, folder / "pairs.json")
        settings = replace(recipe.settings, seed=recipe.settings.seed + number - 1)
        record = train(start, pairs, folder / "policy", settings)
        made.append(Round(number, rows, rewards, pairs, record, folder / "policy"))
        start = folder / "policy"
    return made


def forget(out: str | Path, number: int) -> None:
    """Remove a round and all after it, so that the next call makes them anew.

    Args:
        out: as for `run_rounds`.
        number: of the first round to remove.
    """
    for folder in Path(out).glob("round-*"):
        if int(folder.name.removeprefix("round-")) >= number:
            shutil.rmtree(folder)


def _draw(
    start: Path,
    name: str,
    questions: Sequence[Any],
    out: Path,
    recipe: Recipe,
    number: int,
    load: Mapping[str, Any],
    progress: bool,
) -> list[dict[str, Any]]:
    """A round's candidates. The policy that draws them is gone when this returns: training needs its memory."""
    return drawing.draw(
        load_policy(start, name=name, **load),
        questions,
        samples=recipe.samples,
        temperature=recipe.temperature,
        top_p=recipe.top_p,
        seed=recipe.seed + number - 1,
        out=out,
        progress=progress,
        **recipe.answering,
    )


def _keep(pairs: pd.DataFrame, path: Path) -> None:
    """Write a round's pairs without their images, with what was left out.

    Raises:
        ValueError: other pairs stand there.
    """
    rows = pairs.drop(columns="images").to_dict("records")
    text = json.dumps(plain({"account": pairs.attrs, "pairs": rows}), indent=1, ensure_ascii=False) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise ValueError(f"{path} holds the pairs of another call: repeat the first call, or use another folder")
    replace_file(path, text)
