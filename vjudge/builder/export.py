"""What was built: rows, counts of what was wrong, and the folder for the hub with all of that as its data card."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pandas as pd

from vjudge import __version__, prompts
from vjudge.builder.faults import KINDS
from vjudge.builder.prompts import STAGES
from vjudge.builder.stages import LEAN, NEAR, Balance, Case
from vjudge.data import CollectionError, canonical, validate
from vjudge.images import open_image
from vjudge.prompts import TEMPLATES
from vjudge.records import Item


@dataclass(frozen=True)
class Build:
    """A built collection and the account of how it came about.

    Args:
        generator, images, options: as `build` was given them.
        cases, incomplete: instructions with a response for every score, which are exported, and those without.
        n_rubrics: how many were kept.
        log: one row an answer, and one for what a check across calls took out: call, stage, image, try, fault (missing
            where it was kept), detail.
        balance: whether the better of two responses to an instruction is the longer one.
    """

    generator: str
    images: Mapping[str, Any]
    options: Mapping[str, Any]
    cases: tuple[Case, ...]
    incomplete: tuple[Case, ...]
    n_rubrics: int
    log: pd.DataFrame
    balance: Balance

    def rows(self) -> list[dict[str, Any]]:
        """The collection's rows, one a response, by image, rubric, instruction and score, in the canonical columns."""
        return [
            {
                "id": f"{case.id}-s{score}", "images": [self.images[case.image]], "instruction": case.instruction,
                "response": case.responses[score]["response"], "reference_answer": case.reference,
                "criteria": case.rubric.criteria, "descriptions": list(case.rubric.descriptions),
                "gold": float(score), "feedback": case.responses[score]["feedback"], "group": case.image,
            }
            for case in self.cases
            for score in case.rubric.scores
        ]  # fmt: skip

    def items(self) -> datasets.Dataset:
        """The collection as `load_collection` gives it."""
        return canonical(self.rows())

    def faults(self) -> pd.DataFrame:
        """Count everything that was wrong: one row for each of `KINDS`, one column a stage, and "all"."""
        table = pd.crosstab(self.log["fault"], self.log["stage"])
        table = table.reindex(index=list(KINDS), columns=list(STAGES), fill_value=0)
        return table.assign(all=table.sum(axis=1)).rename_axis(index="fault", columns="stage")

    def counts(self) -> pd.DataFrame:
        """What the stages came to: calls, answers to them, calls that were given up; one row a stage."""
        answers = self.log[self.log["try"].notna()]
        calls = answers.assign(kept=answers["fault"].isna()).groupby(["stage", "call"])["kept"].agg(["size", "any"])
        of_stage = calls.groupby("stage")
        table = pd.DataFrame({"calls": of_stage.size(), "answers": of_stage["size"].sum()})
        table["given_up"] = table["calls"] - of_stage["any"].sum()
        return table.reindex(list(STAGES), fill_value=0).rename_axis("stage")

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str = "Built collection",
        license: str = "other",
        note: str = "",
        allow_imbalance: bool = False,
    ) -> Path:
        """Write the collection as a folder that is ready for the hub, `load_collection` and `fine_tune`.

        Args:
            folder: new or empty.
            name: the collection's, for the card.
            license: its licence, by the hub's identifiers; images and generator may bind you.
            note: a sentence about the images or the generator, for the card's head.
            allow_imbalance: export although lengths lean towards the scores; the card says so.

        Returns:
            The folder: README.md (the data card), images/, and train.parquet in the columns of `published_row`.

        Raises:
            CollectionError: lengths that lean; rows that fail `vjudge.data.validate`; a folder that holds something.
        """
        if self.balance.lean and not allow_imbalance:
            raise CollectionError(
                f"not exported: {self.balance}, so that a judge could score by length. Use another generator or a"
                " smaller tolerance, or allow_imbalance=True to export it with that said in its card"
            )
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise CollectionError(f"{str(folder)!r} holds something already; give a new folder")
        rows = self.rows()
        validate(rows)
        paths = {}
        for image in {case.image: None for case in self.cases}:
            source = self.images[image]
            is_file = isinstance(source, (str, Path)) and not str(source).startswith("data:")
            path = paths[image] = f"images/{image}{Path(source).suffix if is_file else '.png'}"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if is_file:
                shutil.copyfile(source, folder / path)
            else:
                open_image(source).save(folder / path)
        table = datasets.Dataset.from_list([published_row(row, paths[row["group"]]) for row in rows])
        table.to_parquet(str(folder / "train.parquet"))
        (folder / "README.md").write_text(self._card(rows, name, license, note), encoding="utf-8")
        return folder

    def _card(self, rows: list[dict[str, Any]], name: str, license: str, note: str) -> str:
        """The data card: the hub's YAML, what is in the collection, and everything that was wrong and kept out."""
        head = huggingface_hub.DatasetCardData(
            pretty_name=name,
            license=license,
            task_categories=["image-text-to-text"],
            tags=["llm-as-a-judge", "rubric", "feedback", "synthetic"],
            configs=[{"config_name": "default", "data_files": [{"split": "train", "path": "train.parquet"}]}],
        )
        words = pd.Series([len(row["response"].split()) for row in rows]).groupby([row["gold"] for row in rows]).mean()
        faults, counts = self.faults()["all"], self.counts().sum()
        template = (resources.files("vjudge") / "assets" / "card.md").read_text("utf-8")
        return template.format(
            build=self,
            head=head.to_yaml(),
            name=name,
            note=f"\n{note}\n" if note else "",
            version=__version__,
            n_shown=len({case.image for case in self.cases}),
            n_images=len(self.images),
            n_cases=len(self.cases),
            n_rows=len(rows),
            n_incomplete=len(self.incomplete),
            least=0.5 - LEAN,
            most=0.5 + LEAN,
            lean=" **It is exceeded and was exported on request.**" if self.balance.lean else "",
            words=", ".join(f"{score:g}: {mean:.1f}" for score, mean in words.items()),
            counts=counts,
            near=NEAR,
            faults="\n".join(f"- {kind}: {faults[kind]} ({meaning})" for kind, meaning in KINDS.items()),
            prompts=", ".join(stage.version for stage in STAGES.values()),
            options=", ".join(f"{option} {value}" for option, value in self.options.items()),
        )


def published_row(row: Mapping[str, Any], image: str) -> dict[str, Any]:
    """A row in Perception-Collection's columns.

    Args:
        row: of `Build.rows`, or any canonical row with a rubric, gold and feedback.
        image: what its `image` column says.

    Returns:
        `image`, `instruction` (the judge's whole prompt), `output` (the training target), `orig_*`, `id` and `group`.

    Source: kaist-ai/Perception-Collection; the target of prometheus-vision's sample_train_data.json.
    """
    item, score = Item.from_row({**row, "images": []}), int(row["gold"])
    fields = ("instruction", "response", "reference_answer", "criteria")
    return {
        "image": image,
        "instruction": TEMPLATES["prometheus-vision"].as_messages().render(item).text,
        "output": prompts.target(row["feedback"], score),
        **{f"orig_{field}": row[field] for field in fields},
        **{f"orig_score{n}_description": text for n, text in enumerate(row["descriptions"], start=1)},
        "orig_feedback": row["feedback"],
        "orig_score": score,
        "id": row["id"],
        "group": row["group"],
    }
