"""Real verdicts: what people and judges said of the same items, read from the public files of the papers.

Nothing of them comes with this package. Each set is a handful of public files at one commit, known by their checksums,
fetched into the user's cache or read from a clone. To add a set, write a reader and an entry of `SOURCES`.
"""

# ruff: noqa: E501

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special

from vjudge.data.schema import CollectionError

MIRROR = "https://raw.githubusercontent.com"
SECONDS = 30.0  # without a byte from the server


@dataclass(frozen=True)
class Source:
    """Public files with verdicts: "owner/name@commit/path" -> SHA-256, their reader, and what to say beside a number."""

    files: Mapping[str, str]
    read: Callable[[Mapping[str, Path]], pd.DataFrame]
    licence: str
    citation: str
    traps: tuple[str, ...]


def load_verdicts(name_or_path: str | Path) -> pd.DataFrame:
    """Load people's ratings beside real judges' verdicts on the same items.

    >>> import vjudge as vj
    >>> frame = vj.load_verdicts("mllm-judge")  # doctest: +SKIP
    >>> vj.correlate(frame["gemini_2_5_flash"], frame["human"], groups=frame["group"])  # doctest: +SKIP

    Args:
        name_or_path: "mllm-judge", "tifa160" or "genai-bench", fetched into vjudge's folder in the user's cache
            (XDG_CACHE_HOME, or ~/.cache); or a folder with the files of one of them, such as a clone at the commit
            that `attrs["source"]` names.

    Returns:
        A row for each item, in the order of the source. Columns `item`, `group` (the unit of resampling), `criterion`,
        `model` (whose answer or image it is, where that is known); of scores `human_1` .. `human_k` and `human`, their
        mean; of pairs `preference` ("a", "b", "tie") and `preference_four` ("left", "right", "both good", "both bad").
        Then each judge's verdict under its name, in the same form; a missing one is NaN, a malformed one stands as it
        is. `attrs` has `judges`, `raters`, `source`, `licence`, `citation` and `traps`: what to say beside a number.

    Raises:
        CollectionError: no such set or folder; a file can't be fetched, or is another than the one that was checked.
    """
    name = str(name_or_path)
    if name in SOURCES:
        paths = {file: _fetch(name, file) for file in SOURCES[name].files}
    elif name.strip() and (folder := Path(name).expanduser()).is_dir():
        name, paths = _clone(folder)
    else:
        raise CollectionError(
            f"there are no verdicts named {name_or_path!r}: use {', '.join(map(repr, SOURCES))}, or a folder with the"
            " files of one of them"
        )
    source = SOURCES[name]
    for file, place in paths.items():
        if hashlib.sha256(place.read_bytes()).hexdigest() != source.files[file]:
            raise CollectionError(
                f"{place} is not the file that was checked, {file}: check out that commit, or delete a damaged file"
            )
    frame = source.read({_inside(file): place for file, place in paths.items()})
    repositories = sorted({file.removesuffix(f"/{_inside(file)}") for file in paths})
    frame.attrs |= {"name": name, "source": ", ".join(repositories), "licence": source.licence}
    frame.attrs |= {"citation": source.citation, "traps": list(source.traps)}
    return frame


def _inside(file: str) -> str:
    """The path of a file inside of its repository."""
    return file.split("/", 2)[2]


def _clone(folder: Path) -> tuple[str, dict[str, Path]]:
    """The set of which a folder holds the files of the first repository, and the set's files that are there."""
    for name, source in SOURCES.items():
        paths = {file: folder / _inside(file) for file in source.files if (folder / _inside(file)).is_file()}
        owner = next(iter(source.files)).split("/")[0]
        if all(file in paths for file in source.files if file.startswith(f"{owner}/")):
            return name, paths
    expected = "; ".join(f"{name}: {_inside(next(iter(source.files)))}" for name, source in SOURCES.items())
    raise CollectionError(f"{folder} holds the files of no known set, such as {expected}")


def _fetch(name: str, file: str) -> Path:
    """A file from the cache, or fetched into it; it appears there whole or not at all."""
    owner, repository, path = file.split("/", 2)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vjudge", "verdicts")
    place = home / owner / repository / path
    if place.is_file():
        return place
    url = f"{MIRROR}/{owner}/{repository.replace('@', '/')}/{path}"
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            data = answer.read(1 << 26)
    except (OSError, ValueError) as error:
        raise CollectionError(
            f"verdicts {name!r} can't be fetched from {url} ({error}): connect to the network, or clone the repository"
            f" at {repository.partition('@')[2][:7]} elsewhere and give load_verdicts its folder"
        ) from error
    if hashlib.sha256(data).hexdigest() != SOURCES[name].files[file]:
        raise CollectionError(f"{url} serves another file than the one that was checked; nothing of it was kept")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as part:
        part.write(data)
    os.replace(part.name, place)
    return place


def _mllm_judge(files: Mapping[str, Path]) -> pd.DataFrame:
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


def _tifa160(files: Mapping[str, Path]) -> pd.DataFrame:
    """One row an image; a VQA judge's score is its share of questions answered yes.

    With dependencies a question counts as answered no where one that it depends on is: there is no red car without a
    car. Source of that rule: j-min/DSG README.md.
    """
    ratings = pd.read_csv(files["dsg/data/tifa160-likert-anns.csv"])
    ratings["item"] = ratings["item_id"] + ":" + ratings["t2i_model"]
    raters = ratings.pivot(index="item", columns="worker_id", values="answer").sort_index(axis=1)
    raters.columns = [f"human_{number}" for number in range(1, raters.shape[1] + 1)]
    facts = ratings.drop_duplicates("item").set_index("item")
    frame = pd.DataFrame(
        {"group": facts["item_id"], "criterion": "text-image consistency", "model": facts["t2i_model"]}
    )
    frame = frame.join(raters).assign(human=raters.mean(axis=1))
    judges = []
    for judge in ("mplug", "instructblip", "pali17b"):
        answers = pd.read_csv(files[f"vqa_answers_release/{judge}_dsg.csv"])
        answers = answers[answers["dsg_prompt_split"] == "tifa160"]
        rows = answers.groupby(answers["item_id"] + ":" + answers["t2i_model"])
        frame[f"dsg_{judge}"] = rows.apply(_with_dependencies)
        frame[f"dsg_{judge}_nodep"] = rows["answer"].apply(lambda said: (said == "yes").mean())
        judges += [f"dsg_{judge}", f"dsg_{judge}_nodep"]
    if "human_annotations/human_annotations_with_scores.json" in files:
        two = _tifa(files["human_annotations/human_annotations_with_scores.json"])
        models = (
            facts["t2i_model"]
            .str.replace("-", "_")
            .str.replace(r"sd(\d)dot(\d)", r"stable_diffusion_v\1_\2", regex=True)
        )
        names = facts["source_id"] + "_" + models
        two = two.reindex(names.loc[frame.index]).set_axis(frame.index)
        frame, judges = frame.join(two), [*judges, *two.columns.drop(["tifa_human_1", "tifa_human_2"])]
    frame = frame.rename_axis("item").reset_index()
    frame.attrs |= {"judges": judges, "raters": list(raters.columns)}
    return frame


def _with_dependencies(answers: pd.DataFrame) -> float:
    """The share of yes among a picture's questions, a no passing on to the questions that depend on it."""
    yes = dict(zip(answers["question_id"], answers["answer"] == "yes", strict=True))
    parents = [
        [int(part) for part in str(cell).split(",") if part.strip().isdigit()] for cell in answers["dependency_id"]
    ]
    counts = [
        own and all(yes.get(parent, True) for parent in above) for own, above in zip(yes.values(), parents, strict=True)
    ]
    return float(np.mean(counts))


def _tifa(path: Path) -> pd.DataFrame:
    """TIFA's own two raters and ten scores, by "source_model"."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    plain = {"text_id", "image_path", "text", "human_scores", "human_avg"}
    return pd.DataFrame.from_dict(
        {
            name: {f"tifa_human_{n}": score for n, score in enumerate(row["human_scores"], 1)}
            | {key.replace("-", "_"): score for key, score in row.items() if key not in plain}
            for name, row in rows.items()
        },
        orient="index",
    )


_VOTES = {"leftvote": "left", "rightvote": "right", "tievote": "both good", "bothbad_vote": "both bad"}
_ANSWERS = {"[[A>B]]": "left", "[[B>A]]": "right", "[[A=B=Good]]": "both good", "[[A=B=Bad]]": "both bad"}
_THREE = {"left": "a", "right": "b", "both good": "tie", "both bad": "tie"}


def _genai_bench(files: Mapping[str, Path]) -> pd.DataFrame:
    """One row a pair; all judges were shown it in one order."""
    tables = {}
    for path, file in files.items():
        judge = path.split("/")[2].lower().replace("-", "_").replace(".", "_")
        lines = file.read_text(encoding="utf-8").splitlines()
        tables[judge] = pd.DataFrame(map(json.loads, lines)).set_index("idx").sort_index()
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


_UNCERTAINTY = "divake/VLM-Judge-Uncertainty@6d09bc8191b887d9ec7f896a49734317bf71a899/results"
_DSG = "j-min/DSG@7330119a39f76ff90e619a8bd3ff321e71aa986b"
_GENAI = "TIGER-AI-Lab/GenAI-Bench@f0b0334d414074c6b1c97e2c60ad8d8a592bda9f/results/image_edition"

SOURCES: dict[str, Source] = {
    "mllm-judge": Source(
        files={
            f"{_UNCERTAINTY}/v2/error_analysis.csv": "abcc378ed468ad069544982cbdd33f39e0ed954279d56ee7a775eb8996c03fb0",
            f"{_UNCERTAINTY}/v2/features_s2.csv": "5f19d1dcc7e7c007fb624ebdc607c4d23f7b368d4e522d4143424788710d8915",
            f"{_UNCERTAINTY}/v2_phi4/features_s2.csv": "e0a291938b239f19d0edc5e86fb8f4b09a0bac6b11d131024eee2e3f3e94183e",
            f"{_UNCERTAINTY}/v2_gemini/features_s2.csv": "7852727445fb745abac1bb5bdab9764c73c7ab6103dfdc5d917a2fe5daa837f7",
        },
        read=_mllm_judge,
        licence="code MIT; the ratings are MLLM-as-a-Judge's, CC BY-NC by the repository's account",
        citation="Chen et al. 2024, MLLM-as-a-Judge, arXiv 2402.04788; Kumar et al. 2026, arXiv 2604.25235",
        traps=(
            "the source names neither the image nor the answering model: about four rows in succession share an image,"
            " so that intervals over items are too narrow; group is the data set",
            "one rater an answer, so that there is no ceiling",
            "Gemini lacks 308 scores and Phi-4 64; a log-probability of -11.513 is a floor for a token that the"
            " interface did not return, which the expected scores hold",
        ),
    ),
    "tifa160": Source(
        files={
            f"{_DSG}/dsg/data/tifa160-likert-anns.csv": "61c9ff41b9f9fc26a44bbaf5540caeb67c09a9e3039536567f3e45d40ad0e9f8",
            f"{_DSG}/vqa_answers_release/mplug_dsg.csv": "80feb7ea352dadaca6de97149b9a43c122a5feaec985c32f2fffbf38a39a795c",
            f"{_DSG}/vqa_answers_release/instructblip_dsg.csv": "459bf361e237efff7f6e127e66076a1205c1f4912b8ba20dab813b89fe8fbb92",
            f"{_DSG}/vqa_answers_release/pali17b_dsg.csv": "ac394cb8116e2e3723e21064683ffa24b34c866bf2450c6fb0ae6688b15dbf85",
            "Yushi-Hu/tifa@8e37050f44ab4ee681e4251f3c8a9d4cc86e901e/human_annotations/human_annotations_with_scores.json": (
                "1720bb802c3c0821dd56df0d8c20a1214ff5085d7e5d9236a75736b1d39b7b3c"
            ),
        },
        read=_tifa160,
        licence="Apache-2.0",
        citation="Cho et al. 2023, DSG, arXiv 2310.18235; Hu et al. 2023, TIFA, arXiv 2303.11897",
        traps=(
            "human_1 and human_2 correlate .90 with each other and .63 to .70 with the others: perhaps not independent",
            "160 prompts, each with five generators: group is the prompt, and pooling mixes in what generators differ by",
            "no question was asked about prompt 134: its five images have no score here, and 0 in the published figures;"
            " those of prompt 67, where one dependency is misspelt, ignore all its dependencies",
            "TIFA's own notebook prints Pearson as Spearman",
        ),
    ),
    "genai-bench": Source(
        files={
            f"{_GENAI}/gpt4o/pairwise.jsonl": "e2bd4ee9c6b60417d00b08a3cccaeaf9aa2ef358c1fe9db6e0add765c761f223",
            f"{_GENAI}/gemini-1.5-pro/pairwise.jsonl": "6af9749e0d899c09ba840bd5d58b8417b4bd5e6a0a21d69536a4ce4b14f4cfd1",
            f"{_GENAI}/llava/pairwise.jsonl": "c5371c4664f873ac133dab9121a1db6108570c24e1ed6ca494bf045c54d0c137",
            f"{_GENAI}/llavanext/pairwise.jsonl": "de34a0d8409b3c05067aac1a611e589dc48d8b2ca3e88c191ece7932f3b60cca",
            f"{_GENAI}/qwenVL/pairwise.jsonl": "6b562dcf764d3e3c0948d5dbca2e9a3a46d945d56db91b413b141d4d1943c6ca",
            f"{_GENAI}/random/pairwise.jsonl": "d2a7070c1d9fe6476dcf7b3e30cc2ca4cc3813b1eeced36dbbe2da68c750a7b0",
        },
        read=_genai_bench,
        licence="MIT",
        citation="Jiang et al. 2024, GenAI Arena, arXiv 2406.04485",
        traps=(
            "the pairs of image editing alone: of the other tasks no checksum is known here",
            "each pair was shown in one order: a lean to A can be read against people's own rate of A, and not told from"
            " a preference",
            "one vote a pair, so that there is no ceiling; a malformed answer is no verdict, and counts as wrong upstream",
        ),
    ),
}
"""The sets by name."""
