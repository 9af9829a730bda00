"""The embedded judge's tokenizer: byte-level BPE over the words of Scenes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from vjudge import prompts
from vjudge.data import scenes
from vjudge.prompts import TEMPLATES
from vjudge.records import Item

TEMPLATE = TEMPLATES["prometheus-vision"]
CONTEXT = 1024  # tokens, image tokens included
SPECIALS = ("<pad>", "<s>", "</s>", "<image>")
CHAT_TEMPLATE = resources.files("vjudge") / "assets" / "tiny" / "chat_template.jinja"


def phrases() -> list[str]:
    """List the fixed phrases of prompt and answer that are one ordinary token each: a prompt then takes few tokens."""
    blank = dict.fromkeys(("instruction", "response", "reference_answer", "criteria"), "\0")
    levels = [f"\0{i}" for i in range(5)]
    item = Item.from_row({"id": "0", "images": ["x"], **blank, "descriptions": levels})
    found = []
    for reference in ("\0", None):
        rendered = TEMPLATE.render(Item(**{**vars(item), "reference_answer": reference}))
        for part in rendered.parts:
            if isinstance(part, str):
                pieces = part.replace(
                    TEMPLATE.conversation.closing, f"\0{TEMPLATE.conversation.closing}"
                ).split("\0")
                found += [
                    piece.lstrip("01234").rstrip(" ") if piece != rendered.parts[0] else piece
                    for piece in pieces
                ]
    found += [" So the overall score is", TEMPLATE.marker]
    return [piece for piece in dict.fromkeys(found) if len(piece) > 1]


def make_tokenizer(n_cases: int = 3_000) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE on Scenes' own words; a word with its leading space becomes one token."""

    def corpus() -> Iterator[str]:
        for index in range(n_cases):
            for row in scenes.scene_rows("train", index)[1]:
                yield " ".join([row["instruction"], row["criteria"], *row["descriptions"]])
                yield "\n".join([row["criteria"], *row["descriptions"], row["instruction"]])
                target = prompts.target(row["feedback"], int(row["gold"]))
                yield f"{row['response']}\n {target} {row['reference_answer'] or ''}"

    tokenizer = Tokenizer(models.BPE())
    words = r" ?\([0-9]\)| ?[A-Za-z]+(?:-[A-Za-z]+)*| ?[0-9]| ?[^\sA-Za-z0-9]+|\s"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4_000,
        min_frequency=20,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_tokens(
        [AddedToken(phrase, special=False, normalized=False) for phrase in phrases()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<image>"],
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        # Prometheus-Vision's conversation, for whoever serves the folder; nothing here learns from it.
        chat_template=CHAT_TEMPLATE.read_text(),
    )


def image_token(tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the id that holds an image's place."""
    return int(tokenizer.get_vocab()["<image>"])
