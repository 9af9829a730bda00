"""No number depends on how rows are ordered, indexed, named or stored, nor on the order of raters.

Every public function of `vjudge.metrics` and every analysis of scores and choices is tried. A new
one enters by itself: arguments are taken by their names out of `ARGUMENTS`, and one of another name
fails, and asks for a line.
"""

import inspect
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest

import vjudge as vj
from vjudge import metrics
from vjudge.analysis.choice_table import Choices
from vjudge.analysis.score_table import Scores

N, GROUPS, SYSTEMS = 60, 12, 5
SCORES = ["gold", "judge", "rival", "ann", "bob", "eve"]
LABELS = ["image", "model", "other_model", "set"]
CHOICES = ["verdict", "rival_verdict", "preference", "feedback"]
PEOPLE = ["ann", "bob", "eve"]
JUDGES = ["judge", "rival"]


def world(missing=True):
    """Sixty responses by five models to twelve images, with scores, verdicts and labels."""
    rng = np.random.default_rng(3)
    f = pd.DataFrame({"row": np.arange(N)})
    f["image"] = "image " + (f["row"] // SYSTEMS).astype(str)
    f["model"] = "model " + (f["row"] % SYSTEMS).astype(str)
    f["other_model"] = "model " + ((f["row"] + 1 + f["row"] // 20) % SYSTEMS).astype(str)
    f["set"] = "set " + (f["row"] // 20).astype(str)
    quality = rng.normal(3, 1, N)
    for name in SCORES:
        noise = rng.normal(0, 2.5 if name == "rival" else 0.7, N)
        f[name] = np.clip(np.round(quality + noise), 1, 5)
    f["right"] = (f["judge"] > 2).astype(float)
    f["label"] = np.where(rng.random(N) < 0.8, f["right"], 1 - f["right"])
    if missing:
        for name in ["judge", "rival", "ann", "bob"]:
            f.loc[rng.choice(N, 4, replace=False), name] = np.nan
        f["label"] = f["label"].where(rng.random(N) < 0.6)
    f["sure"] = rng.uniform(0.8, 1, N).round(2)
    f["spread"] = rng.uniform(0.5, 1, N)
    f["length"] = rng.integers(5, 50, N)
    f["other_length"] = rng.integers(5, 50, N)
    for name in ("verdict", "rival_verdict", "preference"):
        f[name] = rng.choice(["a", "b", "tie"], N)
    f["feedback"] = rng.choice(["left", "right", "both good", "both bad"], N)
    f["text"] = ["word " * n for n in f["length"]]
    return f


def distributions(f):
    rows = []
    for score in f["judge"].astype(float).fillna(3):
        weight = np.exp(-np.abs(np.arange(1, 6) - score))
        rows.append(dict(zip(range(1, 6), weight / weight.sum(), strict=True)))
    return pd.Series(rows, f.index)


def items(f):
    columns = {"image": "group", "text": "response"}
    rows = f[["row", "image", "text", "gold"]].rename(columns=columns).rename(columns={"row": "id"})
    return rows.astype({"gold": float}).to_dict("records")


def a_row_a_score(f):
    raters = [name for name in f if name in PEOPLE]
    table = f.reset_index(drop=True)[["row", *raters]].astype(dict.fromkeys(raters, object))
    return table.rename(columns={"row": "item"}).melt("item", var_name="rater", value_name="score")


def errors(f):
    return (
        f[sorted([*JUDGES, "eve"], key=list(f).index)]
        .astype(float)
        .sub(f["gold"].astype(float), axis=0)
    )


def in_order(columns, f, *, pairs):
    """Columns as the frame orders them; of pairs, whose difference has a sign, as they are."""
    return list(columns) if pairs else sorted(columns, key=list(f).index)


ARGUMENTS = {
    **dict(x="judge", y="gold", human="gold", reference="gold", judge="judge", expected="judge"),
    **dict(truth="gold", rival="rival", spread="spread", by="image", probability="sure"),
    **dict(right="right", labels="label", groups="image", systems="model", strata="set"),
    **dict(first="model", second="other_model", verdicts="verdict", preferences="preference"),
    **dict(judgements="feedback", length_a="length", length_b="other_length", texts="text"),
    **dict(difficulty="spread", people=PEOPLE, ratings=PEOPLE, judges=JUDGES),
    **dict(items=items, scores=a_row_a_score, errors=errors, probabilities=distributions),
    **dict(rate=0.4, specificity=0.8, sensitivity=0.9, n=99, n_specificity=50, n_sensitivity=50),
    **dict(temperature=2.0, n_resamples=400, n_permutations=50, margin=0.1, bins=4),
}
SPECIAL = {
    "corrected_rate_from_labels": {"verdicts": "right"},
    "prediction_powered_mean": {"verdicts": "judge", "labels": "gold_of_some"},
    "compare_choices": {"judges": ["verdict", "rival_verdict"]},
    "conformal_intervals": {"groups": None},
    "ranking_accuracy": {"items": "image"},
    "severities": {"groups": None},
    "scaled": {"probabilities": {1: 0.2, 2: 0.8}},
}
LEFT_ALONE = "above alpha confidence difference each epsilon ids labelled level levels measure"
LEFT_ALONE = [*LEFT_ALONE.split(), "options", "power", "scale", "seed"]


def call(name, f):
    """A function with its arguments out of the frame."""
    function = getattr(metrics, name)
    known = ARGUMENTS | SPECIAL.get(name, {})
    f = f.assign(gold_of_some=f["gold"].where(f["row"] % 3 == 0))
    arguments = {}
    for parameter in inspect.signature(function).parameters:
        if parameter in LEFT_ALONE:
            continue
        assert parameter in known, f"{name}: add an argument called {parameter} to ARGUMENTS"
        value = known[parameter]
        if callable(value):
            value = value(f)
        elif isinstance(value, list):
            value = f[in_order(value, f, pairs=name.startswith("compare"))]
        elif isinstance(value, str):
            value = f[value]
        arguments[parameter] = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return function(**arguments)


def canonical(table, labels=()):
    """The numbers of a table by what they are of, in one order, labels by their first names."""
    if isinstance(table, dict | pd.Series):
        table = pd.Series(table).to_frame("value")
    is_text = [not pd.api.types.is_integer_dtype(level) for level in index_levels(table)]
    names = [name or f"level {n}" for n, name in enumerate(table.index.names)]
    rows = table.rename_axis(names).reset_index().replace(dict(labels))
    rows = rows.drop(columns=[name for name, text in zip(names, is_text, strict=True) if not text])
    numbers = [name for name in rows if pd.api.types.is_numeric_dtype(rows[name])]
    keys = ["", *(name for name in rows if name not in numbers)]
    rows[keys[0]] = "row"
    rows[keys] = rows[keys].astype(str)
    return rows.sort_values([*keys, *numbers]).set_index(keys)[numbers].astype(float)


def index_levels(table):
    return [table.index.get_level_values(n) for n in range(table.index.nlevels)]


# --- What must not matter: a frame, and its first labels by the new ones

ORDER = np.random.default_rng(0).permutation(N)


def renamed(f):
    """Labels with other texts, in another order of the alphabet, and the first ones by the new."""
    old = pd.unique(f[LABELS].to_numpy().ravel())
    new = [f"Z{ORDER[n]:02} é, {text[:3]}" for n, text in enumerate(old)]
    columns = {name: f[name].map(dict(zip(old, new, strict=True))) for name in LABELS}
    return f.assign(**columns), dict(zip(new, old, strict=True))


def stored(f, dtype, labels):
    """Scores and labels in columns of another type."""
    scores = [*SCORES, "right", "label", "length", "other_length"]
    f = f.astype(dict.fromkeys(scores, dtype) | dict.fromkeys([*LABELS, *CHOICES], labels))
    if dtype == "object":
        f[scores] = f[scores].where(f[scores].notna(), None)
    return f


def turned(f):
    """Rows, raters, judges and labels in another order; pandas' own types with NA."""
    f, labels = renamed(f)
    return stored(f.iloc[ORDER, ::-1].reset_index(drop=True), "Float64", "string"), labels


def objects(f):
    return stored(f.set_axis([f["image"], f["model"]]), "object", "object"), {}


def categories(f):
    return stored(f.set_axis([f"id {n}" for n in ORDER]), "category", "category"), {}


def bytes_with_twins(f):
    """Small whole numbers, which overflow below 0, and an index in which each row stands thrice."""
    return stored(f.set_axis(np.arange(N) // 3), "uint8", "object"), {}


CHANGES = {change.__name__: change for change in (turned, objects, categories, bytes_with_twins)}
BY_INDEX = """conformal_coverage conformal_intervals corrected_rate_from_labels
expected_calibration_error prediction_powered_mean temperature_scaling""".split()
OF_A_ROW = ("conformal_intervals", "lengths")
SIMULATED = {"expected_calibration_error": 0.05, "ranking_accuracy": 0.1}  # by how much it may vary
RESAMPLED = ["low", "high", "p", "p_holm", "p_equivalence", "auc", "rank"]


def assert_same(result, expected, labels, noise):
    """Equal numbers; those of resampling within a fifth of the interval's width."""
    a = canonical(expected)
    b = canonical(result, labels)
    assert a.index.equals(b.index) and list(a) == list(b)
    width = a["high"] - a["low"] if {"high", "low"} <= set(a) else pd.Series(0.2, a.index)
    for name in a:
        room = noise
        if name in RESAMPLED:
            room = noise + 0.2 * width.fillna(0)
        assert (a[name].isna() == b[name].isna()).all(), name
        assert not ((a[name] - b[name]).abs() > room).any(), (name, a[name], b[name])


@cache
def unchanged(name, missing):
    return call(name, world(missing))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", metrics.__all__)
def test_a_function_gives_the_same_numbers(name, change):
    missing = change != "bytes_with_twins"
    f, labels = CHANGES[change](world(missing))
    if name in BY_INDEX and not missing:
        with pytest.raises(ValueError, match="stands twice in the index; give it one row"):
            call(name, f)
        return
    result = call(name, f)
    expected = unchanged(name, missing)
    if name in OF_A_ROW:
        result = pd.DataFrame(result).set_axis("row " + f["row"].astype(str))
        expected = pd.DataFrame(expected).set_axis("row " + world(missing)["row"].astype(str))
    assert_same(result, expected, labels, SIMULATED.get(name, 1e-9))


# --- Tables of scores and choices

ANALYSES = [
    (kind, name)
    for kind in (Scores, Choices)
    for name, method in vars(kind).items()
    if hasattr(method, "__wrapped__")
]
NOT_HERE = {"positions": "no both orders", "corrected": "draws rows", "disagreements": "cut at ten"}


def analysed(kind, name, f):
    """The table of an analysis of these rows."""
    pairs = name == "compare"
    options = {"group": "image", "benchmark": "set"}
    if kind is Scores:
        options |= {"gold": "gold", "system": "model", "response": "text", "scale": (1, 5)}
        table = vj.scores(f, in_order(JUDGES, f, pairs=pairs), PEOPLE, **options)
    else:
        verdicts = in_order(["verdict", "rival_verdict"], f, pairs=pairs)
        options["systems"] = ("model", "other_model")
        table = vj.choices(f, verdicts, "preference", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return getattr(table, name)().table.reset_index(drop=True)


@cache
def analysed_unchanged(kind, name):
    return analysed(kind, name, world())


@pytest.mark.parametrize("change", ["turned", "categories"])
@pytest.mark.parametrize(("kind", "name"), ANALYSES)
def test_an_analysis_gives_the_same_numbers(kind, name, change):
    if name in NOT_HERE:
        pytest.skip(NOT_HERE[name])
    f, labels = CHANGES[change](world())
    assert_same(analysed(kind, name, f), analysed_unchanged(kind, name), labels, 1e-9)
