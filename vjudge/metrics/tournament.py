"""Strengths of many players from comparisons of two: Bradley-Terry and Elo, with intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from vjudge.metrics._tables import Labels, Verdicts, design_of, read_verdicts, same_index, scores, tabulate

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ELO_PER_LOGIT = 400 / math.log(10)
TIES = ("half", "out", "davidson")
FARTHEST = 20.0  # logits between two who met: odds of 5e8, which no number of comparisons supports
_STEPS = 60  # Newton converges in fewer than ten wherever the maximum exists


def bradley_terry(
    first: Labels,
    second: Labels,
    verdicts: Labels,
    *,
    ties: str = "half",
    weights: Labels | None = None,
    anchor: Any = None,
    labels: Mapping[Any, str] | None = None,
    groups: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Estimate players' strengths by maximum likelihood: player i beats j with odds exp(strength_i - strength_j).

    Args:
        first, second: the players of each comparison; verdict "a" means that the first won.
        verdicts: see `read_verdicts`.
        ties: "half", a tie is half a win for each (as Chatbot Arena and WildVision-Bench do); "out", ties are left out
            and counted; "davidson", ties have a probability of their own, Davidson's model.
        weights: how often each comparison counts (Arena-Hard counts strong verdicts three times); None once.
        anchor: the player whose strength is 0 and whose Elo is 1000; None centres the mean strength at 0.
        labels, groups, confidence, n_resamples, seed: see `win_rate`.

    Returns:
        One row a player, the strongest first: estimate, low, high (strength in logits), elo, elo_low, elo_high
        (1000 + 400 / ln 10 times it), n (comparisons used), wins, losses, ties (weighted). Intervals are Student's with
        the bootstrap's standard error over comparisons or groups; the anchor's has no width, since all is relative to
        it. Strengths are NaN, with a warning, where no finite maximum exists: some set of players never beats, or
        never meets, the rest. A resample without one is left out: `attrs["undefined_resamples"]` has the share.
        `attrs` also has nu, nu_low, nu_high (Davidson: a tie is nu times as likely as the geometric mean of both
        wins), self_comparisons (of a player with itself, left out), ties_left_out, and the account of malformed
        verdicts as `win_rate`.

    Raises:
        ValueError: lengths differ, a player is missing, the anchor doesn't play, ties is not known, a weight is
            negative or missing, or a used comparison has no group.

    Source: Bradley and Terry, Biometrika 39 (1952); Ford, American Mathematical Monthly 64 (1957), for when a maximum
    exists; Davidson, JASA 65 (1970), 317-328; WildVision-AI/WildVision-Bench, show_results.py, for the Elo scale.

    >>> from vjudge.metrics import bradley_terry
    >>> table = bradley_terry(["x", "x", "y"], ["y", "y", "x"], ["a", "b", "b"], n_resamples=0)
    >>> bool(table.loc["x", "estimate"] > table.loc["y", "estimate"])
    True
    """
    if ties not in TIES:
        raise ValueError(f"ties must be one of {', '.join(TIES)}, not {ties!r}")
    same_index(first=first, second=second, verdicts=verdicts, weights=weights, groups=groups)
    players, i, j, read, used, selfs = _comparisons(first, second, verdicts, labels)
    worth = np.ones(len(used)) if weights is None else scores(weights, name="weights")
    if len(worth) != len(used):
        raise ValueError(f"weights has {len(worth)} values for {len(used)} comparisons: give one of each")
    bad = np.flatnonzero(used & ~(worth >= 0)).tolist()
    if bad:
        raise ValueError(f"weights must not be negative or missing: see positions {bad[:20]}")
    if anchor is not None and anchor not in players:
        raise ValueError(f"the anchor {anchor!r} is none of the players: {', '.join(map(str, players[:20]))}")
    tied = read.choice == "tie"
    ties_out = int((used & tied).sum()) if ties == "out" else 0
    if ties == "out":
        used = used & ~tied
    at = None if anchor is None else players.index(anchor)
    outcome = np.where(tied, 2, np.where(read.choice == "a", 0, 1))
    p = len(players)
    key = np.stack([i[used], j[used], outcome[used], worth[used]])
    cells, cell = np.unique(key, axis=1, return_inverse=True)
    cell = np.reshape(cell, -1)
    wins, draws = _tallies(cells, p)

    def statistic(w: NDArray[np.number]) -> Floats:
        won = np.moveaxis((wins @ w).reshape(p, p, -1), -1, 0)
        drawn = np.moveaxis((draws @ w).reshape(p, p, -1), -1, 0)
        strength, log_nu = _fit(won, drawn, davidson=ties == "davidson")
        centre = strength.mean(axis=1) if at is None else strength[:, at]
        centred = (strength - centre[:, None]).T
        return np.vstack([centred, np.exp(log_nu)]) if ties == "davidson" else centred

    if p and used.any():
        with warnings.catch_warnings():
            if at is not None:
                warnings.filterwarnings("ignore", message=".*no width.*")  # the anchor's
            table = tabulate(
                statistic,
                [*players, "nu"] if ties == "davidson" else players,
                design_of(cell, groups, used),
                n=0,
                confidence=confidence,
                n_resamples=n_resamples,
                seed=seed,
                method="t",
                width=p * p,
                unit="comparisons",
                index="player",
                why="some players never beat, or never meet, the others",
            )
    else:
        table = _empty(players)
    attrs = dict(table.attrs)
    attrs["undefined_resamples"] = max(attrs.get("undefined_resamples", {}).values(), default=math.nan)
    attrs |= {"nu": math.nan, "nu_low": math.nan, "nu_high": math.nan}
    if ties == "davidson" and used.any():
        attrs["nu"], attrs["nu_low"], attrs["nu_high"] = table.iloc[-1][["estimate", "low", "high"]].astype(float)
    table = table.iloc[:p][["estimate", "low", "high"]].copy()
    for column, name in (("estimate", "elo"), ("low", "elo_low"), ("high", "elo_high")):
        table[name] = 1000 + ELO_PER_LOGIT * table[column]
    counts = np.bincount(cell)[:, None] if used.any() else np.zeros((cells.shape[1], 1))
    won, drawn = (wins @ counts).reshape(p, p), (draws @ counts).reshape(p, p)
    table["n"] = np.bincount(i[used], minlength=p) + np.bincount(j[used], minlength=p)
    table["wins"], table["losses"] = won.sum(axis=1), won.sum(axis=0)
    table["ties"] = drawn.sum(axis=1) + drawn.sum(axis=0)
    table.attrs = {
        **attrs,
        "ties": ties,
        "anchor": anchor,
        "self_comparisons": selfs,
        "ties_left_out": ties_out,
        **read.account,
    }
    return table.sort_values("estimate", ascending=False, kind="stable")


def _comparisons(
    first: Labels, second: Labels, verdicts: Labels, labels: Mapping[Any, str] | None
) -> tuple[list[Any], Integers, Integers, Verdicts, NDArray[np.bool_], int]:
    """Players in order of appearance, their codes, verdicts, which of them count, and how many are of one player."""
    read = read_verdicts(verdicts, labels=labels)
    a, b = list(first), list(second)
    if not len(a) == len(b) == len(read.choice):
        raise ValueError(f"{len(a)} first and {len(b)} second players, {len(read.choice)} verdicts: give one of each")
    codes, players = pd.factorize(pd.Series(a + b, dtype=object))
    i, j = np.split(codes.astype(np.int64), 2)
    bad = np.flatnonzero((i < 0) | (j < 0)).tolist()
    if bad:
        raise ValueError(f"a player is missing at positions {bad[:20]}: name both, or remove the comparison")
    selfs = (i == j) & read.used
    if selfs.any():
        warnings.warn(f"{int(selfs.sum())} comparisons of a player with itself are left out", stacklevel=3)
    return list(players), i, j, read, read.used & ~selfs, int(selfs.sum())


def _tallies(cells: Floats, p: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Weights of cells to the (winner, loser) and (first, second) tied entries of a p by p matrix, flattened."""
    i, j, outcome = cells[:3].astype(np.int64)
    winner, loser = np.where(outcome == 1, j, i), np.where(outcome == 1, i, j)
    made = []
    for rows in (outcome < 2, outcome == 2):
        at = np.flatnonzero(rows)
        entry = winner[at] * p + loser[at]
        made.append(sparse.csr_array((cells[3][at], (entry, at)), shape=(p * p, cells.shape[1])))
    return made[0], made[1]


def _empty(players: list[Any]) -> pd.DataFrame:
    warnings.warn("strengths are undefined: no comparison of two players has a verdict", stacklevel=3)
    index = pd.Index(players, name="player", dtype=object)
    return pd.DataFrame({"estimate": np.nan, "low": np.nan, "high": np.nan}, index=index)


def _fit(won: Floats, drawn: Floats, *, davidson: bool) -> tuple[Floats, Floats]:
    """Maximum-likelihood strengths of many tournaments at once, by Newton's method.

    Args:
        won: won[r, i, j], wins of i over j in tournament r; shape (R, p, p).
        drawn: ties; a tie of i and j stands in either [r, i, j] or [r, j, i].
        davidson: whether ties have a parameter of their own; else each is half a win for both.

    Returns:
        Strengths of shape (R, p), with mean 0, and the log of nu, shape (R,); NaN where there is no finite maximum.
    """
    drawn = drawn + drawn.transpose(0, 2, 1)
    if not davidson:
        won, drawn = won + drawn / 2, np.zeros_like(drawn)
    count, p = won.shape[:2]
    # A maximum exists if and only if wins lead from every player to every other. With a tie parameter ties may stand
    # in for wins here and there, so that this is only necessary: what runs away is caught below.
    exists = np.array([connected_components(g, directed=True, connection="strong")[0] == 1 for g in (won + drawn) > 0])
    if davidson:
        both = drawn.sum(axis=(1, 2)) > 0
        exists &= both & (won.sum(axis=(1, 2)) > 0)
    strength, log_nu = np.full((count, p), np.nan), np.full(count, np.nan)
    rows = np.flatnonzero(exists)
    if not len(rows):
        return strength, log_nu
    won, drawn = won[rows], drawn[rows]
    met = won + won.transpose(0, 2, 1) + drawn
    points = won.sum(axis=2) + drawn.sum(axis=2) / 2  # a tie is worth half a win in both models' score equations
    theta = np.zeros((len(rows), p + davidson))
    drawn_total = drawn.sum(axis=(1, 2)) / 2
    value = _log_likelihood(theta, won, drawn, met, davidson)
    for _ in range(_STEPS):
        gap = theta[:, :p, None] - theta[:, None, :p]
        nu = np.exp(theta[:, -1])[:, None, None] if davidson else np.zeros((1, 1, 1))
        half = np.exp(-np.abs(gap) / 2)
        ahead = np.where(gap > 0, 1.0, half**2)
        total = 1 + half**2 + nu * half
        p_win, p_tie = ahead / total, nu * half / total
        expected = (met * (p_win + p_tie / 2)).sum(axis=2)
        gradient = points - expected
        p_loss = p_win.transpose(0, 2, 1)
        spread = met * (p_win + p_tie / 4 - (p_win + p_tie / 2) ** 2)  # variance of the points won
        hessian = -spread
        index = np.arange(p)
        hessian[:, index, index] += spread.sum(axis=2)
        if davidson:
            gradient = np.column_stack([gradient, drawn_total - (met * p_tie).sum(axis=(1, 2)) / 2])
            cross = (met * p_tie * (0.5 - p_win - p_tie / 2)).sum(axis=2)
            own = (met * p_tie * (p_win + p_loss)).sum(axis=(1, 2)) / 2
            full = np.zeros((len(rows), p + 1, p + 1))
            full[:, :p, :p], full[:, :p, p], full[:, p, :p], full[:, p, p] = hessian, cross, cross, own
            hessian = full
        hessian[:, :p, :p] += 1 / p  # strengths matter up to a constant: hold their sum
        hessian += 1e-12 * np.eye(hessian.shape[1])  # no division by zero where a maximum runs away
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        size = np.ones(len(rows))
        for _ in range(30):  # halve steps that overshoot
            trial = theta + size[:, None] * step
            trial_value = _log_likelihood(trial, won, drawn, met, davidson)
            worse = trial_value < value - 1e-9 * np.abs(value)
            if not worse.any():
                break
            size[worse] /= 2
        theta, value = trial, trial_value
        if np.abs(step).max() < 1e-11:
            break
    theta[:, :p] -= theta[:, :p].mean(axis=1, keepdims=True)
    gap = np.where(met > 0, np.abs(theta[:, :p, None] - theta[:, None, :p]), 0)
    away = (gap.max(axis=(1, 2)) > FARTHEST) | (np.abs(theta[:, p:]) > FARTHEST).any(axis=1)
    strength[rows] = np.where(away[:, None], np.nan, theta[:, :p])
    if davidson:
        log_nu[rows] = np.where(away, np.nan, theta[:, p])
    return strength, log_nu


def _log_likelihood(theta: Floats, won: Floats, drawn: Floats, met: Floats, davidson: bool) -> Floats:
    p = won.shape[1]
    gap = theta[:, :p, None] - theta[:, None, :p]
    log_nu = theta[:, -1][:, None, None] if davidson else np.full((1, 1, 1), -np.inf)
    log_total = np.logaddexp(np.logaddexp(gap / 2, -gap / 2), log_nu)
    value = (won * (gap / 2)).sum(axis=(1, 2)) - (met * log_total).sum(axis=(1, 2)) / 2
    if davidson:
        value = value + (drawn * log_nu).sum(axis=(1, 2)) / 2
    return np.asarray(value)


def elo(
    first: Labels,
    second: Labels,
    verdicts: Labels,
    *,
    k: float = 4.0,
    initial: float = 1000.0,
    orders: int = 200,
    labels: Mapping[Any, str] | None = None,
    groups: Labels | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Rate players by Elo's update, one comparison after another, averaged over random orders.

    An Elo rating depends on the order of the games, which comparisons by a judge don't have. It is shown here because
    papers report it; `bradley_terry` estimates the same strengths without an order.

    Args:
        first, second, verdicts, labels, groups: see `bradley_terry`; a tie is half a win.
        k: the most a rating moves in one game. 4 is Chatbot Arena's, 32 that of chess clubs; a larger one follows the
            last games more.
        initial: every player's rating before the first game.
        orders: random orders; at least 2.
        confidence: coverage of the intervals, in (0, 1).
        seed: of orders and resamples.

    Returns:
        One row a player, the strongest first: estimate (the mean rating over orders), low, high (percentiles over
        resamples of comparisons or groups, each played in its own random order, so that both sources count),
        order_low, order_high (percentiles over orders of the sample itself: what the order alone does to one pass), n.
        `attrs` as `bradley_terry`, with k, initial and orders. With few games ratings stay near `initial`.

    Raises:
        ValueError: as `bradley_terry`; k is not positive, or orders is below 2.

    Source: Elo, The Rating of Chessplayers (1978); lm-sys/FastChat, elo_analysis, for k = 4.
    """
    if not k > 0 or orders < 2:
        raise ValueError(f"k must be positive and orders at least 2, not {k} and {orders}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    same_index(first=first, second=second, verdicts=verdicts, groups=groups)
    players, i, j, read, used, selfs = _comparisons(first, second, verdicts, labels)
    points = np.where(read.choice == "tie", 0.5, np.where(read.choice == "a", 1.0, 0.0))[used]
    i, j = i[used], j[used]
    n = len(i)
    columns = ["estimate", "low", "high", "order_low", "order_high"]
    table = pd.DataFrame(np.nan, index=pd.Index(players, name="player", dtype=object), columns=columns)
    design = design_of(np.arange(n), groups, used)
    if n:
        rng = np.random.default_rng(seed)
        shuffled = rng.permuted(np.tile(np.arange(n), (orders, 1)), axis=1).T
        own = _play(shuffled, i, j, points, len(players), k=k, initial=initial)
        tails = [(1 - confidence) / 2, (1 + confidence) / 2]
        table["estimate"] = own.mean(axis=1)
        table[["order_low", "order_high"]] = np.quantile(own, tails, axis=1).T
        if design.n_units > 1:
            drawn = _sequences(design.draws(seed + 1)(orders), rng)
            again = _play(drawn, i, j, points, len(players), k=k, initial=initial)
            table[["low", "high"]] = np.quantile(again, tails, axis=1).T
        else:
            warnings.warn("intervals are undefined: one comparison or one group", stacklevel=2)
    else:
        warnings.warn("ratings are undefined: no comparison of two players has a verdict", stacklevel=2)
    table["n"] = np.bincount(i, minlength=len(players)) + np.bincount(j, minlength=len(players))
    units = f"{n} comparisons" if groups is None else f"{design.n_units} groups of {n} comparisons"
    table.attrs = {
        "method": f"Elo, K = {k:g}, from {initial:g}, mean of {orders} random orders; {confidence:.0%} percentile "
        f"intervals over {orders} resamples of {units} in random order, seed {seed}",
        **{"confidence": confidence, "seed": seed, "k": k, "initial": initial, "orders": orders},
        **{"self_comparisons": selfs, **read.account},
    }
    return table.sort_values("estimate", ascending=False, kind="stable")


def _sequences(weights: NDArray[np.number], rng: np.random.Generator) -> Integers:
    """For each replicate the drawn games in random order, -1 after the last; shape (most games, replicates)."""
    rows = np.arange(len(weights))
    games = [rng.permutation(np.repeat(rows, column.astype(np.int64))) for column in weights.T]
    longest = max(map(len, games))
    return np.stack([np.pad(game, (0, longest - len(game)), constant_values=-1) for game in games], axis=1)


def _play(
    sequence: Integers, i: Integers, j: Integers, points: Floats, players: int, *, k: float, initial: float
) -> Floats:
    """Ratings after one pass through each column of games; shape (players, columns)."""
    column = np.arange(sequence.shape[1])
    ratings = np.full((players, sequence.shape[1]), float(initial))
    for game in sequence:
        a, b = i[game], j[game]
        expected = 1 / (1 + 10 ** ((ratings[b, column] - ratings[a, column]) / 400))
        move = np.where(game < 0, 0.0, k * (points[game] - expected))
        ratings[a, column] += move
        ratings[b, column] -= move
    return ratings
