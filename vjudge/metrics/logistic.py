"""Logistic regression of shares, with standard errors over groups and finite estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from vjudge.metrics.array_types import Floats, Integers
from vjudge.metrics.cells import indicator_matrix
from vjudge.metrics.intervals import NO_WIDTH, degrees_of_freedom

MAX_STEPS = 100  # of Newton's method
MAX_STEP = 3.0  # logits by which one step may change a coefficient


@dataclass(frozen=True)
class Logistic:
    """A logistic regression of shares, fitted to comparisons that fall into units of sampling."""

    coefficients: Floats  # (p,)
    influence: Floats  # (units, p), how far each unit moves them, by a one-step jackknife
    covariance: Floats  # (p, p), the inverse information of independent comparisons
    freedom: float  # degrees of freedom of the errors
    unit_size: float  # mean number of comparisons in a unit
    penalised: bool  # whether Firth's penalty was added

    @classmethod
    def of(cls, design: Floats, shares: Floats, units: Integers, *, penalise: bool) -> Logistic:
        """Fit by Newton's method.

        Args:
            design: the p predictors of n comparisons; (n, p).
            shares: the outcomes, 0 to 1, such as 0.5 for a tie; (n,).
            units: the unit of sampling of each row, 0 to G - 1; (n,).
            penalise: whether to add Firth's penalty, with which the maximum is always finite.

        Source: Firth, Biometrika 80 (1993), 27-38; Liang and Zeger, Biometrika 73 (1986), for the
        variance over units.
        """
        # 1) Newton's method on the (penalised) log likelihood
        beta = np.zeros(design.shape[1])
        for _ in range(MAX_STEPS):
            mean = special.expit(design @ beta)
            weight = mean * (1 - mean)
            covariance = np.linalg.pinv(design.T * weight @ design, hermitian=True)
            leverage = np.einsum("np,pq,nq->n", design, covariance, design) * weight  # (n,)
            residual = shares - mean
            score = residual
            if penalise:  # Firth adds half a win and half a loss per row, as far as it has leverage
                score = residual + leverage * (0.5 - mean)
            step = covariance @ (design.T @ score)
            largest = np.abs(step).max(initial=0.0)
            beta = beta + step * min(1.0, MAX_STEP / max(largest, 1e-300))
            if largest < 1e-12:  # converged
                break
        # 2) How far the coefficients move without a unit: one Newton step from the fit. A unit with
        # much leverage has pulled the fit towards itself, so its step is scaled up.
        of_row = residual[:, None] * design @ covariance  # (n, p)
        sizes = np.bincount(units)
        sum_by_unit = indicator_matrix(units)  # (units, n)
        # A unit's leverage is at most its number of rows and at most p; over all units it sums to p
        unit_leverage = sum_by_unit @ leverage
        mean_leverage = unit_leverage / np.minimum(sizes, design.shape[1])
        influence = sum_by_unit @ of_row / np.maximum(1 - mean_leverage, 1e-6)[:, None]
        influence = influence * math.sqrt(max(len(sizes) - 1, 1) / len(sizes))  # of a jackknife
        freedom = degrees_of_freedom(unit_leverage)
        return cls(beta, influence, covariance, freedom, len(shares) / len(sizes), penalise)

    def errors(self, contrasts: Floats) -> Floats:
        """Compute the standard errors of k linear combinations of the coefficients.

        With the penalty, or where the units show no variation, they are at least those of a model
        in which units are independent and the comparisons of one unit are all equal.

        Args:
            contrasts: the weights of the coefficients in each combination; (k, p).
        """
        of_unit = self.influence @ contrasts.T  # (units, k)
        variance = (of_unit**2).sum(axis=0)
        if self.penalised or np.abs(of_unit).max(initial=0.0) < NO_WIDTH:
            model = np.einsum("kp,pq,kq->k", contrasts, self.covariance, contrasts)
            variance = np.maximum(variance, model * self.unit_size)
        return np.sqrt(variance)
