"""How real models that were not trained to judge obey zero-shot wordings.

    python tools/contact/contact.py MODELS --out table.md

MODELS holds transformers folders of chat models. Each judges the same items of Scenes once for each
wording: those of `wordings/` here, and the package's own. An answer is read, closed
(`unread="close"`: its feedback stays, and the most probable verdict at its place counts), or missing
with a reason. "copied" counts verdicts that stand in the wording's example.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

import vjudge as vj
from vjudge.prompts import TEMPLATES, Template
from vjudge.prompts.parse import parse
from vjudge.records import Item, Pair

WORDINGS = Path(__file__).parent / "wordings"
MARKERS = {  # how the answers of each wording here are read: marker, format
    "rules": ("[RESULT]", "prometheus"),
    "result": ("[RESULT]", "prometheus"),
    "score": ("Score:", "score"),
    "final-score": ("Final Score:", "final-score"),
    "example": ("The final score is", "score"),
    "varied": ("The final score is", "score"),
    "placeholder": ("The final score is", "score"),
    "range": ("The final score is", "score"),
    "ends": ("The final score is", "score"),
}
ONE = ("chat", "chat-json")
PAIRS = ("example-relative", "chat-relative")
EXAMPLES = {  # the verdicts that a wording shows; a middle score where nothing stands here
    **{"chat": (2, 4), "placeholder": (), "range": (1, 5), "ends": (1, 5), "rules": (1, 5)},
    **{"example-relative": ("b",), "chat-relative": ("a", "b")},
}


class Varied(Template):
    """A wording whose example has another score for each item."""

    def _texts(self, item: Item | Pair) -> dict[str, Any]:
        return super()._texts(item) | {"example": varied_score(item)}


def varied_score(item: Any) -> int:
    digest = hashlib.sha256(str(item.id).encode()).hexdigest()
    return int(digest, 16) % 5 + 1


def template_of(name: str) -> Template:
    """A wording of the package, or one of those that are tried here."""
    if name in TEMPLATES:
        return TEMPLATES[name]
    file = WORDINGS / ("example.txt" if name == "varied" else f"{name}.txt")
    body = file.read_text(encoding="utf-8")
    if name in PAIRS:
        return replace(TEMPLATES["chat-relative"], name=name, body=body)
    marker, format = MARKERS[name]
    tried = replace(TEMPLATES["chat"], name=name, body=body, marker=marker, format=format)
    if name != "varied":
        return tried
    return Varied(**{field.name: getattr(tried, field.name) for field in fields(tried)})


def chat_models(folder: Path) -> list[Path]:
    """The folders of chat models inside a folder."""
    configs = sorted(folder.glob("*/tokenizer_config.json"))
    return [config.parent for config in configs]


def listed(counts: Counter) -> str:
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def pairs_of(items: Any, n: int) -> list[dict]:
    """The worst and the best response to one question, of n questions."""
    table = pd.DataFrame([dict(row) for row in items]).sort_values("gold", kind="stable")
    pairs = []
    for _, rows in table.groupby(["group", "instruction"], sort=False):
        worst, best = rows.iloc[0], rows.iloc[-1]
        if best["gold"] - worst["gold"] >= 2 and len(pairs) < n:
            shared = {name: worst[name] for name in ("id", "images", "instruction", "criteria")}
            both = {"response_a": worst["response"], "response_b": best["response"]}
            pairs.append(shared | both)
    return pairs


def answers_of(model: Path, template: Template, n: int, seed: int, most: int) -> pd.DataFrame:
    """One row an answer: id, raw, why it was not read ("" where it was), and what was given."""
    judge = vj.load_judge(model, device="cpu", template=template)
    items = vj.load_collection("scenes", split="test").shuffle(seed=seed)
    if template.compares:
        pairs = pairs_of(items, n // 2)
        run = judge.compare(pairs, max_new_tokens=most, progress=False)
        parts = []
        for order in ("ab", "ba"):
            part = run[["id", f"raw_{order}", f"verdict_{order}"]]
            parts.append(part.set_axis(["id", "raw", "given"], axis=1))
        # as it was written: the response that stands first is a
        parts[1]["given"] = parts[1]["given"].replace({"a": "b", "b": "a"})
        answers = pd.concat(parts, ignore_index=True).assign(closed=False)
    else:
        run = judge.grade(items.select(range(n)), max_new_tokens=most, progress=False)
        answers = run[["id", "raw"]].assign(given=run["score"], closed=run["closed"] == 1)
    reasons = []
    for answer in answers.itertuples():
        verdict = parse(answer.raw, scores=range(1, 6), format=template.format)
        cut_off = "cut off" if answer.closed else ""
        reasons.append(verdict.failure.partition(" (")[0] if verdict.failure else cut_off)
    return answers.assign(reason=reasons)


def measure(model: Path, name: str, n: int, seed: int, most: int) -> dict[str, object]:
    """One row of the table: what became of each answer, and which verdicts were given."""
    template = template_of(name)
    answers = answers_of(model, template, n, seed, most)
    given = answers["given"]
    missing = given.isna()
    read = answers["reason"] == ""
    copied = 0
    for answer in answers.itertuples():
        shown = (varied_score(answer),) if name == "varied" else EXAMPLES.get(name, (3,))
        copied += answer.given in shown
    kinds = given.dropna()
    if not template.compares:
        kinds = kinds.sort_values().map("{:g}".format)
    return {
        "model": model.name,
        "wording": name,
        "read": int(read.sum()),
        "closed": int((~read & ~missing).sum()),
        "missing": int(missing.sum()),
        "copied": copied,
        "verdicts": listed(Counter(kinds)),
        "why not read": listed(Counter(answers["reason"][~read])),
    }


def markdown(rows: list[dict[str, object]]) -> str:
    """The table, one line a model and wording."""
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    for row in rows:
        lines.append(list(row.values()))
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("--wordings", nargs="*", default=[*MARKERS, *ONE, *PAIRS])
    parser.add_argument("--only", nargs="*", help="names of models; all of the folder by default")
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-new-tokens", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for model in chat_models(given.models):
        if given.only and model.name not in given.only:
            continue
        for name in given.wordings:
            rows.append(measure(model, name, given.n, given.seed, given.max_new_tokens))
            print(rows[-1], flush=True)
    if given.out:
        given.out.write_text(markdown(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
