"""Open any image safely, and show it.

What comes out is what a viewer would see: turned as its EXIF tag says, its transparent parts on white, eight bits a
channel, RGB. On opaque, upright 8-bit images, which is what judges were trained on, it is to the bit what the original
LLaVA loader's `Image.open(file).convert("RGB")` gives, for RGB, grayscale, 1-bit, palette, CMYK and YCbCr alike. Where
that would show the judge another picture than people see, this differs on purpose:

- an EXIF orientation is applied; the original ignores it and sees the picture lying on its side
- transparent pixels lie on white; the original shows the colours hidden under them
- 16-bit values are scaled to eight bits; the original clips them at 255, which leaves white
- a premultiplied alpha channel ("La", "RGBa") is undone; the original fails on one of the two

Of an animation it is the first frame, and colour profiles are not applied: both as in the original. Nothing is fetched
from a network, and formats that would start another program (EPS) are refused.

Bounds: a file of more than `MAX_BYTES` is refused without being read, a picture of more than `MAX_PIXELS` without being
decoded. At that limit decoding was measured to take 0.35 to 0.54 GB besides the file, whatever the mode: the picture
as stored and as RGB, each with four bytes a pixel at most, as Pillow keeps them.
"""

from __future__ import annotations

import base64
import copy
import functools
import hashlib
import io
import math
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from vjudge.names import public

__all__ = ["MAX_BYTES", "MAX_PIXELS", "ImageError", "Picture", "Pictures"]
__all__ += ["data_uri", "fingerprint", "image_bytes", "open_image", "pad_to_square", "picture", "thumbnail"]
__dir__ = public(__name__)

MAX_PIXELS = 2**26
"""The default limit, 67 million pixels: 0.27 GB once decoded."""
MAX_BYTES = 2**28
"""The largest file that is read, 268 MB: an uncompressed picture at the limit of pixels has 201."""

_ORIENTATION = 0x0112  # EXIF's tag; 5 to 8 are turned by a quarter
_TURNS = (  # what shows a picture as its orientation, 2 to 8, asks for
    Image.Transpose.FLIP_LEFT_RIGHT,
    Image.Transpose.ROTATE_180,
    Image.Transpose.FLIP_TOP_BOTTOM,
    Image.Transpose.TRANSPOSE,
    Image.Transpose.ROTATE_270,
    Image.Transpose.TRANSVERSE,
    Image.Transpose.ROTATE_90,
)
_TILE = 1024  # the side of the pieces in which a picture is converted, so that no second copy of it stands in memory
_FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")


class ImageError(ValueError):
    """An image cannot be opened; the message says why and what to do."""


def open_image(source: Any, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Open and fully decode an image.

    Args:
        source: a path, the bytes of a file, a `data:` URI, a PIL image, the {"bytes", "path"} dict of the datasets
            library, or a NumPy array (height, width[, 1, 3 or 4 channels]) of bool, uint8, uint16 or floats in 0-1.
        max_pixels: refuse larger images before they are decoded. Pillow's own limit, twice
            `PIL.Image.MAX_IMAGE_PIXELS`, holds besides.

    Returns:
        A new RGB image, independent of the file; the first frame of an animation, and of a PIL image the frame that it
        stands at.

    Raises:
        ImageError: missing, broken, too large, of an unknown kind, or with values of unknown scale.

    >>> open_image(np.zeros((2, 3), bool)).size
    (3, 2)
    """
    return source.open() if isinstance(source, Picture) else _decode(source, _content(source), max_pixels)


class Picture:
    """One image of a call: known by its content, and opened when it is needed.

    Args:
        source: what `open_image` opens. A file is read once, here; its header and checksums are checked, its pixels are
            not decoded.

    Attributes:
        source: as given.
        key: equal for equal files; for a source without a file, for equal pixels.
        size: (width, height) in pixels, as `open_image` gives it.

    Raises:
        ImageError: as `open_image`, as far as header and checksums tell.

    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 3), "red").save(file, "PNG")
    >>> red = Picture(file.getvalue())
    >>> red.size, red.key[:5], red.open().getpixel((0, 0))
    ((4, 3), 'file:', (255, 0, 0))
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self._data: bytes | None = None  # of a file on disk, while they are held
        content = _content(source)
        if isinstance(content, bytes):
            self.size, self.key = _checked_size(source, content), _digest(content)
            self._data = None if _path(source) is None else content
        else:
            image = _decode(source, content, MAX_PIXELS)
            self.size, self.key = image.size, f"pixels:{fingerprint(image)}"

    def open(self) -> Image.Image:
        """The image as `open_image` gives it.

        Raises:
            ImageError: as `open_image`; also a file that has changed since it was first read.
        """
        content: bytes | Image.Image | None = self._data
        if content is None:
            content = _content(self.source)
            if isinstance(content, bytes) and _digest(content) != self.key:
                raise ImageError(f"{_name(self.source)} has changed since it was first read; start again")
        return _decode(self.source, content, MAX_PIXELS)


class Pictures:
    """The images of a call, each distinct source looked at once: `pictures(source)` gives its `Picture`.

    A file is opened once while its bytes fit `keep_bytes`, and beyond it a second time to be decoded. Of images that
    come in memory (bytes, arrays, PIL images) nothing is kept but key and size, so that rows read from a data set one
    by one stay one by one.

    Args:
        keep_bytes: the most bytes of files to hold in memory.
    """

    def __init__(self, *, keep_bytes: int = 2**28) -> None:
        self._room = keep_bytes
        self._looked: dict[Any, Picture | ImageError] = {}
        self._objects: dict[int, weakref.ref[Any]] = {}

    def __call__(self, source: Any) -> Picture:
        """The picture of a source, or the error that it gave before; errors as in `Picture`."""
        if isinstance(source, Picture):
            return source
        name = self._identity(source)
        if (looked := self._looked.get(name)) is None:
            try:
                looked = Picture(source)
            except ImageError as error:
                looked = error
            else:
                if len(looked._data or b"") > self._room:
                    looked._data = None
                self._room -= len(looked._data or b"")
                looked.source = None
            self._looked[name] = looked
        if isinstance(looked, ImageError):
            raise ImageError(str(looked))
        picture = copy.copy(looked)
        picture.source = source
        return picture

    def _identity(self, source: Any) -> Any:
        """What tells sources apart within a call, without reading them."""
        inner = _inner(source)
        if (path := _path(inner)) is not None:
            return path
        if isinstance(inner, (str, bytes, bytearray, memoryview)):
            return hashlib.sha256(inner.encode() if isinstance(inner, str) else inner).digest()
        if isinstance(inner, (Image.Image, np.ndarray)):
            # An address is given to another object once its own is gone.
            if (reference := self._objects.get(id(inner))) is None or reference() is not inner:
                self._objects[id(inner)] = weakref.ref(inner)
                self._looked.pop(id(inner), None)
            return id(inner)
        return type(inner)


def picture(source: Any) -> Picture:
    """The `Picture` of any source that `open_image` opens; a picture is itself."""
    return source if isinstance(source, Picture) else Picture(source)


def pad_to_square(image: Image.Image, colour: tuple[int, ...], *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Put an image in the middle of a square.

    Args:
        image: an RGB image.
        colour: of the rest of the square.
        max_pixels: a square that would have more is made of the image reduced by the smallest whole factor that fits,
            which no reader of a few hundred pixels sees; 0.27 GB at the default.

    Returns:
        The image itself where it is square.

    >>> pad_to_square(Image.new("RGB", (4, 2), "red"), (0, 0, 0)).size
    (4, 4)
    >>> pad_to_square(Image.new("RGB", (60_000, 1)), (0, 0, 0)).size
    (7500, 7500)
    """
    if image.width == image.height:
        return image
    factor = 1
    while math.ceil(max(image.size) / factor) ** 2 > max_pixels:
        factor += 1
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


def data_uri(image: Image.Image, *, format: str = "png", size: int | None = None, quality: int = 85) -> str:
    """An image as a `data:` URI for HTML or a chat API.

    Args:
        image: an RGB image.
        format: "png" (exact) or "jpeg" (smaller).
        size: the longer side in pixels at most; None keeps the image as it is.
        quality: JPEG's, 1-95.

    Raises:
        ValueError: another format.
    """
    if format not in ("png", "jpeg"):
        raise ValueError(f'format is {format!r}; use "png" or "jpeg"')
    buffer = io.BytesIO()
    (image if size is None else thumbnail(image, size=size)).save(buffer, format, quality=quality)
    return f"data:image/{format};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def fingerprint(image: Image.Image) -> str:
    """SHA-256 (hex) over mode, size and decoded pixels: equal for equal pictures, whatever file they came in."""
    header = f"{image.mode} {image.width}x{image.height} ".encode()
    return hashlib.sha256(header + image.tobytes()).hexdigest()


def image_bytes(uri: str) -> bytes:
    """The file inside a base64 `data:` URI.

    Raises:
        ImageError: not base64, or too large.
    """
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
        try:
            if Path(inner).is_file():
                with open(inner, "rb") as file:
                    _check_length(source, os.fstat(file.fileno()).st_size)
                    return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ImageError(f"{_name(source)} cannot be read ({error.strerror}); correct the path") from error
        except ValueError as error:
            if isinstance(error, ImageError):
                raise  # else a name that no file can have
        raise ImageError(f"{_name(source)} does not exist or is not a file; correct the path")
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
        raise ImageError(f"{_name(source)} {what} ({_reason(error)}); replace the file") from error


def _decode(source: Any, content: bytes | Image.Image, max_pixels: int) -> Image.Image:
    """An image decoded, turned and in RGB."""
    with _damage(source, "cannot be decoded"):
        with _open(source, content, max_pixels) as image:
            image.load()
            turn = image.getexif().get(_ORIENTATION, 1)
            rgb = _to_rgb(image)
        del image  # one copy fewer while a picture is turned
        return rgb.transpose(_TURNS[turn - 2]) if isinstance(turn, int) and 2 <= turn <= 8 else rgb


def _checked_size(source: Any, data: bytes) -> tuple[int, int]:
    """The size of a file's image once it is turned, from a header and checksums that hold."""
    with _damage(source, "is damaged"):
        with _open(source, data, MAX_PIXELS) as image:
            size = _turned_size(image, data)
        with _open(source, data, MAX_PIXELS) as image:
            image.verify()
        return size


def _open(source: Any, content: bytes | Image.Image, max_pixels: int) -> AbstractContextManager[Image.Image]:
    """The image, not yet decoded, after the size check; a caller's own stays open."""
    image = _identify(source, content) if isinstance(content, bytes) else content
    if image.width * image.height > max_pixels:
        raise ImageError(
            f"{_name(source)} has {image.width} x {image.height} pixels, more than the limit of {max_pixels:,}; "
            "shrink it or raise max_pixels"
        )
    if not (image.width and image.height):
        raise ImageError(f"{_name(source)} has no pixels; replace it")
    return image if isinstance(content, bytes) else nullcontext(image)


def _identify(source: Any, data: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data), formats=_formats())
    except UnidentifiedImageError as error:
        kinds = ", ".join(_FORMATS)
        raise ImageError(f"{_name(source)} is not an image of a known format ({kinds}); convert it") from error
    except Image.DecompressionBombError as error:
        raise ImageError(f"{_name(source)} is too large to open safely ({_reason(error)}); shrink it") from error


def _check_length(source: Any, length: int) -> None:
    if length > MAX_BYTES:
        raise ImageError(f"{_name(source)} has {length:,} bytes, more than the limit of {MAX_BYTES:,}; shrink it")


@functools.cache
def _formats() -> tuple[str, ...]:
    """The accepted formats that this build of Pillow can read."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _to_rgb(image: Image.Image) -> Image.Image:
    """A new image in RGB; what Pillow's own conversion would get wrong is converted piece by piece."""
    if image.mode.startswith("I") or image.mode == "F":
        # Pillow clips these at 255 instead of scaling them.
        highest = 0
        rgb = Image.new("RGB", image.size)
        for box in _boxes(image.size):
            values = np.asarray(image.crop(box))
            if image.mode != "F":
                if values.min() < 0 or values.max() > 65535:
                    raise ImageError("an integer image has values outside 0-65535; convert it to 8 or 16 bits")
                highest = max(highest, int(values.max()))
                values = values.astype(np.uint16)
            rgb.paste(Image.fromarray(_eight_bits(values)), box[:2])
        if image.mode == "I" and 0 < highest <= 255:
            raise ImageError("a 32-bit integer image has values up to 255 alone, 8-bit or 16-bit ones; convert it to L")
        return rgb
    if not image.has_transparency_data:
        return image.convert("RGB")  # a copy, where it is RGB already
    rgb = Image.new("RGB", image.size)
    for box in _boxes(image.size):
        piece = image.crop(box)
        if piece.mode == "La":  # Pillow knows no other way out of it
            piece = piece.convert("LA")
        canvas = Image.new("RGBA", piece.size, "white")
        canvas.alpha_composite(piece.convert("RGBA"))
        rgb.paste(canvas.convert("RGB"), box[:2])
    return rgb


def _boxes(size: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """Boxes (left, top, right, bottom) that cover an image, of at most `_TILE` squared pixels each."""
    width, height = size
    across = min(width, _TILE)
    down = _TILE * _TILE // across
    for top in range(0, height, down):
        for left in range(0, width, across):
            yield left, top, min(left + across, width), min(top + down, height)


def _eight_bits(array: np.ndarray) -> np.ndarray:
    """Scale an array to uint8; only where the meaning of its values is certain."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and not (array.ndim == 3 and array.shape[2] in (3, 4)):
        raise ImageError(f"an array of shape {array.shape} is not an image; use (height, width[, 1, 3 or 4])")
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    wide = array.dtype == np.uint16
    if not wide and not (np.issubdtype(array.dtype, np.floating) and 0 <= array.min() and array.max() <= 1):
        raise ImageError(
            f"an array of {array.dtype} values from {array.min()} to {array.max()} has no certain scale; "
            "use uint8, uint16, or floats between 0 and 1"
        )
    levels = np.empty(array.shape, np.uint8)
    down = max(1, _TILE * _TILE // max(1, array.shape[1]))
    for top in range(0, len(array), down):
        rows = array[top : top + down]
        levels[top : top + down] = np.rint(rows / 257 if wide else rows * 255)
    return levels


def _turned_size(image: Image.Image, data: bytes) -> tuple[int, int]:
    """The size of a file's image once it is turned; Pillow decodes a PNG to look for a tag behind its pixels."""
    width, height = image.size
    if image.format == "PNG" and not {"exif", "Raw profile type exif", "XML:com.adobe.xmp"} & set(image.info):
        behind = data[data.rfind(b"IDAT") :]
        if not any(kind in behind for kind in (b"eXIf", b"iTXt", b"zTXt", b"tEXt")):
            return width, height
    if image.format == "TIFF":
        return width, height  # Pillow gives the size of a TIFF as it will be turned
    return (height, width) if image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8) else (width, height)


def _inner(source: Any) -> Any:
    """What a {"bytes", "path"} dict holds; any other source is itself."""
    if isinstance(source, Mapping):
        return _inner(source.get("path") if source.get("bytes") is None else source["bytes"])
    return source


def _path(source: Any) -> str | None:
    """The path of a source that is a file on disk; None for any other."""
    inner = _inner(source)
    if isinstance(inner, str) and inner.startswith("data:"):
        return None
    return os.fspath(inner) if isinstance(inner, (str, os.PathLike)) else None


def _digest(data: bytes) -> str:
    return f"file:{hashlib.sha256(data).hexdigest()}"


def _name(source: Any) -> str:
    """A short description of a source for an error message."""
    if isinstance(source, Mapping):
        return _name(source["path"]) if source.get("path") else "the image"
    if isinstance(source, str) and source.startswith("data:"):
        return f"the data URI {source[:40]!r}"
    if isinstance(source, (str, os.PathLike)):
        return f"the image {os.fspath(source)!r}"
    return "the image"


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
