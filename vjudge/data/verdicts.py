"""Real verdicts: what people and judges said of the same items, read from the papers' public files at one commit.

Nothing of them comes with this package: files known by their checksums are fetched into the user's cache, or read from
a clone. To add a set, write a reader here and its files, with what must be said of it, into `assets/verdicts.json`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import urllib.request
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from vjudge.data.schema import CollectionError

MIRROR = "https://raw.githubusercontent.com"
SECONDS = 30.0  # without a byte from the server
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
        name = next((known for known, paths in firsts.items() if any((folder / path).is_file() for path in paths)), "")
        if not name:
            raise CollectionError(
                f"there are no verdicts named {name_or_path!r}: use {', '.join(map(repr, SOURCES))}, or a folder with"
                " the files of one of them"
            )
    repositories = list(SOURCES[name]["files"].items())[: 1 if folder else None]  # a clone is of the first one
    files: dict[str, io.BytesIO] = {}
    for repository, paths in repositories:
        files |= {path: io.BytesIO(_content(name, repository, path, paths[path], folder)) for path in paths}
    frame = READERS[name](files)
    frame.attrs |= {"name": name, "source": ", ".join(sorted(repository for repository, _ in repositories))}
    frame.attrs |= {fact: SOURCES[name][fact] for fact in ("licence", "citation", "traps")}
    return frame


def _content(name: str, repository: str, path: str, digest: str, folder: Path | None) -> bytes:
    """A file of a clone or of the cache, in which a fetched one appears whole or not at all."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vjudge", "verdicts")
    place, url = (folder or home / repository) / path, f"{MIRROR}/{repository.replace('@', '/')}/{path}"
    away = folder is None and not place.is_file()
    try:
        if away:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                content: bytes = answer.read(1 << 26)
        else:
            content = place.read_bytes()
    except (OSError, ValueError) as error:
        raise CollectionError(
            f"verdicts {name!r} can't be fetched from {url if away else place} ({error}): connect to the network, or"
            f" clone the repository at {repository.partition('@')[2][:7]} elsewhere and give load_verdicts its folder"
        ) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise CollectionError(
            f"{url if away else place} is not the file that was checked, and nothing of it was kept: check out the"
            f" commit {repository.partition('@')[2][:7]}, or delete a damaged file"
        )
    if away:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as part:
            part.write(content)
        os.replace(part.name, place)
    return content


def _mllm_judge(files: Mapping[str, io.BytesIO]) -> pd.DataFrame:
    """One row an answer; a judge's printed score, and the mean of the distribution over its five score tokens."""
    kinds = pd.read_csv(files["results/v2/error_analysis.csv"]).set_index("sample_id")["orig_dataset"]
    judges = {"llava_critic_7b": "v2", "phi4_15b": "v2_phi4", "gemini_2_5_flash": "v2_gemini"}
    tables = {
        judge: pd.read_csv(files[f"results/{folder}/features_s2.csv"]).set_index("sample_id")
        for judge, folder in judges.items()
    }
    people = tables["llava_critic_7b"]["gt_score"]  # the same in all three
    frame = pd.DataFrame({"item": people.index.astype(str)})
    # Data sets come one after the other; of the item that LLaVA-Critic gave no score the source does not say which.
    frame["group"] = kinds.reindex(people.index).ffill().to_numpy()
    frame["criterion"] = "overall"
    frame["human_1"] = frame["human"] = people.to_numpy()
    for judge, table in tables.items():
        table = table.reindex(people.index)
        scored = table["parsed_score"] > 0  # -1 is how the source writes that there is no score
        logs = table[[f"s2_lp{score}" for score in range(1, 6)]].to_numpy()
        frame[judge] = table["parsed_score"].where(scored).to_numpy(float)
        frame[f"{judge}_expected"] = np.where(scored, special.softmax(logs, axis=1) @ np.arange(1, 6), np.nan)
    frame.attrs |= {"judges": list(judges), "raters": ["human_1"]}
    return frame


def _tifa160(files: Mapping[str, io.BytesIO]) -> pd.DataFrame:
    """One row an image; a VQA judge's score is its share of questions answered yes."""
    ratings = pd.read_csv(files["dsg/data/tifa160-likert-anns.csv"])
    ratings["item"] = ratings["item_id"] + ":" + ratings["t2i_model"]
    raters = ratings.pivot(index="item", columns="worker_id", values="answer").sort_index(axis=1)
    raters.columns = [f"human_{number}" for number in range(1, raters.shape[1] + 1)]
    facts = ratings.drop_duplicates("item").set_index("item")
    cells = {"group": facts["item_id"], "criterion": "text-image consistency", "model": facts["t2i_model"]}
    frame = pd.DataFrame(cells).join(raters).assign(human=raters.mean(axis=1))
    judges = []
    for judge in ("mplug", "instructblip", "pali17b"):
        answers = pd.read_csv(files[f"vqa_answers_release/{judge}_dsg.csv"])
        answers = answers[answers["dsg_prompt_split"] == "tifa160"]
        rows = answers.groupby(answers["item_id"] + ":" + answers["t2i_model"])
        frame[f"dsg_{judge}"] = rows.apply(_with_dependencies)
        frame[f"dsg_{judge}_nodep"] = rows["answer"].apply(lambda said: (said == "yes").mean())
        judges += [f"dsg_{judge}", f"dsg_{judge}_nodep"]
    if own := files.get("human_annotations/human_annotations_with_scores.json"):  # TIFA's two raters and ten scores
        rows = pd.DataFrame.from_dict(json.load(own), orient="index")
        scores = rows.drop(columns=["text_id", "image_path", "text", "human_scores", "human_avg"])
        scores = scores.rename(columns=lambda name: name.replace("-", "_"))
        models = facts["t2i_model"].str.replace("-", "_")
        models = models.str.replace(r"sd(\d)dot(\d)", r"stable_diffusion_v\1_\2", regex=True)
        two = pd.DataFrame(rows["human_scores"].tolist(), rows.index, ["tifa_human_1", "tifa_human_2"])
        frame = frame.join(two.join(scores).reindex(facts["source_id"] + "_" + models).set_axis(facts.index))
        judges += list(scores)
    frame = frame.rename_axis("item").reset_index()
    frame.attrs |= {"judges": judges, "raters": list(raters.columns)}
    return frame


def _with_dependencies(answers: pd.DataFrame) -> float:
    """The share of yes, a no passing on to the questions that depend on it. Source: j-min/DSG README.md."""
    yes = dict(zip(answers["question_id"], answers["answer"] == "yes", strict=True))
    parents = [str(cell).split(",") for cell in answers["dependency_id"]]
    counts = [
        own and all(yes.get(int(part), True) for part in above if part.strip().isdigit())
        for own, above in zip(yes.values(), parents, strict=True)
    ]
    return float(np.mean(counts))


_VOTES = {"leftvote": "left", "rightvote": "right", "tievote": "both good", "bothbad_vote": "both bad"}
_ANSWERS = {"[[A>B]]": "left", "[[B>A]]": "right", "[[A=B=Good]]": "both good", "[[A=B=Bad]]": "both bad"}
_THREE = {"left": "a", "right": "b", "both good": "tie", "both bad": "tie"}


def _genai_bench(files: Mapping[str, io.BytesIO]) -> pd.DataFrame:
    """One row a pair; all judges were shown it in one order."""
    tables = {}
    for path, file in files.items():
        judge = path.split("/")[2].lower().replace("-", "_").replace(".", "_")
        tables[judge] = pd.DataFrame(map(json.loads, file)).set_index("idx").sort_index()
    prompts = tables["gpt4o"][["source_prompt", "target_prompt", "instruct_prompt"]]
    items = prompts.index
    frame = pd.DataFrame({"item": [f"image_edition:{index}" for index in items]})
    frame["group"] = [f"image_edition:p{code}" for code in prompts.groupby(list(prompts), sort=False).ngroup()]
    frame["criterion"] = "image editing"
    four = {"preference": tables["gpt4o"]["human_vote"].map(_VOTES)}
    for judge, table in tables.items():
        votes = table["model_vote"].reindex(items)
        four[judge] = votes.map(_ANSWERS).fillna(votes)  # None stays missing, a malformed answer stays itself
    for column, verdicts in four.items():
        frame[column] = verdicts.map(lambda verdict: _THREE.get(verdict, verdict)).to_numpy()
        frame[f"{column}_four"] = verdicts.to_numpy()
    frame.attrs |= {"judges": list(tables), "raters": ["preference"]}
    return frame


READERS = {"mllm-judge": _mllm_judge, "tifa160": _tifa160, "genai-bench": _genai_bench}
