"""The words of Scenes: six aspects, each with instructions, eight rubrics and ways to state a claim.

A response makes four numbered claims; its score is five less the claims that are wrong. Feedback goes through the
claims one by one, says what was said and what is there, and counts.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """What a rubric looks at: its noun (singular, plural), instructions, criteria and claim wordings.

    A wording holds `{key}` and `{said}`. Presence has a second wording for what is denied, behind a bar, and `{thing}`,
    which is the key with an article.
    """

    name: str
    noun: str
    nouns: str
    instructions: tuple[str, ...]
    criteria: tuple[str, ...]
    wordings: tuple[str, ...]


# How well a response did, lowest score first. {n}: the aspect's noun, {N}: its plural.
LEVELS = (
    (
        "Every {n} given is wrong.",
        "Three of the four {N} are wrong.",
        "Two of the four {N} are wrong.",
        "One of the four {N} is wrong.",
        "All four {N} are right.",
    ),
    (
        "None of the {N} agrees with the picture.",
        "Only one {n} agrees with the picture.",
        "Half of the {N} agree with the picture.",
        "Three of the {N} agree with the picture.",
        "Every {n} agrees with the picture.",
    ),
    (
        "Four errors: no {n} can be trusted.",
        "Three errors among the {N}.",
        "Two errors among the {N}.",
        "A single error among the {N}.",
        "No error among the {N}.",
    ),
    (
        "Entirely false, with four false {N}.",
        "Mostly false: only one {n} holds.",
        "Mixed: two {N} hold and two fail.",
        "Mostly true: only one {n} fails.",
        "Entirely true, with four true {N}.",
    ),
    (
        "The answer gets no {n} right.",
        "The answer gets one {n} right.",
        "The answer gets two {N} right.",
        "The answer gets three {N} right.",
        "The answer gets all four {N} right.",
    ),
    (
        "Complete failure, with four mistakes.",
        "Serious failure, with three mistakes.",
        "Partial success, with two mistakes.",
        "Near success, with one mistake.",
        "Complete success, without a mistake.",
    ),
    (
        "A careful viewer would reject all four {N}.",
        "A careful viewer would reject three {N}.",
        "A careful viewer would reject two {N}.",
        "A careful viewer would reject one {n}.",
        "A careful viewer would accept all four {N}.",
    ),
    (
        "Not one correct {n}.",
        "One correct {n} out of four.",
        "Two correct {N} out of four.",
        "Three correct {N} out of four.",
        "Four correct {N} out of four.",
    ),
)

ASPECTS = {
    aspect.name: aspect
    for aspect in (
        Aspect(
            "shape",
            "shape",
            "shapes",
            (
                "Say which shape you see at several places of the picture.",
                "What is drawn at each place? Name the shapes.",
                "Go through the grid and name the shapes you find.",
                "Identify the shapes in this picture, place by place.",
                "Tell me what is there, giving a place and a shape each time.",
            ),
            (
                "Does the response name the shapes correctly?",
                "Is each thing in the picture recognised for what it is?",
                "How accurate is the identification of the shapes?",
                "Are the shapes that the response names the ones that were drawn?",
                "Evaluates whether the response recognises the shape found at each place.",
                "Recognition: what the response says is there must be there.",
                "Judge only whether the right shape is named for each place.",
                "Would a child with shape blocks agree with every shape named here?",
            ),
            (
                "at the {key} there is a {said}",
                "the {key} holds a {said}",
                "the thing at the {key} is a {said}",
                "{key} has a {said}",
                "I see at the {key} a {said}",
            ),
        ),
        Aspect(
            "count",
            "count",
            "counts",
            (
                "Count the things of several colours and shapes.",
                "How many are there of each kind? Give some counts.",
                "Report how often certain colours and shapes occur.",
                "Take stock of the picture: how many of what?",
                "Pick some colours and shapes and count them.",
            ),
            (
                "Does the response count correctly?",
                "Are the numbers in the response the numbers in the picture?",
                "How reliable is the counting?",
                "Evaluates whether each quantity stated can be verified by counting.",
                "Counting: every number must be exact, near misses do not help.",
                "Judge only whether the stated quantities are exact.",
                "Would a stock-taker sign off the numbers?",
                "Is the quantity right for each colour and shape counted?",
            ),
            (
                "the number for {key} is {said}",
                "for {key} I count {said}",
                "{key} comes to {said}",
                "counting {key} gives {said}",
                "my total for {key} is {said}",
            ),
        ),
        Aspect(
            "colour",
            "colour",
            "colours",
            (
                "Say which colour things have at several places.",
                "What colours do you see, and where?",
                "Describe the colours in the picture, place by place.",
                "Name a few places and the colour found at each.",
                "Tell me the colours of some of the things shown.",
            ),
            (
                "Does the response name the colours correctly?",
                "Are the colours in the response those of the picture?",
                "How faithful is the response to the colours shown?",
                "Evaluates whether each colour is attributed to the right place.",
                "Colour accuracy: a wrong hue is a wrong answer.",
                "Judge only whether the colours are right.",
                "Would a painter mixing from this description get the same picture?",
                "Is the colour right at each place the response mentions?",
            ),
            (
                "the thing at the {key} is {said}",
                "at the {key} the colour is {said}",
                "{key} looks {said}",
                "the {key} one was painted {said}",
                "I see at the {key} something {said}",
            ),
        ),
        Aspect(
            "size",
            "size",
            "sizes",
            (
                "How large are the things? Go place by place.",
                "Give the size of things at several places.",
                "Say for some places whether the thing is small, medium or large.",
                "Estimate how big the shapes are.",
                "Describe the sizes in this picture.",
            ),
            (
                "Does the response judge the sizes correctly?",
                "Are the sizes in the response those of the picture?",
                "How accurate is the sense of scale?",
                "Evaluates whether each thing gets its proper size.",
                "Size: small, medium and large must not be confused.",
                "Judge only whether the sizes are right.",
                "Would someone cutting the shapes from paper get them big enough and no bigger?",
                "Is the size right for each place that is mentioned?",
            ),
            (
                "the thing at the {key} is {said}",
                "at the {key} the size is {said}",
                "{key} looks {said}",
                "the {key} one was drawn {said}",
                "I see at the {key} something {said}",
            ),
        ),
        Aspect(
            "position",
            "position",
            "positions",
            (
                "Where are things? Say what stands where.",
                "Locate several things on the grid.",
                "Describe the layout of the picture.",
                "Give the position of some of the things.",
                "Help me find things: where is what?",
            ),
            (
                "Does the response put things where they are?",
                "Are the positions in the response those of the picture?",
                "How well does the response locate things?",
                "Evaluates the spatial accuracy of the response.",
                "Layout: each thing must be placed where it stands.",
                "Judge only whether the stated positions are right.",
                "Would a blindfolded friend reach for the right spot each time?",
                "Is everything located in the part of the picture where it belongs?",
            ),
            (
                "a {said} is at the {key}",
                "one {said} stands at the {key}",
                "look for a {said} at the {key}",
                "a {said} belongs to the {key}",
                "you find a {said} at the {key}",
            ),
        ),
        Aspect(
            "presence",
            "statement",
            "statements",
            (
                "Which things are in the picture, and which are not?",
                "Say what is there and what is missing.",
                "List some things that the picture does or does not show.",
                "Check the picture for several things.",
                "Tell me what can be found here and what cannot.",
            ),
            (
                "Does the response neither invent nor miss anything?",
                "Is the response free of hallucinated and overlooked things?",
                "How truthful is the response about what exists in the picture?",
                "Evaluates whether things said to be there are there, and things denied are absent.",
                "Hallucination: nothing may be invented and nothing denied that is shown.",
                "Judge only whether existence and absence are stated truthfully.",
                "Would a fact-checker with the picture at hand find anything invented or left out?",
                "Is every statement about what is shown or missing supported by the picture?",
            ),
            (
                "the picture has {thing}|the picture lacks {thing}",
                "I find {thing}|I miss {thing}",
                "{thing} is shown|{thing} is missing",
                "{thing} is included|{thing} is absent",
                "{thing} can be seen|{thing} cannot be seen",
            ),
        ),
    )
}


def rubric(aspect: Aspect, variant: int) -> tuple[str, list[str]]:
    """Return criteria and the five level descriptions, lowest first, of one of the aspect's eight rubrics."""
    levels = LEVELS[(variant + list(ASPECTS).index(aspect.name)) % len(LEVELS)]
    return aspect.criteria[variant], [level.format(n=aspect.noun, N=aspect.nouns) for level in levels]


ASPECT_OF = {criteria: aspect.name for aspect in ASPECTS.values() for criteria in aspect.criteria}


def statement(aspect: Aspect, claims: list[Claim], wording: int) -> str:
    """Write claims as a numbered answer in one of the aspect's wordings."""
    forms = aspect.wordings[wording].split("|")
    parts = []
    for i, claim in enumerate(claims, start=1):
        form = forms[1] if claim.said == "absent" and len(forms) > 1 else forms[0]
        thing = f"something {claim.key}" if claim.key in COLOURS else f"a {claim.key}"
        parts.append(f"({i}) {form.format(key=claim.key, said=claim.said, thing=thing)}.")
    return " ".join(parts)


def check(i: int, claim: Claim) -> str:
    """Write what feedback says of claim number `i`, counted from 1."""
    return f"({i}) said {claim.said}, {claim.key} {claim.seen}, {claim.verdict}."


def n_wrong(claims: list[Claim]) -> int:
    """Return how many claims are wrong."""
    return sum(not claim.right for claim in claims)


def feedback(claims: list[Claim]) -> str:
    """Write feedback on claims: each one against the picture, then how many are wrong."""
    checks = [check(i, claim) for i, claim in enumerate(claims, start=1)]
    return " ".join([*checks, f"{WRONG_COUNTS[n_wrong(claims)]} wrong."])


def score(claims: list[Claim]) -> int:
    """Return the true score of a response of four claims: 5 less the claims that are wrong."""
    return 1 + N_CLAIMS - n_wrong(claims)
