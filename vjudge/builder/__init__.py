"""Build a collection from images: rubrics, instructions, responses, scores and feedback, as for Perception-Collection.

    from vjudge import builder

    plan = builder.Plan(rubrics_per_image=3, instructions_per_rubric=2)
    builder.cost(len(paths), plan=plan, price=(2.5, 10.0))
    built = builder.build(paths, vj.load_judge("openai:gpt-4o"), plan=plan, out="outputs/build")
    built.faults()                                         # everything that was found wrong, counted
    built.export("outputs/collection", license="cc-by-4.0")

The generator is any judge that `load_judge` gives: a server or a vision-language model on this machine. Its answers are
recorded as they come, so that the same call continues a build that was stopped.

seeds.py     hand-written seed rubrics; another field is another file
plan.py      how much to build, what is accepted, how often anything is asked again
prompts.py   what the generator is asked, stage by stage; written for this project
checks.py    what an answer must hold before anything of it is kept
overlap.py   near duplicates by ROUGE-L
asking.py    calls, tries and their record, which a build replays
stages.py    the stages: rubrics, instructions, responses
cost.py      what a build takes, before it starts
build.py     build
result.py    Build: the collection and its account
card.py      the folder for the hub, with its data card
scripted.py  a server that answers from Scenes' truth, with planted faults: for demonstrations and tests
"""

from vjudge.builder.asking import BuildError
from vjudge.builder.build import build
from vjudge.builder.card import card, export, published_row
from vjudge.builder.checks import KINDS, Fault
from vjudge.builder.cost import cost
from vjudge.builder.plan import Plan
from vjudge.builder.prompts import STAGES
from vjudge.builder.result import Build
from vjudge.builder.scripted import PLANTED, ScriptedServer
from vjudge.builder.seeds import Seed, embedded, load_seeds
from vjudge.names import public

__all__ = [
    "KINDS",
    "PLANTED",
    "STAGES",
    "Build",
    "BuildError",
    "Fault",
    "Plan",
    "ScriptedServer",
    "Seed",
    "build",
    "card",
    "cost",
    "embedded",
    "export",
    "load_seeds",
    "published_row",
]

__dir__ = public(__name__)
