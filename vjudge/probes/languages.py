"""Sentences that say nothing, in several languages, and which language a text is in.

The language is decided by what can be decided: the script, and frequent words where languages share one. A text that
this leaves open has no language here, and nothing is added to it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Filler:
    """Sentences of one language that say nothing.

    Args:
        openings, closings: sentences before and after a response.
        missing: instead of an instruction; polite: around one, which stands at {instruction}.
        gap: between sentences.
    """

    openings: tuple[str, ...]
    closings: tuple[str, ...]
    missing: str
    polite: str
    gap: str = " "


FILLERS: dict[str, Filler] = {
    "en": Filler(
        (
            "Here is my answer to the question.",
            "I will now go through this step by step.",
            "Let me write down what there is to say about it.",
            "What follows is my reply to what was asked.",
        ),
        (
            "This is the end of my answer to the question.",
            "That is what I have to say in reply to what was asked.",
            "With this, I have come to the end of what I wanted to write down here.",
            "Thank you for reading all of this, from the first word to the last.",
        ),
        "(The question is missing.)",
        "Please take your time and do the following. {instruction} Thank you.",
    ),
    "de": Filler(
        (
            "Hier ist meine Antwort auf die Frage.",
            "Ich gehe das nun Schritt für Schritt durch.",
            "Ich schreibe auf, was dazu zu sagen ist.",
        ),
        (
            "Das ist das Ende meiner Antwort auf die Frage.",
            "Das ist es, was ich auf die Frage zu sagen habe.",
            "Damit bin ich am Ende dessen, was ich hier schreiben wollte.",
        ),
        "(Die Frage fehlt.)",
        "Bitte nehmen Sie sich Zeit und tun Sie Folgendes. {instruction} Vielen Dank.",
    ),
    "fr": Filler(
        (
            "Voici ma réponse à la question.",
            "Je vais maintenant procéder étape par étape.",
            "J'écris ce qu'il y a à en dire.",
        ),
        (
            "Ceci est la fin de ma réponse à la question.",
            "Voilà ce que j'avais à dire en réponse à ce qui était demandé.",
            "J'arrive ainsi à la fin de ce que je voulais écrire ici.",
        ),
        "(La question manque.)",
        "Veuillez prendre votre temps et faire ce qui suit. {instruction} Merci.",
    ),
    "es": Filler(
        (
            "Aquí está mi respuesta a la pregunta.",
            "Ahora voy a ir paso a paso.",
            "Voy a escribir lo que hay que decir al respecto.",
        ),
        (
            "Este es el final de mi respuesta a la pregunta.",
            "Esto es lo que tengo que decir en respuesta a lo que se preguntó.",
            "Con esto llego al final de lo que quería escribir aquí.",
        ),
        "(Falta la pregunta.)",
        "Por favor, tómese su tiempo y haga lo siguiente. {instruction} Gracias.",
    ),
    "it": Filler(
        (
            "Ecco la mia risposta alla domanda.",
            "Ora procedo passo per passo.",
            "Scrivo qui quello che c'è da dire.",
        ),
        (
            "Questa è la fine della mia risposta alla domanda.",
            "Questo è quanto ho da dire in risposta a ciò che è stato chiesto.",
            "Con questo sono alla fine di ciò che volevo scrivere qui.",
        ),
        "(Manca la domanda.)",
        "Per favore, si prenda il suo tempo e faccia quanto segue. {instruction} Grazie.",
    ),
    "pt": Filler(
        (
            "Aqui está a minha resposta à pergunta.",
            "Vou agora avançar passo a passo.",
            "Vou escrever o que há para dizer sobre isso.",
        ),
        (
            "Este é o fim da minha resposta à pergunta.",
            "Isto é o que tenho a dizer em resposta ao que foi perguntado.",
            "Com isto chego ao fim do que queria escrever aqui.",
        ),
        "(Falta a pergunta.)",
        "Por favor, com calma, faça o seguinte. {instruction} Obrigado.",
    ),
    "ru": Filler(
        (
            "Вот мой ответ на вопрос.",
            "Теперь я пройду по всему шаг за шагом.",
            "Я запишу то, что можно об этом сказать.",
        ),
        (
            "Это конец моего ответа на вопрос.",
            "Вот что я могу сказать в ответ на то, о чём спросили.",
            "На этом заканчивается то, что здесь нужно было написать.",
        ),
        "(Вопрос отсутствует.)",
        "Пожалуйста, не торопитесь и сделайте следующее. {instruction} Спасибо.",
    ),
    "zh": Filler(
        ("以下是我对这个问题的回答。", "我现在一步一步地来说。", "我来写下关于它要说的话。"),
        ("我对这个问题的回答到此结束。", "这就是我对所提问题要说的话。", "我想在这里写的内容到这里就写完了。"),
        "（问题缺失。）",
        "请慢慢来，完成下面的要求。{instruction}谢谢。",
        gap="",
    ),
    "zh-Hant": Filler(
        ("以下是我對這個問題的回答。", "我現在一步一步地來說。", "我來寫下關於它要說的話。"),
        ("我對這個問題的回答到此結束。", "這就是我對所提問題要說的話。", "我想在這裡寫的內容到這裡就寫完了。"),
        "（問題缺失。）",
        "請慢慢來，完成下面的要求。{instruction}謝謝。",
        gap="",
    ),
    "ja": Filler(
        (
            "以下が質問に対する私の回答です。",
            "これから順を追って述べていきます。",
            "それについて言えることを書いていきます。",
        ),
        (
            "質問に対する私の回答は以上です。",
            "尋ねられたことについて私が述べることは以上です。",
            "ここに書こうと思っていたことは、これで終わりです。",
        ),
        "（質問がありません。）",
        "どうぞゆっくり、次のことをしてください。{instruction}ありがとうございます。",
        gap="",
    ),
    "ko": Filler(
        (
            "다음은 질문에 대한 저의 답변입니다.",
            "이제 차례대로 하나씩 말씀드리겠습니다.",
            "이에 대해 할 말을 적어 보겠습니다.",
        ),
        (
            "질문에 대한 저의 답변은 여기까지입니다.",
            "물어보신 것에 대해 제가 드릴 말씀은 이것입니다.",
            "여기에 쓰려고 했던 내용은 이것으로 끝입니다.",
        ),
        "(질문이 없습니다.)",
        "천천히 다음을 해 주세요. {instruction} 감사합니다.",
    ),
}
"""Language (a BCP 47 tag) -> its sentences."""

_WORDS = {
    language: set(words.split())
    for language, words in {
        "en": "the is of and to it that are with on this for there which in was has not an here what be at by",
        "de": "der die das und ist ein eine nicht mit auf den dem im zu es sind von wird auch",
        "fr": "le la les et est un une des dans du pas qui sur avec il elle au ce sont",
        "es": "el la los las y es una un en con por del que no se hay son su está",
        "it": "il la di e è un una che non con del sono gli nel della si c'è lo",
        "pt": "o os as e é um uma que não com do da em no são há na está ao",
        # Not to be taken for one of the others; there are no sentences in them here.
        "nl": "de het een en van is niet op met zijn dat er aan te in",
        "sv": "och det att en som är på inte av med ett den",
        "da": "og det at en som er på ikke af med et den til",
        "pl": "i w na z jest nie się to do są oraz",
        "cs": "a je na se že v to s není jsou",
        "ro": "și este un o cu nu în pe care sunt",
        "tr": "bir ve bu için ile değil var olan da de",
        "id": "yang dan di ini itu dengan tidak ada sebuah",
        "vi": "là của và một không có trong những được",
        "fi": "on ja ei se että ovat mutta joka",
        "hu": "a az és nem egy hogy van ez",
    }.items()
}
_RUSSIAN = set("что это как для или она он есть все его чем был".split())
_TRADITIONAL = set("這個們來說對時會國學為麼與後開長門見圖紅藍綠沒還過裡張體點經問題無當從應該")
_SCRIPTS = {"CJK": "Han", "HIRAGANA": "kana", "KATAKANA": "kana", "HANGUL": "Hangul", "CYRILLIC": "Cyrillic"}


def scripts(text: str) -> Counter[str]:
    """How many letters of each script a text has: Han, kana, Hangul, Cyrillic, Latin, or the script's Unicode name."""
    names = (unicodedata.name(letter, "").split(" ")[0].split("-")[0] for letter in text if letter.isalpha())
    return Counter(_SCRIPTS.get(name, "Latin" if name == "LATIN" else name) for name in names)


def language_of(text: str) -> str | None:
    """The language of a text, of those that have sentences here; None where script and frequent words leave it open.

    >>> language_of("Auf dem Bild ist ein Hund zu sehen."), language_of("图中有一只狗。"), language_of("ok 3.5")
    ('de', 'zh', None)
    """
    letters = scripts(text)
    script = letters.most_common(1)[0][0] if letters else ""
    words = Counter(re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text.lower()))
    if script in ("Han", "kana"):
        if letters["kana"]:
            return "ja"
        return "zh-Hant" if set(text) & _TRADITIONAL else "zh"
    if script == "Hangul":
        return "ko"
    if script == "Cyrillic":
        others = set(text.lower()) & set("іїєґўђћљњџјѕ")
        return "ru" if not others and (set(text.lower()) & set("ыэё") or set(words) & _RUSSIAN) else None
    if script != "Latin":
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
