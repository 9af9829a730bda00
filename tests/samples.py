"""Rows and judges that the tests of collections share."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
from PIL import Image

from vjudge.engines import Answer, Engine
from vjudge.judging.judge import Judge
from vjudge.prompts import TEMPLATES

ROWS = Path(__file__).parent / "rows"
"""Rows in the layouts of published data sets, with sentences of our own."""
GENUINE = Path(__file__).parents[2] / "shared" / "data" / "rows"
"""The published rows themselves, whose sentences are other people's: not part of the project."""
LEVELS = ["none", "few", "half", "most", "all"]


class Scripted(Engine):
    """An engine whose answers a function writes: a text, or an answer's fields.

    It gets the prompt's text; or, as `write`, the prompt, the call's `Ask` and the prompt's place.
    """

    name = "scripted"

    def __init__(self, answer=None, write=None):
        self.write = write if write else lambda prompt, ask, place: answer(prompt.text)
        self.asked = 0

    def identity(self):
        return {"engine": self.name, "weights": "none", "versions": {}}

    def answer(self, prompts, images, ask, wanted=None):
        for index in sorted(range(len(prompts)) if wanted is None else wanted):
            assert len(images[index]) == prompts[index].n_images
            said = self.write(prompts[index], ask, index)
            self.asked += 1
            if isinstance(said, str):
                said = {"text": said}
            yield [Answer(index, **{"finish": "stop", "n_new_tokens": 3} | said)]


def judge_of(answer="", template="llava-critic", pairs="llava-critic-pair"):
    """A judge that writes one text, or what a function makes of a prompt's text."""
    says = answer if callable(answer) else lambda _: answer
    return Judge(
        "scripted", template=TEMPLATES[template], pairs=TEMPLATES[pairs], engine=Scripted(says)
    )


def scripted(write, name="scripted"):
    """A judge of items with a rubric and of pairs whose answers `write` makes."""
    pairs = replace(TEMPLATES["prometheus-2-relative"], sees_images=True).as_messages()
    template = TEMPLATES["prometheus-vision"]
    return Judge(name, template=template, pairs=pairs, engine=Scripted(write=write))


def pair(id, a="one", b="two", **more):
    shared = {"images": [], "instruction": "Say it.", "criteria": "Said?"}
    return {"id": id, "response_a": a, "response_b": b, **shared, **more}


def png(colour="red"):
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), colour).save(buffer, "PNG")
    return buffer.getvalue()


def row(id="a", **changes):
    """An item with a rubric, without a word of pictures."""
    base = {
        "id": id,
        "instruction": "Say.",
        "response": "Red.",
        "criteria": "True?",
        "descriptions": LEVELS,
    }
    return {**base, **changes}


def picture(folder, name, colour="red"):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(png(colour))
    return name


def lines(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def parquet(path, *rows):
    pd.DataFrame(list(rows)).to_parquet(path)
    return path


def plain(items):
    return items.with_format("arrow")[:].to_pylist()


def orig(**changes):
    levels = {f"orig_score{score}_description": text for score, text in enumerate(LEVELS, start=1)}
    base = {
        "instruction": "###Task Description: the whole prompt",
        "output": "Right. So the overall score is 4.\n[RESULT] 4",
        "orig_instruction": "Say.",
        "orig_response": "Red.",
        "orig_reference_answer": "It is red.",
        "orig_criteria": "True?",
        "orig_feedback": "Right.",
        "orig_score": 4,
    }
    return {**base, **levels, **changes}


def turns(prompt, answer, **more):
    talk = [{"from": "human", "value": f"<image>\n{prompt}"}, {"from": "gpt", "value": answer}]
    return {
        "id": "7",
        "source": "llava",
        "conversations": talk,
        "image": {"bytes": png(), "path": None},
        **more,
    }
