"""Do probes, intervals and tests hold what they say? Measured on simulated judges and scores: `make validity`.

Every number here is about statistics, none about a model. The tables and the figure stay in `figures/`.

studies.py       what is planted in simulated judges for which probe: false positives, power and coverage of each
batteries.py     whole batteries: how many honest judges are accused of anything, and which biases are found
populations.py   scores whose true correlations are known
correlations.py  what `correlate` and `compare_judges` make of them; chosen labels against random order
drawing.py       the figure and the tables
"""
