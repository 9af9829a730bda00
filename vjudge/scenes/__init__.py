"""Scenes: pictures generated from a seed, with rubrics, responses and feedback whose true score is known."""

from vjudge.names import public
from vjudge.scenes.collection import ASPECT_OF, ASPECTS, rows
from vjudge.scenes.world import SPLITS, draw, sample

__all__ = ["ASPECTS", "ASPECT_OF", "SPLITS", "draw", "rows", "sample"]

__dir__ = public(__name__)
