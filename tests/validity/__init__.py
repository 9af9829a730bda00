"""Do probes, intervals and tests hold what they say? Measured on simulated judges and scores: `make validity`.

Every number here is about statistics, none about a model. The tables and the figure stay in `figures/`.

populations.py   scores whose true correlations are known
correlations.py  what the intervals of `correlate` and the tests of `compare_judges` make of them
studies.py       what is planted in simulated judges for which probe, and how the probe estimates it
probes.py        false positives, power and coverage of each probe
batteries.py     whole batteries: how many honest judges are accused of anything, and which biases are found
labels.py        which items to label: chosen ones against random order
drawing.py       the figure and the tables
"""
