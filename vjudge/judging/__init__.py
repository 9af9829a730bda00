"""A judge's work: rows -> questions -> answers -> verdicts -> a table, and the record of each.

The main way, from top to bottom; it belongs to the core:

record.py      an append-only file of JSON objects, a checksum a line
runs.py        a run's folder: manifest, verdicts and rows; it continues where it stopped
asking.py      rows -> questions: how a call asks, what is put to the engine
grading.py     questions -> answers -> verdicts -> a table
judge.py       JudgeLike; Judge: grade, compare, rank; plan: what a call is going to take

What it calls on the way, each to be read alone:

paths.py       names of files and folders, made from names of judges, people and runs
carried.py     the cells of a row that its run repeats
orders.py      a pair in both orders, and its verdicts turned back
criteria.py    several criteria that are asked apart, and their scores as one row
examples.py    graded examples in the prompts
counts.py      what the verdicts of a call took and lack, counted and said
choices.py     several choices as one: majority, both orders
comparing.py   the answers to a pair as a row
candidates.py  rows with several responses: what is judged of them
ranking.py     best of n

On top of it:

panel.py       several judges as one; several samples as one
loading.py     load_judge: a judge by its name; load_run: a run by its folder
columns.py     what other rooms read off a run: units of resampling, closed verdicts
"""
