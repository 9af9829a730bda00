"""Collections from files and from a stand-in for the hub, and every bad row named before a run."""

from __future__ import annotations

import base64
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pandas as pd
import pytest
from PIL import Image

import samples
from samples import LEVELS, lines, orig, picture, plain, png, turns
from vjudge.data import CollectionError, canonical, load_collection, origin, validate

NAME, CRITIC = "kaist-ai/Perception-Collection", "lmms-lab/LLaVA-Critic-113k"


def row(id: str = "a", **changes: Any) -> dict[str, Any]:
    return samples.row(id, **{"images": [], **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    picture(tmp_path, "pictures/red.png")
    return tmp_path


# -- files


def test_limit_and_splits(folder: Path) -> None:
    rows = [row(str(i)) for i in range(5)]
    lines(folder / "test.jsonl", *rows)
    assert load_collection(folder, limit=2)["id"][:] == ["0", "1"]
    assert len(load_collection(folder, limit=0)) == 0
    lines(folder / "train.jsonl", *rows[:1])
    assert len(load_collection(folder, split="test")) == 5
    parts = {name: load_collection(folder / f"{name}.jsonl") for name in ("test", "train")}
    datasets.DatasetDict(parts).save_to_disk(str(folder / "saved"))
    assert load_collection(folder / "saved", split="test", limit=3)["id"][:] == ["0", "1", "2"]
    (folder / "train.jsonl").unlink()
    for path, split, message in [
        (folder / "saved", None, "has no split None; it has: test, train"),
        (folder, "train", "has no split 'train'; it has: test"),  # never the test rows for it
        (folder / "pictures", None, "holds no .jsonl, .json, .csv, .tsv, .parquet file"),
        ("scene", None, "unknown collection 'scene'.*Names: scenes, photos.*data.canonical"),
        (None, None, r"name or a path.*vjudge\.data\.canonical"),
    ]:
        with pytest.raises(CollectionError, match=message):
            load_collection(path, split=split)


@pytest.mark.parametrize("name", ["a.parquet", "saved", "folder"])
def test_a_split_asked_of_what_has_none_is_said_once_and_is_no_error(
    name: str, folder: Path
) -> None:
    rows = pd.DataFrame([row(str(n), images=None) for n in range(3)])
    canonical(rows).save_to_disk(str(folder / "saved"))
    rows.to_parquet(folder / "a.parquet")
    lines(folder / "folder" / "mine.jsonl", *rows.to_dict("records"))
    with pytest.warns(UserWarning, match="without splits: split='test' says nothing") as warned:
        assert load_collection(folder / name, split="test", limit=2)["id"][:] == ["0", "1"]
    assert len(warned) == 1


def test_rows_that_cannot_be_read_are_all_named(folder: Path) -> None:
    rows = [row(gold="four"), row(), [1], row("x", response=3)]
    with pytest.raises(CollectionError, match=r"row 0 .id 'a'., gold: 'four' is not a num") as no:
        load_collection(lines(folder / "bad.jsonl", *rows))
    problems = [(problem.index, problem.field) for problem in no.value.problems]
    assert problems == [(0, "gold"), (2, "row"), (3, "response")]
    mixed = canonical([row("a", note=1), row("b", note="x"), row("c")])
    assert mixed["note"][:] == ["1", "x", None]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"id": 1}\n{"id": \n', "a.jsonl' is not a sound jsonl file .*line 2"),
        ("a.json", b"[1,", "a.json' is not a sound json file"),
        ("c.parquet", b"PAR", "c.parquet' is not a sound parquet file"),
        ("e.csv", b"id\n\xf6\n", "e.csv' is not a sound csv file"),
        ("e.csv", b"id,response,response\na,A,B\n", "has several columns response; keep one"),
        ("e.csv", b"id,response\na,Say, it.\n", "line 2 has more cells than the header: quote"),
        ("e.txt", b"hello", "e.txt' is not a sound txt file"),
    ],
    ids=range(7),
)
def test_a_file_that_cannot_be_read_is_named(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CollectionError, match=message):
        load_collection(tmp_path / name)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_in_text_is_read_whatever_separates_it(folder: Path, separator: str) -> None:
    """With pictures as paths or in base64, as benchmark tools write them."""
    cells = {"descriptions": str(LEVELS), "human_scores": "3|4|2", "gold": 3.5}
    first = samples.row("0", **cells, image="pictures/red.png", reference_answer="NA")
    second = samples.row("1", **cells, image=base64.b64encode(png()).decode())
    frame = pd.DataFrame([first, second])
    frame.to_csv(folder / "rows.csv", sep=separator, index=False, encoding="utf-8-sig")
    items = load_collection(folder / "rows.csv")
    validate(items, sees_images=True)
    assert [item["images"][0].getpixel((0, 0)) for item in items] == [(255, 0, 0)] * 2
    assert items["human_scores"][1] == [3, 4, 2] and items["gold"][0] == 3.5
    assert items["group"][0] == "pictures/red.png" and items["descriptions"][0] == LEVELS
    assert items["reference_answer"][:] == ["NA", None]  # a word, not a missing cell


# -- the hub


class Hub:
    """A hub that holds one table; `error` is what it answers when it is asked for a commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rows: Any, error: Any = None) -> None:
        self.asked: list[Any] = []
        self.rows, self.error = list(rows), error
        monkeypatch.setattr(datasets, "load_dataset", self.load_dataset)
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", self.dataset_info)

    def dataset_info(self, name: str, **options: Any) -> Any:
        if self.error:
            raise self.error
        return huggingface_hub.hf_api.DatasetInfo(id=name, sha=f"sha-of-{options['revision']}")

    def load_dataset(self, name: str, part: str | None, **options: Any) -> Any:
        self.asked.append((name, part, options))
        table = datasets.Dataset.from_list(self.rows)
        pictured = isinstance(self.rows[0].get("image"), dict)
        return table.cast_column("image", datasets.Image()) if pictured else table


def test_the_commit_is_resolved_fetched_and_recorded(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    red = str(folder / "pictures/red.png")
    hub = Hub(monkeypatch, orig(image=red), orig(image=red))
    items = load_collection(NAME, limit=1, revision="v1")
    assert hub.asked == [(NAME, None, {"split": "train", "revision": "sha-of-v1"})]
    facts = {"schema": "Perception-Collection", "benchmark": "", "source": NAME, "split": "train"}
    assert origin(items) == facts | {"revision": "v1", "commit": "sha-of-v1"}
    items.save_to_disk(str(folder / "saved"))
    assert origin(load_collection(folder / "saved")) == origin(items) == origin(items.select([0]))
    assert len(items) == 1


def test_rows_of_llava_critic_keep_their_texts_and_the_hubs_files_untouched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [png("red"), png("blue"), png("red")]
    rows = [turns("Say.", "No.", id="7", image={"bytes": file, "path": None}) for file in files]
    rows.append(turns("Say.", "Score: 85", id="8", image=None))
    hub = Hub(monkeypatch, *rows)
    items = load_collection(CRITIC, split="pairwise")
    assert hub.asked[0][:2] == (CRITIC, "pairwise") and hub.asked[0][2]["split"] == "train"
    expected: list[Any] = [[{"bytes": file, "path": None}] for file in files]
    assert [each["images"] for each in plain(items)] == [*expected, []]
    assert items["prompt"][3] == "Say." and items["target"][3] == "Score: 85"
    assert items["id"][:] == ["7", "7#2", "7#3", "8"] and items["response"][0] is None
    with pytest.raises(CollectionError, match="no split None; it has: pointwise, pairwise"):
        load_collection(CRITIC)


def test_why_the_hub_does_not_give_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, orig(), error=ConnectionError("no route"))  # and a copy is here
    items = load_collection("prometheus-eval/Feedback-Bench", revision="abc")
    assert origin(items)["commit"] is None and hub.asked[0][2]["revision"] == "abc"
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: 1 / 0)
    with pytest.raises(CollectionError, match="ZeroDivisionError: .*gated, accept its terms at ht"):
        load_collection("mlfoundations/VisIT-Bench")


# -- pictures beside the rows


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("images/a.png", "read"),
        ("images/../images/a.png", "read"),
        ("inner.png", "read"),
        ("../beside/a.png", "warned"),  # as Perception-Bench names its images
        ("../../secret.png", "refused"),
        ("link.png", "refused"),
        ("images/../../../secret.png", "refused"),
    ],
)
def test_a_picture_outside_of_the_files_folder_is_refused_by_name(
    path: str, outcome: str, tmp_path: Path
) -> None:
    """A file from elsewhere must not make a judge read what its reader did not mean to show."""
    secret = tmp_path / "secret.png"
    Image.new("RGB", (2, 2)).save(secret)
    folder = tmp_path / "sets" / "one"
    for place in (folder / "images", folder.parent / "beside"):
        place.mkdir(parents=True)
        shutil.copy(secret, place / "a.png")
    (folder / "link.png").symlink_to(secret)
    (folder / "inner.png").symlink_to(folder / "images" / "a.png")
    file = lines(folder / "rows.jsonl", row("first", images=[str(secret)]), row(images=[path]))
    if outcome == "refused":
        with pytest.raises(CollectionError, match=r"row 1 .*leads out of the folder .*absolute"):
            load_collection(file)
        return
    said = nullcontext()
    if outcome == "warned":
        what = "1 pictures stand outside of the folder .*beside/a.png"
        said = pytest.warns(UserWarning, match=what)
    with said:
        assert load_collection(file)[1]["images"][0].size == (2, 2)


def test_a_path_of_ones_own_counts_from_the_files_folder_alone(tmp_path: Path) -> None:
    picture(tmp_path / "images", "a.png")
    file = lines(tmp_path / "rows.jsonl", row(images=["a.png"]))
    with pytest.raises(CollectionError, match="images"):
        validate(load_collection(file))


def test_the_hubs_cache_holds_links_to_its_blobs(tmp_path: Path) -> None:
    snapshot = tmp_path / "datasets--some--set" / "snapshots" / "abc"
    picture(snapshot.parent.parent / "blobs", "0123")
    file = lines(snapshot / "rows.jsonl", row(images=["a.png"]))
    (snapshot / "a.png").symlink_to("../../blobs/0123")
    assert load_collection(file)[0]["images"][0].size == (4, 4)
