"""Whether a picture or a text is like those of Scenes, which the embedded judge was made for and nothing else.

A drawing of Scenes is flat: a pixel has its neighbour's very colour, save along edges. Its texts are made of few words.
Changes that the probes make (padding, verdicts written into a response, blanked, shuffled and re-encoded pictures) stay
within both bounds: measured on 100 test items, flat at least .58 and known words at least .76. The ten photographs of
`vjudge.photos` are flat at most .33 and their texts know .56 of the words on average; German text knows none.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

FLAT = 0.45  # the least share of neighbouring pixels of one colour
KNOWN = 0.6  # the least share of words that Scenes uses
WORDS = frozenset(
    """
a about absence absent accept accuracy accurate agree agrees all among and answer anything are at attributed be
belongs big bigger black blindfolded blocks blue bottom by can cannot careful certain check checker child circle
colour colours comes complete confused correct correctly count counted counting counts cross cutting denied describe
description diamond do does drawn each enough entirely error errors estimate evaluates every everything exact
existence exists fact fail fails failure faithful false few find for found four free friend from get gets give given
gives giving go green grid half hallucinated hallucination hand has have heart help here hold holds how hue i
identification identify in included invent invented is it its judge kind lacks large layout left list locate located
look looks many may me medium mentioned mentions middle miss misses missing mistake mistakes mixed mixing mostly must
my name named names near neither no none nor not nothing number numbers occur of off often on one ones only or orange
out overlooked painted painter paper part partial pick picture pink place placed places position positions proper
purple put quantities quantity reach recognised recognises recognition red reject reliable report response right ring
said same say says scale see seen sense serious several shape shapes show shown sign single size sizes small some
someone something spatial spot square stands star stated statement statements stock success supported take taker tell
that the them there they thing things this those three through time to top total triangle true trusted truthful
truthfully two verified viewer was well were what where whether which with without would wrong yellow you zero
""".split()
)
_WORD = re.compile(r"[^\W\d_]+")


def is_scene(image: Any) -> bool:
    """Whether a picture is as flat as a drawing of Scenes.

    Args:
        image: an RGB `PIL.Image`.

    >>> from PIL import Image
    >>> is_scene(Image.new("RGB", (64, 64), "white")), is_scene(Image.effect_noise((64, 64), 50).convert("RGB"))
    (True, False)
    """
    pixels = np.asarray(image)
    if min(pixels.shape[:2]) < 2:
        return True
    return all(float((np.diff(pixels, axis=axis) == 0).all(-1).mean()) >= FLAT for axis in (0, 1))


def speaks_scenes(text: str) -> bool:
    """Whether a text is made of the words of Scenes.

    >>> speaks_scenes("The circle at the top left is red."), speaks_scenes("Der Kreis oben links ist rot.")
    (True, False)
    """
    words = _WORD.findall(text.lower())
    return not words or sum(word in WORDS for word in words) >= KNOWN * len(words)
