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


class Hub:
    """A hub that holds one table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any], files: tuple[str, ...] = ()) -> None:
        self.asked: list[Any] = []
        self.rows, self.files = rows, files
        monkeypatch.setattr(datasets, "load_dataset", self.load_dataset)
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", self.dataset_info)
        monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda *_, **__: list(files))

    def dataset_info(self, name: str, **options: Any) -> Any:
        return huggingface_hub.hf_api.DatasetInfo(id=name, sha=f"sha-of-{options['revision']}")

    def load_dataset(self, name: str, *part: str, **options: Any) -> Any:
        self.asked.append((name, *part, options))
        made = datasets.Dataset.from_list(list(self.rows))
        cell = self.rows[0].get("image")
        made = made.cast_column("image", datasets.Image()) if isinstance(cell, dict) else made
        return made.to_iterable_dataset() if options.get("streaming") else made


def test_the_commit_is_resolved_fetched_and_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = Hub(monkeypatch, orig(image="a.png"), files=("data.json", "images.zip"))
    with pytest.warns(
        UserWarning, match=r"names 1 images by path, such as 'a.png', and its images stand in images.zip"
    ):
        items = load_collection("kaist-ai/Perception-Collection", limit=1, revision="v1")
    streamed = {"split": "train", "revision": "sha-of-v1", "streaming": True}
    assert hub.asked == [("kaist-ai/Perception-Collection", streamed)]
    expected = {"source": "kaist-ai/Perception-Collection", "split": "train", "revision": "v1", "commit": "sha-of-v1"}
    assert origin(items) == expected | {"rows": 1, "unreadable": 0}
    picture(tmp_path, "a.png")
    monkeypatch.chdir(tmp_path)  # what a path that was not found counts from
    items.save_to_disk(str(tmp_path / "saved"))
    assert origin(load_collection(tmp_path / "saved")) == origin(items)
    assert origin(items.select([0])) == origin(items) and origin(datasets.Dataset.from_list([{"a": 1}])) == {}


def test_one_place_pins_every_set_and_a_run_refuses_the_rows_of_another_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, image = "kaist-ai/Perception-Collection", picture(tmp_path, "a.png")
    hub = Hub(monkeypatch, orig(image=image), files=("a.png",))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    judge = judge_of("Good. [RESULT] 4", "prometheus-vision")
    monkeypatch.setitem(data.PINNED, name, "abc")
    items = load_collection(name)
    assert origin(items)["revision"] == "abc" and hub.asked[-1][1]["revision"] == "sha-of-abc"
    judge.grade(items, out=tmp_path / "run", progress=False)
    assert Run(tmp_path / "run").manifest["note"]["origin"] == origin(items)
    monkeypatch.setitem(data.PINNED, name, "def")
    assert origin(load_collection(name, revision="abc"))["commit"] == "sha-of-abc"  # what is said outright comes first
    judge.grade(load_collection(name), out=tmp_path / "run", progress=False)  # another commit with the same rows
    hub.rows = (orig(image=image, orig_score=2),)
    with pytest.raises(RunError, match="collection.fingerprint"):
        judge.grade(load_collection(name), out=tmp_path / "run", progress=False)
    monkeypatch.setitem(data.PINNED, "kaist-ai/Perception-Colection", "abc")
    with pytest.raises(CollectionError, match="kaist-ai/perception-colection, which no data set"):
        load_collection(name)


def test_images_kept_beside_the_table_are_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Hub(monkeypatch, orig(image=picture(tmp_path, "coco/a.png")), files=("coco/a.png",))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    (item,) = load_collection("kaist-ai/Perception-Collection")
    assert item["images"][0].size == (4, 4)


def test_image_files_of_a_hub_table_are_passed_on_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    colours = ("red", "blue", "red")
    rows = [turns(SINGLE, "Score: 85", id=str(n), image={"bytes": png(c), "path": None}) for n, c in enumerate(colours)]
    rows.append(turns(SINGLE, "Score: 85", id="3", image=None))
    hub = Hub(monkeypatch, *rows)
    items = load_collection("lmms-lab/LLaVA-Critic-113k", split="pointwise")
    assert hub.asked[0][:2] == ("lmms-lab/LLaVA-Critic-113k", "pointwise") and hub.asked[0][2]["split"] == "train"
    assert items.features["images"] == data.FEATURES["images"] and items.column_names[1] == "images"
    assert [row["images"] for row in plain(items)] == [[{"bytes": png(c), "path": None}] for c in colours] + [[]]
    group = items["group"][:]
    assert group[0] == group[2] != group[1] and group[3] == "3"  # by the image's bytes
    few = load_collection("lmms-lab/LLaVA-Critic-113k", limit=2)  # streamed: the default part, and the same cells
    assert hub.asked[1][1] == "pointwise" and plain(few) == plain(items)[:2] and few[1]["images"][0].size == (4, 4)
    assert len(load_collection("lmms-lab/LLaVA-Critic-113k", limit=0)) == 0
    with pytest.raises(CollectionError, match="has no split 'test'; it has: pointwise, pairwise"):
        load_collection("lmms-lab/LLaVA-Critic-113k", split="test")


def test_a_changed_schema_names_what_was_expected_and_found(monkeypatch: pytest.MonkeyPatch) -> None:
    Hub(monkeypatch, {"prompt": "x", "orig_instruction": "y"})
    with pytest.raises(CollectionError) as caught:
        load_collection("prometheus-eval/Feedback-Bench", revision="new")
    for part in (
        "at sha-of-new",
        "orig_response, orig_criteria",
        "missing",
        "found: prompt, orig_instruction",
        "revision=",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (
            "GatedRepoError",
            "mlfoundations/VisIT-Bench",
            "is gated: accept its terms at https://huggingface.co/datasets/ml",
        ),
        ("RevisionNotFoundError", "prometheus-eval/Feedback-Bench", "has no such revision"),
        ("RepositoryNotFoundError", "prometheus-eval/Feedback-Bench", "the hub has no data set 'prometheus-eval/Feed"),
    ],
)
def test_a_set_that_the_hub_does_not_give(monkeypatch: pytest.MonkeyPatch, kind: str, name: str, message: str) -> None:
    Hub(monkeypatch, orig())

    def refuse(*_: Any, **__: Any) -> Any:
        raise type(kind, (Exception,), {})("no")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)
    with pytest.raises(CollectionError, match=message):
        load_collection(name)


def test_a_hub_out_of_reach_leaves_a_local_copy_with_an_unknown_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, orig())

    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)
    with pytest.warns(UserWarning, match="its commit is not recorded"):
        items = load_collection("prometheus-eval/Feedback-Bench", revision="abc")
    assert origin(items)["commit"] is None and hub.asked[0][1]["revision"] == "abc"
