"""Find out what a server does before a call's first prompt: does it write the judge's own prompt,
and does it continue an answer?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from vjudge.engines.client import Unanswered
from vjudge.engines.engine import Ask, Texts, check_images
from vjudge.engines.progress import say
from vjudge.engines.tokens import ScoreTokens, Stem
from vjudge.images import data_uri
from vjudge.prompts import IMAGE, Prompt
from vjudge.prompts.conversation import Reply
from vjudge.records import is_int_at_least

if TYPE_CHECKING:
    from vjudge.engines.server import ServerEngine

ImagePart = Mapping[str, Any]  # the part of a message that holds an image
BLANK: ImagePart = {"image_url": {"url": data_uri(Image.new("RGB", (64, 64), "white"))}}
"""A white square, which stands for any image."""
LISTED = 20  # how many tokens' log-probabilities a request may ask for at each token of a reply
IMAGE_ID = -1  # stands for an image among token ids


class ServerError(RuntimeError):
    """The server can't be used as asked; the message says why and what to do."""


class Job(NamedTuple):
    """One prompt of a call."""

    row: int
    prompt: Prompt
    images: Sequence[Any]  # as `vjudge.images.picture` takes them


class Turn(NamedTuple):
    """One prompt of a call as it is sent."""

    row: int
    prompt: Prompt
    images: Sequence[ImagePart]


class ServedScale(NamedTuple):
    """A scale in a server's own tokens."""

    scale: ScoreTokens
    text_before: dict[Stem, str]  # stem -> the text it is read after, from the marker on


class Handshake:
    """Find out what a server can do in a call.

    Args:
        tokenize: sends a request to `/tokenize` and returns the reply; Unanswered if there is none.
        engine: the engine of the call.
        ask: the options of the call.
        jobs: the prompts of the call, at least one.

    Attributes:
        context: the tokens of the model's context; 0 where the server shows no tokens.
        continues: whether the server continues an answer token for token, so that distributions
            can be read after it.

    Raises:
        ServerError: the server writes another prompt than the judge's own, or can't do what score
            mode needs.
    """

    def __init__(
        self,
        tokenize: Callable[[dict[str, Any]], dict[str, Any]],
        engine: ServerEngine,
        ask: Ask,
        jobs: Sequence[Job],
    ) -> None:
        self.tokenize = tokenize
        self.name = repr(engine)
        self.conversation = engine.conversation
        self.ask = ask
        self.context = 0
        self.continues = False
        self.scales: dict[Any, ServedScale | None] = {}  # marker and texts -> the scale
        self.encode = cache(self._encode)  # the same texts are asked for many times
        # 1) does the server show its tokens at all? Any text serves to find out
        try:
            self.encode("###")
        except Unanswered as error:
            if ask.is_score_pass:
                raise ServerError(
                    f"{self.name}: score mode needs a server that shows its tokens (/tokenize) and"
                    f' continues an answer, such as vLLM\'s ({error}); use mode="feedback"'
                ) from None
            if self.conversation is not None:
                say(f"{self.name} shows no tokens: its prompt is not compared with the judge's own")
            return
        # 2) tokenize each scale now, so that one that can't be read is an error before the first
        # prompt; `scale` keeps them
        markers = [ask.marker] if ask.closing is None else [ask.marker, ask.closing.marker]
        for marker, job in itertools.product(markers, jobs):
            self.scale(marker, ask.scale(job.row))
        # 3) does it write the judge's own prompt, and continue an answer?
        self._compare(jobs)

    def _compare(self, jobs: Sequence[Job]) -> None:
        """Compare the server's prompts and continued answers with the judge's own; set `continues`.

        The text around a prompt depends on its number of images and its system prompt, so that one
        prompt is compared for each combination of the two.

        Raises:
            ServerError: the server writes another prompt, or can't do what score mode needs.
        """
        ask = self.ask
        prompts = {(job.prompt.n_images, job.prompt.system): job.prompt for job in jobs}.values()
        if self.conversation and not all(self._agrees(prompt, "") for prompt in prompts):
            raise ServerError(
                f"{self.name} does not write the judge's own prompt, token for token. Start it with"
                " the judge's own chat template (--chat-template); conversation=None asks in the"
                " server's own words"
            )
        # The text in front of the scores: a score pass reads right after the marker, other calls
        # read after an answer and the marker.
        beginning = f"It is so.\n{ask.marker}"
        served = self.scale(ask.marker, ask.scale(jobs[0].row))
        if ask.is_score_pass and served:
            beginning = served.text_before[()]
        self.continues = all(self._agrees(prompt, beginning) for prompt in prompts)
        if ask.is_score_pass and (not self.continues or None in self.scales.values()):
            raise ServerError(
                f"{self.name} does not continue an answer that is begun, token for token, or its"
                ' tokens do not tell the scores apart, which score mode needs; use mode="feedback"'
            )

    def scale(self, marker: str, texts: Texts) -> ServedScale | None:
        """Return a scale in the server's tokens; None if its distribution can't be read by tokens.

        Args:
            marker: the text before every score.
            texts: score -> its text after the marker; empty for a row without a scale.

        Raises:
            ValueError: two scores are the same tokens.
        """
        if not texts or not self.context:
            return None
        key = (marker, *texts.items())
        if key not in self.scales:
            self.scales[key] = self._served(marker, texts)
        return self.scales[key]

    def first_tokens(self, row: int) -> list[int] | None:
        """Return the tokens whose log-probabilities are requested while an answer is written.

        Returns:
            The tokens that tell the scores apart. An empty list where the server shows no tokens,
            and the scores are recognised by their texts. None where the first token does not tell
            the scores apart, so that nothing is requested.
        """
        texts = self.ask.scale(row)
        served = self.scale(self.ask.marker, texts)
        if served is not None and served.scale.first_token_decides:
            return served.scale.next_tokens[()]
        # Without the server's tokens, the first letter of each score stands for its first token.
        # Scores such as "1" and "10" have the same one, and are not told apart.
        first_letters = {text.strip()[:1] for text in texts.values()}
        if served is None and texts and len(first_letters) == len(texts):
            return []
        return None

    def _served(self, marker: str, texts: Texts) -> ServedScale | None:
        """Tokenize a scale; return None if its distribution can't be read after texts.

        A server continues texts, not tokens. So each stem needs a text whose tokens end in it: for
        the stem of "1" in a scale from 1 to 10, the text "[RESULT] 1".
        """
        scale = ScoreTokens.read(marker, texts, self.encode)
        if len(scale.next_tokens[()]) > LISTED:  # no reply lists all of them
            return None
        text_of_tokens = {}
        # The texts that a score may be read after, by their tokens: the marker and the beginning
        # of a score's text. A full stop and a new line come before it, as in `ScoreTokens.read`.
        for text in texts.values():
            for length in range(len(text)):
                beginning = marker + text[:length]
                text_of_tokens[tuple(self.encode(f".\n{beginning}"))] = beginning
        try:
            text_before = {
                stem: text_of_tokens[scale.common_start + stem] for stem in scale.next_tokens
            }
        except KeyError:  # no text ends in the tokens of a stem
            return None
        return ServedScale(scale, text_before)

    def _agrees(self, prompt: Prompt, beginning: str) -> bool:
        """Tell whether the server writes a prompt, and the beginning of its answer, as it should.

        With the judge's own conversation, all tokens are compared. Without one, only the beginning
        of the answer is: it has to follow the tokens that the server writes for the prompt alone.

        The server may put any number of tokens for an image. They are left out of the comparison:

            expected  A : -1       B      IMAGE_ID at the image
            written   A : 9 9 9 9  B      9 is what the server has at that place
            compared  A :          B
        """
        blanks = [BLANK] * prompt.n_images
        written = self._tokens(messages(Turn(0, prompt, blanks), beginning))
        if self.conversation is None:  # what the server writes itself is right
            prompt_tokens = self._tokens(messages(Turn(0, prompt, blanks)))
            return written == [*prompt_tokens, *self.encode(beginning)]
        expected = self._expected(prompt, beginning)
        image_ids = [IMAGE_ID]
        if IMAGE_ID in expected:
            position = expected.index(IMAGE_ID)
            image_ids += written[position : position + 1]
        expected_text = [token for token in expected if token not in image_ids]
        return expected_text == [token for token in written if token not in image_ids]

    def _expected(self, prompt: Prompt, beginning: str) -> list[int]:
        """Return the tokens of a prompt and its answer's beginning, as the judge was trained.

        IMAGE_ID stands for each image.

        Args:
            prompt: the turns, without the conversation's fixed text.
            beginning: the beginning of the answer; "" for none.
        """
        assert self.conversation is not None
        # 1) the conversation; it puts a separator after an image that stands before its turn's text
        pieces: list[Any] = []
        is_before_text = True
        for piece in prompt.parts:
            if piece is IMAGE and is_before_text:
                pieces += [IMAGE, self.conversation.behind_image]
            else:
                pieces.append(piece)
                is_before_text = isinstance(piece, Reply)  # the next turn begins
        conversation = self.conversation.ask(pieces)
        if beginning:
            conversation = conversation.append(self.conversation.reply + beginning)
        # 2) its tokens, after those that the tokenizer puts before any text
        tokens = self._tokens({"prompt": "", "add_special_tokens": True})
        for piece in conversation.parts:
            tokens += [IMAGE_ID] if piece is IMAGE else self.encode(str(piece))
        return tokens

    def _encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without those that the tokenizer adds itself."""
        return self._tokens({"prompt": text, "add_special_tokens": False})

    def _tokens(self, request: dict[str, Any]) -> list[int]:
        """Return the server's tokens of a request's prompt; set `context` by the reply.

        Raises:
            Unanswered: the server shows no tokens.
        """
        reply = self.tokenize(request)
        tokens = reply.get("tokens")
        context: Any = reply.get("max_model_len")
        if not isinstance(tokens, list) or not is_int_at_least(context, 1):
            raise Unanswered("it tells no tokens, or not how many it takes")
        if not all(type(token) is int for token in tokens):
            raise Unanswered("its tokens are no numbers")
        self.context = context
        return tokens


def messages(turn: Turn, beginning: str = "") -> dict[str, Any]:
    """Return the fields of a chat request that hold a prompt, its images and how the answer begins.

    Args:
        turn: the prompt, and its images as parts of a message.
        beginning: what the server is to continue; "" lets it begin the answer.
    """
    check_images(turn.prompt, turn.images)
    written = turn.prompt.messages()
    images = iter(turn.images)
    for message in written:
        content = message["content"]
        if len(content) == 1 and "text" in content[0]:
            message["content"] = content[0]["text"]  # a plain string, which every server takes
            continue
        for entry in content:
            if entry["type"] == "image":
                entry |= {"type": "image_url", **next(images)}
    if not beginning:
        return {"messages": written}
    written.append({"role": "assistant", "content": beginning})
    return {"messages": written, "add_generation_prompt": False, "continue_final_message": True}
