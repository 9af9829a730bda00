"""A run means the same after a concat, a merge, a CSV and a parquet file: no number hangs on `attrs`."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from samples import Scripted, judge_of, pair, scripted
from vjudge import benchmarks, data, metrics, probes
from vjudge.judging.judge import Judge
from vjudge.prompts import TEMPLATES, VICUNA_V1

FEW = {"n_resamples": 100}
N = 40


def make_items():
    rng = np.random.default_rng(0)
    rows = []
    for n in range(N):
        level = int(rng.integers(1, 6))
        people = np.clip(np.rint(level + rng.normal(0, 0.7, 3)), 1, 5).tolist()
        people[1] = None if n % 5 == 0 else people[1]
        rows.append(
            {
                "id": f"i{n}",
                "images": [],
                "instruction": "Say.",
                "response": "word " * (level + n % 7),
                "criteria": "Said?",
                "descriptions": ["none", "few", "half", "most", "all"],
                "gold": float(level),
                "human_scores": people,
                "group": f"g{n // 2}",
                "category": "xy"[n % 2],
                "system": "pq"[n % 3 > 0],
            }
        )
    return rows


def level_of(text, place, shift=0):
    words = text.split("###Response to evaluate:\n")[1].split("\n\n###")[0].count("word")
    return min(5, max(1, (words + shift + place) // 3))


def grader(shift=0):
    """A judge by the number of words, some answers unread, some closed."""

    def write(prompt, ask, place):
        level = level_of(prompt.text, place % 4, shift)
        logprobs = {n: math.log(0.8 if n == level else 0.05) for n in range(1, 6)}
        if place % 9 == 4:
            return "Hm."
        return {"text": f"So. [RESULT] {level}", "score_logprobs": logprobs}

    return scripted(write, "words")


def comparer():
    def write(prompt, ask, place):
        if place % 11 == 3:
            return {"text": "Both.", "closed": 1, "score_logprobs": {0: -2.0, 1: -0.15}}
        return f"Answer {1 + place % 2} is better. [RESULT] {'AB'[place % 2]}"

    return scripted(write, "places")


def reviews():
    """A run of GPT-4-like reviews: the reference answer's score, then the response's."""
    run = judge_of(lambda text: "6 8\nBecause.", template="llava-critic").grade(make_items())
    return run.assign(scores=[[6, 5 + n % 5] if n % 7 else None for n in range(N)])


def valuer():
    template = replace(TEMPLATES["skywork-vl-reward"], conversation=VICUNA_V1)
    write = lambda prompt, ask, place: {"value": len(prompt.text) / 7 - 20}  # noqa: E731
    return Judge("head", template=template, engine=Scripted(write=write))


@pytest.fixture(scope="module")
def runs():
    """Runs by kind."""
    items = make_items()
    sides = [("p", "q"), ("q", "p")]
    pairs = []
    for n in range(24):
        first, second = sides[n % 2]
        more = {"policy_a": first, "policy_b": second, "group": f"g{n // 2}"}
        more |= {"preference": ["a", "b", "tie"][n % 3], "category": "general"}
        pairs.append(pair(f"p{n}", "long answer", "short", **more))
    seven = {"samples": 3, "temperature": 1.0}
    return {
        "graded": grader().grade(items),
        "padded": grader(3).grade(items),
        "sampled": grader().grade(items, **seven),
        "valued": valuer().grade(items),
        "reviewed": reviews(),
        "compared": comparer().compare(pairs),
        "drawn": comparer().compare(pairs, orders="random", samples=4, temperature=1.0),
    }


def concat(run, folder):
    half = len(run) // 2
    return pd.concat([run.iloc[:half], run.iloc[half:]])


def merge(run, folder):
    keys = run.columns.intersection(["id", "sample"]).tolist()
    middle = len(run.columns) // 2
    left, right = run.iloc[:, :middle], run.iloc[:, middle:]
    for key in keys:
        right = right.assign(**{key: run[key]})
    return left.assign(**{key: run[key] for key in keys}).merge(right, on=keys)


def csv(run, folder):
    run.to_csv(folder / "run.csv", index=False)
    return pd.read_csv(folder / "run.csv")


def parquet(run, folder):
    run.to_parquet(folder / "run.parquet")
    return pd.read_parquet(folder / "run.parquet")


def truth(run):
    return data.truth(run)


def people(run):
    return metrics.raters(run["human_scores"], {"it": run["score"]}, groups=run["group"], **FEW)


def majority(run):
    columns = ["id", "judge", "score", "n", "missing", "failure", "closed", "lowest", "group"]
    return vj.combine_samples(run, combine="majority")[columns]


def tempered(run):
    frame = run.set_index("id")
    return metrics.temperature_scaling(frame["probabilities"], frame["gold"])


def errors(run):
    scale = run[["lowest", "highest"]]
    return metrics.calibration_errors(run["score"], run["gold"], scale=scale, **FEW)


def rated(run):
    table = run[["score", "gold", "lowest", "highest"]]
    return metrics.agreement(table, **FEW)


CALLS = {
    "truth": ("graded sampled valued", truth),
    "correlate": (
        "graded valued",
        lambda run: metrics.correlate(run["score"], run["gold"], groups=run["group"], **FEW),
    ),
    "raters": ("graded valued", people),
    "alt_test": (
        "graded",
        lambda run: metrics.alt_test(run["human_scores"], run["score"], groups=run["group"]),
    ),
    "agreement of people": ("graded", lambda run: metrics.agreement(run["human_scores"], **FEW)),
    "agreement": ("graded valued", rated),
    "temperature_scaling": ("graded", tempered),
    "calibration_errors": ("graded valued", errors),
    "calibration_curve": (
        "graded valued",
        lambda run: metrics.calibration_curve(run["score"], run["gold"]),
    ),
    "combine_samples": ("sampled graded", majority),
    "win_rate": ("compared drawn", lambda run: metrics.win_rate(run["verdict"])),
    "pairwise_accuracy": (
        "compared drawn",
        lambda run: metrics.pairwise_accuracy(run["verdict"], run["preference"]),
    ),
    "bradley_terry": (
        "compared",
        lambda run: metrics.bradley_terry(run["policy_a"], run["policy_b"], run["verdict"]),
    ),
    "benchmark of scores": (
        "graded valued sampled",
        lambda run: vj.benchmark(run, name="perception-bench", **FEW).table,
    ),
    "benchmark of reviews": (
        "reviewed",
        lambda run: vj.benchmark(run, name="llava-bench-wild", **FEW).table,
    ),
    "benchmark of pairs": (
        "compared drawn",
        lambda run: vj.benchmark(run, name="mllm-judge-pair", **FEW).table,
    ),
    "benchmark unnamed": ("compared", lambda run: vj.benchmark(run)),
    "reread": (
        "compared drawn",
        lambda run: benchmarks.reread(run, lambda text, preferred: "ab"["2" in text])[
            ["id", "verdict", "unread_draws", "empty_draws"]
        ],
    ),
    "probes.length": ("graded valued", lambda run: probes.length(run, make_items()).table),
    "probes.length rated": (
        "graded",
        lambda run: probes.length(run, make_items(), gold="rated").table,
    ),
    "probes.position": ("compared drawn", lambda run: probes.position(run).table),
    "scores": ("graded valued", lambda run: vj.scores(run).correlate(**FEW).table),
    "scores.calibration": ("graded valued", lambda run: vj.scores(run).calibration(**FEW).table),
    "scores.raters": ("graded valued", lambda run: vj.scores(run).raters(**FEW).table),
    "scores.agreement": ("graded valued", lambda run: vj.scores(run).agreement(**FEW).table),
    "scores.alt_test": ("graded", lambda run: vj.scores(run).alt_test().table),
    "scores.confusion": ("graded valued", lambda run: vj.scores(run).confusion().table),
    "scores.missing": ("graded", lambda run: vj.scores(run).missing().table),
    "choices.win_rates": ("compared drawn", lambda run: vj.choices(run).win_rates().table),
    "choices.accuracy": ("compared drawn", lambda run: vj.choices(run).accuracy().table),
    "choices.positions": ("compared drawn", lambda run: vj.choices(run).positions().table),
    "report": ("graded compared", lambda run: vj.report(run, n_resamples=100).claims),
}


REFUSED = {
    ("agreement", "valued"),
    ("calibration_errors", "valued"),
    ("benchmark unnamed", "compared"),
    ("probes.position", "drawn"),
    ("scores.calibration", "valued"),
    ("scores.confusion", "valued"),
    ("choices.positions", "drawn"),
}


def outcome(call, run):
    """What a call returns, or how it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(run)
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("way", [concat, merge, csv, parquet])
@pytest.mark.parametrize("name", CALLS)
def test_a_run_that_travelled_gives_the_same(name, way, runs, tmp_path):
    kinds, call = CALLS[name]
    for kind in kinds.split():
        run = runs[kind]
        expected = outcome(call, run)
        found = outcome(call, way(run, tmp_path))
        if isinstance(expected, str):
            assert (name, kind) in REFUSED, expected
            assert found == expected, kind
        else:
            assert not isinstance(found, str), f"{kind}: {found}"
            pd.testing.assert_frame_equal(
                pd.DataFrame(found).reset_index(drop=True),
                pd.DataFrame(expected).reset_index(drop=True),
                check_dtype=False,
                obj=kind,
            )


@pytest.mark.parametrize("way", [concat, merge, csv, parquet])
def test_probes_of_runs_that_travelled(way, runs, tmp_path):
    given = {"original": runs["graded"], "response_padded": runs["padded"]}
    expected = probes.battery(given, probes=["verbosity", "length"]).table
    moved = {name: way(run, tmp_path) for name, run in given.items()}
    found = probes.battery(moved, probes=["verbosity", "length"]).table
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert expected[["deviation", "conformity"]].notna().any(axis=None), "the scale is known"
