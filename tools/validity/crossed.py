"""Do numbers hold on designs that are not plain: crossed, grouped, pooled, small, and by pilots?

Studies as in `numbers`. `PYTHONPATH=tools python -m validity --only validity_crossed` writes
figures/validity_crossed.csv.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy import stats

from validity.correlations import CUTS, correlations_of
from validity.numbers import COVERS, Rows, holds, two_judges
from vjudge import metrics
from vjudge.metrics.array_types import Floats
from vjudge.metrics.block_permutation import within_blocks
from vjudge.metrics.noninferiority import noninferiority_test
from vjudge.metrics.weighted_correlation import STATISTICS

LEVEL = "equal judges told apart at .05"
R, ALIKE = 0.6, 0.9  # of a judge with the reference, of two judges
LATENT = np.array([[1, R, R], [R, 1, ALIKE], [R, ALIKE, 1]])


def systems_by_images(
    rng: np.random.Generator, systems: int, images: int, of_system: float
) -> tuple[Floats, np.ndarray, np.ndarray]:
    """Scores of a reference and two judges, (n, 3), and the image and system of each row.

    A share `of_system` of every variance is the system's, .2 the image's.
    """
    root = np.linalg.cholesky(LATENT).T
    by_system = rng.normal(size=(systems, 1, 3)) @ root
    by_image = rng.normal(size=(1, images, 3)) @ root
    own = rng.normal(size=(systems, images, 3)) @ root
    scores = np.sqrt(of_system) * by_system + np.sqrt(0.2) * by_image
    scores = scores + np.sqrt(0.8 - of_system) * own
    image, system = np.meshgrid(np.arange(images), np.arange(systems))
    return scores.reshape(-1, 3), image.ravel(), system.ravel()


def crossed(rng: np.random.Generator) -> Rows:
    """Images by systems: intervals and tests for new ones of both."""
    truth = dict(zip(STATISTICS, correlations_of(R, CUTS), strict=True))
    for systems, images, of_system in ((8, 30, 0.4), (8, 100, 0.2), (20, 30, 0.2), (8, 30, 0.0)):
        scores, image, system = systems_by_images(rng, systems, images, of_system)
        scores = np.digitize(scores, CUTS).astype(float)
        setting = f"{systems} systems by {images} images, {of_system:.0%} of the variance systems'"
        table = metrics.correlate(scores[:, 0], scores[:, 1], groups=[image, system])
        for name in STATISTICS:
            covers = holds(table.loc[name], truth[name])
            yield f"correlate: {name}, crossed", setting, COVERS, covers
        judges = {"a": scores[:, 1], "b": scores[:, 2]}
        table = metrics.compare_judges(scores[:, 0], judges, groups=[image, system])
        for name in STATISTICS:
            p = table.xs(name, level="statistic")["p"].iloc[0]
            yield f"compare_judges: {name}, crossed", setting, LEVEL, bool(p <= 0.05)


def unequal_groups(rng: np.random.Generator) -> Rows:
    """Groups as Zipf's law has them, and one large beside small ones."""
    root = np.linalg.cholesky(LATENT).T
    truth = dict(zip(STATISTICS, correlations_of(R, CUTS), strict=True))
    sizes = {
        "40 groups of 120 / rank items": np.maximum(120 // np.arange(1, 41), 1),
        "a group of 40 beside 19 of 2": np.r_[40, np.full(19, 2)],
    }
    for setting, size in sizes.items():
        group = np.repeat(np.arange(len(size)), size)
        shared = rng.normal(size=(len(size), 3)) @ root
        scores = (rng.normal(size=(len(group), 3)) @ root + shared[group]) / np.sqrt(2)
        scores = np.digitize(scores, CUTS).astype(float)
        table = metrics.correlate(scores[:, 0], scores[:, 1], groups=group, n_resamples=400)
        judges = {"a": scores[:, 1], "b": scores[:, 2]}
        compared = metrics.compare_judges(scores[:, 0], judges, groups=group)
        for name in STATISTICS:
            covers = holds(table.loc[name], truth[name])
            yield f"correlate: {name}, unequal groups", setting, COVERS, covers
            p = compared.xs(name, level="statistic")["p"].iloc[0]
            yield f"compare_judges: {name}, unequal groups", setting, LEVEL, bool(p <= 0.05)


def benchmarks(rng: np.random.Generator) -> Rows:
    """Three benchmarks on three scales: the mean of the correlations within them."""
    sizes = (30, 60, 120)
    strata = np.repeat(np.arange(3), sizes)
    scores = rng.normal(size=(len(strata), 3)) @ np.linalg.cholesky(LATENT).T + 10 * strata[:, None]
    setting = "benchmarks of 30, 60, 120 items on three scales"
    row = metrics.correlate(scores[:, 0], scores[:, 1], strata=strata).loc["pearson"]
    yield "correlate: pearson, strata", setting, COVERS, holds(row, R)
    judges = {"a": scores[:, 1], "b": scores[:, 2]}
    p = metrics.compare_judges(scores[:, 0], judges, strata=strata)["p"].iloc[0]
    yield "compare_judges: pearson, strata", setting, LEVEL, bool(p <= 0.05)


def similar_judges(rng: np.random.Generator) -> Rows:
    """Ranks of judges that correlate by .97."""
    for n in (50, 100):
        for better, claim in ((0.67, LEVEL), (0.72, "a judge better by .05 told at .05")):
            latent = [[1, better, 0.67], [better, 1, 0.97], [0.67, 0.97, 1]]
            gold, a, b = (rng.normal(size=(n, 3)) @ np.linalg.cholesky(latent).T).T
            table = metrics.compare_judges(gold, {"a": a, "b": b})
            for name in STATISTICS:
                p = table.xs(name, level="statistic")["p"].iloc[0]
                setting = f"{n} items, judges correlated .97"
                yield f"compare_judges: {name}, similar judges", setting, claim, bool(p <= 0.05)


def equivalence(rng: np.random.Generator) -> Rows:
    """Judges that differ by just the margin."""
    latent = [[1, 0.7, 0.6], [0.7, 1, 0.5], [0.6, 0.5, 1]]
    gold, a, b = (rng.normal(size=(150, 3)) @ np.linalg.cholesky(latent).T).T
    p = metrics.compare_judges(gold, {"a": a, "b": b}, margin=0.1)["p_equivalence"].iloc[0]
    claim = "called equivalent at .05"
    yield "compare_judges: equivalence", "150 items, apart by the margin", claim, bool(p <= 0.05)


def binary_judges(rng: np.random.Generator) -> Rows:
    for n in (15, 30):
        latent = rng.normal(size=(n, 2)) @ np.linalg.cholesky([[1, R], [R, 1]]).T
        x = (latent[:, 0] > 0).astype(float)
        row = metrics.correlate(x, np.digitize(latent[:, 1], CUTS), n_resamples=400).loc["kendall"]
        yield "correlate: kendall, binary judge", f"{n} items", COVERS, holds(row, 0.421)


def votes(rng: np.random.Generator) -> Rows:
    x, y = (rng.normal(size=(60, 2)) @ np.linalg.cholesky([[1, R], [R, 1]]).T).T
    ids = np.repeat(np.arange(60), 5)
    row = metrics.correlate(x[ids], y[ids], ids=ids, n_resamples=400).loc["pearson"]
    yield "correlate: pearson, votes", "60 items, five equal votes", COVERS, holds(row, R)


def severities(rng: np.random.Generator) -> Rows:
    """Two of four raters an item, two of whom are given the better items."""
    severity = pd.Series({"a": 0.5, "b": 0.0, "c": -0.5, "d": 0.0})
    for per_image in (1, 5):
        image = np.arange(60 * per_image) // per_image
        quality = rng.normal(3, 1, len(image))
        mood = rng.normal(0, 0.5 * (per_image > 1), (60, 4))
        rows = []
        for item, place in enumerate(image):
            odds = np.exp((quality[item] - 3) * np.array([1, 1, -1, -1]))
            for rater in rng.choice(4, 2, replace=False, p=odds / odds.sum()):
                score = quality[item] - severity.iloc[rater] + mood[place, rater]
                rows.append([item, severity.index[rater], score + rng.normal(0, 0.7), place])
        frame = pd.DataFrame(rows, columns=["item", "rater", "score", "image"])
        table = metrics.severities(frame, groups=frame["image"])
        for name in severity.index:
            setting = f"60 images of {per_image}, two raters an item, better items to a and b"
            yield "severities", setting, COVERS, holds(table.loc[name], severity[name])


def alt_test(rng: np.random.Generator) -> Rows:
    """A person who is ahead by exactly epsilon, and few items that favour the judge."""
    claim = "p below .05 of a person who is ahead by epsilon"
    for n, per, epsilon, behind in ((30, 1, 0.1, 0.01), (60, 1, 0.01, 0.01), (60, 5, 0.2, 0.1)):
        shares = [behind + epsilon, behind, 1 - 2 * behind - epsilon]
        lead = rng.choice([1.0, -1.0, 0.0], n, p=shares).repeat(per)
        p = noninferiority_test(lead, np.arange(n * per) // per, epsilon)
        setting = f"{n} images of {per}, the judge ahead in {behind:.0%}, epsilon {epsilon}"
        yield "alt_test", setting, claim, bool(p <= 0.05)


def panels(rng: np.random.Generator) -> Rows:
    image = np.arange(200) // 5
    common = rng.normal(size=(40, 1))[image] + rng.normal(size=(200, 1))
    own = rng.normal(size=(40, 4))[image] + rng.normal(size=(200, 4))
    table = metrics.effective_judges(pd.DataFrame(common + own), groups=image, n_resamples=400)
    row = table.loc["effective_judges"]
    yield "effective_judges", "40 images of 5, 4 judges", COVERS, holds(row, 4 / (1 + 3 * 0.5))


def plans(rng: np.random.Generator) -> Rows:
    """True power of plans from a pilot, for judges of .824 and .797 with the mean of two people."""
    for n in (60, 150, 400):
        judge, rival, people = two_judges(n, rng)
        setting = f"a pilot of {n}, a rival lower by .03"
        items = np.nan
        try:
            plan = metrics.labels_needed(
                pd.Series(judge), pd.DataFrame(people), rival=pd.Series(rival)
            ).loc[2]
            items = plan["items"]
        except ValueError:  # the rival is ahead in the pilot
            pass
        power = stats.norm.cdf(0.0774 * np.sqrt((items - 3) / 1.032) - 1.96)
        no_plan = bool(np.isnan(items))
        claim = "no plan, or one of a true power of .8 or more"
        yield "labels_needed", setting, claim, no_plan or bool(power >= 0.8)
        if not no_plan:
            yield "labels_needed", setting, "true power is .8 or more", bool(power >= 0.8)
            is_inside = bool(plan["low"] <= power <= plan["high"])
            yield "labels_needed", setting, "interval of the power holds it", is_inside


def lengths(rng: np.random.Generator) -> Rows:
    for n, size in ((4, 2), (8, 3)):
        blocks = [np.column_stack([np.arange(size), rng.permutation(size)]) for _ in range(n)]
        p = within_blocks(blocks)[1]
        claim = "p below .05 where length says nothing"
        yield "length_test: within", f"{n} questions of {size}", claim, bool(p <= 0.05)


STUDIES: dict[Callable[[np.random.Generator], Rows], float] = {
    crossed: 0.5,
    unequal_groups: 0.5,
    benchmarks: 1.0,
    similar_judges: 0.5,
    equivalence: 1.0,
    binary_judges: 1.0,
    votes: 1.0,
    severities: 0.5,
    alt_test: 1.0,
    panels: 0.5,
    plans: 1.0,
    lengths: 1.0,
}
"""Each study, and which share of the simulations it gets."""
