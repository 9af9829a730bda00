"""Images to features: each distinct image is encoded once a call, however many prompts share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import torch

from vjudge.engines.sharing import Sources
from vjudge.engines.vision import Size, vision_of
from vjudge.models import VisionLanguageModel
from vjudge.prompts import Prompt

ENCODED_TOGETHER = 16  # images; fixed by the plan, because the last bits of a feature depend on its company


class _HasImages(Protocol):
    @property
    def images(self) -> tuple[str, ...]: ...


Job = TypeVar("Job", bound=_HasImages)


class ImageFeatures:
    """The image features of one call, keyed by the fingerprint of the decoded pixels and bounded in bytes.

    Which images are encoded together is settled by `windows`, before anything is computed: an evicted image comes back
    with the same bits, and so does an image of a continued run.

    Args:
        model: whose vision tower and projector encode.
        sources: for each row what `open_image` opens; indexed when needed.
        limit_bytes: the most bytes of features to keep on the device between batches; one image is kept in any case.
        mode: how images are prepared, see `vision.Vision.modes`; None for the family's own way.

    Raises:
        ValueError: the family has no such mode.
    """

    def __init__(
        self,
        model: VisionLanguageModel,
        sources: Sequence[Sequence[Any]],
        limit_bytes: int,
        mode: str | None = None,
    ) -> None:
        self.model, self.sources, self.mode = model, Sources(sources), mode
        self.vision = vision_of(model.model, model.image_processor)
        if mode is not None and mode not in self.vision.modes:
            raise ValueError(f"image_mode {mode!r} is unknown to this judge; use one of {self.vision.modes}")
        hidden = model.model.config.get_text_config().hidden_size
        self.capacity = limit_bytes // (hidden * model.dtype.itemsize)  # tokens
        self.encoded = 0  # images encoded so far
        self._features: OrderedDict[str, torch.Tensor] = OrderedDict()
        self._held = 0  # tokens of the features that are kept
        self._broken: dict[str, str] = {}
        # While a GPU works, a thread prepares the images that come next.
        self._pins = model.device.type == "cuda"
        self._pool = ThreadPoolExecutor(1, "vjudge images") if model.device.type != "cpu" else None
        self._preparing: dict[tuple[str, ...], Future[Any]] = {}
        self._following: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._last: tuple[str, ...] = ()
        self._together: dict[str, tuple[str, ...]] = {}
        self._shape: dict[str, tuple[Size, str]] = {}  # an image's size and how it is prepared

    def register(self, row: int, sources: Sequence[Any]) -> tuple[str, ...]:
        """Look at the images of a row and return their fingerprints, marked with the mode where rows differ in it.

        Raises:
            ValueError, OSError: one can't be opened, or is too narrow to be resized.
        """
        keys = []
        mode = self.mode or self.vision.default_mode(len(sources))
        for number, source in enumerate(sources):
            print, size = self.sources.look(source)
            self.vision.check(size, mode)
            key = print if mode == self.vision.default_mode(1) else f"{mode}:{print}"
            self.sources.place.setdefault(key, (row, number))
            self._shape[key] = size, mode
            keys.append(key)
        return tuple(keys)

    @property
    def distinct(self) -> int:
        """How many images were registered, equal ones counted once."""
        return len(self.sources.place)

    def n_tokens(self, key: str) -> int:
        """How many places a registered image takes."""
        return self.vision.n_tokens(*self._shape[key])

    def place(self, prompt: Prompt, keys: Sequence[str]) -> tuple[Prompt, list[int]]:
        """A prompt as the encoder takes it, and how many places each of its images takes."""
        return prompt, [self.n_tokens(key) for key in keys]

    def windows(self, jobs: Iterable[Job]) -> list[list[Job]]:
        """Cut jobs into windows whose images fit in the cache together, with jobs of one image in one window."""
        by_image: dict[str, list[Job]] = {}
        for job in jobs:
            by_image.setdefault(job.images[0] if job.images else "", []).append(job)
        windows: list[list[Job]] = [[]]
        keys: dict[str, None] = {}
        held = 0  # tokens of the window's images: counted on, not over again for each group
        for group in by_image.values():
            needed = dict.fromkeys(key for job in group for key in job.images)
            fresh = sum(self.n_tokens(key) for key in needed if key not in keys)
            if keys and held + fresh > self.capacity:
                self._settle(keys)
                windows.append([])
                keys, held, fresh = {}, 0, sum(map(self.n_tokens, needed))
            keys |= needed
            held += fresh
            windows[-1] += group
        self._settle(keys)
        return windows

    def _settle(self, keys: Iterable[str]) -> None:
        """Fix which images of a window are encoded together."""
        fresh = [key for key in keys if key not in self._together]
        for start in range(0, len(fresh), ENCODED_TOGETHER):
            chunk = tuple(fresh[start : start + ENCODED_TOGETHER])
            self._together.update(dict.fromkeys(chunk, chunk))
            self._following[self._last], self._last = chunk, chunk

    def take(self, keys: Collection[str]) -> tuple[Mapping[str, torch.Tensor], dict[str, str]]:
        """The features of a batch's images, encoding those that are not kept, and dropping the longest unused.

        Returns:
            fingerprint -> features (tokens, hidden) on the model's device, and fingerprint -> why there are none.
        """
        for key in keys:
            if key not in self._features and key not in self._broken:
                self._encode(self._together[key])
        taken = {key: self._features[key] for key in keys if key in self._features}
        for key in taken:
            self._features.move_to_end(key)
        while self._held > self.capacity and len(self._features) > 1:
            self._held -= len(self._features.popitem(last=False)[1])
        return taken, {key: self._broken[key] for key in keys if key in self._broken}

    @torch.inference_mode()
    def _encode(self, keys: tuple[str, ...]) -> None:
        waiting = self._preparing.pop(keys, None)
        tiles, sizes, broken = waiting.result() if waiting else self._prepare(keys)
        self._broken |= broken
        if (following := self._following.get(keys)) and self._pool and following not in self._preparing:
            self._preparing[following] = self._pool.submit(self._prepare, following)
        for mode in dict.fromkeys(self._shape[key][1] for key in tiles):
            names = [key for key in tiles if self._shape[key][1] == mode]
            features = self.vision.features([tiles[name] for name in names], [sizes[name] for name in names], mode)
            for name, feature in zip(names, features, strict=True):
                if len(feature) != self.n_tokens(name):
                    raise ValueError(
                        f"the vision tower gave {len(feature)} tokens an image and the prompt holds"
                        f" {self.n_tokens(name)}: image size and patch size of the checkpoint disagree"
                    )
                self._held += len(feature) * (name not in self._features)
                self._features[name] = feature.clone()  # its own memory, so that dropping it frees it
            self.encoded += len(names)

    def _prepare(self, keys: Sequence[str]) -> tuple[dict[str, torch.Tensor], dict[str, Size], dict[str, str]]:
        """Pixels and sizes of images, and why there are none: the part of encoding that a GPU need not wait for."""
        images, broken = self.sources.open(keys)
        tiles: dict[str, torch.Tensor] = {}
        for mode in dict.fromkeys(self._shape[key][1] for key in images):
            names = [key for key in images if self._shape[key][1] == mode]
            made = self.vision.tiles([images[name] for name in names], mode)
            tiles |= {name: each.pin_memory() if self._pins else each for name, each in zip(names, made, strict=True)}
        return tiles, {key: image.size for key, image in images.items()}, broken
