"""What a real generator's answers are worth to the builder, stage by stage.

    python tools/contact/build.py MODEL --out outputs/contact-build

MODEL is the folder of a chat model. One that reads no images is told in words what each picture of
Scenes shows, in the image's place. The table counts, for each stage, the calls that were made, the
answers to them, the answers that were kept and what was wrong with the others. After so many
minutes no more is asked: what is left counts as "turned down".
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

import vjudge as vj
from vjudge import builder
from vjudge.builder.stages import SYSTEM
from vjudge.data import scenes
from vjudge.engines import Answer, Engine
from vjudge.images import open_image, pixel_digest
from vjudge.prompts import TEMPLATES


def described(scene: scenes.Scene) -> str:
    """A scene in words, cell by cell."""
    cells = []
    for place in scenes.PLACES:
        thing = scene.at(place)
        what = f"a {thing.size} {thing.colour} {thing.shape}" if thing else "nothing"
        cells.append(f"{place}: {what}")
    return f"(The image is a three-by-three grid. {'; '.join(cells)}.)\n\n"


class Told(Engine):
    """A text model as a generator: the image's place holds its description."""

    template = TEMPLATES["prometheus-vision"].as_messages()  # parts and images, no words of its own

    def __init__(self, model: Path, n_images: int, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes
        self.judge = vj.load_judge(model, device="cpu")
        self.engine = self
        self.name = model.name
        self.images: dict[str, Any] = {}
        self.words: dict[str, str] = {}
        for index in range(n_images):
            scene = scenes.sample("train", 0, index)
            picture = scenes.paint(scene)
            self.images[f"scene-{index:03d}"] = picture
            self.words[pixel_digest(picture)] = described(scene)

    def identity(self) -> dict[str, Any]:
        return self.judge.engine.identity()

    def answer(self, prompts: Any, images: Any, ask: Any, wanted: Any = None) -> Iterator[Any]:
        talk = replace(self.judge.template.conversation, system=SYSTEM)
        told = []
        for prompt, pictures in zip(prompts, images, strict=True):
            words = self.words[pixel_digest(open_image(pictures[0]))]
            told.append(talk.wrap(words + prompt.text.removeprefix("<image>").strip(), 0))
        for row in sorted(wanted):
            if time.monotonic() > self.end:
                yield [Answer(row, failure="out of time")]
                continue
            yield from self.judge.engine.answer(told, [[] for _ in told], ask, {row})


def table_of(built: builder.Build) -> pd.DataFrame:
    """One row a stage."""
    asked = built.log
    table = pd.DataFrame(index=pd.Index(list(builder.STAGES), name="stage"))
    table["calls"] = asked.groupby("stage")["call"].nunique()
    table["answers"] = asked.groupby("stage").size()
    table["kept"] = asked[asked["fault"].isna()].groupby("stage").size()
    table = table.fillna(0).astype(int)
    for stage in table.index:
        counts = built.faults()[stage]
        listed = [f"{count} x {kind}" for kind, count in counts.items() if count]
        table.loc[stage, "not kept because of"] = ", ".join(listed)
    return table


def markdown(table: pd.DataFrame) -> str:
    rows = [["stage", *table.columns], ["---"] * (1 + table.shape[1])]
    rows += [[name, *cells] for name, cells in zip(table.index, table.to_numpy(), strict=True)]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("outputs/contact-build"))
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--rubrics", type=int, default=2)
    parser.add_argument("--instructions", type=int, default=1)
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=0.15)
    parser.add_argument("--max-new-tokens", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=20)
    options = vars(parser.parse_args())
    start = time.monotonic()
    generator = Told(options.pop("model"), options.pop("images"), options.pop("minutes"))
    built = builder.build(generator.images, generator, progress=False, **options)
    print(f"{built.n_rubrics} rubrics, {built.n_cases} instructions with every response,", end=" ")
    print(f"{built.n_incomplete} without some")
    print(f"{time.monotonic() - start:.0f} s")
    print(markdown(table_of(built)))
    bad = built.log.dropna(subset=["fault"])
    print(bad[["call", "try", "fault", "detail"]].to_string(index=False, max_colwidth=110))


if __name__ == "__main__":
    main()
