"""Published sets from the hub, by a stand-in for it: commits, pins, image files, and why a set can't be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
from samples import SINGLE, judge_of, orig, picture, plain, png, turns

from vjudge import data
from vjudge.data import CollectionError, load_collection, origin
from vjudge.runs import Run, RunError

NAME, CRITIC = "kaist-ai/Perception-Collection", "lmms-lab/LLaVA-Critic-113k"


class Hub:
    """A hub that holds one table; `error` is what it answers when it is asked for a commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any], error: Exception | None = None) -> None:
        self.asked: list[Any] = []
        self.rows, self.error = rows, error
        monkeypatch.setattr(datasets, "load_dataset", self.load_dataset)
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", self.dataset_info)

    def dataset_info(self, name: str, **options: Any) -> Any:
        if self.error:
            raise self.error
        return huggingface_hub.hf_api.DatasetInfo(id=name, sha=f"sha-of-{options['revision']}")

    def load_dataset(self, name: str, *part: str, **options: Any) -> Any:
        self.asked.append((name, *part, options))
        made = datasets.Dataset.from_list(list(self.rows))
        made = made.cast_column("image", datasets.Image()) if isinstance(self.rows[0].get("image"), dict) else made
        return made.to_iterable_dataset() if options.get("streaming") else made


def test_the_commit_is_resolved_fetched_and_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = Hub(monkeypatch, orig(image="a.png"))
    with pytest.warns(UserWarning, match="names its images by path, and they are not in its table: put them beside"):
        items = load_collection(NAME, limit=1, revision="v1")
    assert hub.asked == [(NAME, {"split": "train", "revision": "sha-of-v1", "streaming": True})]
    expected = {"source": NAME, "split": "train", "revision": "v1", "commit": "sha-of-v1"}
    assert origin(items) == expected | {"rows": 1, "unreadable": 0}
    picture(tmp_path, "a.png")
    monkeypatch.chdir(tmp_path)  # what a path that was not found counts from
    items.save_to_disk(str(tmp_path / "saved"))
    assert origin(load_collection(tmp_path / "saved")) == origin(items)
    assert origin(items.select([0])) == origin(items) and origin(datasets.Dataset.from_list([{"a": 1}])) == {}


@pytest.mark.filterwarnings("ignore:.* names its images by path")
def test_one_place_pins_every_set_and_a_run_refuses_the_rows_of_another_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image = str(tmp_path / picture(tmp_path, "a.png"))
    hub = Hub(monkeypatch, orig(image=image))
    judge = judge_of("Good. [RESULT] 4", "prometheus-vision")
    monkeypatch.setitem(data.PINNED, NAME, "abc")
    items = load_collection(NAME)
    assert origin(items)["revision"] == "abc" and hub.asked[-1][1]["revision"] == "sha-of-abc"
    judge.grade(items, out=tmp_path / "run", progress=False)
    assert Run(tmp_path / "run").manifest["note"]["origin"] == origin(items)
    monkeypatch.setitem(data.PINNED, NAME, "def")
    assert origin(load_collection(NAME, revision="abc"))["commit"] == "sha-of-abc"  # what is said outright comes first
    judge.grade(load_collection(NAME), out=tmp_path / "run", progress=False)  # another commit with the same rows
    hub.rows = (orig(image=image, orig_score=2),)
    with pytest.raises(RunError, match="collection.fingerprint"):
        judge.grade(load_collection(NAME), out=tmp_path / "run", progress=False)
    monkeypatch.setitem(data.PINNED, "kaist-ai/Perception-Colection", "abc")
    with pytest.raises(CollectionError, match="kaist-ai/perception-colection, which no data set"):
        load_collection(NAME)


def test_image_files_of_a_hub_table_are_passed_on_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    colours = ("red", "blue", "red")
    rows = [turns(SINGLE, "Score: 85", id=str(n), image={"bytes": png(c), "path": None}) for n, c in enumerate(colours)]
    rows.append(turns(SINGLE, "Score: 85", id="3", image=None))
    hub = Hub(monkeypatch, *rows)
    items = load_collection(CRITIC, split="pointwise")
    assert hub.asked[0][:2] == (CRITIC, "pointwise") and hub.asked[0][2]["split"] == "train"
    assert items.features["images"] == data.FEATURES["images"] and items.column_names[1] == "images"
    assert [row["images"] for row in plain(items)] == [[{"bytes": png(c), "path": None}] for c in colours] + [[]]
    group = items["group"][:]
    assert group[0] == group[2] != group[1] and group[3] == "3"  # by the image's bytes
    few = load_collection(CRITIC, limit=2)  # streamed: the default part, and the same cells
    assert hub.asked[1][1] == "pointwise" and plain(few) == plain(items)[:2] and few[1]["images"][0].size == (4, 4)
    assert len(load_collection(CRITIC, limit=0)) == 0
    with pytest.raises(CollectionError, match="has no split 'test'; it has: pointwise, pairwise"):
        load_collection(CRITIC, split="test")


def test_a_changed_schema_names_what_is_missing_and_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    Hub(monkeypatch, {"prompt": "x", "orig_instruction": "y"})
    with pytest.raises(CollectionError, match=r"at sha-of-new .*: orig_response, .* missing \(found: prompt, orig_i"):
        load_collection("prometheus-eval/Feedback-Bench", revision="new")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("GatedRepoError", "it is gated: accept its terms at https://huggingface.co/datasets/ml"),
        ("RevisionNotFoundError", "give a branch, a tag or a commit that it has"),
        ("RepositoryNotFoundError", "correct the name, or log in"),
    ],
)
def test_a_set_that_the_hub_does_not_give(monkeypatch: pytest.MonkeyPatch, kind: str, message: str) -> None:
    Hub(monkeypatch, orig(), error=type(kind, (Exception,), {})("no"))
    with pytest.raises(CollectionError, match=rf"could not be loaded from the hub \({kind}: no\); {message}"):
        load_collection("mlfoundations/VisIT-Bench")


def test_a_hub_out_of_reach_leaves_a_local_copy_with_an_unknown_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, orig(), error=ConnectionError("no route"))
    with pytest.warns(UserWarning, match="its commit is not recorded"):
        items = load_collection("prometheus-eval/Feedback-Bench", revision="abc")
    assert origin(items)["commit"] is None and hub.asked[0][1]["revision"] == "abc"
