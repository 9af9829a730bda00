"""Build a collection from images: rubrics, instructions, responses, scores and feedback.

    built = builder.build(images, vj.load_judge("openai:gpt-4o"), out="outputs/build")
    built.faults()                                         # everything that was wrong, counted
    built.export("outputs/collection", license="cc-by-4.0")

build.py    `build`, which runs the stages
stages.py   the stages: what the generator is asked, and what becomes of its answers
faults.py   what is wrong with an answer
built.py    `Build`: the collection, its account and its export
"""

from vjudge.builder.build import build
from vjudge.builder.built import Build
from vjudge.builder.faults import KINDS, STAGES
from vjudge.builder.stages import BuildError, load_seeds

__all__ = ["KINDS", "STAGES", "Build", "BuildError", "build", "load_seeds"]

__dir__ = __all__.copy
