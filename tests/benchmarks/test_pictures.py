"""Benchmarks of pictures as responses: their rows, what is asked, and their numbers; values by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from samples import judge_of, png
from vjudge.benchmarks import PROTOCOLS, protocols, viescore
from vjudge.benchmarks.rows import published_rows
from vjudge.data import CollectionError
from vjudge.data.verdicts import load_set
from vjudge.probes import bias_scores

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* rows have no interval"),
    pytest.mark.filterwarnings("ignore:.*has no row of"),
    pytest.mark.filterwarnings("ignore:.*no interval, since one"),
]


def picture_judge(answer, **wordings):
    wordings = {"template": "chat-picture", "pairs": "chat-picture-relative"} | wordings
    return judge_of(answer, **wordings)


@pytest.fixture
def whole(monkeypatch):
    """Say that a benchmark has so many rows."""

    def say(name, n_items):
        monkeypatch.setitem(PROTOCOLS, name, replace(PROTOCOLS[name], n_items=n_items))

    return say


# --- MMRB2

IMAGES = {"a": png("red"), "b": png("blue"), "source": png("green")}
SIDES = {
    "t2i": ([["image", "a.png"]], [["image", "b.png"]]),
    "interleaved": (
        [["text", "First "], ["image", "a.png"], ["text", " then."]],
        [["image", "b.png"], ["text", "Last."]],
    ),
    "reasoning": ([["text", "Two."]], [["text", "Three."]]),
}
SOURCES = {"t2i": "wise", "edit": "risebench", "interleaved": "mmmg", "reasoning": "vstar"}


def mmrb2_pairs(file):
    """A pair as facebookresearch/MMRB2's file of a task holds it, with texts of ours."""
    prompt = [["text", "Draw a box."]]
    if file == "edit":
        prompt = [["image", "source.png"], ["text", "Make it red."]]
    sides = SIDES.get(file, SIDES["t2i"])
    return [
        {
            "id": f"{file}-{chosen}",
            "prompt_source": SOURCES[file],
            "prompt_metadata": {"id": 7},
            "prompt_content": prompt,
            "response_a": {"model_name": "x", "response_content": sides[0]},
            "response_b": {"model_name": "y", "response_content": sides[1]},
            "chosen": chosen,
            "human_annotations": [1, 2, 1],
        }
        for chosen in "AB"
    ]


@pytest.fixture
def mmrb2(tmp_path):
    for name, data in IMAGES.items():
        (tmp_path / f"{name}.png").write_bytes(data)
    for file in SOURCES:
        (tmp_path / f"{file}.json").write_text(json.dumps({"pairs": mmrb2_pairs(file)}))
    return tmp_path


def test_mmrb2_asks_each_task_in_its_words_and_counts_each_order(mmrb2, whole):
    whole("mmrb2", 8)
    asked = []

    def answer(text):  # the first response, but none of the second order of an edit
        asked.append(text)
        if "image editing" in text and sum("image editing" in each for each in asked) % 2 == 0:
            return "{}"
        return '{"reasoning": "x", "better_response": "A"}'

    result = vj.run_benchmark(picture_judge(answer), "mmrb2", data=mmrb2, progress=False)
    assert result.official and result.deviations == []
    places = "[ORIGINAL PROMPT TO MODEL:]\n{}\n[RESPONSE A:]\n{}\n[RESPONSE B:]\n{}"
    texts = ["First <image> then.", "<image>Last."]
    for prompt, sides in (
        ("Draw a box.", ["<image>"] * 2),
        ("<image>Make it red.", ["<image>"] * 2),
        ("Draw a box.", texts),
        ("Draw a box.", texts[::-1]),
        ("Draw a box.", ["Two.", "Three."]),
    ):
        assert any(text.endswith(places.format(prompt, *sides)) for text in asked)
    # Always the first: right in one order of each pair; of edits one order alone was read, of which
    # that of the pair whose better response stands first is right.
    accuracy = result.table["estimate"].xs(("accuracy", "left out"), level=[1, 2])
    expected = {"overall": 0.5, "edit": 0.5, "image": 0.5, "interleaved": 0.5, "reasoning": 0.5}
    assert accuracy.drop("macro").to_dict() == expected
    wrong = result.table["estimate"].xs(("accuracy", "wrong"), level=[1, 2])
    assert wrong["edit"] == 0.25 and wrong["image"] == 0.5


def test_mmrb2_of_the_hub_is_read_as_its_files(mmrb2):
    rows = published_rows("mmrb2", "", str(mmrb2 / "interleaved.json"))
    hub = {
        "pair_id": "interleaved-A",
        "prompt_text": "Draw a box.",
        "prompt_images": [],
        "response_a_text": "First <image_1> then.",
        "response_a_images": [IMAGES["a"]],
        "response_b_text": "<image_1>Last.",
        "response_b_images": [IMAGES["b"]],
        "prompt_source": "mmmg",
        "prompt_metadata": '{"id": 7}',
        "chosen": "A",
    }
    (row,) = published_rows("mmrb2", "", [hub])
    assert (
        row["response_a"] == "First<image>then."
    )  # the hub's copy is stripped, as its script does
    names = ["id", "group", "category", "preference", "instruction", "response_b"]
    assert [row[name] for name in names] == [rows[0][name] for name in names]
    with pytest.raises(CollectionError, match="row 0: prompt_source is 'blinks': use one of evalm"):
        published_rows("mmrb2", "", [{**hub, "prompt_source": "blinks"}])
    with pytest.raises(CollectionError, match="holds none of t2i.json"):
        published_rows("mmrb2", "", mmrb2 / "absent")


def test_the_sample_of_mmrb2_has_its_published_number():
    """Its sample predictions say A of every pair, in both orders: 53.42 % (evaluate/README.md)."""
    n_a = {"image": 532, "edit": 555, "interleaved": 575, "reasoning": 475}  # of 1,000 labels each
    frame = pd.DataFrame({"category": np.repeat(list(n_a), 1000)})
    frame["preference"] = np.concatenate([["a"] * n + ["b"] * (1000 - n) for n in n_a.values()])
    frame["id"] = frame["group"] = frame.index.astype(str)
    result = vj.benchmark(
        frame.assign(verdict="a", verdict_ab="a", verdict_ba="a"), name="mmrb2", n_resamples=0
    )
    official = result.table[result.table["official"]]["estimate"].droplevel([1, 2])
    assert official.round(4).to_dict() == {
        "overall": 0.5342,
        **{task: n / 1000 for task, n in n_a.items()},
    }


def test_what_shows_no_pictures_is_refused_by_name(mmrb2):
    blind = picture_judge("", template="prometheus-2", pairs="prometheus-2-relative")
    with pytest.raises(
        ValueError, match="of mmrb2 are pictures, and template 'mmrb2-image' of judge"
    ):
        vj.run_benchmark(blind, "mmrb2", data=mmrb2, progress=False)
    with pytest.raises(CollectionError, match="no rows"):
        vj.run_benchmark(picture_judge(""), "mmrb2", data=[], progress=False)
    options = {"data": mmrb2, "progress": False, "template": "vl-rewardbench"}
    with pytest.raises(
        CollectionError, match="'vl-rewardbench' has no place for a response's pict"
    ):
        vj.run_benchmark(picture_judge(""), "mmrb2", **options)


# --- GenAI-Bench

GENERATED = {"prompt": "A cat.", "left_image": IMAGES["a"], "right_image": IMAGES["b"]}
EDITED = {
    "source_prompt": "A cat.",
    "target_prompt": "A red cat.",
    "instruct_prompt": "Make it red.",
    "source_image": IMAGES["source"],
    "left_output_image": IMAGES["a"],
    "right_output_image": IMAGES["b"],
}


def test_genai_bench_as_published(whole):
    """Four votes and four labels; each picture at its place in the text."""
    whole("genai-bench", 5)
    votes = ["leftvote", "tievote", "bothbad_vote", "leftvote"]
    labels = {"0": "[[A>B]]", "1": "[[A=B]]", "2": "[[A=B=Good]]", "3": "[[A>B]] and [[A>B]]"}
    rows = [{**GENERATED, "prompt": str(n), "vote_type": vote} for n, vote in enumerate(votes)]
    asked = []

    def answer(text):
        asked.append(text)
        return labels.get(text.partition("Text prompt: ")[2][:1], "4. Both are bad: [[A=B=Bad]]")

    data = [*rows, {**EDITED, "vote_type": "bothbad_vote"}]
    result = vj.run_benchmark(picture_judge(answer), "genai-bench", data=data, progress=False)
    assert result.official and result.facts["unread_draws"] == 1
    official = result.table[result.table["official"]]["estimate"].droplevel([1, 2])
    assert official.to_dict() == {"image_generation": 0.5, "image_edition": 1}
    shown = "Model A Generated Image: <image>\nModel B Generated Image: <image>\n"
    assert f"Text prompt: 0\n{shown}" in asked[0]
    edited = (
        "Source Image prompt: A cat.\nTarget Image prompt after editing: A red cat.\n"
        "Editing instruction: Make it red.\nSource Image: <image>\n\n"
        "Model A Edited Image: <image>\nModel B Edited Image: <image>\n"
    )
    assert edited in asked[-1] and len(asked) == 5
    with pytest.raises(CollectionError, match="row 0 is of videos"):
        published_rows("genai-bench", "", [{"vote_type": "tievote", "left_video": "x.mp4"}])


def test_gpt_4os_verdicts_give_genai_benchs_published_numbers():
    verdicts = load_set("genai-bench")
    run = verdicts.frame[["id", "group", "preference"]].assign(
        vote=verdicts.published["preference"],
        verdict=verdicts.published["GPT-4o"].replace("malformed", None),
        category=verdicts.frame["benchmark"],
    )
    table = vj.benchmark(run, name="genai-bench").table
    official = table[table["official"]]["estimate"].droplevel([1, 2]).mul(100).round(2)
    published = {"image generation": 45.59, "image editing": 53.54, "video generation": 48.46}
    assert official.to_dict() == published


# --- VIEScore


@pytest.fixture
def imagenhub(tmp_path):
    """Two systems' pictures of two tasks, and three people's ratings, as ImagenHub has them."""
    uids = [f"sample_{n}_1.jpg" for n in range(4)]
    entries = {
        "ImagenHub_Text-Guided_IG": {"prompt": "Two <token> boxes."},
        "ImagenHub_Subject-Driven_IE": {"subject": "red_box"},
    }
    for task, entry in entries.items():
        folder = tmp_path / "results" / task
        systems = ["SD", "SDXL"]
        sources = ["input", "token"] if task.endswith("IE") else []
        for name in [*systems, *sources]:
            (folder / name).mkdir(parents=True)
            for uid in uids:
                (folder / name / uid).write_bytes(png())
        (folder / "dataset_lookup.json").write_text(json.dumps(dict.fromkeys(uids, entry)))
        people = tmp_path / "human_ratings" / task
        people.mkdir(parents=True)
        for rater in (1, 2, 3):
            ratings = pd.DataFrame(dict.fromkeys(systems, "[0, 1]"), index=uids)
            ratings.loc[uids[1:], "SD"] = ["[1, 1]", "[0.5,0.5]", "[1, 0.5]"]
            file = people / f"Task_rater{rater}.tsv"
            ratings.rename_axis("uid").to_csv(file, sep="\t", quoting=3)
    return tmp_path


def test_viescore_is_the_root_of_the_lowest_of_both(imagenhub, whole, tmp_path):
    whole("viescore", 16)
    asked = []

    def answer(text):
        asked.append(text)
        return json.dumps(
            {"score": [4, 9], "reasoning": "x"} if "RULES:\n\nT" in text else {"score": [9]}
        )

    judge = picture_judge(answer)
    out = tmp_path / "run"
    result = vj.run_benchmark(judge, "viescore", data=imagenhub, out=out, progress=False)
    assert result.official and result.facts["items"] == 16
    assert sum("Subject: red box<image><image><image>" in text for text in asked) == 8
    assert sum("Text Prompt: Two boxes.\n<image>" in text for text in asked) == 8
    quality = [text for text in asked if "[naturalness, artifacts]" in text]
    assert len(quality) == 16 and {text.count("<image>") for text in quality} == {1}
    assert vj.load_run(out / "sdie/semantics")["score"].eq(4).all()
    # what is constant has no correlation
    assert math.isnan(result.table.loc[("overall", "quality as published", "left out"), "estimate"])


def test_a_wording_of_the_picture_alone_refuses_its_source():
    row = {"id": 1, "instruction": "Red.", "images": [png()], "response_images": [png("red")]}
    with pytest.raises(
        CollectionError, match="'viescore-pq' shows a response's pictures, not the q"
    ):
        picture_judge("", template="viescore-pq").grade([row], progress=False)


def test_panels_are_run_on_benchmarks_of_pictures(mmrb2, imagenhub):
    def of(level):
        def answer(text):
            if "Model A" in text:
                return "[[A=B=Bad]]"
            return f'{{"score": [{level}, 9]}}' if "artist" in text else '{"better_response": "A"}'

        return picture_judge(answer)

    judges = [of(2), of(4)]
    for judge, name in zip(judges, "xy", strict=True):
        judge.name = name
    panel = vj.panel(judges)
    result = vj.run_benchmark(panel, "viescore", data=imagenhub, progress=False)
    assert set(result.table.index.get_level_values(1)) == {"overall", "overall as published"}
    result = vj.run_benchmark(panel, "mmrb2", data=mmrb2, progress=False)
    assert result.table["estimate"].iloc[0] == 0.5
    votes = [{**GENERATED, "vote_type": vote} for vote in ("bothbad_vote", "tievote")]
    result = vj.run_benchmark(panel, "genai-bench", data=votes, progress=False)
    assert result.table["estimate"].iloc[0] == 1  # a bare tie is right for either


def test_both_scores_of_a_picture_stand_beside_their_root():
    row = {"id": 1, "instruction": "Red.", "images": [png()], "response_images": [png("red")]}
    answers = iter(['{"score": [16, 25]}', '{"score": [4, 12]}', '{"score": [16, 25]}', "I can't."])
    judge = picture_judge(lambda _: next(answers), template="editscore")
    run = viescore(judge, [row], quality="editscore-quality", progress=False)
    assert run[["semantics", "quality", "score"]].values.tolist() == [[16, 4, 8]]
    unread = viescore(judge, [row], quality="editscore-quality", progress=False)
    assert math.isnan(unread["score"][0]) and unread["failure"].notna().all()


def test_geminis_scores_give_viescores_published_correlations():
    """On text-guided generation (paper_implementation/analyze_json.ipynb)."""
    verdicts = load_set("viescore")
    people = list(verdicts.people)
    frame = verdicts.frame.assign(Gemini=verdicts.published["Gemini"])
    frame = frame[frame["benchmark"] == "text-guided generation"]
    frame["id"] = frame["id"].str[:-3]
    wide = frame.pivot(index="id", columns="criterion", values=["Gemini", *people])
    semantics, quality = "semantic consistency", "perceptual quality"
    cells = frame.drop_duplicates("id").set_index("id").loc[wide.index]
    run = cells[["group", "system"]].assign(category="t2i")
    for name, criterion in (("semantics", semantics), ("quality", quality)):
        run[name] = wide["Gemini", criterion]
        run[f"people_{name}"] = wide[people].xs(criterion, axis=1, level=1).mean(axis=1)
    ratings = [np.sqrt(wide[rater, semantics] * wide[rater, quality]) for rater in people]
    run["human_scores"] = np.column_stack(ratings).tolist()
    run["score"] = np.sqrt(run["semantics"] * run["quality"])
    table = vj.benchmark(run.reset_index(), name="viescore", n_resamples=0).table
    published = {"overall": 0.4359, "semantics": 0.5123, "quality": 0.1842}
    for name, rho in published.items():  # upstream's roots of tenths miss some ties
        found = table["estimate"].xs(("t2i", f"{name} as published", "left out"))
        assert found == pytest.approx(rho, abs=1.5e-4)


# --- MM-JudgeBias


def test_mm_judgebias_by_its_wording_its_reader_and_its_number(whole):
    kinds = ["text_dominance", "image_dominance", "texture_insertion"]
    pairs = {"p": (9, 5), "q": (1, 1), "r": (6, 7), "s": (7, 10)}
    rows = []
    for number, (name, kind) in enumerate(zip(pairs, [kinds[0], *kinds], strict=True)):
        texts = {"unbiased_instruction": f"{name}0?", "biased_instruction": f"{name}1?"}
        images = {"unbiased_image": png(), "biased_image": None if number < 2 else png("blue")}
        rows.append({"id": number, "bias_type": kind, "response": "Red.", **texts, **images})
    whole("mm-judgebias", 8)

    def answer(text):
        name, variant = text.partition("to evaluate:\n")[2][:2]
        return f"### Feedback: 2 of 3 hold. ### Score: {pairs[name][int(variant)]}"

    judge = picture_judge(answer)
    result = vj.run_benchmark(judge, "mm-judgebias", data=rows, progress=False)
    assert result.official and result.facts["failures"] == {}, result.deviations
    before, after = np.transpose([pairs["p"], pairs["s"]])
    deviation, _ = bias_scores(before, after, highest=10)["estimate"]
    assert result.table.loc["text_dominance", "n"].tolist() == [1]  # q has no room to fall
    found = result.table["estimate"].droplevel([1, 2])
    assert found["text_dominance"] == pytest.approx(deviation * 2) == pytest.approx(0.5)
    assert found["image_dominance"] == 0  # 6 -> 7 is no fall
    assert found["texture_insertion"] == pytest.approx(1 - 3 / 6)
    assert found["integrality"] == pytest.approx(0.25)  # of the two kinds
    assert found["macro"] == pytest.approx((0.5 + 0 + 0.5) / 3)
    missing = [{**row, "unbiased_image": None, "biased_image": None} for row in rows]
    result = vj.run_benchmark(judge, "mm-judgebias", data=missing, progress=False)
    assert result.deviations == [("images", "4 answers were judged without an image")]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("### Score: 3 ### Feedback: x ### Score: (7.5)/10", 7.5),  # the last marker's
        ("### Score: none, 2 of 3", 2),
        ("2 of 3 ### Score:", 3),  # nothing behind it: the last of all
        (" 1e1\n", 10),
        ("Good.", math.nan),
    ],
)
def test_mm_judgebiass_reader_to_the_letter(text, score):
    assert protocols.read_marked_score(text) == pytest.approx(score, nan_ok=True)


def test_mm_judgebiass_wording_goes_through_the_probes():
    items = vj.load_collection("scenes", split="test", limit=6)
    judge = picture_judge("### Feedback: Fine. ### Score: 7").reworded("mm-judgebias")
    table = vj.probes.blindness(judge, items, progress=False).table
    assert table["deviation"].dropna().eq(0).all() and len(table)
