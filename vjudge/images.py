"""Open any image safely, and show it.

An opened image is what a viewer shows, in RGB of eight bits: turned as its EXIF tag says,
transparent parts on white, 16-bit values scaled; else equal, to the bit, to the original LLaVA
loader's `Image.open(file).convert("RGB")`. More than `MAX_BYTES` is refused unread, more than
`MAX_PIXELS` undecoded.
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

MAX_PIXELS = 2**26  # of a picture that is decoded: 67 million, 0.27 GB
MAX_BYTES = 2**28  # of a file that is read, 268 MB: an uncompressed picture of so many has 201

FILE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
ORIENTATION = 0x0112  # EXIF's tag
MAX_SAMPLE_VALUE = 281  # TIFF's tag: 4095 of 12 bits in 16
SENT = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png", "WEBP": "webp"}
"""Formats that servers read, by Pillow's names; a server reads the first picture of an MPO file."""
TRIES = ((95, 1), (85, 1), (75, 1), (60, 1), (85, 0.7), (85, 0.5), (85, 0.3), (85, 0.1))
"""How a picture that is too large is re-encoded, one way after the other: the quality of JPEG and
WebP, and by what the sides are multiplied."""


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
        ImageError: missing, broken, too large, of an unknown kind, or values of unknown scale.
    """
    if isinstance(source, Picture):
        return source.open()
    return _decode(*_content(source))


class Encoded(NamedTuple):
    """A picture as the file that a server is sent."""

    data: bytes
    format: str  # "jpeg", "png" or "webp"
    change: str = ""  # how the options changed the picture

    @property
    def uri(self) -> str:
        """The file as a `data:` URI."""
        return f"data:image/{self.format};base64,{base64.b64encode(self.data).decode()}"


class Picture:
    """One image of a call, identified by its content and opened when it is needed.

    Attributes:
        source: what the image was made of.
        size: (width, height) as `open` gives it.
        key: equal for equal files, or for equal pixels where there is no file.

    Raises:
        ImageError: the file's header or checksums are broken, or the image cannot be opened.
    """

    def __init__(self, source: object) -> None:
        content, name = _content(source)
        self.source = source
        if isinstance(content, bytes):
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
            format: "jpeg", "png" or "webp": files of another format are re-encoded in it.
            max_bytes: a larger file is re-encoded, as "jpeg" where no format is named, in lower
                quality and then in smaller sizes.

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
        # 2) other pixels, in lower quality, then smaller ones
        format = format or "jpeg"
        for quality, share in TRIES:
            if format == "png" and share == 1 and quality < TRIES[0][0]:
                continue  # a PNG has no quality: it would be the same file again
            small = thumbnail(image, size=math.ceil(share * max(image.size)))
            data = _file(small, format, quality)
            if len(data) <= limit:
                reduced = "" if share == 1 else " and reduced"
                return Encoded(data, format, f"re-encoded as {format}{reduced}")
        raise ImageError(f"{name} has more than {limit:,} bytes at any size; raise the limit")

    def _unchanged(self) -> tuple[bytes | Image.Image, str]:
        """Read the source again, with its name; refuse a file that has changed."""
        content, name = _content(self.source)
        if isinstance(content, bytes) and hashlib.sha256(content).hexdigest() != self.key:
            raise ImageError(f"{name} has changed since it was first read; start again")
        return content, name

    def __reduce__(self) -> tuple:
        """Pickle the file's bytes, so that another machine can open the picture."""
        content, _ = _content(self.source)
        return Picture, (content,)


class Pictures:
    """The images of a call, of which each path is read once."""

    def __init__(self) -> None:
        self._pictures: dict[str, Picture] = {}

    def __call__(self, source: object) -> Picture:
        """Return a source's `Picture`."""
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
    """Encode an image as a file; a PNG has no quality."""
    buffer = io.BytesIO()
    image.save(buffer, format, quality=quality)
    return buffer.getvalue()


def pixel_digest(image: Image.Image) -> str:
    """Return the SHA-256 (hex) of mode, size and decoded pixels, whatever file they come from."""
    header = f"{image.mode} {image.width}x{image.height} ".encode()
    return hashlib.sha256(header + image.tobytes()).hexdigest()


def image_bytes(uri: str) -> bytes:
    """Decode the file inside a base64 `data:` URI.

    Raises:
        ImageError: it is not base64.
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
    """Read the bytes of a source's file, or the image that it is, and what errors call it."""
    # 1) unpack the dict of the datasets library, whose bytes go before its path
    if isinstance(source, Mapping):
        data = source.get("bytes")
        source = source.get("path") if data is None else data
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    # 2) what is decoded already
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
    """Read a local file that is not too large."""
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
    """Turn whatever a decoder raises into an `ImageError` that names the image.

    On a hostile file a decoder raises nearly anything.
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
    """Read a file's header, without its pixels, and refuse more than `MAX_PIXELS`."""
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
        image = _open(content, name)
        # Orientations 5 to 8 are quarter turns, which swap the sides. Pillow turns a TIFF itself.
        if image.format != "TIFF" and image.getexif().get(ORIENTATION) in range(5, 9):
            return image.height, image.width
        return image.size


def _format_as_shown(content: bytes, name: str) -> str:
    """Return the format of a file that shows as it is; "" if it has to be re-encoded.

    A server ignores orientation tags, takes any frame of a moving picture, and puts transparent
    parts on any colour.
    """
    with _named(name):
        image = _open(content, name)
        # orientations 2 to 8 mirror or turn; an MPO file's further pictures are previews
        turned = image.getexif().get(ORIENTATION) in range(2, 9)
        moving = image.format != "MPO" and getattr(image, "n_frames", 1) > 1
        opaque = image.mode in ("1", "L", "P", "RGB") and not image.has_transparency_data
        if turned or moving or not opaque:
            return ""
        return SENT.get(str(image.format), "")


def _decode(content: bytes | Image.Image, name: str) -> Image.Image:
    """Decode an image as a new one in RGB, and convert here what Pillow's conversion gets wrong."""
    with _named(name):
        file = _open(content, name)
        image = ImageOps.exif_transpose(file)
        if image.mode[0] in "IF":  # Pillow clips these at 255 instead of scaling them
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
        white: the highest value of 16 bits, where the file names one. Without one, values of 12
            bits stay dark, as a viewer shows them, and a warning says so.
    """
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and array.shape[2:] not in ((3,), (4,)):
        raise ImageError(
            f"an array of shape {array.shape} is not an image; use (height, width[, 1, 3 or 4])"
        )
    # 8 bits, shares from 0 to 1, or 16 bits; the scale of anything else would be a guess
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
