"""Real verdicts: what people and judges said of the same items, from the papers' public files.

Nothing of them comes with this package: files known by their checksums are fetched into the user's
cache, or read from a clone. To add a set, write a reader here and its files, with what must be said
of it, into `assets/verdicts.json`.
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
_MAX_BYTES = 2**26  # of one file

Files = Mapping[str, io.BytesIO]  # by path


def load_verdicts(name_or_path: str | Path) -> pd.DataFrame:
    """Load people's ratings beside real judges' verdicts on the same items.

    >>> import vjudge as vj
    >>> frame = vj.load_verdicts("mllm-judge")  # doctest: +SKIP
    >>> vj.correlate(frame["gemini_2_5_flash"], frame["human"])  # doctest: +SKIP

    Args:
        name_or_path: "mllm-judge", "tifa160" or "genai-bench", fetched into vjudge's folder in the
            user's cache (XDG_CACHE_HOME, or ~/.cache); or a clone at the commit that
            `attrs["source"]` names.

    Returns:
        A row for each item, in the order of the source. Columns `item`, `group` (the unit of
        resampling), `criterion`, `model` (whose answer or image it is, where that is known); of
        scores `human_1` .. `human_k` and `human`, their mean; of pairs `preference` ("a", "b",
        "tie") and `preference_four` ("left", "right", "both good", "both bad"). Then each judge's
        verdict under its name, in the same form; a missing one is NaN, a malformed one stands as it
        is. `attrs` has `name`, `judges`, `raters`, `source`, `licence`, `citation` and `traps`:
        what to say beside a number.

    Raises:
        CollectionError: no such set or folder; files are missing, can't be fetched, or are others
            than were checked.
    """
    name = str(name_or_path)
    folder = None
    if name not in SOURCES:
        folder = Path(name_or_path or "nowhere").expanduser()
        name = _set_in(folder, name_or_path)
    facts = dict(SOURCES[name])
    repositories = facts.pop("files")
    if folder:  # a clone is of the first repository
        first = next(iter(repositories))
        repositories = {first: repositories[first]}
        missing = [path for path in repositories[first] if not (folder / path).is_file()]
        if missing:
            what = f"{folder} lacks {', '.join(missing)} of {name!r}: give a whole clone"
            raise CollectionError(what)
    files = {}
    for repository, paths in repositories.items():
        for path, digest in paths.items():
            files[path] = _read(repository, path, digest, folder)
    frame = READERS[name](files)
    frame.attrs |= {"name": name, "source": ", ".join(sorted(repositories)), **facts}
    return frame


def _set_in(folder: Path, given: Any) -> str:
    """The set whose files a folder has; an error that lists the files of each set."""
    listed = []
    for name, facts in SOURCES.items():
        paths = list(next(iter(facts["files"].values())))
        if any((folder / path).is_file() for path in paths):
            return name
        listed.append(f"{name}: {', '.join(paths)}")
    names = ", ".join(map(repr, SOURCES))
    raise CollectionError(
        f"there are no verdicts named {given!r}: use {names}, or a folder with the files of one"
        f" ({'; '.join(listed)})"
    )


def _read(repository: str, path: str, digest: str, folder: Path | None) -> io.BytesIO:
    """A file of a clone or of the cache, in which a fetched one appears whole or not at all."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vjudge", "verdicts")
    place = (folder or cache / repository) / path
    url = f"{MIRROR}/{repository.replace('@', '/')}/{path}"
    fetched = folder is None and not place.is_file()
    try:
        with urlopen(url, timeout=30) if fetched else place.open("rb") as file:
            content: bytes = file.read(_MAX_BYTES)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("it is not the file that was checked")
        if fetched:
            place.parent.mkdir(parents=True, exist_ok=True)
            part = place.with_name(f"{place.name}.{os.getpid()}")
            part.write_bytes(content)
            part.replace(place)
    except (OSError, ValueError) as error:
        commit = repository.partition("@")[2][:7]
        raise CollectionError(
            f"verdicts can't be read from {url if fetched else place} ({error}): connect to the"
            f" network, or give load_verdicts the folder of a clone at {commit}; delete a damaged"
            " file"
        ) from error
    return io.BytesIO(content)


def _mllm_judge(files: Files) -> pd.DataFrame:
    """One row an answer; a judge's score, and the mean of the distribution over its five scores."""
    folders = {"llava_critic_7b": "v2", "phi4_15b": "v2_phi4", "gemini_2_5_flash": "v2_gemini"}
    tables = {}
    for judge, folder in folders.items():
        tables[judge] = pd.read_csv(
            files[f"results/{folder}/features_s2.csv"], index_col="sample_id"
        )
    people = tables["llava_critic_7b"]["gt_score"]  # the same in all three
    # Data sets come one after the other; of the item that LLaVA-Critic gave no score the source
    # does not say which it is of.
    analysis = pd.read_csv(files["results/v2/error_analysis.csv"], index_col="sample_id")
    frame = pd.DataFrame({"group": analysis["orig_dataset"].reindex(people.index).ffill()})
    frame = frame.assign(criterion="overall", human_1=people, human=people)
    frame = frame.rename_axis("item").rename(str).reset_index()
    for judge, table in tables.items():
        table = table.reindex(people.index)
        scored = table["parsed_score"] > 0  # -1 is how the source writes that there is no score
        logs = table[[f"s2_lp{score}" for score in range(1, 6)]].to_numpy()
        expected = special.softmax(logs, axis=1) @ np.arange(1, 6)
        frame[judge] = table["parsed_score"].where(scored).to_numpy(float)
        frame[f"{judge}_expected"] = np.where(scored, expected, np.nan)
    frame.attrs |= {"judges": list(tables), "raters": ["human_1"]}
    return frame


def _tifa160(files: Files) -> pd.DataFrame:
    """One row an image; a VQA judge's score is its share of questions answered yes."""
    ratings = pd.read_csv(files["dsg/data/tifa160-likert-anns.csv"])
    ratings["item"] = ratings["item_id"] + ":" + ratings["t2i_model"]
    raters = ratings.pivot(index="item", columns="worker_id", values="answer").sort_index(axis=1)
    raters.columns = [f"human_{number}" for number in range(1, raters.shape[1] + 1)]
    facts = ratings.drop_duplicates("item").set_index("item")
    frame = pd.DataFrame({"group": facts["item_id"], "criterion": "text-image consistency"})
    frame = frame.assign(model=facts["t2i_model"]).join(raters)
    frame["human"] = raters.mean(axis=1)
    judges = []
    for judge in ("mplug", "instructblip", "pali17b"):
        answers = pd.read_csv(files[f"vqa_answers_release/{judge}_dsg.csv"])
        answers = answers[answers["dsg_prompt_split"] == "tifa160"]
        items = answers["item_id"] + ":" + answers["t2i_model"]
        said = (answers["answer"] == "yes").set_axis(items)
        frame[f"dsg_{judge}"] = _with_dependencies(answers, said).groupby(level=0).mean()
        frame[f"dsg_{judge}_nodep"] = said.groupby(level=0).mean()
        judges += [f"dsg_{judge}", f"dsg_{judge}_nodep"]
    own = files.get("human_annotations/human_annotations_with_scores.json")
    if own:
        more = _tifa_own(own)
        judges += [name for name in more if not name.startswith("tifa_human")]
        models = facts["t2i_model"].str.replace("-", "_")
        models = models.str.replace(r"sd(\d)dot(\d)", r"stable_diffusion_v\1_\2", regex=True)
        frame = frame.join(more.reindex(facts["source_id"] + "_" + models).set_axis(facts.index))
    frame = frame.rename_axis("item").reset_index()
    frame.attrs |= {"judges": judges, "raters": list(raters.columns)}
    return frame


def _tifa_own(file: io.BytesIO) -> pd.DataFrame:
    """TIFA's two raters and ten scores, by its own names of the images."""
    rows = pd.DataFrame.from_dict(json.load(file), orient="index")
    scores = rows.drop(columns=["text_id", "image_path", "text", "human_scores", "human_avg"])
    scores = scores.rename(columns=lambda name: name.replace("-", "_"))
    names = ["tifa_human_1", "tifa_human_2"]
    return pd.DataFrame(rows["human_scores"].tolist(), rows.index, names).join(scores)


def _with_dependencies(answers: pd.DataFrame, said: pd.Series) -> pd.Series:
    """Whether each answer is yes, a no passing on to the questions that depend on it.

    Source: j-min/DSG README.md.
    """
    places = list(zip(said.index, answers["question_id"], strict=True))
    yes = dict(zip(places, said, strict=True))
    counts = []
    for (item, id), above in zip(places, answers["dependency_id"], strict=True):
        parts = [int(part) for part in str(above).split(",") if part.strip().isdigit()]
        counts.append(yes[item, id] and all(yes.get((item, part), True) for part in parts))
    return pd.Series(counts, index=said.index)


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


def _genai_bench(files: Files) -> pd.DataFrame:
    """One row a pair; all judges were shown it in one order."""
    tables = {}
    for path, file in files.items():
        judge = re.sub("[-.]", "_", path.split("/")[2].lower())
        lines = [json.loads(line) for line in file]
        tables[judge] = pd.DataFrame(lines).set_index("idx").sort_index()
    prompts = tables["gpt4o"][["source_prompt", "target_prompt", "instruct_prompt"]]
    codes = prompts.groupby(list(prompts), sort=False).ngroup()
    frame = pd.DataFrame(
        {
            "item": [f"image_edition:{index}" for index in prompts.index],
            "group": [f"image_edition:p{code}" for code in codes],
            "criterion": "image editing",
        }
    )
    four = {"preference": tables["gpt4o"]["human_vote"].map(_VOTES)}
    for judge, table in tables.items():
        votes = table["model_vote"].reindex(prompts.index)
        # None stays missing, a malformed answer stays itself.
        four[judge] = votes.map(_ANSWERS).fillna(votes)
    for column, verdicts in four.items():
        frame[column] = verdicts.map(lambda verdict: _THREE.get(verdict, verdict)).to_numpy()
        frame[f"{column}_four"] = verdicts.to_numpy()
    frame.attrs |= {"judges": list(tables), "raters": ["preference"]}
    return frame


READERS = {"mllm-judge": _mllm_judge, "tifa160": _tifa160, "genai-bench": _genai_bench}
