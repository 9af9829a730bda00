"""Sentences that say nothing, in eleven languages, and which of them a text is in.

The texts are in assets/languages.json.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

_FILE = resources.files("vjudge").joinpath("assets", "languages.json")
_TEXTS = json.loads(_FILE.read_text(encoding="utf-8"))
FILLERS: dict[str, dict[str, Any]] = {}
"""Language (a BCP 47 tag) -> its sentences.

"openings" and "closings" stand around a response with a "gap" between them, "missing" in place of
an instruction, "polite" around one, "rubric" and "level" around a criterion and a level."""
for _language, _sentences in _TEXTS["sentences"].items():
    FILLERS[_language] = {"gap": " ", **_sentences}

# Frequent words, also of languages that have no sentences here, lest they pass for another.
_WORDS = {language: words.split() for language, words in _TEXTS["words"].items()}
_RUSSIAN = _TEXTS["russian"].split()
_SCRIPTS = {
    "Han": "[\u3400-\u9fff]",
    "kana": "[\u3040-\u30ff]",
    "Hangul": "[\uac00-\ud7af]",
    "Cyrillic": "[\u0400-\u04ff]",
    "Latin": "[A-Za-z\u00c0-\u024f]",
}


def language_of(text: str) -> str | None:
    """The language of a text, of those that have sentences here; None where that is unclear.

    >>> language_of("Auf dem Bild ist ein Hund zu sehen."), language_of("图中有一只狗。")
    ('de', 'zh')
    >>> language_of("ok 3.5") is None
    True
    """
    text = text.lower()
    counts = {script: len(re.findall(letters, text)) for script, letters in _SCRIPTS.items()}
    others = sum(map(str.isalpha, text)) - sum(counts.values())
    script = max(counts, key=counts.__getitem__)
    if counts[script] <= others:
        return None
    words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text)
    if script in ("Han", "kana"):
        if counts["kana"]:
            return "ja"
        return "zh" if set(text).isdisjoint(_TEXTS["traditional"]) else "zh-Hant"
    if script == "Hangul":
        return "ko"
    if script == "Cyrillic":
        russian = not set(text).isdisjoint("ыэё") or not set(words).isdisjoint(_RUSSIAN)
        return "ru" if russian and set(text).isdisjoint("іїєґўђћљњџјѕ") else None
    frequent = {}
    for language, own in _WORDS.items():
        frequent[language] = sum(word in own for word in words)
    *_, second, best = sorted(frequent, key=frequent.__getitem__)
    if best in FILLERS and frequent[best] >= 2 and frequent[best] > frequent[second]:
        return best
    return None
