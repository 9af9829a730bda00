"""Public verdicts: scores and choices of people and of judges on the same items.

Four sets of numbers are part of the package. The licence of MLLM-as-a-Judge's ratings does not
allow every use, so its files are fetched into the user's cache or read from a clone, and checked by
their checksums. To add a set, put its table and its JSON file into `assets/verdicts`, as
`tools/assets/verdicts.py` does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.request import urlopen

import pandas as pd
from pandas import DataFrame, Series

from vjudge.data.schema import CollectionError
from vjudge.prompts.choices import DEGREES

MIRROR = "https://raw.githubusercontent.com"
FOLDER = Path(__file__).parents[1] / "assets/verdicts"
Bounds = tuple[float, float]  # the lowest and the highest score that can be given
CHOICE_OF_GRADE = {
    "left": "a",
    "right": "b",
    "both good": "tie",
    "both bad": "tie",
    "tie": "tie",
    **DEGREES,
}
"""The choice that a published grade of a pair stands for; "malformed" stands for none."""


@dataclass(frozen=True)
class VerdictSet:
    """A set of public verdicts, and what the columns of its frame hold.

    Attributes:
        name, title: as `load_set` takes it, and as a figure writes it.
        kind: "scores" for scores of single responses or images, "pairs" for choices.
        frame: one row per item and criterion, with the columns
            - `id`, `group` (the unit of resampling), `benchmark`, `criterion`;
            - for scores `system` (the model behind the response, where that is known), `human_1` ..
              `human_k`, `human` (the mean of those given) and `human_scores` (their list, position
              = rater, None where that rater gave none);
            - for pairs `system_a`, `system_b` and `preference` ("a", "b", "tie");
            - the score or choice of each judge and baseline, missing where it gave none.
        judges, baselines: columns of judges, best known first, and of other scorers, such as a
            metric or chance.
        people: columns of raters, position = rater; for pairs ("preference",) or ().
        system, opponent: columns that name the model behind the response; for pairs, the models
            behind responses b and a. None where the source does not say.
        response_length: columns of the response's length in tokens; for pairs one per side.
        people_scale: lowest and highest score of a person; None for pairs.
        judge_scales: lowest and highest score of each judge and baseline; None for a number
            without bounds.
        published: the columns of people, judges and baselines as the published figures count
            them, with grades of pairs ("both good", "A>>B", "malformed") and with scores that the
            authors drew at random where a judge gave none.
        systems: one row per system, with its Elo rating by people; None where there is none.
        licence, holder, citation, source, caveats: what must be stated beside a number.
    """

    name: str
    title: str
    kind: Literal["scores", "pairs"]
    frame: DataFrame = field(repr=False)
    judges: tuple[str, ...]
    baselines: tuple[str, ...]
    people: tuple[str, ...]
    system: str | None
    opponent: str | None
    response_length: tuple[str, ...]
    people_scale: Bounds | None
    judge_scales: Mapping[str, Bounds | None]
    published: DataFrame = field(repr=False)
    systems: DataFrame | None = field(repr=False)
    licence: str
    holder: str
    citation: str
    source: str
    caveats: tuple[str, ...]


def verdict_sets() -> Series:
    """List the sets of public verdicts, with a line about each, indexed by name.

    >>> list(verdict_sets().index)
    ['genai-bench', 'mllm-judge', 'tifa160', 'viescore', 'wildvision']
    """
    descriptions = {}
    for name, file in _files().items():
        facts = _facts(file)
        descriptions[name] = f"{facts['title']}: {facts['summary']} ({facts['licence']})"
    return Series(descriptions, name="verdicts")


def load_set(name: str, *, folder: str | Path | None = None) -> VerdictSet:
    """Load people's ratings and real judges' verdicts on the same items.

    Args:
        name: one of `verdict_sets()`. Only "mllm-judge" needs a network.
        folder: a clone of the repository that "mllm-judge" comes from. None fetches its files into
            vjudge's folder in the user's cache (XDG_CACHE_HOME, or ~/.cache), where they may also
            be put by hand.

    Raises:
        CollectionError: there is no such set; a file cannot be read, or is not the one that was
            checked.

    >>> viescore = load_set("viescore").frame
    >>> print(viescore["GPT-4o"].corr(viescore["human"], method="spearman").round(2))
    0.64
    >>> verdicts = load_set("wildvision")
    >>> verdicts.judges, int(verdicts.published["GPT-4o"].eq("malformed").sum())
    (('GPT-4o',), 26)
    """
    files = _files()
    if name not in files:
        raise CollectionError(f"there are no verdicts named {name!r}: use one of {list(files)}")
    facts = _facts(files[name])
    del facts["summary"]
    if "files" in facts:
        frame = _mllm_judge(facts["source"], facts.pop("files"), facts.pop("titles"), folder)
    else:
        frame = pd.read_csv(FOLDER / f"{name}.csv.gz")

    # `published` gets the cells as the published figures count them; `frame` gets what the person
    # or judge said: the choice that a grade of a pair stands for, or a score that was not drawn.
    columns = [*facts["people"], *facts["judges"], *facts["baselines"]]
    published = frame[columns].copy()
    if facts["kind"] == "pairs":
        for column in columns:
            frame[column] = published[column].map(CHOICE_OF_GRADE)
    else:
        for column in columns:
            # "7*": the published figures count a 7 that was drawn; the judge gave no score.
            cells = published[column].astype(str)
            published[column] = pd.to_numeric(cells.str.rstrip("*"), errors="coerce").astype(float)
            frame[column] = published[column].mask(cells.str.endswith("*"))
        _add_human_scores(frame, facts["people"])
    systems = None
    if (FOLDER / f"{name}-systems.csv.gz").is_file():
        systems = pd.read_csv(FOLDER / f"{name}-systems.csv.gz", index_col="system")
    # All facts that are left are fields of `VerdictSet`; its lists are tuples.
    for key, value in facts.items():
        if isinstance(value, list):
            facts[key] = tuple(value)
    return VerdictSet(name=name, frame=frame, published=published, systems=systems, **facts)


def _files() -> dict[str, Path]:
    """Map the name of each set to the JSON file that describes it."""
    return {file.stem: file for file in sorted(FOLDER.glob("*.json"))}


def _facts(file: Path) -> dict:
    """Read the JSON file that describes a set.

    It holds fields of `VerdictSet`, a "summary" and, for a set whose files are fetched, "files"
    (path -> SHA-256) and "titles" (name of a data set -> its title).
    """
    return json.loads(file.read_text(encoding="utf-8"))


def _add_human_scores(frame: DataFrame, raters: Sequence[str]) -> None:
    """Insert the columns `human` and `human_scores` behind the columns of raters.

    `human` is the mean of the given scores, and `human_scores` a list such as [4.0, None, 2.0].

    Args:
        frame: with a column per rater, changed in place.
        raters: names of these columns, which stand side by side.
    """
    scores = frame[[*raters]].astype(object)
    scores = scores.where(scores.notna(), None)
    position = frame.columns.get_loc(raters[-1]) + 1
    frame.insert(position, "human", frame[[*raters]].mean(axis=1))
    frame.insert(position + 1, "human_scores", Series(scores.to_numpy().tolist(), frame.index))


def _mllm_judge(
    repository: str,
    checksums: Mapping[str, str],
    titles: Mapping[str, str],
    folder: str | Path | None,
) -> DataFrame:
    """Build the table of MLLM-as-a-Judge, one row per answer, from the repository's files.

    Args:
        repository: "OWNER/NAME@COMMIT" on GitHub.
        checksums: path of a file -> its SHA-256.
        titles: name of a data set in the files -> its title, for the column `benchmark`.
        folder: as for `load_set`.
    """
    files = {path: _file(repository, path, digest, folder) for path, digest in checksums.items()}
    versions = {"LLaVA-Critic-7B": "v2", "Phi-4": "v2_phi4", "Gemini 2.5 Flash": "v2_gemini"}
    tables = {}
    for judge, version in versions.items():
        file = files[f"results/{version}/features_s2.csv"]
        tables[judge] = pd.read_csv(file, index_col="sample_id")
    people = tables["LLaVA-Critic-7B"]["gt_score"]  # the same in all three tables
    # The file of errors says which data set an item is of, except for the item that LLaVA-Critic
    # gave no score. Items are sorted by data set, so the item before it tells.
    analysis = pd.read_csv(files["results/v2/error_analysis.csv"], index_col="sample_id")
    groups = analysis["orig_dataset"].reindex(people.index).ffill()
    frame = DataFrame({"group": groups, "benchmark": groups.map(titles), "criterion": "overall"})
    frame["human_1"] = people
    for judge, table in tables.items():
        scores = table["parsed_score"].reindex(people.index)
        frame[judge] = scores.where(scores > 0)  # the files write -1 for a missing score
    # The index, sample_id, becomes the column of ids as texts.
    return frame.rename(str).rename_axis("id").reset_index()


def _file(repository: str, path: str, digest: str, folder: str | Path | None) -> Path:
    """Return a file of the clone or, without one, of the cache.

    A file that the cache lacks, or holds with another SHA-256 than `digest`, is fetched.

    Args:
        repository: "OWNER/NAME@COMMIT" on GitHub.
        path: of the file in the repository.
        digest: the SHA-256 (hex) that the file must have.
        folder: the clone; None for the cache.

    Raises:
        CollectionError: the clone's file has another digest, or fetching fails.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    file = Path(folder or cache / "vjudge" / "verdicts" / repository) / path
    content = file.read_bytes() if file.is_file() else b""
    if hashlib.sha256(content).hexdigest() == digest:
        return file
    if folder:
        raise CollectionError(
            f"{str(file)!r} is not the file that was checked: give a clone of {repository}"
        )
    url = f"{MIRROR}/{repository.replace('@', '/')}/{path}"
    try:
        with urlopen(url, timeout=30) as reply:
            content = reply.read()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("it is not the file that was checked")
    except (OSError, ValueError) as error:
        raise CollectionError(
            f"verdicts can't be read from {url} ({error}): connect to the network, or put the file"
            f" at {file}"
        ) from error
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file
