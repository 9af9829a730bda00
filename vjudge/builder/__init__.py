"""Build a collection from images: rubrics, instructions, responses, scores and feedback, as for Perception-Collection.

    from vjudge import builder

    builder.estimate(len(paths), price=(2.5, 10.0))
    built = builder.build(paths, vj.load_judge("openai:gpt-4o"), out="outputs/build")
    built.faults()                                         # everything that was wrong, counted
    built.export("outputs/collection", license="cc-by-4.0")

The generator is any judge that `load_judge` gives: a server or a vision-language model on this machine. Its answers are
recorded as they come, so that the same call continues a build that was stopped.

prompts.py   what the generator is asked, stage by stage, and the seed rubrics; written for this project
faults.py    what an answer must hold before anything of it is kept
ask.py       calls, tries and their record, which a build replays
stages.py    the stages: rubrics, instructions, responses
build.py     build, estimate, and Build: the collection and its account
export.py    the folder for the hub, with its data card
scripted.py  a generator by script, which answers from Scenes' truth: for demonstrations and tests
"""

from vjudge.builder.ask import BuildError
from vjudge.builder.build import Build, build, estimate
from vjudge.builder.export import card, export, published_row
from vjudge.builder.faults import KINDS, Fault, self_judgement
from vjudge.builder.prompts import STAGES, load_seeds
from vjudge.builder.scripted import ScriptedGenerator
from vjudge.builder.stages import Balance, length_balance
from vjudge.names import public

__all__ = [
    "KINDS",
    "STAGES",
    "Balance",
    "Build",
    "BuildError",
    "Fault",
    "ScriptedGenerator",
    "build",
    "card",
    "estimate",
    "export",
    "length_balance",
    "load_seeds",
    "published_row",
    "self_judgement",
]

__dir__ = public(__name__)
