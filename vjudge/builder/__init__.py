"""Build a collection from images: rubrics, instructions, responses, scores and feedback, as for Perception-Collection.

    from vjudge import builder

    builder.estimate(len(paths), price=(2.5, 10.0))
    built = builder.build(paths, vj.load_judge("openai:gpt-4o"), out="outputs/build")
    built.faults()                                         # everything that was wrong, counted
    built.export("outputs/collection", license="cc-by-4.0")

prompts.py   what the generator is asked, stage by stage, and the seed rubrics
faults.py    what an answer must hold before anything of it is kept
ask.py       calls, tries and their record, which a build replays
stages.py    the stages: rubrics, instructions, responses
export.py    Build: the collection, its account, and its folder for the hub
build.py     build and estimate
scripted.py  a generator by script, which answers from Scenes' truth: for demonstrations and tests
"""

from vjudge.builder.ask import BuildError
from vjudge.builder.build import build, estimate
from vjudge.builder.export import Build, published_row
from vjudge.builder.faults import KINDS
from vjudge.builder.prompts import STAGES, load_seeds
from vjudge.builder.scripted import ScriptedGenerator
from vjudge.builder.stages import length_balance
from vjudge.names import public

__all__ = [
    "KINDS",
    "STAGES",
    "Build",
    "BuildError",
    "ScriptedGenerator",
    "build",
    "estimate",
    "length_balance",
    "load_seeds",
    "published_row",
]

__dir__ = public(__name__)
