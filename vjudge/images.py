"""Open any image safely, and show it.

What comes out is what a viewer would see, in RGB of eight bits: turned as its EXIF tag says, transparent parts on
white, 16-bit values scaled. On opaque, upright 8-bit images it is to the bit what the original LLaVA loader's
`Image.open(file).convert("RGB")` gives, which elsewhere ignores or clips these. Nothing is fetched from a network.

A file of more than `MAX_BYTES` is refused without being read, a picture of more than `MAX_PIXELS` without being
decoded. At that limit decoding takes two or three pictures of four bytes a pixel besides the file: 0.5 to 0.8 GB.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from vjudge.names import public

__all__ = ["MAX_BYTES", "MAX_PIXELS", "ImageError", "Picture", "Pictures"]
__all__ += ["data_uri", "fingerprint", "image_bytes", "open_image", "pad_to_square", "picture", "thumbnail"]
__dir__ = public(__name__)

MAX_PIXELS = 2**26
"""The largest picture that is decoded, 67 million pixels: 0.27 GB."""
MAX_BYTES = 2**28
"""The largest file that is read, 268 MB: an uncompressed picture at the limit of pixels has 201."""

_ORIENTATION = 0x0112  # EXIF's tag; what shows a picture as its values 2 to 8 ask for
_TURNS = dict(zip(range(2, 9), map(Image.Transpose, (0, 3, 1, 5, 4, 6, 2)), strict=True))
_EXIF_MARKS = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")  # where a PNG may say its orientation
_FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")


class ImageError(ValueError):
    """An image cannot be opened; the message says why and what to do."""


def open_image(source: Any) -> Image.Image:
    """Open and fully decode an image.

    Args:
        source: a path, the bytes of a file, a `data:` URI, a PIL image, the {"bytes", "path"} dict of the datasets
            library, or a NumPy array (height, width[, 1, 3 or 4 channels]) of bool, uint8, uint16 or floats in 0-1.

    Returns:
        A new RGB image, independent of the file; of a PIL image the frame that it stands at.

    Raises:
        ImageError: missing, broken, too large, of an unknown kind, or with values of unknown scale.

    >>> open_image(np.zeros((2, 3), bool)).size
    (3, 2)
    """
    return source.open() if isinstance(source, Picture) else _decode(source, _content(source))


class Picture:
    """One image of a call: known by its content, and opened when it is needed.

    Args:
        source: what `open_image` opens. A file is read once, here; its header and checksums are checked, its pixels
            are not decoded. Raises ImageError as `open_image`, as far as these tell.

    Attributes:
        key: equal for equal files; for a source without a file, for equal pixels.
        size: (width, height) in pixels, as `open_image` gives it.
    """

    def __init__(self, source: Any) -> None:
        self.source, content = source, _content(source)
        self.data: bytes | None = None  # of a file on disk, while they are held
        if isinstance(content, bytes):
            self.size, self.key = _checked_size(source, content), _digest(content)
            self.data = None if _path(source) is None else content
        else:
            image = _decode(source, content)
            self.size, self.key = image.size, f"pixels:{fingerprint(image)}"

    def open(self) -> Image.Image:
        """The image as `open_image` gives it; ImageError also for a file that has changed since it was first read."""
        content = self.data or _content(self.source)
        if isinstance(content, bytes) and content is not self.data and _digest(content) != self.key:
            raise ImageError(f"{_name(self.source)} has changed since it was first read; start again")
        return _decode(self.source, content)


class Pictures:
    """The images of a call, each distinct file looked at once: `pictures(source)` gives its `Picture`.

    A file is opened once while its bytes fit `keep_bytes` in all, and beyond it a second time to be decoded.
    """

    def __init__(self, *, keep_bytes: int = 2**28) -> None:
        self._room = keep_bytes
        self._looks: dict[str, Picture | ImageError] = {}

    def __call__(self, source: Any) -> Picture:
        """The picture of a source, or the error that it gave before; errors as in `Picture`."""
        if isinstance(source, Picture):
            return source
        inner = _inner(source)
        if not isinstance(inner, (str, os.PathLike, bytes, bytearray, memoryview)):
            return Picture(source)
        name = os.fspath(inner) if isinstance(inner, (str, os.PathLike)) else _digest(inner)
        if name not in self._looks:
            try:
                look = self._looks[name] = Picture(source)
                look.source = None  # bytes in memory are their owner's to hold
                look.data = look.data if len(look.data or b"") <= self._room else None
                self._room -= len(look.data or b"")
            except ImageError as error:
                self._looks[name] = error
        if isinstance(outcome := self._looks[name], ImageError):
            raise ImageError(str(outcome))
        own = copy.copy(outcome)
        own.source = source
        return own


def picture(source: Any) -> Picture:
    """The `Picture` of any source that `open_image` opens; a picture is itself."""
    return source if isinstance(source, Picture) else Picture(source)


def pad_to_square(image: Image.Image, colour: tuple[int, ...]) -> Image.Image:
    """Put an RGB image in the middle of a square of a colour; a square image is itself.

    A square of more than `MAX_PIXELS` is made of the image reduced by the smallest whole factor that fits, which no
    reader of a few hundred pixels sees.

    >>> pad_to_square(Image.new("RGB", (60_000, 1)), (0, 0, 0)).size
    (7500, 7500)
    """
    if image.width == image.height:
        return image
    factor = math.ceil(max(image.size) / math.isqrt(MAX_PIXELS))
    small = image if factor == 1 else image.reduce(factor)
    side = max(small.size)
    square = Image.new("RGB", (side, side), colour)
    square.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
    return square


def thumbnail(image: Image.Image, *, size: int = 256) -> Image.Image:
    """A copy for display, at most `size` pixels on its longer side and never enlarged."""
    small = image.copy()
    small.thumbnail((size, size), Image.Resampling.LANCZOS, reducing_gap=3.0)
    return small


def data_uri(image: Image.Image, *, format: str = "png", size: int | None = None) -> str:
    """An RGB image as a `data:` URI for HTML or a chat API.

    Args:
        format: "png" (exact) or "jpeg" (smaller); ValueError for another.
        size: the longer side in pixels at most; None keeps the image as it is.
    """
    if format not in ("png", "jpeg"):
        raise ValueError(f'format is {format!r}; use "png" or "jpeg"')
    buffer = io.BytesIO()
    (image if size is None else thumbnail(image, size=size)).save(buffer, format, quality=85)
    return f"data:image/{format};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def fingerprint(image: Image.Image) -> str:
    """SHA-256 (hex) over mode, size and decoded pixels: equal for equal pictures, whatever file they came in."""
    header = f"{image.mode} {image.width}x{image.height} ".encode()
    return hashlib.sha256(header + image.tobytes()).hexdigest()


def image_bytes(uri: str) -> bytes:
    """The file inside a base64 `data:` URI; ImageError where it is no base64, or too large."""
    header, comma, payload = uri.partition(",")
    _check_length(uri, len(payload) * 3 // 4)
    try:
        if not comma or not header.endswith(";base64"):
            raise ValueError("no ;base64 part")
        return base64.b64decode(payload, validate=True)
    except ValueError as error:
        raise ImageError(f"{_name(uri)} is not a base64 data URI ({error}); encode the file with base64") from error


def _content(source: Any) -> bytes | Image.Image:
    """The bytes of the file behind a source, or the image that it is."""
    inner = _inner(source)
    if isinstance(inner, Image.Image):
        return inner
    if isinstance(inner, np.ndarray):
        return Image.fromarray(_eight_bits(inner))
    if isinstance(inner, (bytes, bytearray, memoryview)):
        _check_length(source, len(inner))
        return bytes(inner)
    if isinstance(inner, str) and inner.startswith("data:"):
        return image_bytes(inner)
    if isinstance(inner, str) and "://" in inner:
        raise ImageError(f"{_name(inner)} is a URL; download it and give the local path")
    if isinstance(inner, (str, os.PathLike)):
        if not os.path.isfile(inner):
            raise ImageError(f"{_name(source)} does not exist or is not a file; correct the path")
        try:
            with open(inner, "rb") as file:
                _check_length(source, os.fstat(file.fileno()).st_size)
                return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ImageError(f"{_name(source)} cannot be read ({error.strerror}); correct the path") from error
    if isinstance(source, Mapping) and inner is None:
        raise ImageError("the image holds neither bytes nor a path; give one of them")
    raise ImageError(f"an image cannot be a {type(inner).__name__}; give a path, bytes, a data URI or a PIL image")


@contextmanager
def _damage(source: Any, what: str) -> Iterator[None]:
    """Decoders of hostile files raise nearly anything; a reader learns which image it was."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(f"{_name(source)} {what} ({str(error) or type(error).__name__}); replace the file") from error


def _decode(source: Any, content: bytes | Image.Image) -> Image.Image:
    """An image decoded, turned and in RGB."""
    with _damage(source, "cannot be decoded"):
        image = _open(source, content)
        image.load()
        turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
        rgb = _to_rgb(image)
        del image  # one copy fewer while a picture is turned
        return rgb if turn is None else rgb.transpose(turn)


def _checked_size(source: Any, data: bytes) -> tuple[int, int]:
    """The size of a file's image once it is turned, from a header and checksums that hold."""
    with _damage(source, "is damaged"):
        image = _open(source, data)
        width, height = image.size
        # Pillow decodes a PNG to look for a tag behind its pixels, and gives the size of a TIFF as it will be.
        says = image.format != "TIFF" and (image.format != "PNG" or any(mark in data for mark in _EXIF_MARKS))
        lies = says and image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
        _open(source, data).verify()
        return (height, width) if lies else (width, height)


def _open(source: Any, content: bytes | Image.Image) -> Image.Image:
    """The image, not yet decoded, after the size check."""
    if isinstance(content, bytes):
        Image.init()
        formats = [name for name in _FORMATS if name in Image.OPEN]  # that this build of Pillow can read
        try:
            content = Image.open(io.BytesIO(content), formats=formats)
        except UnidentifiedImageError as error:
            kinds = ", ".join(_FORMATS)
            raise ImageError(f"{_name(source)} is not an image of a known format ({kinds}); convert it") from error
    width, height = content.size
    if not 0 < width * height <= MAX_PIXELS:
        limit = f"more than the limit of {MAX_PIXELS:,}; shrink it" if width * height else "none; replace it"
        raise ImageError(f"{_name(source)} has {width} x {height} pixels, {limit}")
    return content


def _check_length(source: Any, length: int) -> None:
    if length > MAX_BYTES:
        raise ImageError(f"{_name(source)} has {length:,} bytes, more than the limit of {MAX_BYTES:,}; shrink it")


def _to_rgb(image: Image.Image) -> Image.Image:
    """A new image in RGB; what Pillow's own conversion would get wrong is converted here."""
    if image.mode[0] in "IF":  # Pillow clips these at 255 instead of scaling them
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")  # a copy, where it is RGB already
    if image.mode == "La":  # Pillow knows no other way out of it
        image = image.convert("LA")
    image = image.convert("RGBA") if image.mode != "RGBA" else image
    rgb = Image.new("RGB", image.size, "white")
    rgb.paste(image, mask=image)
    return rgb


def _eight_bits(array: np.ndarray) -> np.ndarray:
    """Scale an array to uint8; only where the meaning of its values is certain."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and not (array.ndim == 3 and array.shape[2] in (3, 4)):
        raise ImageError(f"an array of shape {array.shape} is not an image; use (height, width[, 1, 3 or 4])")
    if array.dtype == np.uint8:
        return array
    kind, low, high = array.dtype.kind, array.min(), array.max()
    if kind in "bf" and 0 <= low and high <= 1:
        return np.rint(array * 255).astype(np.uint8)
    if kind in "iu" and 0 <= low and high <= 65535 and (array.dtype.str[1:] == "u2" or not 0 < high <= 255):
        wide = array.astype(np.uint16)
        return (wide // 257 + (wide % 257 > 128)).astype(np.uint8)
    raise ImageError(
        f"an image of {array.dtype} values from {low} to {high} has no certain scale; use 8 bits, 16, or floats in 0-1"
    )


def _inner(source: Any) -> Any:
    """What a {"bytes", "path"} dict holds; any other source is itself."""
    if isinstance(source, Mapping):
        return _inner(source.get("path") if source.get("bytes") is None else source["bytes"])
    return source


def _path(source: Any) -> str | None:
    """The path of a source that is a file on disk; None for any other."""
    inner = _inner(source)
    is_path = isinstance(inner, os.PathLike) or (isinstance(inner, str) and not inner.startswith("data:"))
    return os.fspath(inner) if is_path else None


def _digest(data: bytes | bytearray | memoryview) -> str:
    return f"file:{hashlib.sha256(data).hexdigest()}"


def _name(source: Any) -> str:
    """A short description of a source for an error message."""
    if isinstance(source, Mapping) and source.get("path"):
        return _name(source["path"])
    if isinstance(source, str) and source.startswith("data:"):
        return f"the data URI {source[:40]!r}"
    if not isinstance(source, (str, os.PathLike)):
        return "the image"
    path = os.fspath(source)
    return f"the image {path if len(path) <= 300 else path[:60] + '…'!r}"
