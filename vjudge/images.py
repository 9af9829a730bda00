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
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

MAX_PIXELS = 2**26  # of a picture that is decoded: 67 million, 0.27 GB
MAX_BYTES = 2**28  # of a file that is read, 268 MB: an uncompressed picture of so many has 201

FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
ORIENTATION = 0x0112  # EXIF's tag
# Where a PNG may say its orientation.
PNG_EXIF = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")


class ImageError(ValueError):
    """An image cannot be opened; the message says why and what to do."""


def open_image(source: Any) -> Image.Image:
    """Open and fully decode an image, as a new one in RGB; of a PIL image its present frame.

    Args:
        source: a path, the bytes of a file, a `data:` URI, a PIL image, a `Picture`, the {"bytes",
            "path"} dict of the datasets library, or an array (height, width[, 1, 3 or 4 channels])
            of bool, uint8, uint16 or floats from 0 to 1.

    Raises:
        ImageError: missing, broken, too large, of an unknown kind, or values of unknown scale.
    """
    if isinstance(source, Picture):
        return source.open()
    content, name = _content(source)
    return _decode(content, name)


class Picture:
    """One image of a call, known by its content and opened when it is needed.

    A file's header and checksums are checked here, its pixels are not decoded. `key` is equal for
    equal files, or for equal pixels where there is no file; `size` is (width, height) as opened.

    Raises:
        ImageError: the image cannot be opened.
    """

    def __init__(self, source: Any) -> None:
        content, self._name = _content(source)
        self.source = source
        self.data: bytes | None = None  # of a file, while they are held
        if isinstance(content, bytes):
            self.data = content
            self.size = _checked_size(content, self._name)
            self.key = _file_key(content)
        else:
            image = _decode(content, self._name)
            self.size = image.size
            self.key = f"pixels:{fingerprint(image)}"

    def open(self) -> Image.Image:
        """The image as `open_image` gives it; ImageError where its file has changed since."""
        content: Any = self.data
        if content is None:
            content, _ = _content(self.source)
            if isinstance(content, bytes) and _file_key(content) != self.key:
                raise ImageError(f"{self._name} has changed since it was first read; start again")
        return _decode(content, self._name)


class Pictures:
    """The images of a call: `pictures(source)` is a source's `Picture`.

    Each file is read once while the bytes of all fit `keep_bytes`; beyond, again to be decoded.
    """

    def __init__(self, *, keep_bytes: int = 2**28) -> None:
        self._room = keep_bytes
        self._pictures: dict[str, Picture] = {}

    def __call__(self, source: Any) -> Picture:
        path = _unwrap(source)
        if not isinstance(path, str) or path.startswith("data:"):
            return picture(source)
        if path not in self._pictures:
            one = Picture(source)
            size = len(one.data or b"")
            if size <= self._room:
                self._room -= size
            else:
                one.data = None
            self._pictures[path] = one
        return self._pictures[path]


def picture(source: Any) -> Picture:
    """The `Picture` of any source that `open_image` opens; a picture is itself."""
    return source if isinstance(source, Picture) else Picture(source)


def pad_to_square(image: Image.Image, colour: tuple[int, ...]) -> Image.Image:
    """Put an RGB image in the middle of a square, reduced where that has too many pixels."""
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
    """An RGB image as a `data:` URI: "png" (exact) or "jpeg" (smaller); `size` as `thumbnail`."""
    shown = image if size is None else thumbnail(image, size=size)
    buffer = io.BytesIO()
    shown.save(buffer, format, quality=85)
    return f"data:image/{format};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def fingerprint(image: Image.Image) -> str:
    """SHA-256 (hex) over mode, size and decoded pixels: equal for equal pictures of any file."""
    header = f"{image.mode} {image.width}x{image.height} ".encode()
    return hashlib.sha256(header + image.tobytes()).hexdigest()


def image_bytes(uri: str) -> bytes:
    """The file inside a base64 `data:` URI; ImageError where it is no base64, or too large."""
    name = _name_of(uri)
    header, _, payload = uri.partition(",")
    _check_length(name, len(payload) * 3 // 4)
    try:
        if not header.endswith(";base64"):
            raise ValueError("no ;base64 part")
        return base64.b64decode(payload, validate=True)
    except ValueError as error:
        raise ImageError(
            f"{name} is not a base64 data URI ({error}); encode the file with base64"
        ) from error


# What stands behind a source


def _unwrap(source: Any) -> Any:
    """A source without its {"bytes", "path"} dict; a path as text."""
    if isinstance(source, Mapping):
        data = source.get("bytes")
        source = source.get("path") if data is None else data
    return os.fspath(source) if isinstance(source, os.PathLike) else source


def _name_of(source: Any) -> str:
    """A source's name in an error message."""
    place = _unwrap(source.get("path") if isinstance(source, Mapping) else source)
    if not isinstance(place, str):
        return "the image"
    if place.startswith("data:"):
        return f"the data URI {place[:40]!r}"
    return f"the image {place[:300]!r}"


def _content(source: Any) -> tuple[bytes | Image.Image, str]:
    """The bytes of the file behind a source, or the image that it is; and its name."""
    inner = _unwrap(source)
    name = _name_of(source)
    if isinstance(inner, np.ndarray):
        inner = Image.fromarray(_eight_bits(inner))
    elif isinstance(inner, bytes | bytearray | memoryview):
        _check_length(name, len(inner))
        inner = bytes(inner)
    elif isinstance(inner, str):
        inner = image_bytes(inner) if inner.startswith("data:") else _read_file(inner, name)
    elif not isinstance(inner, Image.Image):
        kind = type(inner).__name__
        raise ImageError(
            f"an image cannot be a {kind}; give a path, bytes, a data URI or a PIL image"
        )
    return inner, name


def _read_file(path: str, name: str) -> bytes:
    if "://" in path:
        raise ImageError(f"{name} is a URL; download it and give the local path")
    if not os.path.isfile(path):
        raise ImageError(f"{name} does not exist or is not a file; correct the path")
    try:
        with open(path, "rb") as file:
            _check_length(name, os.fstat(file.fileno()).st_size)
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ImageError(f"{name} cannot be read ({error.strerror}); correct the path") from error


def _check_length(name: str, length: int) -> None:
    if length > MAX_BYTES:
        raise ImageError(
            f"{name} has {length:,} bytes, more than the limit of {MAX_BYTES:,}; shrink it"
        )


def _file_key(data: bytes) -> str:
    return f"file:{hashlib.sha256(data).hexdigest()}"


# Decoding


@contextmanager
def _named(name: str, what: str) -> Iterator[None]:
    """Name the image whatever its decoder raises: on a hostile file that is nearly anything."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ImageError(f"{name} {what} ({reason}); replace the file") from error


def _open(content: bytes, name: str) -> Image.Image:
    """Read a file's header; ImageError for an unknown format and for too many pixels."""
    Image.init()
    readable = [format for format in FORMATS if format in Image.OPEN]  # by this build of Pillow
    try:
        image = Image.open(io.BytesIO(content), formats=readable)
    except UnidentifiedImageError as error:
        known = ", ".join(FORMATS)
        raise ImageError(
            f"{name} is not an image of a known format ({known}); convert it"
        ) from error
    except Image.DecompressionBombError as error:  # beyond Pillow's own limit, which is higher
        numbers = re.findall(r"\d+", str(error))
        raise ImageError(_too_large(name, f"{int(numbers[0]):,}")) from error
    _check_pixels(image, name)
    return image


def _check_pixels(image: Image.Image, name: str) -> None:
    width, height = image.size
    if width * height == 0:
        raise ImageError(f"{name} has {width} x {height} pixels, none; replace it")
    if width * height > MAX_PIXELS:
        raise ImageError(_too_large(name, f"{width} x {height}"))


def _too_large(name: str, size: str) -> str:
    return f"{name} has {size} pixels, more than the limit of {MAX_PIXELS:,}; shrink it"


def _checked_size(content: bytes, name: str) -> tuple[int, int]:
    """The size of a file's image as it is opened, after its checksums were checked."""
    with _named(name, "is damaged"):
        _open(content, name).verify()
        image = _open(content, name)
        width, height = image.size
        # Pillow gives the size of a TIFF as it is opened, and decodes a PNG to look for a tag.
        tagged = image.format not in ("TIFF", "PNG")
        if image.format == "PNG":
            tagged = any(mark in content for mark in PNG_EXIF)
        if tagged and image.getexif().get(ORIENTATION, 1) >= 5:  # turned by a quarter
            return height, width
        return width, height


def _decode(content: bytes | Image.Image, name: str) -> Image.Image:
    with _named(name, "cannot be decoded"):
        if isinstance(content, bytes):
            image = _open(content, name)
        else:
            image = content
            _check_pixels(image, name)
        image.load()
        if image.getexif().get(ORIENTATION, 1) != 1:
            image = ImageOps.exif_transpose(image)
        return _to_rgb(image)


def _to_rgb(image: Image.Image) -> Image.Image:
    """A new image in RGB; what Pillow's own conversion gets wrong is converted here."""
    if image.mode[0] in "IF":  # Pillow clips these at 255 instead of scaling them
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")  # a copy, where it is RGB already
    if image.mode != "RGBA":
        image = image.convert("RGBA")
    rgb = Image.new("RGB", image.size, "white")
    rgb.paste(image, mask=image)
    return rgb


def _eight_bits(array: np.ndarray) -> np.ndarray:
    """Scale an array to uint8; only where the scale of its values is certain."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and (array.ndim != 3 or array.shape[2] not in (3, 4)):
        raise ImageError(
            f"an array of shape {array.shape} is not an image; use (height, width[, 1, 3 or 4])"
        )
    if array.dtype == np.uint8:
        return array
    low = array.min()
    high = array.max()
    if array.dtype.kind in "bf" and 0 <= low and high <= 1:
        return np.rint(array * 255).astype(np.uint8)
    # Whole numbers up to 255 may be of either scale, unless all are 0 or stored in 16 bits.
    wide = array.dtype.str[1:] == "u2" or high == 0 or high > 255
    if array.dtype.kind in "iu" and 0 <= low and high <= 65535 and wide:
        return np.rint(array / 257).astype(np.uint8)
    raise ImageError(
        f"an image of {array.dtype} values from {low} to {high} has no certain scale; use 8 bits,"
        " 16, or floats in 0-1"
    )
