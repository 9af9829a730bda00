"""A judge's work: rows -> questions -> answers -> verdicts -> a table, recorded on the way.

The core, to be read in this order:

record.py      an append-only log of JSON objects, each line with a checksum
runs.py        a run's folder: manifest, verdicts and rows; a run continues where it stopped
asking.py      rows -> questions: the options of a call, and the prompts for the engine
grading.py     questions -> answers -> verdicts -> a table of graded items
judge.py       JudgeLike; Judge: grade, compare, rank; plan: estimate what a call will take

What the core calls; each file can be read alone:

carried.py     the cells of a row that its run repeats
criteria.py    criteria that are asked apart: their rubrics, and their scores as one row
examples.py    graded examples in the prompts
counts.py      what the verdicts of a call took and lack: counted, and printed on one line
comparing.py   the answers to a pair as one row; several choices as one: majority, both orders
candidates.py  rows with several responses: the pairs or items that are judged of them
ranking.py     best of n

On top of the core:

panel.py       several judges as one; several samples as one
loading.py     load_judge: a judge by its name; load_run: a run by its folder
columns.py     what other rooms compute from a run: units of resampling, closed verdicts
paths.py       names of files and folders, made from names of judges, people and runs
"""
