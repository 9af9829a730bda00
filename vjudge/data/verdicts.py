"""Real verdicts: what people and judges said of the same items, read from the papers' public files at one commit.

Nothing of them comes with this package: files known by their checksums are fetched into the user's cache, or read from
a clone. To add a set, write a reader here and its files, with what must be said of it, into `assets/verdicts.json`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pandas as pd
from scipy import special

from vjudge.data.schema import CollectionError

MIRROR = "https://raw.githubusercontent.com"
_FACTS = resources.files("vjudge").joinpath("assets", "verdicts.json").read_text(encoding="utf-8")
SOURCES: dict[str, dict[str, Any]] = json.loads(_FACTS)
"""The sets by name: files ("owner/name@commit" -> path -> SHA-256), licence, citation, traps."""


def load_verdicts(name_or_path: str | Path) -> pd.DataFrame:
    """Load people's ratings beside real judges' verdicts on the same items.

    >>> import vjudge as vj
    >>> frame = vj.load_verdicts("mllm-judge")  # doctest: +SKIP
    >>> vj.correlate(frame["gemini_2_5_flash"], frame["human"], groups=frame["group"])  # doctest: +SKIP

    Args:
        name_or_path: "mllm-judge", "tifa160" or "genai-bench", fetched into vjudge's folder in the user's cache
            (XDG_CACHE_HOME, or ~/.cache); or a clone at the commit that `attrs["source"]` names.

    Returns:
        A row for each item, in the order of the source. Columns `item`, `group` (the unit of resampling), `criterion`,
        `model` (whose answer or image it is, where that is known); of scores `human_1` .. `human_k` and `human`, their
        mean; of pairs `preference` ("a", "b", "tie") and `preference_four` ("left", "right", "both good", "both bad").
        Then each judge's verdict under its name, in the same form; a missing one is NaN, a malformed one stands as it
        is. `attrs` has `name`, `judges`, `raters`, `source`, `licence`, `citation` and `traps`: what to say beside a
        number. CollectionError: no such set or folder; a file can't be fetched, or is another than was checked.
    """
    name, folder = str(name_or_path), None
    if name not in SOURCES:
        folder = Path(name).expanduser()
        firsts = {known: next(iter(facts["files"].values())) for known, facts in SOURCES.items()}
        name = next(
            (
                known
                for known, paths in firsts.items()
                if any((folder / path).is_file() for path in paths)
            ),
            "",
        )
        if not name:
            first = "; ".join(f"{known}: {next(iter(paths))}" for known, paths in firsts.items())
            what = f"use {', '.join(map(repr, SOURCES))}, or a folder with the files of one ({first}, ...)"
            raise CollectionError(f"there are no verdicts named {name_or_path!r}: {what}")
    facts = dict(SOURCES[name])
    repositories = list(facts.pop("files").items())[
        : 1 if folder else None
    ]  # a clone is of the first one
    own = [path for _, paths in repositories for path in paths]
    if missing := [path for path in own if folder and not (folder / path).is_file()]:
        raise CollectionError(
            f"{folder} lacks {', '.join(missing)} of {name!r}: give a whole clone"
        )
    files = {
        path: _read(at, path, digest, folder)
        for at, paths in repositories
        for path, digest in paths.items()
    }
    frame = READERS[name](files)
    frame.attrs |= {
        "name": name,
        "source": ", ".join(sorted(at for at, _ in repositories)),
        **facts,
    }
    return frame


def _read(repository: str, path: str, digest: str, folder: Path | None) -> io.BytesIO:
    """A file of a clone or of the cache, in which a fetched one appears whole or not at all."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vjudge", "verdicts")
    place, url = (
        (folder or home / repository) / path,
        f"{MIRROR}/{repository.replace('@', '/')}/{path}",
    )
    fetched = folder is None and not place.is_file()
    try:
        with urlopen(url, timeout=30) if fetched else place.open("rb") as file:
            content: bytes = file.read(1 << 26)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("it is not the file that was checked")
        if fetched:
            place.parent.mkdir(parents=True, exist_ok=True)
            (part := place.with_name(f"{place.name}.{os.getpid()}")).write_bytes(content)
            part.replace(place)
    except (OSError, ValueError) as error:
        raise CollectionError(
            f"verdicts can't be read from {url if fetched else place} ({error}): connect to the network, or give"
            f" load_verdicts the folder of a clone at {repository.partition('@')[2][:7]}; delete a damaged file"
        ) from error
    return io.BytesIO(content)


def _mllm_judge(files: Mapping[str, io.BytesIO]) -> pd.DataFrame:
    """One row an answer; a judge's printed score, and the mean of the distribution over its five score tokens."""
    kinds = pd.read_csv(files["results/v2/error_analysis.csv"], index_col="sample_id")[
        "orig_dataset"
    ]
    folders = {"llava_critic_7b": "v2", "phi4_15b": "v2_phi4", "gemini_2_5_flash": "v2_gemini"}
    paths = {judge: f"results/{folder}/features_s2.csv" for judge, folder in folders.items()}
    tables = {
        judge: pd.read_csv(files[path], index_col="sample_id") for judge, path in paths.items()
    }
    people = tables["llava_critic_7b"]["gt_score"]  # the same in all three
    # Data sets come one after the other; of the item that LLaVA-Critic gave no score the source does not say which.
    frame = pd.DataFrame({"group": kinds.reindex(people.index).ffill(), "criterion": "overall"})
    frame = frame.assign(human_1=people, human=people).rename_axis("item").rename(str).reset_index()
    for judge, table in tables.items():
        table = table.reindex(people.index)
        scored = table["parsed_score"] > 0  # -1 is how the source writes that there is no score
        logs = table[[f"s2_lp{score}" for score in range(1, 6)]].to_numpy()
        frame[judge] = table["parsed_score"].where(scored).to_numpy(float)
        frame[f"{judge}_expected"] = np.where(
            scored, special.softmax(logs, axis=1) @ np.arange(1, 6), np.nan
        )
    frame.attrs |= {"judges": list(tables), "raters": ["human_1"]}
    return frame


def _tifa160(files: Mapping[str, io.BytesIO]) -> pd.DataFrame:
    """One row an image; a VQA judge's score is its share of questions answered yes."""
    ratings = pd.read_csv(files["dsg/data/tifa160-likert-anns.csv"])
    ratings["item"] = ratings["item_id"] + ":" + ratings["t2i_model"]
    raters = ratings.pivot(index="item", columns="worker_id", values="answer").sort_index(axis=1)
    raters.columns = [f"human_{number}" for number in range(1, raters.shape[1] + 1)]
    facts = ratings.drop_duplicates("item").set_index("item")
    cells = {
        "group": facts["item_id"],
        "criterion": "text-image consistency",
        "model": facts["t2i_model"],
    }
    frame = pd.DataFrame(cells).join(raters).assign(human=raters.mean(axis=1))
    judges = []
    for judge in ("mplug", "instructblip", "pali17b"):
        answers = pd.read_csv(files[f"vqa_answers_release/{judge}_dsg.csv"])
        answers = answers[answers["dsg_prompt_split"] == "tifa160"]
        rows = answers.groupby(answers["item_id"] + ":" + answers["t2i_model"])
        frame[f"dsg_{judge}"] = rows.apply(_with_dependencies)
        frame[f"dsg_{judge}_nodep"] = rows["answer"].apply(lambda said: (said == "yes").mean())
        judges += [f"dsg_{judge}", f"dsg_{judge}_nodep"]
    if own := files.get(
        "human_annotations/human_annotations_with_scores.json"
    ):  # TIFA's two raters and ten scores
        rows = pd.DataFrame.from_dict(json.load(own), orient="index")
        scores = rows.drop(columns=["text_id", "image_path", "text", "human_scores", "human_avg"])
        scores = scores.rename(columns=lambda name: name.replace("-", "_"))
        models = facts["t2i_model"].str.replace("-", "_")
        models = models.str.replace(r"sd(\d)dot(\d)", r"stable_diffusion_v\1_\2", regex=True)
        two = pd.DataFrame(
            rows["human_scores"].tolist(), rows.index, ["tifa_human_1", "tifa_human_2"]
        )
        frame = frame.join(
            two.join(scores).reindex(facts["source_id"] + "_" + models).set_axis(facts.index)
        )
        judges += list(scores)
    frame = frame.rename_axis("item").reset_index()
    frame.attrs |= {"judges": judges, "raters": list(raters.columns)}
    return frame


def _with_dependencies(answers: pd.DataFrame) -> float:
    """The share of yes, a no passing on to the questions that depend on it. Source: j-min/DSG README.md."""
    yes = dict(zip(answers["question_id"], answers["answer"] == "yes", strict=True))
    above = [
        [int(part) for part in str(ids).split(",") if part.strip().isdigit()]
        for ids in answers["dependency_id"]
    ]
    counts = [
        yes[id] and all(yes.get(part, True) for part in ids)
        for id, ids in zip(yes, above, strict=True)
    ]
    return float(np.mean(counts))


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
_THREE = {"left": "a", "right": "b", "both good": "tie", "both bad": "tie"}


def _genai_bench(files: Mapping[str, io.BytesIO]) -> pd.DataFrame:
    """One row a pair; all judges were shown it in one order."""
    tables = {}
    for path, file in files.items():
        judge = re.sub("[-.]", "_", path.split("/")[2].lower())
        tables[judge] = pd.DataFrame(map(json.loads, file)).set_index("idx").sort_index()
    prompts = tables["gpt4o"][["source_prompt", "target_prompt", "instruct_prompt"]]
    groups = [
        f"image_edition:p{code}" for code in prompts.groupby(list(prompts), sort=False).ngroup()
    ]
    items = [f"image_edition:{index}" for index in prompts.index]
    frame = pd.DataFrame({"item": items, "group": groups, "criterion": "image editing"})
    four = {"preference": tables["gpt4o"]["human_vote"].map(_VOTES)}
    for judge, table in tables.items():
        votes = table["model_vote"].reindex(prompts.index)
        four[judge] = votes.map(_ANSWERS).fillna(
            votes
        )  # None stays missing, a malformed answer stays itself
    for column, verdicts in four.items():
        frame[column] = verdicts.map(lambda verdict: _THREE.get(verdict, verdict)).to_numpy()
        frame[f"{column}_four"] = verdicts.to_numpy()
    frame.attrs |= {"judges": list(tables), "raters": ["preference"]}
    return frame


READERS = {"mllm-judge": _mllm_judge, "tifa160": _tifa160, "genai-bench": _genai_bench}
