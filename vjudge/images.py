"""Open any image safely, and show it.

An opened image is what a viewer shows, in RGB of eight bits: turned as its EXIF tag says, with
transparent parts on white and 16-bit values scaled. Any other image is equal, to the bit, to what
the original LLaVA loader makes of it (`Image.open(file).convert("RGB")`). A file of more than
`MAX_BYTES` is refused before it is read, an image of more than `MAX_PIXELS` before it is decoded.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

MAX_PIXELS = 2**26  # pixels of an image that is decoded: 67 million, 0.27 GB at 4 bytes a pixel
MAX_BYTES = 2**28  # bytes of a file that is read: 268 MB; MAX_PIXELS in uncompressed RGB are 201 MB

FILE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
ORIENTATION = 0x0112  # an EXIF tag: how to turn or mirror the image, 1 for not at all, up to 8
MAX_SAMPLE_VALUE = 281  # a TIFF tag: the value of white, such as 4095 where 16 bits store 12
SENT = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png", "WEBP": "webp"}
"""Pillow's name of a format that servers read -> the name in a `data:` URI.

An MPO file is a JPEG with further images behind the first one, which a server ignores.
"""
TRIES = ((95, 1), (85, 1), (75, 1), (60, 1), (85, 0.7), (85, 0.5), (85, 0.3), (85, 0.1))
"""The attempts to re-encode an image that is too large, in their order: (the quality of JPEG and
WebP in percent, the factor by which both sides are multiplied)."""


ImageSource: TypeAlias = "str | os.PathLike | bytes | Mapping | np.ndarray | Image.Image | Picture"
"""What `open_image` opens; anything else is an `ImageError`."""


class ImageError(ValueError):
    """An image cannot be opened; the message says why and what to do."""


def open_image(source: object) -> Image.Image:
    """Open and fully decode an image, as a new one in RGB.

    Args:
        source: a path, the bytes of a file, a `data:` URI, a PIL image (its present frame), a
            `Picture`, the {"bytes", "path"} dict of the datasets library, or an array
            (height, width[, 1, 3 or 4 channels]) of bool, uint8, uint16 or floats from 0 to 1.

    Raises:
        ImageError: the source is missing, broken, too large or of an unknown type, or its pixel
            values have no certain scale.
    """
    if isinstance(source, Picture):
        return source.open()
    return _decode(*_content(source))


class Encoded(NamedTuple):
    """An image as the file that a server is sent."""

    data: bytes
    format: str  # "jpeg", "png" or "webp"
    change: str = ""  # what `format` or `max_bytes` changed, in words; "" for nothing

    @property
    def uri(self) -> str:
        """The file as a `data:` URI."""
        return f"data:image/{self.format};base64,{base64.b64encode(self.data).decode()}"


class Picture:
    """One image of a call, identified by its content and opened when it is needed.

    Attributes:
        source: what the image was made of, any source of `open_image`.
        size: (width, height) of the image that `open` returns.
        key: a digest of the file's bytes, or of the pixels where the source is no file.

    Raises:
        ImageError: the file's header or checksums are broken, or the image cannot be opened.
    """

    def __init__(self, source: object) -> None:
        content, name = _content(source)
        self.source = source
        if isinstance(content, bytes):  # a file's pixels are not decoded yet
            self.size = _size(content, name)
            self.key = hashlib.sha256(content).hexdigest()
        else:
            image = _decode(content, name)
            self.size = image.size
            self.key = f"pixels:{pixel_digest(image)}"

    def open(self) -> Image.Image:
        """Open the image as `open_image` does.

        Raises:
            ImageError: the file has changed since this picture was made.
        """
        return _decode(*self._unchanged())

    def encoded(self, format: str | None = None, max_bytes: int | None = None) -> Encoded:
        """Encode the image as a file for a server.

        A JPEG, PNG or WebP file that holds what a viewer shows is sent as it is, its metadata
        included; anything else as PNG, without loss.

        Args:
            format: "jpeg", "png" or "webp", in which files of another format are re-encoded; None
                for the file's own format, or PNG.
            max_bytes: a larger file is re-encoded by the attempts of `TRIES`, as "jpeg" where
                `format` is None; None for no limit.

        Raises:
            ImageError: the image cannot be opened, or cannot be made so small.
        """
        content, name = self._unchanged()
        image = _decode(content, name)
        limit = math.inf if max_bytes is None else max_bytes
        # 1) the file itself, or the same pixels
        if isinstance(content, bytes) and len(content) <= limit:
            stored = _format_as_shown(content, name)
            if stored and format in (None, stored):
                return Encoded(content, stored)
        if format is None:
            exact = _file(image, "png")
            if len(exact) <= limit:
                return Encoded(exact, "png")
        # 2) other pixels: in lower quality, then in smaller sizes
        format = format or "jpeg"
        for quality, factor in TRIES:
            if format == "png" and factor == 1 and quality < TRIES[0][0]:
                continue  # a PNG has no quality: it would be the first attempt's file again
            small = thumbnail(image, size=math.ceil(factor * max(image.size)))
            data = _file(small, format, quality)
            if len(data) <= limit:
                reduced = "" if factor == 1 else " and reduced"
                return Encoded(data, format, f"re-encoded as {format}{reduced}")
        raise ImageError(f"{name} has more than {limit:,} bytes at any size; raise the limit")

    def _unchanged(self) -> tuple[bytes | Image.Image, str]:
        """Return what `_content` returns for the source, which is read again.

        Raises:
            ImageError: the file has changed since this picture was made.
        """
        content, name = _content(self.source)
        if isinstance(content, bytes) and hashlib.sha256(content).hexdigest() != self.key:
            raise ImageError(f"{name} has changed since it was first read; start again")
        return content, name

    def __reduce__(self) -> tuple:
        """Pickle the file's bytes, not its path, so that another machine can open the picture."""
        content, _ = _content(self.source)
        return Picture, (content,)


class Pictures:
    """A cache of the pictures of one call, so that a file that stands in many rows is read once."""

    def __init__(self) -> None:
        self._pictures: dict[str, Picture] = {}

    def __call__(self, source: object) -> Picture:
        """Return a source's `Picture`; only those of paths are cached."""
        if not isinstance(source, str | os.PathLike):
            return picture(source)
        path = os.fspath(source)
        if path not in self._pictures:
            self._pictures[path] = Picture(path)
        return self._pictures[path]


def picture(source: object) -> Picture:
    """Return the `Picture` of any source that `open_image` opens."""
    return source if isinstance(source, Picture) else Picture(source)


def pad_to_square(image: Image.Image, colour: tuple) -> Image.Image:
    """Put an RGB image in the middle of a square; reduce it if the square is over `MAX_PIXELS`."""
    # longest side / largest side allowed, rounded up: 1 keeps the image, 2 halves its sides, ...
    small = image.reduce(math.ceil(max(image.size) / math.isqrt(MAX_PIXELS)))
    side = max(small.size)
    square = Image.new("RGB", (side, side), colour)
    square.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
    return square


def thumbnail(image: Image.Image, *, size: int = 256) -> Image.Image:
    """Copy an image for display, at most `size` pixels on its longer side and never enlarged."""
    small = image.copy()
    small.thumbnail((size, size), Image.Resampling.LANCZOS)
    return small


def data_uri(image: Image.Image, *, format: str = "png") -> str:
    """Encode an RGB image as a `data:` URI: "png" (exact) or "jpeg" (smaller)."""
    return Encoded(_file(image, format), format).uri


def _file(image: Image.Image, format: str, quality: int = 85) -> bytes:
    """Encode an image as a file; `quality` (in percent) has no effect on a PNG."""
    buffer = io.BytesIO()
    image.save(buffer, format, quality=quality)
    return buffer.getvalue()


def pixel_digest(image: Image.Image) -> str:
    """Return the SHA-256 (hex) of an image's mode, size and pixels, equal for any file format."""
    header = f"{image.mode} {image.width}x{image.height} ".encode()
    return hashlib.sha256(header + image.tobytes()).hexdigest()


def image_bytes(uri: str) -> bytes:
    """Decode the file inside a base64 `data:` URI.

    Raises:
        ImageError: the URI is not base64.
    """
    _, _, payload = uri.partition(";base64,")
    try:
        return base64.b64decode(payload, validate=True)
    except ValueError as error:
        raise ImageError(
            f"{uri[:40]!r} is not a base64 data URI ({error}); encode the file with base64"
        ) from error


# --- reading a source


def _content(source: object) -> tuple[bytes | Image.Image, str]:
    """Read a source: the bytes of its file, or its pixels where it is decoded already.

    Returns:
        tuple: the bytes or the image, and the name of the image in error messages.

    Raises:
        ImageError: the file is missing, unreadable or too large, or the source is of an unknown
            type.
    """
    # 1) unpack the dict of the datasets library, whose bytes go before its path
    if isinstance(source, Mapping):
        data = source.get("bytes")
        source = source.get("path") if data is None else data
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    # 2) pixels that are decoded already
    name = "the image"
    if isinstance(source, Image.Image):
        return source, name
    if isinstance(source, np.ndarray):
        return Image.fromarray(_eight_bits(source)), name
    # 3) the bytes of a file
    if isinstance(source, str) and source.startswith("data:"):
        source = image_bytes(source)
    elif isinstance(source, str):
        name = f"the image {source[:300]!r}"
        source = _read_file(source, name)
    if not isinstance(source, bytes):
        kind = type(source).__name__
        raise ImageError(
            f"an image cannot be a {kind}; give a path, bytes, a data URI or a PIL image"
        )
    _check_length(name, len(source))
    return source, name


def _read_file(path: str, name: str) -> bytes:
    """Read a local file; refuse one that is a URL, missing, unreadable or too large."""
    if "://" in path:
        raise ImageError(f"{name} is a URL; download it and give the local path")
    if not os.path.isfile(path):
        raise ImageError(f"{name} does not exist or is not a file; correct the path")
    _check_length(name, os.path.getsize(path))
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ImageError(f"{name} cannot be read ({error.strerror}); correct the path") from error


def _check_length(name: str, length: int) -> None:
    """Refuse a file of more than `MAX_BYTES`."""
    if length > MAX_BYTES:
        raise ImageError(
            f"{name} has {length:,} bytes, more than the limit of {MAX_BYTES:,}; shrink it"
        )


# --- decoding


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Turn any error of a decoder into an `ImageError` that names the image.

    On a hostile file a decoder can raise an error of nearly any type.
    """
    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise ImageError(f"{name} is not an image of a known format; convert it") from error
    except Image.DecompressionBombError as error:  # beyond Pillow's own limit, which is higher
        raise ImageError(f"{name} has too many pixels ({error}); shrink it") from error
    except Exception as error:
        raise ImageError(f"{name} cannot be decoded ({error}); replace the file") from error


def _open(content: bytes | Image.Image, name: str) -> Image.Image:
    """Open an image, of a file only its header, and refuse one of more than `MAX_PIXELS`."""
    image = content
    if isinstance(image, bytes):
        image = Image.open(io.BytesIO(image), formats=FILE_FORMATS)
    width, height = image.size
    if not 0 < width * height <= MAX_PIXELS:
        raise ImageError(
            f"{name} has {width} x {height} pixels, none or more than the limit of"
            f" {MAX_PIXELS:,}; shrink it"
        )
    return image


def _size(content: bytes, name: str) -> tuple[int, int]:
    """Check a file's checksums, and return the size (width, height) of its image as opened."""
    with _named(name):
        _open(content, name).verify()
        image = _open(content, name)  # again: Pillow allows no use of an image after verify()
        # Orientations 5 to 8 are quarter turns, which swap the sides. Pillow turns a TIFF itself.
        if image.format != "TIFF" and image.getexif().get(ORIENTATION) in range(5, 9):
            return image.height, image.width
        return image.size


def _format_as_shown(content: bytes, name: str) -> str:
    """Return the format of a file that any server shows as a viewer does; else "".

    A file has to be re-encoded if it is turned, animated or transparent, or of a format that
    servers don't read: a server ignores orientation tags, takes any frame of an animation, and puts
    transparent parts on any colour.
    """
    with _named(name):
        image = _open(content, name)
        # orientations 2 to 8 mirror or turn; an MPO file's further images are no animation
        turned = image.getexif().get(ORIENTATION) in range(2, 9)
        animated = image.format != "MPO" and getattr(image, "n_frames", 1) > 1
        opaque = image.mode in ("1", "L", "P", "RGB") and not image.has_transparency_data
        if turned or animated or not opaque:
            return ""
        return SENT.get(str(image.format), "")


def _decode(content: bytes | Image.Image, name: str) -> Image.Image:
    """Decode an image as a new one in RGB; convert here the modes that Pillow gets wrong."""
    with _named(name):
        file = _open(content, name)
        image = ImageOps.exif_transpose(file)  # without the tags of `file`
        # Pillow clips the values of its modes "I", "I;16" and "F" at 255 instead of scaling them
        if image.mode[0] in "IF":
            # the tag has one value, or one per channel
            white = getattr(file, "tag_v2", {}).get(MAX_SAMPLE_VALUE, 65535)
            image = Image.fromarray(_eight_bits(np.asarray(image), np.max(white)))
        if not image.has_transparency_data:
            return image.convert("RGB")
        # transparent parts on white
        image = image.convert("RGBA")
        rgb = Image.new("RGB", image.size, "white")
        rgb.paste(image, mask=image)
        return rgb


def _eight_bits(array: np.ndarray, white: float = 65535) -> np.ndarray:
    """Scale the values of an array to uint8, and refuse values whose scale is not certain.

    Args:
        array: (height, width[, 1, 3 or 4 channels]).
        white: the value of white in an array of 16 bits. By default it is the highest value of 16
            bits; then 12-bit values stay dark, as a viewer shows them, and a warning says so.

    Returns:
        An array of shape (height, width[, 3 or 4 channels]).

    Raises:
        ImageError: the shape is not that of an image, or the scale is not certain.
    """
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and array.shape[2:] not in ((3,), (4,)):
        raise ImageError(
            f"an array of shape {array.shape} is not an image; use (height, width[, 1, 3 or 4])"
        )
    # 8 bits, bools or floats from 0 to 1, or 16 bits; any other scale would be a guess
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind in "bf" and 0 <= array.min() and array.max() <= 1:
        return np.rint(array * 255).astype(np.uint8)
    if array.dtype.kind == "u" and array.dtype.itemsize == 2:
        if white == 65535 and 255 < array.max() < 4096:
            warnings.warn(
                "a picture of 16 bits has no value from 4,096 on, and is read as dark as a viewer"
                " shows it: if it holds 12 bits, multiply its values by 16",
                stacklevel=2,
            )
        return np.rint(np.minimum(array, white) * (255 / white)).astype(np.uint8)
    raise ImageError(
        f"an image of {array.dtype} values has no certain scale; use 8 bits, 16, or floats in 0-1"
    )
