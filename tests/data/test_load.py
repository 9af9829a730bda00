"""Collections from files and from a stand-in for the hub, and every bad row named before a run."""

import base64
from contextlib import nullcontext
from types import SimpleNamespace

import datasets
import huggingface_hub
from pandas import DataFrame
from pytest import fixture, mark, raises, warns

import samples
from samples import LEVELS, lines, orig, parquet, picture, plain, png, turns
from vjudge.data import CollectionError, canonical, load_collection, origin, validate

NAME, CRITIC = "kaist-ai/Perception-Collection", "lmms-lab/LLaVA-Critic-113k"


def row(id="a", **changes):
    return samples.row(id, **{"images": [], **changes})


@fixture
def folder(tmp_path):
    picture(tmp_path, "pictures/red.png")
    return tmp_path


# -- files


def test_limit_and_splits(folder):
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
        (
            "scene",
            None,
            r"unknown.* 'scene'.*photos(, [\w-]+/[\w-]+)+\. Files.*load_dataset returns",
        ),
        (None, None, "a collection cannot be a NoneType"),
    ]:
        with raises(CollectionError, match=message):
            load_collection(path, split=split)
    parts["test"].save_to_disk(str(folder / "one"))
    for path in (parquet(folder / "a.parquet", *rows), folder / "one"):
        with warns(UserWarning, match="without splits: split='test' says noth") as warned:
            assert load_collection(path, split="test", limit=1)["id"][:] == ["0"]
        assert len(warned) == 1


def test_rows_that_cannot_be_read_are_all_named(folder):
    rows = [row(gold="four"), row("b"), [1], row("x", response=3), row("b")]
    with raises(CollectionError, match=r"row 0 .id 'a'., gold: 'four' is not a num") as no:
        load_collection(lines(folder / "bad.jsonl", *rows))
    problems = [(problem.index, problem.field) for problem in no.value.problems]
    assert problems == [(0, "gold"), (2, "row"), (3, "response"), (4, "id")]
    mixed = canonical([row("a", note=1), row("b", note="x"), row("c")])
    assert mixed["note"][:] == ["1", "x", None]


@mark.parametrize(
    "name, content, message",
    [
        ("a.jsonl", b'{"id": 1}\n{"id": \n', "a.jsonl' is not a valid jsonl file .*line 2"),
        (
            "a.json",
            b'{"data":\n [{"id": 1}\n]}',
            "holds one object: take its list of rows, and pass",
        ),
        ("c.parquet", b"PAR", "c.parquet' is not a valid parquet file"),
        ("e.csv", b"id\n\xf6\n", "e.csv' is not a valid csv file.*save it as UTF-8"),
        ("e.csv", b"id,response,response\na,A,B\n", "has several columns response; keep one"),
        ("e.csv", b"id,response\na,Say, it.\n", "line 2 has more cells than the header: quote"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with raises(CollectionError, match=message):
        load_collection(tmp_path / name)


@mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_in_text_is_read_whatever_separates_it(folder, separator):
    """With pictures as paths or in base64, as benchmark tools write them."""
    cells = {"descriptions": str(LEVELS), "human_scores": "3|4|2", "response": "1\r2"}
    pictures = ("pictures/red.png", base64.b64encode(png()).decode())
    rows = [samples.row(f"00{n}", **cells, image=image) for n, image in enumerate(pictures)]
    rows[0]["reference_answer"] = "NA"
    frame = DataFrame(rows)
    frame.to_csv(folder / "rows.csv", sep=separator, index=False, encoding="utf-8-sig", quoting=1)
    items = load_collection(folder / "rows.csv")
    validate(items, sees_images=True)
    assert [item["images"][0].getpixel((0, 0)) for item in items] == [(255, 0, 0)] * 2
    assert items["human_scores"][1] == [3, 4, 2] and items["descriptions"][0] == LEVELS
    assert items["group"][0] == "pictures/red.png" and items["response"][1] == "1\r2"
    # Cells stand as they are: a word is no missing cell, and an id no number.
    assert items["reference_answer"][:] == ["NA", None] and items["id"][1] == "001"


# -- the hub


def hub(monkeypatch, *rows, error=None):
    """A hub that holds one table; `error` is what it answers when it is asked for a commit."""
    asked = []

    def dataset_info(_, name, revision):
        if error:
            raise error
        return SimpleNamespace(sha=f"sha-of-{revision}")

    def load_dataset(*names, **options):
        asked.append((*names, options))
        table = datasets.Dataset.from_list(list(rows))
        pictured = isinstance(rows[0].get("image"), dict)
        return table.cast_column("image", datasets.Image()) if pictured else table

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    return asked


def test_the_commit_is_resolved_fetched_and_recorded(monkeypatch, folder):
    red = str(folder / "pictures/red.png")
    asked = hub(monkeypatch, orig(image=red), orig(image=red))
    items = load_collection(NAME, limit=1, revision="v1")
    assert asked == [(NAME, None, {"split": "train", "revision": "sha-of-v1"})]
    facts = {"schema": "Perception-Collection", "benchmark": "", "source": NAME, "split": "train"}
    assert origin(items) == facts | {"revision": "v1", "commit": "sha-of-v1"} and len(items) == 1
    items.save_to_disk(str(folder / "saved"))
    assert origin(load_collection(folder / "saved")) == origin(items) == origin(items.select([0]))


def test_rows_of_llava_critic_keep_their_texts_and_the_hubs_files_untouched(monkeypatch):
    pictures = [{"bytes": png(colour), "path": None} for colour in ("red", "blue")]
    rows = [turns("Say.", "Score: 85", image=picture) for picture in (*pictures, None)]
    asked = hub(monkeypatch, *rows)
    items = load_collection(CRITIC, split="pairwise")
    assert asked[0][:2] == (CRITIC, "pairwise") and asked[0][2]["split"] == "train"
    assert [each["images"] for each in plain(items)] == [[pictures[0]], [pictures[1]], []]
    assert items["prompt"][2] == "Say." and items["target"][2] == "Score: 85"
    assert items["id"][:] == ["7", "7#2", "7#3"] and items["response"][0] is None
    with raises(CollectionError, match="no split None; it has: pointwise, pairwise"):
        load_collection(CRITIC)


def test_why_the_hub_does_not_give_a_set(monkeypatch):
    asked = hub(monkeypatch, orig(), error=ConnectionError("no route"))  # and a copy is here
    items = load_collection("prometheus-eval/Feedback-Bench", revision="abc")
    assert origin(items)["commit"] is None and asked[0][2]["revision"] == "abc"
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: 1 / 0)
    with raises(CollectionError, match="ZeroDivisionError: .*gated, accept its terms at ht"):
        load_collection("mlfoundations/VisIT-Bench")


# -- pictures beside the rows


@mark.parametrize(
    "path, outcome",
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
def test_a_picture_outside_of_the_files_folder_is_refused_by_name(path, outcome, tmp_path):
    """A file from elsewhere must not make a judge read what its reader did not mean to show."""
    secret = tmp_path / picture(tmp_path, "secret.png")
    folder = tmp_path / "sets" / "one"
    picture(folder, "images/a.png")
    picture(folder, "../beside/a.png")
    (folder / "link.png").symlink_to(secret)
    (folder / "inner.png").symlink_to(folder / "images" / "a.png")
    file = lines(folder / "rows.jsonl", row("first", images=[str(secret)]), row(images=[path]))
    said = {
        "read": nullcontext(),
        "warned": warns(UserWarning, match="1 pictures stand outside .*beside/a.png"),
        "refused": raises(CollectionError, match="row 1 .*leads out of the folder .*absolute"),
    }
    with said[outcome]:
        assert load_collection(file)[1]["images"][0].size == (4, 4)


def test_a_path_of_ones_own_counts_from_the_files_folder_alone(tmp_path):
    picture(tmp_path / "images", "a.png")
    file = lines(tmp_path / "rows.jsonl", row(images=["a.png"]))
    with raises(CollectionError, match="row 0 .*images: '.*a.png' is not there; put the file"):
        load_collection(file)


def test_the_hubs_cache_holds_links_to_its_blobs(tmp_path):
    snapshot = tmp_path / "datasets--some--set" / "snapshots" / "abc"
    picture(snapshot.parent.parent / "blobs", "0123")
    file = lines(snapshot / "rows.jsonl", row(images=["a.png"]))
    (snapshot / "a.png").symlink_to("../../blobs/0123")
    assert load_collection(file)[0]["images"][0].size == (4, 4)
