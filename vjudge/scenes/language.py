"""The words of Scenes (`assets/scenes.json`): aspects, rubrics, responses of four claims, and their feedback."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import resources

from vjudge.scenes.world import COLOURS

N_CLAIMS = 4
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WRONG_COUNTS = ("None", "One", "Two", "Three", "Four")


@dataclass(frozen=True)
class Claim:
    """One statement about a picture: at `key`, the response says `said`; the picture shows `seen`."""

    key: str
    said: str
    seen: str

    @property
    def right(self) -> bool:
        """Whether what is said is what the picture shows."""
        return self.said == self.seen

    @property
    def verdict(self) -> str:
        """What feedback calls it. Not "right", which is also a place."""
        return "correct" if self.right else "wrong"


@dataclass(frozen=True)
class Aspect:
    """What a rubric looks at: its noun (singular, plural), instructions, criteria and claim wordings."""

    name: str
    noun: str
    nouns: str
    instructions: list[str]
    criteria: list[str]
    wordings: list[str]  # with {key}, {said} and {thing}, the key with an article; what is denied stands behind a bar


WORDS = json.loads(resources.files("vjudge").joinpath("assets", "scenes.json").read_text(encoding="utf-8"))
LEVELS: list[list[str]] = WORDS["levels"]
"""How well a response did, lowest score first, in eight wordings. {n}: the aspect's noun, {N}: its plural."""
ASPECTS = {aspect["name"]: Aspect(**aspect) for aspect in WORDS["aspects"]}
ASPECT_OF = {criteria: aspect.name for aspect in ASPECTS.values() for criteria in aspect.criteria}
_VOCABULARY = frozenset(WORDS["vocabulary"].split())  # of Scenes, and of what the probes write into it
_LEAST_SHARE = (
    0.6  # of words that Scenes uses: its own texts reach .76 under all probes, those of photos .56 on average
)


def rubric(aspect: Aspect, variant: int) -> tuple[str, list[str]]:
    """Return criteria and the five level descriptions, lowest first, of one of the aspect's eight rubrics."""
    levels = LEVELS[(variant + list(ASPECTS).index(aspect.name)) % len(LEVELS)]
    return aspect.criteria[variant], [level.format(n=aspect.noun, N=aspect.nouns) for level in levels]


def statement(aspect: Aspect, claims: list[Claim], wording: int) -> str:
    """Write claims as a numbered answer in one of the aspect's wordings."""
    forms = aspect.wordings[wording].split("|")
    parts = []
    for i, claim in enumerate(claims, start=1):
        form = forms[1] if claim.said == "absent" and len(forms) > 1 else forms[0]
        thing = f"something {claim.key}" if claim.key in COLOURS else f"a {claim.key}"
        parts.append(f"({i}) {form.format(key=claim.key, said=claim.said, thing=thing)}.")
    return " ".join(parts)


def n_wrong(claims: list[Claim]) -> int:
    """Return how many claims are wrong."""
    return sum(not claim.right for claim in claims)


def feedback(claims: list[Claim]) -> str:
    """Write feedback on claims: each one against the picture, then how many are wrong."""
    checks = [f"({i}) said {c.said}, {c.key} {c.seen}, {c.verdict}." for i, c in enumerate(claims, start=1)]
    return " ".join([*checks, f"{WRONG_COUNTS[n_wrong(claims)]} wrong."])


def score(claims: list[Claim]) -> int:
    """Return the true score of a response of four claims: 5 less the claims that are wrong."""
    return 1 + N_CLAIMS - n_wrong(claims)


def speaks_scenes(text: str) -> bool:
    """Whether a text is made of the words of Scenes, which the embedded judge was made for and nothing else."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    return not words or sum(word in _VOCABULARY for word in words) >= _LEAST_SHARE * len(words)
