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

from vjudge.scenes import language

FLAT = 0.45  # the least share of neighbouring pixels of one colour
KNOWN = 0.6  # the least share of words that Scenes uses
WORDS = frozenset(language.WORDS["vocabulary"].split())  # of Scenes, and of what the probes write into it
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
