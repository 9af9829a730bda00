"""Scenes: generated pictures with instructions, rubrics, responses and feedback whose true score is known.

Nothing is downloaded: a seed makes the collection. `world` samples and draws pictures, `language` holds the words,
`collection` makes rows of them.
"""

from vjudge.names import public
from vjudge.scenes.collection import rows
from vjudge.scenes.language import ASPECT_OF, ASPECTS
from vjudge.scenes.world import SPLITS, draw, sample

__all__ = ["ASPECTS", "ASPECT_OF", "SPLITS", "draw", "rows", "sample"]

__dir__ = public(__name__)
