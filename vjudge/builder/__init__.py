"""Build a collection from images: rubrics, instructions, responses, scores and feedback, as for Perception-Collection.

    built = builder.build(paths, vj.load_judge("openai:gpt-4o"), out="outputs/build")
    built.faults()                                         # everything that was wrong, counted
    built.export("outputs/collection", license="cc-by-4.0")

prompts.py: what is asked; faults.py: what an answer must hold; stages.py: the stages and their record; build.py: build
and `Build`; scripted.py: a generator that answers from Scenes' truth.
"""

from vjudge.builder.build import Build, build, estimate, published_row
from vjudge.builder.faults import KINDS
from vjudge.builder.prompts import STAGES, load_seeds
from vjudge.builder.scripted import ScriptedGenerator
from vjudge.builder.stages import BuildError, length_balance
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
