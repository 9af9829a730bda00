"""The public verdicts of `vjudge/assets/verdicts`, as numbers.

    PYTHONPATH=tools python -m assets.verdicts FOLDER --viescore CLONE

CLONE is TIGER-AI-Lab/VIEScore at the commit in viescore.json: its answers tell which scores were guessed. FOLDER holds a table of each set, with one row an image or a pair and the columns named below. Each is made from its
public repositories alone (`source` in the set's JSON file names them with their commits):

    viescore_images.csv.gz    VIEScore: paper_implementation/_answers/results_JUDGE/TASK/MODEL/{SC,PQ}.json, a judge's
                              score is the least of an answer's list; _human_annotations has three raters' 0, .5 or 1
    tifa160_images.csv.gz     DSG: dsg/data/tifa160-likert-anns.csv, a rating by image and worker, and
                              vqa_answers_release/JUDGE_dsg.csv, a judge's score is the share of an image's questions
                              answered yes, where a question below a "no" is a "no" (_nodep: without that rule); TIFA:
                              human_annotations/human_annotations_with_scores.json
    genai_bench_pairs.csv.gz  GenAI-Bench: results/TASK/JUDGE/pairwise.json; human_vote and model_vote as letters: A, B
                              better, G both good, D both bad, T a tie without a kind, X none of these; a group is a
                              prompt
    wildvision_pairs.csv.gz   WildVision-Bench: data/vision_bench_0617/model_judgements, X where no verdict was read,
                              and the lengths of both answers
    wildvision_models.csv.gz  WildVision-Arena: image_leaderboard.csv, a model's Elo by people's votes

Here columns get readable names, raters, judges and groups their place, and the files bytes that depend on nothing else.
"7*" is a number that the published figures count though the judge gave none.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parents[2] / "vjudge/assets/verdicts"
GUESSED = "guess_if_cannot_parse"  # how the reasoning of a guessed score begins
BASELINE = "claude-3-sonnet-20240229"

VIESCORE_TASKS = {
    "Text-Guided_IG": "text-guided generation",
    "Control-Guided_IG": "control-guided generation",
    "Subject-Driven_IG": "subject-driven generation",
    "Multi-Concept_IC": "multi-concept composition",
    "Text-Guided_IE": "text-guided editing",
    "Mask-Guided_IE": "mask-guided editing",
    "Subject-Driven_IE": "subject-driven editing",
}
VIESCORE_CRITERIA = {"SC": "semantic consistency", "PQ": "perceptual quality"}
VIESCORE_JUDGES = {
    "gpt4o": "GPT-4o",
    "gpt4v": "GPT-4V",
    "gemini": "Gemini",
    "llava": "LLaVA",
    "qwenvl": "Qwen-VL",
    "instructblip": "InstructBLIP",
    "blip2": "BLIP-2",
}
"""Fuyu, OpenFlamingo and CogVLM are left out: of 20,859 scores all but 88 are guesses."""
TIFA_JUDGES = {
    "dsg_pali17b": "DSG, PaLI-17B",
    "dsg_mplug": "DSG, mPLUG",
    "dsg_instructblip": "DSG, InstructBLIP",
    "tifa_mplug_large": "TIFA, mPLUG",
    "tifa_blip2_flant5xl": "TIFA, BLIP-2",
    "tifa_ofa_large": "TIFA, OFA",
    "tifa_git_large": "TIFA, GIT",
    "tifa_vilt": "TIFA, ViLT",
    "dsg_pali17b_nodep": "DSG without dependencies, PaLI-17B",
    "dsg_mplug_nodep": "DSG without dependencies, mPLUG",
    "dsg_instructblip_nodep": "DSG without dependencies, InstructBLIP",
    "clipscore_vitb32": "CLIPScore",
    "meteor": "METEOR",
    "spice": "SPICE",
    "rouge": "ROUGE-L",
    "bleu": "BLEU-4",
}
TIFA_SYSTEMS = {
    "mini-dalle": "minDALL-E",
    "sd1dot1": "Stable Diffusion 1.1",
    "sd1dot5": "Stable Diffusion 1.5",
    "sd2dot1": "Stable Diffusion 2.1",
    "vq-diffusion": "VQ-Diffusion",
}
GENAI_TASKS = {
    "image_generation": "image generation",
    "image_edition": "image editing",
    "video_generation": "video generation",
}
GENAI_VOTES = {
    "A": "left",
    "B": "right",
    "G": "both good",
    "D": "both bad",
    "T": "tie",
    "X": "malformed",
}
GENAI_JUDGES = {
    "preference": "preference",
    "gpt4o": "GPT-4o",
    "gemini_1_5_pro": "Gemini 1.5 Pro",
    "idefics2": "Idefics2",
    "minicpm_v_2_5": "MiniCPM-V 2.5",
    "llavanext": "LLaVA-NeXT",
    "llava": "LLaVA",
    "videollava": "Video-LLaVA",
    "cogvlm": "CogVLM",
    "blip2": "BLIP-2",
    "qwenvl": "Qwen-VL",
    "instructblip": "InstructBLIP",
    "idefics1": "Idefics1",
    "random": "chance",
}


def viescore(table: pd.DataFrame) -> pd.DataFrame:
    """A row an image and criterion; images made from one prompt, subject or photograph are a group."""
    # An item is TASK:sample_NUMBER...; of the two editing tasks by text and by mask the number is the photograph's,
    # which is edited in several turns and in both tasks.
    sample = table["item"].str.extract(r":(sample_\d+)")[0]
    photograph = table["group"].isin(["Text-Guided_IE", "Mask-Guided_IE"])
    group = table["item"].mask(photograph, "photograph:" + sample)
    ids = table["item"] + ":" + table["model"] + ":" + table["criterion"]
    frame = pd.DataFrame({"id": ids, "group": group})
    frame["benchmark"] = table["group"].map(VIESCORE_TASKS)
    frame["criterion"] = table["criterion"].map(VIESCORE_CRITERIA)
    frame["system"] = table["model"]
    frame = frame.join(table.filter(like="human_"))
    for suffix, shots in (("_0shot", ""), ("_1shot", " (1-shot)")):
        for key, name in VIESCORE_JUDGES.items():
            if key + suffix in table:
                frame[name + shots] = table[key + suffix]
    frame["GPT-4V (ImagenHub's scale)"] = table["gpt4v_ih"]
    return frame


def mark_guesses(frame: pd.DataFrame, clone: Path) -> None:
    """Put "*" behind the scores that VIEScore's code drew at random where it could not read an answer."""
    rows = {id: row for row, id in enumerate(frame["id"])}
    for suffix, shots in (("_0shot", ""), ("_1shot", " (1-shot)")):
        for key, name in VIESCORE_JUDGES.items():
            folder = clone / "paper_implementation/_answers" / f"results_{key}{suffix}"
            for file in sorted(folder.glob("ImagenHub_*/*/[SP]?.json")):
                task = file.parts[-3].removeprefix("ImagenHub_")
                for sample, answer in json.loads(file.read_text(encoding="utf-8")).items():
                    if GUESSED in json.dumps(answer):
                        row = rows[f"{task}:{sample}:{file.parts[-2]}:{file.stem}"]
                        frame.loc[row, name + shots] += "*"


def tifa160(table: pd.DataFrame) -> pd.DataFrame:
    """A row an image; the five images of a prompt are a group."""
    frame = pd.DataFrame({"id": table["item"], "group": table["group"]})
    frame["benchmark"] = "TIFA160"
    frame["criterion"] = table["criterion"]
    frame["system"] = table["model"].map(TIFA_SYSTEMS)
    frame = frame.join(table.filter(regex="^(tifa_)?human_"))
    frame = frame.join(table[list(TIFA_JUDGES)].rename(columns=TIFA_JUDGES))
    # DSG asked no question about this prompt: there is no score, where the published correlations count a 0.
    unasked = table["group"] == "tifa160_134"
    frame.loc[unasked, [name for name in frame if name.startswith("DSG")]] += "*"
    frame["prompt_words"] = table["prompt_words"]
    return frame


def genai_bench(table: pd.DataFrame) -> pd.DataFrame:
    """A row a pair, votes and verdicts in the source's four grades; the pairs of a prompt are a group."""
    frame = pd.DataFrame({"id": table["item"], "group": table["group"]})
    frame["benchmark"] = table["criterion"].map(GENAI_TASKS)
    frame["criterion"] = "overall"
    for key, name in GENAI_JUDGES.items():
        frame[name] = table[key].map(GENAI_VOTES)
    frame["prompt_characters"] = table["prompt_chars"]
    return frame


def wildvision(table: pd.DataFrame) -> pd.DataFrame:
    """A row a pair of answers, in the judge's five grades; the pairs of a question are a group."""
    frame = pd.DataFrame({"id": table["item"] + ":" + table["model"], "group": table["item"]})
    frame["benchmark"] = "WildVision-Bench"
    frame["criterion"] = table["criterion"]
    frame["system_a"] = BASELINE
    frame["system_b"] = short_name(table["model"])
    frame["GPT-4o"] = table["gpt4o"].replace("X", "malformed")
    for unit, key in (("tokens", "tok"), ("characters", "chars")):
        for side in "ab":
            frame[f"{unit}_{side}"] = table[f"{key}_{side}"]
    frame["question_characters"] = table["question_chars"]
    # The rows of a question have much in common: side by side they need a quarter less space.
    return frame.sort_values("group", kind="stable")


def wildvision_systems(table: pd.DataFrame) -> pd.DataFrame:
    """A row a model: Elo by people's votes in the arena, of anonymous battles and of all."""
    frame = pd.DataFrame({"system": short_name(table["model"])})
    frame["human_elo"] = table["human_elo_anony"]
    frame["human_elo_all_battles"] = table["human_elo_full"]
    return frame


def short_name(models: pd.Series) -> pd.Series:
    """The models without the owner that stands before some: THUDM_cogvlm-chat-hf is cogvlm-chat-hf."""
    return models.str.replace(r"^[A-Za-z-]+_", "", regex=True)


TABLES: dict[str, tuple[str, Callable[[pd.DataFrame], pd.DataFrame]]] = {
    "viescore": ("viescore_images", viescore),
    "tifa160": ("tifa160_images", tifa160),
    "genai-bench": ("genai_bench_pairs", genai_bench),
    "wildvision": ("wildvision_pairs", wildvision),
    "wildvision-systems": ("wildvision_models", wildvision_systems),
}
"""The file that is written -> the table that it is made from, and how."""


def make(tables: Path, clone: Path, out: Path) -> None:
    """Write every file of verdicts into `out`, with the same bytes from the same tables."""
    for name, (source, arrange) in TABLES.items():
        # Numbers stay the texts that they are: nothing is rounded on the way.
        table = pd.read_csv(tables / f"{source}.csv.gz", dtype=str, keep_default_na=False)
        frame = arrange(table)
        if name == "viescore":
            mark_guesses(frame, clone)
        if frame.isna().any(axis=None):
            lacking = frame.columns[frame.isna().any()].tolist()
            raise ValueError(f"{source}: values of {lacking} are none that are known here")
        text = frame.to_csv(index=False, lineterminator="\n")
        (out / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        check_columns(out / f"{name}.json", frame)


def check_columns(file: Path, frame: pd.DataFrame) -> None:
    """Refuse a table that lacks a column which its JSON file names."""
    if not file.exists():
        return
    facts = json.loads(file.read_text(encoding="utf-8"))
    named = [*facts["judges"], *facts["baselines"], *facts["people"], *facts["response_length"]]
    absent = [name for name in named if name not in frame]
    if absent:
        raise ValueError(f"{file.name} names columns that the table does not have: {absent}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tables", type=Path, help="the folder with the five tables")
    parser.add_argument("--viescore", type=Path, required=True, help="a clone of VIEScore")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    make(options.tables, options.viescore, options.out)
