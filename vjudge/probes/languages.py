"""Sentences that say nothing, in eleven languages (assets/languages.json), and which language a text is in.

The language is decided by what can be decided: the script, and frequent words where languages share one. A text that
this leaves open has no language here, and nothing is added to it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Filler:
    """Sentences of one language that say nothing.

    Args:
        openings, closings: sentences before and after a response.
        missing: instead of an instruction; polite: around one, which stands at {instruction}.
        gap: between sentences.
    """

    openings: list[str]
    closings: list[str]
    missing: str
    polite: str
    gap: str = " "


_TEXTS = json.loads(resources.files("vjudge").joinpath("assets", "languages.json").read_text(encoding="utf-8"))
FILLERS: dict[str, Filler] = {language: Filler(**texts) for language, texts in _TEXTS["sentences"].items()}
"""Language (a BCP 47 tag) -> its sentences."""
# Frequent words of languages in Latin script, of some too that have no sentences here, lest they pass for another.
_WORDS = {language: set(words.split()) for language, words in _TEXTS["words"].items()}
_RUSSIAN, _TRADITIONAL = set(_TEXTS["russian"].split()), set(_TEXTS["traditional"])
_SCRIPTS = {"CJK": "Han", "HIRAGANA": "kana", "KATAKANA": "kana", "HANGUL": "Hangul", "CYRILLIC": "Cyrillic"}


def scripts(text: str) -> Counter[str]:
    """How many letters of each script a text has: Han, kana, Hangul, Cyrillic, or the script's name in Unicode."""
    names = (unicodedata.name(letter, "").split(" ")[0].split("-")[0] for letter in text if letter.isalpha())
    return Counter(_SCRIPTS.get(name, name) for name in names)


def language_of(text: str) -> str | None:
    """The language of a text, of those that have sentences here; None where script and frequent words leave it open.

    >>> language_of("Auf dem Bild ist ein Hund zu sehen."), language_of("图中有一只狗。"), language_of("ok 3.5")
    ('de', 'zh', None)
    """
    letters = scripts(text)
    script = letters.most_common(1)[0][0] if letters else ""
    words = Counter(re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text.lower()))
    if script in ("Han", "kana"):
        return "ja" if letters["kana"] else "zh-Hant" if set(text) & _TRADITIONAL else "zh"
    if script == "Hangul":
        return "ko"
    if script == "Cyrillic":
        others = set(text.lower()) & set("іїєґўђћљњџјѕ")
        return "ru" if not others and (set(text.lower()) & set("ыэё") or set(words) & _RUSSIAN) else None
    if script != "LATIN":
        return None
    counts = Counter({language: sum(words[word] for word in frequent) for language, frequent in _WORDS.items()})
    (best, most), (_, next_most) = counts.most_common(2)
    return best if most >= 2 and most > next_most and best in FILLERS else None


def size_of(text: str) -> int:
    """The length of a text: in words, or in letters and digits where its script does not part words."""
    return len(text.split()) if spaced(text) else sum(letter.isalnum() for letter in text)


def spaced(text: str) -> bool:
    """Whether the words of a text's script are parted by spaces."""
    letters = scripts(text)
    return letters["Han"] + letters["kana"] <= sum(letters.values()) / 2
