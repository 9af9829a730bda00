"""Real verdicts: the public files, served on loopback as their repositories serve them, give the public numbers."""

import lzma
import os
import shutil
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pytest import fixture, mark, raises

from vjudge.data import CollectionError, load_verdicts, verdicts
from vjudge.data.verdicts import SOURCES
from vjudge.metrics import win_rate

DATA = Path(__file__).parents[3] / "shared" / "data"
FOLDERS = {"divake": "raw/mllm_judge", "j-min": "raw/tifa160", "TIGER-AI-Lab": "raw/genai_bench"}
LETTERS = {"left": "A", "right": "B", "both good": "G", "both bad": "D"}
pytestmark = mark.skipif(not DATA.is_dir(), reason="the public files are not at hand")


@fixture(scope="module")
def root(tmp_path_factory):
    """The folder of a server of the public files: owner/name/commit/path."""
    root = tmp_path_factory.mktemp("mirror")
    for source in SOURCES.values():
        for repository, paths in source["files"].items():
            for path in paths:
                owner, target = repository.split("/")[0], root / repository.replace("@", "/") / path
                target.parent.mkdir(parents=True, exist_ok=True)
                if owner == "Yushi-Hu":
                    shutil.copyfile(DATA / "tifa" / Path(path).name, target)
                else:
                    packed = DATA / FOLDERS[owner] / f"{path}.xz"
                    target.write_bytes(lzma.decompress(packed.read_bytes()))
    return root


@contextmanager
def served(folder):
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@fixture(scope="module")
def cache(root, tmp_path_factory):
    """A user's cache, filled from the server by whoever asks first."""
    with served(root) as mirror, pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdicts, "MIRROR", mirror)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield Path(os.environ["XDG_CACHE_HOME"])


def shown(name):
    """The frame as the public table writes it."""
    frame = load_verdicts(name).set_index("item")
    if name == "genai-bench":
        four = [column for column in frame if column.endswith("_four")]
        for column in four:
            letters = frame[column].map(lambda answer: LETTERS.get(answer, "X"))
            frame[column.removesuffix("_four")] = letters
        frame = frame.drop(columns=four).assign(criterion="image_edition")
    if name == "tifa160":
        # Upstream counts a picture without a question as one whose every answer is no, and gives
        # .9 where "1, outside" hides "5,6".
        questions = [column for column in frame if column.startswith("dsg_")]
        frame[questions] = frame[questions].fillna(0)
        assert frame.loc["tifa160_67:sd1dot5", "dsg_pali17b"] == 0.8
        frame.loc["tifa160_67:sd1dot5", "dsg_pali17b"] = 0.9
    return frame


@mark.parametrize(
    "name, table",
    [
        ("mllm-judge", "mllm_judge_scores"),
        ("tifa160", "tifa160_images"),
        ("genai-bench", "genai_bench_pairs"),
    ],
)
def test_the_frame_is_the_public_table(name, table, cache):
    frame = shown(name)
    public = pd.read_csv(DATA / "verdicts" / f"{table}.csv.gz", dtype={"item": str})
    public = public.set_index("item")
    public = public[public["criterion"].isin(frame["criterion"])]
    assert set(frame.index) == set(public.index) and frame.index.is_unique
    public = public.reindex(frame.index)
    shared = [column for column in frame.columns if column in public.columns]
    assert set(frame.columns) - set(shared) <= {"human"} and len(shared) > 5
    for column in shared:
        ours, theirs = frame[column], public[column]
        if pd.api.types.is_numeric_dtype(theirs):
            apart = (ours - theirs).abs() / np.maximum(0.05, theirs.abs())
            assert (ours.isna() == theirs.isna()).all() and not (apart > 2e-3).any(), column
        elif column == "group":
            assert ours.groupby(theirs).nunique().eq(1).all()
        else:
            assert ours.equals(theirs.astype(ours.dtype)), column


def test_pairs_are_counted_as_they_stand_and_the_source_is_named(cache):
    frame = load_verdicts("genai-bench")
    table = win_rate(frame["qwenvl"])
    assert table.attrs["malformed"] == 1 and table["missing"].iloc[0] == 259
    facts = frame.attrs
    assert "MIT" in facts["licence"] and facts["traps"] and "f0b0334" in facts["source"]


def test_the_cache_is_not_fetched_again_and_what_is_not_the_checked_file_is_refused(
    root, cache, tmp_path, monkeypatch
):
    def refused(name, message):
        with raises(CollectionError, match=message):
            load_verdicts(name)

    refused("mllm", r"no verdicts named 'mllm': use one of .'mllm-judge'")
    fetched = load_verdicts("mllm-judge")
    monkeypatch.setattr(verdicts, "MIRROR", "http://127.0.0.1:9")
    assert load_verdicts("mllm-judge").equals(fetched)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    refused("mllm-judge", "can't be read from http://127.0.0.1:9/.*at .*new")
    changed = tmp_path / "mirror"
    shutil.copytree(root / "divake", changed / "divake")
    (file,) = changed.rglob("error_analysis.csv")
    file.write_text(file.read_text().replace("coco", "caco"))
    with served(changed) as mirror:
        monkeypatch.setattr(verdicts, "MIRROR", mirror)
        refused("mllm-judge", "from http.*it is not the file that was checked")
        refused("genai-bench", "HTTP Error 404")
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
