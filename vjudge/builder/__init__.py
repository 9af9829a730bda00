"""Build a collection from images: rubrics, instructions, responses, scores and feedback.

    built = builder.build(images, vj.load_judge("openai:gpt-4o"), out="outputs/build")
    built.faults()                                         # everything that was wrong, counted
    built.export("outputs/collection", license="cc-by-4.0")

build.py: the stages, and what comes of them; faults.py: what is asked, what an answer must hold.
"""

from vjudge.builder.build import Build, BuildError, build, load_seeds
from vjudge.builder.faults import KINDS, STAGES

__all__ = ["KINDS", "STAGES", "Build", "BuildError", "build", "load_seeds"]

__dir__ = __all__.copy
