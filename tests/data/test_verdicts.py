"""Real verdicts: four sets in the package, one that is fetched, and the script that made the tables."""

import gzip
import hashlib
import json
import lzma
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

from assets import verdicts as script
from vjudge.data import CollectionError, verdicts
from vjudge.data.verdicts import CHOICE_OF_GRADE, FOLDER, load_set, verdict_sets
from vjudge.metrics import win_rate

DATA = Path(__file__).parents[3] / "shared" / "data"
IN_PACKAGE = {"viescore": 9602, "tifa160": 800, "genai-bench": 3723, "wildvision": 11000}
TEXTS = ["id", "group", "benchmark", "criterion", "system", "system_a", "system_b"]
genuine = mark.skipif(not DATA.is_dir(), reason="the public files are not part of the project")


# --- The sets of the package


@mark.parametrize("name", IN_PACKAGE)
def test_a_set_says_what_its_columns_are(name):
    data = load_set(name)
    frame = data.frame
    assert len(frame) == IN_PACKAGE[name] and frame["id"].is_unique
    assert frame[["id", "group", "benchmark", "criterion"]].notna().all(axis=None)
    voices = [*data.people, *data.judges, *data.baselines]
    columns = [data.system, data.opponent, *data.response_length]
    assert {*voices, *filter(None, columns)} <= {*frame} and len({*voices}) == len(voices)
    assert list(data.published) == voices and data.published.index.equals(frame.index)
    for column in frame.columns.difference([*TEXTS, "human_scores", *voices]):
        assert pd.api.types.is_numeric_dtype(frame[column]), f"{column} holds no numbers"
    if data.kind == "pairs":
        for column in voices:
            assert set(data.published[column]) <= {*CHOICE_OF_GRADE, "malformed"}
            assert frame[column].isna().equals(data.published[column] == "malformed")
    else:
        scales = dict(data.judge_scales) | dict.fromkeys(data.people, data.people_scale)
        assert set(scales) == {*voices}
        for column, scale in scales.items():
            assert scale is None or frame[column].dropna().between(*scale).all(), column
            assert frame[column].notna().any() and frame[column].dtype == float
    for text in (data.licence, data.holder, data.citation, data.source, *data.caveats):
        assert isinstance(text, str) and len(text) > 2
    assert "@" in data.source and len(data.caveats) > 3


def test_no_set_is_large_and_no_table_holds_a_sentence():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 450_000
    for name in IN_PACKAGE:
        texts = (
            load_set(name)
            .frame.select_dtypes(exclude="number")
            .drop(columns="human_scores", errors="ignore")
        )
        assert texts.map(lambda cell: not isinstance(cell, str) or cell.count(" ") < 3).all(
            axis=None
        )


def test_people_s_scores_are_a_list_by_rater_and_their_mean():
    frame = load_set("tifa160").frame.set_index("id")
    rows = frame.loc[["tifa160_1:mini-dalle"]]
    assert rows["human_scores"].tolist() == [[3, 3, 4, 3, 3]] and rows["human"].tolist() == [3.2]
    gaps = frame[frame[["human_1", "human_2", "human_3", "human_4"]].isna().any(axis=1)]
    lists = gaps["human_scores"].tolist()
    assert sum(scores.count(None) for scores in lists) == 5 and not any(map(pd.isna, gaps["human"]))
    for scores, mean in zip(lists, gaps["human"], strict=True):
        given = [score for score in scores if score is not None]
        assert len(scores) == 5 and mean == pytest.approx(np.mean(given))


def test_what_no_judge_said_is_missing_and_stays_in_the_published_numbers():
    """VIEScore's code drew scores that it couldn't read; DSG asked nothing of one prompt."""
    data = load_set("viescore")
    drawn = data.frame[[*data.judges]].isna() & data.published[[*data.judges]].notna()
    counts = drawn.sum()
    assert counts[counts > 0].to_dict() == {
        "GPT-4o": 19,
        "Gemini": 77,
        "InstructBLIP": 6179,
        "BLIP-2": 5334,
        "GPT-4o (1-shot)": 20,
    }
    # Of the scores drawn at random no one knows anything: BLIP-2's do not follow people's.
    blip = data.published["BLIP-2"][drawn["BLIP-2"]]
    assert set(blip.unique()) == set(range(11)) and abs(blip.corr(data.frame["human"])) < 0.03
    tifa = load_set("tifa160")
    unasked = tifa.frame["DSG, mPLUG"].isna()
    assert tifa.frame.loc[unasked, "group"].tolist() == ["tifa160_134"] * 5
    assert (tifa.published.loc[unasked, "DSG, mPLUG"] == 0).all()


def test_the_numbers_in_the_caveats_are_those_of_the_tables():
    data = load_set("viescore")
    frame, text = data.frame, " ".join(data.caveats)
    scored = frame[[*data.judges]].notna()
    share = 1 - scored.sum() / data.published[[*data.judges]].notna().sum()
    zero = frame["human"].eq(0).groupby(frame["criterion"]).mean()
    quality = scored[frame["criterion"] == "perceptual quality"].sum()
    side = frame[frame["criterion"] == "semantic consistency"]
    pooled = side["GPT-4o"].corr(side["human"], method="spearman")
    for said in (
        f"of BLIP-2 {share['BLIP-2']:.0%} are, of InstructBLIP {share['InstructBLIP']:.0%}",
        f"{zero['semantic consistency']:.0%} of the images",
        f"{zero['perceptual quality']:.0%} no perceptual quality",
        f"BLIP-2 keeps {quality['BLIP-2']} scores of 4,801 and InstructBLIP {quality['InstructBLIP']}",
        f"{scored[[*data.judges[:7]]].all(axis=1).sum():,} of 9,602",
        f".{pooled:.2f} over all".replace(".0.", "."),
    ):
        assert said.replace("%", " %") in text, said
    data = load_set("genai-bench")
    malformed = (data.published == "malformed").mean()
    for judge in ("Idefics1", "InstructBLIP", "CogVLM", "Qwen-VL"):
        assert f"of {judge} {malformed[judge]:.0%}".replace("%", " %") in " ".join(data.caveats)


def test_groups_join_what_was_made_from_one_picture():
    frame = load_set("viescore").frame
    edits = frame[frame["group"].str.startswith("photograph:")]
    assert set(edits["benchmark"]) == {"text-guided editing", "mask-guided editing"}
    assert edits["group"].nunique() == 116 and frame["group"].nunique() == 869
    one = edits[edits["group"] == "photograph:sample_100081"]
    turns = one["id"].str.extract(r"sample_100081_(\d)")[0]
    assert set(turns) == {"1", "3"} and one["benchmark"].nunique() == 2
    assert (load_set("tifa160").frame["group"].value_counts() == 5).all()
    assert (load_set("wildvision").frame["group"].value_counts() == 22).all()


def test_pairs_have_three_choices_and_the_source_is_named():
    data = load_set("genai-bench")
    frame = data.frame
    edits = frame[frame["benchmark"] == "image editing"]
    table = win_rate(edits["Qwen-VL"])
    assert len(edits) == 919 and table["missing"].iloc[0] == 259 and table["malformed"].eq(0).all()
    assert data.licence == "MIT" and "f0b0334" in data.source
    assert data.judges[0] == "GPT-4o" and "chance" not in data.judges


def test_wildvision_knows_both_models_their_lengths_and_people_s_elo():
    data = load_set("wildvision")
    assert set(data.frame["system_a"]) == {"claude-3-sonnet-20240229"} and not data.people
    assert set(data.frame["system_b"]) == set(data.systems.index) and len(data.systems) == 22
    assert data.systems["human_elo"].isna().sum() == 1
    assert data.response_length == ("tokens_a", "tokens_b")


def test_every_set_is_listed_and_an_unknown_one_is_refused():
    lines = verdict_sets()
    assert list(lines.index) == sorted([*IN_PACKAGE, "mllm-judge"])
    for line in lines:
        assert line.endswith(")") and len(line) < 200
    with raises(
        CollectionError, match=r"no verdicts named 'mllm': use one of .'genai-bench', 'mllm"
    ):
        load_set("mllm")


# --- The set that is fetched


def mllm_files():
    """Four answers in the layout of the public files, with numbers of our own."""
    people, groups = [3, 1, 5, 2], ["coco", "coco", "WIT", "WIT"]
    scores = {"v2": [2, 1, 4, -1], "v2_phi4": [3, 3, 3, 3], "v2_gemini": [5, -1, 5, 1]}
    files = {}
    for folder, given in scores.items():
        lines = ["sample_id,gt_score,parsed_score"]
        for row, (person, score) in enumerate(zip(people, given, strict=True)):
            lines.append(f"{row},{person},{score}")
        files[f"results/{folder}/features_s2.csv"] = "\n".join(lines)
    rows = [f"{row},{group}" for row, group in enumerate(groups[:3])]
    files["results/v2/error_analysis.csv"] = "\n".join(["sample_id,orig_dataset", *rows])
    return files


@contextmanager
def served(folder):
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@fixture
def mirror(tmp_path, monkeypatch):
    """A clone of the repository with our numbers, which the JSON file has the checksums of."""
    facts = json.loads((FOLDER / "mllm-judge.json").read_text("utf-8"))
    clone = tmp_path / "mirror" / facts["source"].replace("@", "/")
    assert set(facts["files"]) == set(mllm_files())
    for path, text in mllm_files().items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text, "utf-8")
        facts["files"][path] = hashlib.sha256(text.encode()).hexdigest()
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/mllm-judge.json").write_text(json.dumps(facts), "utf-8")
    monkeypatch.setattr(verdicts, "FOLDER", tmp_path / "assets")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return clone


def test_the_fetched_set_is_read_from_a_server_and_from_a_clone(mirror, tmp_path, monkeypatch):
    with served(tmp_path / "mirror") as address:
        monkeypatch.setattr(verdicts, "MIRROR", address)
        data = load_set("mllm-judge")
    frame = data.frame
    monkeypatch.setattr(verdicts, "MIRROR", "http://127.0.0.1:9")
    assert load_set("mllm-judge").frame.equals(frame)  # from the cache
    shutil.rmtree(tmp_path / "cache")
    assert load_set("mllm-judge", folder=mirror).frame.equals(frame)
    assert frame["id"].tolist() == ["0", "1", "2", "3"]
    assert frame["benchmark"].tolist() == ["COCO", "COCO", "WIT", "WIT"]
    assert frame["human_scores"].tolist() == [[3], [1], [5], [2]]
    judges = frame[[*data.judges]].to_numpy().tolist()
    expected = [[2, 3, 5], [1, 3, np.nan], [4, 3, 5], [np.nan, 3, 1]]
    np.testing.assert_array_equal(judges, expected)


def test_what_is_not_the_checked_file_is_refused_and_not_kept(mirror, tmp_path, monkeypatch):
    def refused(message, **where):
        with raises(CollectionError, match=message):
            load_set("mllm-judge", **where)

    monkeypatch.setattr(verdicts, "MIRROR", "http://127.0.0.1:9")
    refused("can't be read from http://127.0.0.1:9/.*at .*cache")
    refused(
        "csv' is not the file that was checked: give a clone of divake/VLM",
        folder=tmp_path,
    )
    (file,) = mirror.rglob("error_analysis.csv")
    content = file.read_text()
    file.write_text(content.replace("coco", "caco"))
    refused("error_analysis.csv' is not the file that was checked", folder=mirror)
    with served(tmp_path / "mirror") as address:
        monkeypatch.setattr(verdicts, "MIRROR", address)
        refused("from http.*it is not the file that was checked")
        file.unlink()
        refused("HTTP Error 404")
    kept = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert "error_analysis.csv" not in kept


# --- The script that made the tables


def small_tables(folder):
    """Tables in the script's layout with a row or two of our own numbers."""
    vie = ["item", "model", "group", "criterion", "human_1", "human_2", "human_3", "gpt4v_ih"]
    vie += [f"{key}_0shot" for key in script.VIESCORE_JUDGES] + ["gpt4o_1shot"]
    tifa = ["item", "group", "model", "criterion", "human_1", "tifa_human_1", "prompt_words"]
    tifa += list(script.TIFA_JUDGES)
    genai = ["item", "group", "criterion", "prompt_chars", *script.GENAI_JUDGES]
    wild = [
        "item",
        "model",
        "criterion",
        "gpt4o",
        "tok_a",
        "tok_b",
        "chars_a",
        "chars_b",
        "question_chars",
    ]
    elo = ["model", "human_elo_anony", "human_elo_full"]
    edit = ["Text-Guided_IE:sample_7_2.jpg", "Glide", "Text-Guided_IE"]
    rows = {
        "viescore_images": (vie, [[*edit, "SC", "0.0", "0.5", "1.0", ""] + ["4"] * 8, [*edit, "PQ", "1", "1", "1", "5"] + ["6"] * 8]),
        "tifa160_images": (tifa, [["tifa160_134:sd1dot1", "tifa160_134", "sd1dot1", "match", "2", "", "9"] + ["0.0"] * 16]),
        "genai_bench_pairs": (genai, [["v:0", "v:p0", "video_generation", "12", "D", "A", "B", "G", "T", "X"] + ["A"] * 8]),
        "wildvision_pairs": (wild, [["q2", "o_m", "overall", "A>>B", *"12345"], ["q1", "m", "overall", "X", *"12345"]]),
        "wildvision_models": (elo, [["o_m", "1000.5", "1001.5"], ["m", "", ""]]),
    }  # fmt: skip
    for name, (header, lines) in rows.items():
        text = pd.DataFrame(lines, columns=header).to_csv(index=False)
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))


def test_the_script_writes_the_same_bytes_and_marks_what_no_judge_said(tmp_path):
    small_tables(tmp_path)
    answers = tmp_path / "paper_implementation/_answers/results_gpt4o_0shot"
    guessed = answers / "ImagenHub_Text-Guided_IE/Glide/SC.json"
    guessed.parent.mkdir(parents=True)
    reply = {"score": [4], "reasoning": "guess_if_cannot_parse | our words"}
    guessed.write_text(json.dumps({"sample_7_2.jpg": reply}))
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        out.mkdir()
        script.make(tmp_path, tmp_path, out)
    tables = {}
    for file in outs[0].iterdir():
        assert file.read_bytes() == (outs[1] / file.name).read_bytes()
        tables[file.name.split(".")[0]] = pd.read_csv(file, dtype=str, keep_default_na=False)
    assert set(tables) == set(script.TABLES)
    vie = tables["viescore"]
    assert vie["GPT-4o"].tolist() == ["4*", "6"] and vie["GPT-4o (1-shot)"].tolist() == ["4", "6"]
    assert vie["group"].tolist() == ["photograph:sample_7"] * 2
    assert vie["criterion"].tolist() == ["semantic consistency", "perceptual quality"]
    tifa = tables["tifa160"]
    assert tifa.loc[0, ["DSG, mPLUG", "TIFA, mPLUG"]].tolist() == ["0.0*", "0.0"]
    voices = tables["genai-bench"].loc[0, ["preference", "GPT-4o", "LLaVA-NeXT", "LLaVA"]]
    assert voices.tolist() == ["both bad", "left", "malformed", "left"]
    wild = tables["wildvision"]
    assert wild["id"].tolist() == ["q1:m", "q2:o_m"] and wild["system_b"].tolist() == ["m", "m"]
    assert wild["GPT-4o"].tolist() == ["malformed", "A>>B"]


def test_the_script_refuses_values_and_columns_that_it_does_not_know(tmp_path):
    small_tables(tmp_path)
    file = tmp_path / "genai_bench_pairs.csv.gz"
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    table.assign(gpt4o="Z").to_csv(file, index=False)
    with raises(ValueError, match=r"genai_bench_pairs: values of .'GPT-4o'. are none"):
        script.make(tmp_path, tmp_path, tmp_path)
    shutil.copy(FOLDER / "tifa160.json", tmp_path)
    with raises(ValueError, match=r"tifa160.json names columns that .* not have: .'human_2'"):
        script.make(tmp_path, tmp_path, tmp_path)


# --- Genuine files


def unmarked(table):
    return table.apply(lambda cells: cells.str.rstrip("*")).reset_index(drop=True)


@genuine
def test_the_package_has_the_numbers_of_the_public_tables():
    for name, (source, arrange) in script.TABLES.items():
        public = pd.read_csv(DATA / f"verdicts/{source}.csv.gz", dtype=str, keep_default_na=False)
        stored = pd.read_csv(FOLDER / f"{name}.csv.gz", dtype=str, keep_default_na=False)
        assert unmarked(stored).equals(unmarked(arrange(public))), name


@genuine
def test_the_fetched_set_has_the_numbers_of_the_public_table(tmp_path):
    facts = json.loads((FOLDER / "mllm-judge.json").read_text("utf-8"))
    for path in facts["files"]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        packed = DATA / "raw/mllm_judge" / f"{path}.xz"
        (tmp_path / path).write_bytes(lzma.decompress(packed.read_bytes()))
    data = load_set("mllm-judge", folder=tmp_path)
    frame = data.frame
    public = pd.read_csv(DATA / "verdicts/mllm_judge_scores.csv.gz", dtype={"item": str})
    assert frame["id"].tolist() == public["item"].tolist()
    assert frame["group"].tolist() == public["group"].tolist()
    assert frame["benchmark"].notna().all()
    keys = ["human_1", "llava_critic_7b", "phi4_15b", "gemini_2_5_flash"]
    ours = frame[["human_1", *data.judges]]
    np.testing.assert_array_equal(ours.to_numpy(), public[keys].to_numpy())
