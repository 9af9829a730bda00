"""What a judge's scores are worth, in numbers that can be published.

Arrays and frames in, frames out. A pair with a missing score is left out and counted; what is undefined is NaN with a
warning, never 0.

correlation.py  Pearson, Spearman and Kendall's tau-b with intervals
comparison.py   is judge a better than judge b: difference, interval, tests; who beats whom
levels.py       the level a correlation is taken at; averages of correlations of groups
raters.py       agreement of raters, the human ceiling, correction for their noise
calibration.py  reliability by score; maps to human scores, judged on items they were not fitted on
pairwise.py     win rates, rewards, accuracy, order consistency, whether the longer response wins
fourway.py      the comparison of feedback by left, right, both good, both bad
tournament.py   Bradley-Terry and Elo
overlap.py      judges to beat: ROUGE-L, BLEU, chrF, length
inference.py    prediction-powered means; how many human labels a width needs
stratified.py   correlation from labels chosen by the judge's score, and which items to label next
ratings.py      tables of ratings as they come in, checked
_tables.py      columns as they come in, checked; statistics of weights as rows of a frame

To add a statistic, write it as a function of weights (how often each cell of the sample occurs, `metrics._bootstrap`)
and hand it to `_tables.tabulate`, which gives it the interval, the counts and the warnings that all others have.
`pairwise.reward` is a short example.
"""

from vjudge.metrics._tables import FIVE_POINT
from vjudge.metrics.calibration import calibrate, calibration_errors, reliability
from vjudge.metrics.comparison import compare_judges, who_beats_whom
from vjudge.metrics.correlation import correlate
from vjudge.metrics.fourway import feedback_preference
from vjudge.metrics.inference import labels_needed, prediction_powered_mean
from vjudge.metrics.levels import average_correlations, correlate_groups, correlate_levels
from vjudge.metrics.overlap import overlap_baselines
from vjudge.metrics.pairwise import (
    longer_wins,
    order_consistency,
    pairwise_accuracy,
    reward,
    win_rate,
)
from vjudge.metrics.raters import agreement, human_ceiling, noise_corrected
from vjudge.metrics.tournament import bradley_terry, elo

__all__ = [
    "FIVE_POINT",
    "agreement",
    "average_correlations",
    "bradley_terry",
    "calibrate",
    "calibration_errors",
    "compare_judges",
    "correlate",
    "correlate_groups",
    "correlate_levels",
    "elo",
    "feedback_preference",
    "human_ceiling",
    "labels_needed",
    "longer_wins",
    "noise_corrected",
    "order_consistency",
    "overlap_baselines",
    "pairwise_accuracy",
    "prediction_powered_mean",
    "reliability",
    "reward",
    "who_beats_whom",
    "win_rate",
]
