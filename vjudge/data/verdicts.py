"""Real verdicts: what people and judges said of the same items, from the papers' public files.

Nothing of them comes with this package: files known by their checksums are fetched into the user's
cache, or read from a clone. To add a set, write a reader here and its files, with what must be said
of it, into `assets/verdicts.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from urllib.request import urlopen

import pandas as pd
from pandas import DataFrame, Series

from vjudge.data.schema import CollectionError

MIRROR = "https://raw.githubusercontent.com"
_FACTS = resources.files("vjudge") / "assets/verdicts.json"
SOURCES: dict = json.loads(_FACTS.read_text(encoding="utf-8"))
"""The sets by name: files ("owner/name@commit" -> path -> SHA-256), licence, citation, traps."""


def load_verdicts(name: str) -> DataFrame:
    """Load people's ratings beside real judges' verdicts on the same items.

    >>> import vjudge as vj
    >>> frame = vj.load_verdicts("mllm-judge")  # doctest: +SKIP
    >>> vj.correlate(frame["gemini_2_5_flash"], frame["human"])  # doctest: +SKIP

    Args:
        name: "mllm-judge", "tifa160" or "genai-bench", fetched into vjudge's folder in the user's
            cache (XDG_CACHE_HOME, or ~/.cache), where the files may also be put by hand.

    Returns:
        A row for each item, in the order of the source. Columns `item`, `group` (the unit of
        resampling), `criterion`, `model` (whose answer or image it is, where that is known); of
        scores `human_1` .. `human_k` and `human`, their mean; of pairs `preference` ("a", "b",
        "tie") and `preference_four` ("left", "right", "both good", "both bad"). Then each judge's
        verdict under its name, in the same form; a missing one is NaN, a malformed one stands as it
        is. `attrs` has `name`, `judges`, `raters`, `source`, `licence`, `citation` and `traps`:
        what to say beside a number.

    Raises:
        CollectionError: no such set; a file can't be fetched, or is another than was checked.
    """
    if name not in SOURCES:
        raise CollectionError(f"there are no verdicts named {name!r}: use one of {list(SOURCES)}")
    facts = dict(SOURCES[name])
    repositories = facts.pop("files")
    files = {}
    for repository, paths in repositories.items():
        for path, digest in paths.items():
            files[path] = _file(repository, path, digest)
    frame = READERS[name](files)
    facts["name"] = name
    facts["source"] = ", ".join(sorted(repositories))
    frame.attrs |= facts
    return frame


def _file(
    repository: str,
    path: str,
    digest: str,
) -> Path:
    """A file of the cache, fetched where it is not there as it was checked."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "vjudge" / "verdicts" / repository / path
    content = place.read_bytes() if place.is_file() else b""
    if hashlib.sha256(content).hexdigest() == digest:
        return place
    url = f"{MIRROR}/{repository.replace('@', '/')}/{path}"
    try:
        with urlopen(url, timeout=30) as reply:
            content = reply.read()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("it is not the file that was checked")
    except (OSError, ValueError) as error:
        raise CollectionError(
            f"verdicts can't be read from {url} ({error}): connect to the network, or put the file"
            f" at {place}"
        ) from error
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


def _by_item(frame: DataFrame, **facts: list) -> DataFrame:
    """The index as the column `item`, of texts, and who judges and who rates."""
    frame = frame.rename(str).rename_axis("item").reset_index()
    frame.attrs |= facts
    return frame


def _mllm_judge(files: Mapping) -> DataFrame:
    """One row an answer."""
    folders = {"llava_critic_7b": "v2", "phi4_15b": "v2_phi4", "gemini_2_5_flash": "v2_gemini"}
    tables = {}
    for judge, folder in folders.items():
        file = files[f"results/{folder}/features_s2.csv"]
        tables[judge] = pd.read_csv(file, index_col="sample_id")
    people = tables["llava_critic_7b"]["gt_score"]  # the same in all three
    # Data sets come one after the other; of the item that LLaVA-Critic gave no score the source
    # does not say which it is of.
    analysis = pd.read_csv(files["results/v2/error_analysis.csv"], index_col="sample_id")
    groups = analysis["orig_dataset"].reindex(people.index).ffill()
    frame = DataFrame({"group": groups, "criterion": "overall"})
    frame["human_1"] = people
    frame["human"] = people
    for judge, table in tables.items():
        scores = table["parsed_score"].reindex(people.index)
        frame[judge] = scores.where(scores > 0)  # -1 is how the source writes that there is none
    return _by_item(
        frame,
        judges=list(tables),
        raters=["human_1"],
    )


def _tifa160(files: Mapping) -> DataFrame:
    """One row an image; a VQA judge's score is its share of questions answered yes."""
    ratings = pd.read_csv(files["dsg/data/tifa160-likert-anns.csv"])
    ratings["item"] = ratings["item_id"] + ":" + ratings["t2i_model"]
    raters = ratings.pivot(
        index="item",
        columns="worker_id",
        values="answer",
    )
    raters.columns = [f"human_{number}" for number, _ in enumerate(raters, start=1)]
    facts = ratings.drop_duplicates("item").set_index("item")
    frame = DataFrame({"group": facts["item_id"]})
    frame["criterion"] = "text-image consistency"
    frame["model"] = facts["t2i_model"]
    frame = frame.join(raters)
    frame["human"] = raters.mean(axis=1)
    for judge in ("mplug", "instructblip", "pali17b"):
        answers = pd.read_csv(files[f"vqa_answers_release/{judge}_dsg.csv"])
        frame[f"dsg_{judge}"] = _shares(answers[answers["dsg_prompt_split"] == "tifa160"])
    own = pd.read_json(
        files["human_annotations/human_annotations_with_scores.json"], orient="index"
    )
    own = own.select_dtypes("number").drop(columns="human_avg")
    own = own.rename(columns=lambda name: name.replace("-", "_"))
    models = facts["t2i_model"].str.replace("-", "_")
    models = models.str.replace(r"sd(\d)dot(\d)", r"stable_diffusion_v\1_\2", regex=True)
    scores = own.reindex(facts["source_id"] + "_" + models)
    frame = frame.join(scores.set_axis(facts.index))
    judges = [name for name in frame if name.startswith("dsg_") or name in own]
    return _by_item(frame, judges=judges, raters=list(raters.columns))


def _shares(answers: DataFrame) -> Series:
    """The share of each image's questions answered yes; below a no everything is no.

    Source: j-min/DSG README.md.
    """
    items = answers["item_id"] + ":" + answers["t2i_model"]
    yes = answers.set_index([items, "question_id"])["answer"] == "yes"
    said = yes.to_dict()
    counts = []
    for (item, question), above in zip(said, answers["dependency_id"], strict=True):
        asked = [question, *map(int, re.findall(r"\d+", str(above)))]
        counts.append(all(said.get((item, number), True) for number in asked))
    return Series(counts, index=items).groupby(level=0).mean()


_VOTES = {
    "leftvote": "left",
    "rightvote": "right",
    "tievote": "both good",
    "bothbad_vote": "both bad",
}
_ANSWERS = {
    "[[A>B]]": "left",
    "[[B>A]]": "right",
    "[[A=B=Good]]": "both good",
    "[[A=B=Bad]]": "both bad",
}
_THREE = {
    "left": "a",
    "right": "b",
    "both good": "tie",
    "both bad": "tie",
}


def _genai_bench(files: Mapping) -> DataFrame:
    """One row a pair; all judges were shown it in one order."""
    tables = {}
    for path, file in files.items():
        judge = re.sub("[-.]", "_", path.split("/")[2].lower())
        table = pd.read_json(file, lines=True)
        tables[judge] = table.set_index("idx").sort_index()
    first = tables["gpt4o"]
    prompts = ["source_prompt", "target_prompt", "instruct_prompt"]
    groups = first.groupby(prompts, sort=False).ngroup()
    frame = DataFrame({"group": "image_edition:p" + groups.astype(str)}, index=first.index)
    frame["criterion"] = "image editing"
    verdicts = {"preference": first["human_vote"].map(_VOTES)}
    for judge, table in tables.items():
        votes = table["model_vote"]
        verdicts[judge] = votes.map(_ANSWERS).fillna(votes)  # a malformed answer stays itself
    for name, four in verdicts.items():
        frame[name] = four.replace(_THREE)
        frame[f"{name}_four"] = four
    frame.index = "image_edition:" + first.index.astype(str)
    return _by_item(frame, judges=list(tables), raters=["preference"])


READERS = {"mllm-judge": _mllm_judge, "tifa160": _tifa160, "genai-bench": _genai_bench}
