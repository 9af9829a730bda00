"""Measure what a judge's scores are worth: arrays and frames in, frames out.

A pair with a missing score is left out and counted. An undefined number is NaN with a warning,
never 0. Read `correlation.py` first (it is of the core); it calls, from its first line to its last,

- `columns.py`, `groups.py`: read and check scores, and the groups that are resampled together;
- `cells.py`: the distinct rows of a sample; `weighted_correlation.py`: correlations of them;
- `tables.py`: a row per estimate, with interval, counts and warnings; below it `resampling.py`
  (bootstrap and jackknife), `intervals.py` (Student's t, Fisher's z) and `caveats.py`;
- `strata.py`: the mean over benchmarks.

The other statistics stand on the same files; those that count cases also on `shares.py` and
`wilson.py`, those of ratings on `ratings.py`, and those of pairs on `verdicts.py`:

- scores: `aggregation_levels.py`, `comparison.py`, `agreement.py` (with `coefficients.py`),
  `calibration.py`, `length.py`;
- probabilities: `probability_calibration.py`, `temperature.py`, `conformal.py`;
- pairs: `pairwise.py`, `choice_comparison.py`, `strengths.py` and `length_controlled.py` (both with
  `logistic.py`);
- raters: `leave_one_out.py`, `replaceability.py` (with `noninferiority.py`), `panels.py`,
  `severity.py`;
- few labels: `labels.py`, then `corrected_rates.py` and `prediction_powered.py`; `planning.py`;
- systems: `ranking.py` (with `ranking_measures.py`), `best_of_n.py`.

To add a statistic, write it as a function of weights (how often each cell of the sample occurs) and
hand it to `tables.tabulate`: `calibration.calibration_errors` is an example. Hand shares of cases
to `shares.shares`.
"""

from vjudge.metrics.aggregation_levels import correlate_levels
from vjudge.metrics.agreement import agreement
from vjudge.metrics.best_of_n import best_of_n
from vjudge.metrics.calibration import calibration_curve, calibration_errors
from vjudge.metrics.choice_comparison import compare_choices
from vjudge.metrics.comparison import compare_judges
from vjudge.metrics.conformal import conformal_coverage, conformal_intervals
from vjudge.metrics.corrected_rates import corrected_rate, corrected_rate_from_labels
from vjudge.metrics.correlation import correlate
from vjudge.metrics.leave_one_out import raters
from vjudge.metrics.length import length_test, lengths
from vjudge.metrics.length_controlled import length_controlled_win_rate
from vjudge.metrics.pairwise import feedback_preference, pairwise_accuracy, win_rate
from vjudge.metrics.panels import effective_judges
from vjudge.metrics.planning import labels_needed
from vjudge.metrics.prediction_powered import prediction_powered_mean
from vjudge.metrics.probability_calibration import expected_calibration_error
from vjudge.metrics.ranking import ranking_accuracy
from vjudge.metrics.replaceability import alt_test
from vjudge.metrics.severity import severities
from vjudge.metrics.strengths import bradley_terry
from vjudge.metrics.temperature import scaled, temperature_scaling

__all__ = [
    "agreement", "alt_test", "best_of_n", "bradley_terry", "calibration_curve",
    "calibration_errors", "compare_choices", "compare_judges", "conformal_coverage",
    "conformal_intervals", "corrected_rate", "corrected_rate_from_labels", "correlate",
    "correlate_levels", "effective_judges", "expected_calibration_error", "feedback_preference",
    "labels_needed", "length_controlled_win_rate", "length_test", "lengths",
    "pairwise_accuracy", "prediction_powered_mean", "ranking_accuracy", "raters", "scaled",
    "severities", "temperature_scaling", "win_rate",
]  # fmt: skip

__dir__ = __all__.copy
