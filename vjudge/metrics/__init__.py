"""What a judge's scores are worth, in numbers that can be published.

Arrays and frames in, frames out. A pair with a missing score is left out and counted; what is undefined is NaN with a
warning, never 0.

correlation.py  Pearson, Spearman and Kendall's tau-b with intervals, by level; is judge a better than judge b;
                judges by benchmarks
agreement.py    agreement of raters, the human ceiling, correction for their noise, four-way votes, averaged samples
pairwise.py     win rates, accuracy, macro-F1, order consistency, length, Bradley-Terry, rankings of models
ppi.py          prediction-powered means; which items to label next, and what such labels stand for
calibration.py  calibration curve; maps to human scores, judged on items they were not fitted on
baselines.py    judges to beat: ROUGE-L, BLEU, chrF, length; published results
_tables.py      columns as they come in, checked; statistics of weights as rows of a frame; numbers in print
_bootstrap.py   bootstrap and permutation, exact and fast; weighted correlations and agreement

To add a statistic, write it as a function of weights (how often each cell of the sample occurs, `metrics._bootstrap`)
and hand it to `_tables.tabulate`, which gives it the interval, the counts and the warnings that all others have.
`agreement.human_ceiling` is a short example. Plain shares go to `_tables.shares`.
"""

from vjudge.metrics._tables import FIVE_POINT
from vjudge.metrics.agreement import (
    agreement,
    average_samples,
    feedback_preference,
    human_ceiling,
    noise_corrected,
    rater_table,
)
from vjudge.metrics.baselines import lengths, overlap_baselines, published
from vjudge.metrics.calibration import calibrate, calibration_curve, calibration_errors
from vjudge.metrics.correlation import (
    average_correlations,
    compare_judges,
    correlate,
    correlate_levels,
    correlation_table,
    who_beats_whom,
)
from vjudge.metrics.pairwise import (
    bradley_terry,
    classification,
    length_controlled,
    longer_wins,
    model_ranking,
    order_consistency,
    pairwise_accuracy,
    tie_calibrated_accuracy,
    win_rate,
)
from vjudge.metrics.ppi import label_weights, next_labels, prediction_powered_mean
from vjudge.names import public

__all__ = [
    "FIVE_POINT",
    "agreement",
    "average_correlations",
    "average_samples",
    "bradley_terry",
    "calibrate",
    "calibration_curve",
    "calibration_errors",
    "classification",
    "compare_judges",
    "correlate",
    "correlate_levels",
    "correlation_table",
    "feedback_preference",
    "human_ceiling",
    "label_weights",
    "length_controlled",
    "lengths",
    "longer_wins",
    "model_ranking",
    "next_labels",
    "noise_corrected",
    "order_consistency",
    "overlap_baselines",
    "pairwise_accuracy",
    "prediction_powered_mean",
    "published",
    "rater_table",
    "tie_calibrated_accuracy",
    "who_beats_whom",
    "win_rate",
]

__dir__ = public(__name__)
