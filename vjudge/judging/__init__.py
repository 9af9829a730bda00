"""A judge's work: questions, answers, verdicts, and the record of each, from top to bottom.

record.py     an append-only file of JSON objects, a checksum a line
runs.py       a run's folder: manifest, verdicts and rows; it continues where it stopped
asking.py     rows -> questions: how a call asks, what is put to the engine
grading.py    questions -> answers -> verdicts -> a table
comparing.py  pairs: both orders, votes; best of n
judge.py      JudgeLike; Judge: grade, compare, rank; plan: what a call is going to take
panel.py      several judges as one; several samples as one
loading.py    load_judge: a judge by its name; load_run: a run by its folder
"""
