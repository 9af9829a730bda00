"""Simulation, and nothing else: judges whose scores are drawn, with biases of known size, and collections for them.

What stands here proves the statistics and the probes; it says nothing about any model.

judges.py       SimulatedJudge and what is planted in it
collections.py  items of wanted lengths with a true score
correlated.py   scores with known correlations
coverage.py     whether intervals of correlations cover and tests of judges hold their level
studies.py      what is planted for which probe
labelling.py    which items to label: chosen ones against random order
validity.py     what the probes make of it: false positives, power, coverage (`make validity`); drawing.py shows it
correlated.py   scores of known correlation
coverage.py     what the intervals of correlations and the tests between judges make of them
"""

from vjudge.names import public
from vjudge.simulate.collections import collection
from vjudge.simulate.judges import Planted, SimulatedJudge, Truth, View, views
from vjudge.simulate.labelling import labelling

__all__ = ["Planted", "SimulatedJudge", "Truth", "View", "collection", "labelling", "views"]

__dir__ = public(__name__)
