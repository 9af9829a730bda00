"""How `vjudge/assets/` was made: the embedded judge and its base, trained from nothing on Scenes, and a policy.

They learn to see and to describe by lessons of their own, which no collection of items holds; hence their own loop.

    tokenizer.py  the vocabulary
    lessons.py    batches for each stage, made from scenes of the train split
    loop.py       stages of steps that resume exactly
    tiny.py       the model, its stages, the command: `make tiny`, `make base`
    card.py       its model card, measured
    policy.py     a policy that answers in claims, made from the judge: `PYTHONPATH=tests python -m assets.policy`
    verdicts.py   the tables of public verdicts, made from their repositories' files
"""
