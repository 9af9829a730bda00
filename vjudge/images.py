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
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import io
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

MAX_PIXELS = 2**26
"""The default limit, 67 million pixels: 0.2 GB once decoded."""

_ORIENTATION = 0x0112  # EXIF's tag; 5 to 8 are turned by a quarter
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
    """
    try:
        with _open(source, max_pixels) as image:
            image.load()
            return _to_rgb(ImageOps.exif_transpose(image))
    except ImageError:
        raise
    except Exception as error:  # decoders of hostile files raise nearly anything
        raise ImageError(f"{_name(source)} cannot be decoded ({_reason(error)}); replace the file") from error


def check_image(source: Any, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Check an image's header and checksums without decoding its pixels; cheap, but blind to a cut JPEG.

    Args:
        source, max_pixels: as for `open_image`.

    Returns:
        (width, height) in pixels, as stored in the file.

    Raises:
        ImageError: as `open_image`, as far as the header tells.
    """
    try:
        with _open(source, max_pixels) as image:
            size = image.size
            if not isinstance(source, (Image.Image, np.ndarray)):
                image.verify()
            return size
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(f"{_name(source)} is damaged ({_reason(error)}); replace the file") from error


def image_size(source: Any) -> tuple[int, int]:
    """The size that `open_image` would give, from the header alone.

    Args:
        source: as for `open_image`.

    Returns:
        (width, height) in pixels, turned as the EXIF tag says.

    Raises:
        ImageError: as `open_image`, as far as the header tells.
    """
    try:
        with _open(source, MAX_PIXELS) as image:
            width, height = image.size
            return (height, width) if image.getexif().get(_ORIENTATION, 1) >= 5 else (width, height)
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(f"{_name(source)} is damaged ({_reason(error)}); replace the file") from error


class Picture:
    """One image of a call: known by its content, and opened when it is wanted.

    Attributes:
        key: equal for equal files; of a source without a file, for equal pixels.
        size: (width, height) in pixels, as `open_image` gives it.

    Raises:
        ImageError: as `image_size`.
    """

    def __init__(self, source: Any, *, keep: bool = False) -> None:
        self.source = source
        data = _file_bytes(source)
        self._held = data if keep else None
        if data is None:
            image = open_image(source)
            self.key, self.size = f"pixels:{fingerprint(image)}", image.size
        else:
            self.key, self.size = f"file:{hashlib.sha256(data).hexdigest()}", image_size(data)
        self.n_bytes = len(self._held or b"")

    def open(self) -> Image.Image:
        """The image as `open_image` gives it.

        Raises:
            ImageError: as `open_image`; also a file that has changed since it was first read.
        """
        return open_image(self.source if self._held is None else self._held)


class Pictures:
    """The images of a call, each distinct source read once: `pictures(source)` gives its `Picture`.

    Args:
        keep_bytes: the most bytes of files to hold in memory; what does not fit is read a second time to be opened.
    """

    def __init__(self, *, keep_bytes: int = 1 << 28) -> None:
        self._room = keep_bytes
        self._known: dict[Any, Picture] = {}

    def __call__(self, source: Any) -> Picture:
        """The picture of a source; errors as in `Picture`."""
        if isinstance(source, Picture):
            return source
        name = _identity(source)
        if name not in self._known:
            picture = Picture(source, keep=self._room > 0)
            self._room -= picture.n_bytes
            self._known[name] = picture
        return self._known[name]


def picture(source: Any) -> Picture:
    """The `Picture` of any source that `open_image` opens; a picture is itself."""
    return source if isinstance(source, Picture) else Picture(source)


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
        ImageError: not base64.
    """
    header, comma, payload = uri.partition(",")
    try:
        if not comma or not header.endswith(";base64"):
            raise binascii.Error("no ;base64 part")
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"{_name(uri)} is not a base64 data URI ({error}); encode the file with base64") from error


def _open(source: Any, max_pixels: int) -> AbstractContextManager[Image.Image]:
    """The image behind any kind of source, not yet decoded, after the size check; a caller's own stays open."""
    image = _lazy(source)
    if image.width * image.height > max_pixels:
        raise ImageError(
            f"{_name(source)} has {image.width} x {image.height} pixels, more than the limit of {max_pixels:,}; "
            "shrink it or raise max_pixels"
        )
    if not (image.width and image.height):
        raise ImageError(f"{_name(source)} has no pixels; replace it")
    return nullcontext(image) if image is source else image


def _lazy(source: Any) -> Image.Image:
    if isinstance(source, Image.Image):
        return source
    if isinstance(source, np.ndarray):
        return Image.fromarray(_eight_bits(source))
    if isinstance(source, Mapping):
        inner = source.get("bytes")
        inner = source.get("path") if inner is None else inner
        if inner is None:
            raise ImageError("the image holds neither bytes nor a path; give one of them")
        return _lazy(inner)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _decode(io.BytesIO(bytes(source)), source)
    if isinstance(source, str) and source.startswith("data:"):
        return _decode(io.BytesIO(image_bytes(source)), source)
    if isinstance(source, str) and "://" in source:
        raise ImageError(f"{_name(source)} is a URL; download it and give the local path")
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.is_file():
            raise ImageError(f"{_name(source)} does not exist or is not a file; correct the path")
        return _decode(path, source)
    raise ImageError(f"an image cannot be a {type(source).__name__}; give a path, bytes, a data URI or a PIL image")


def _decode(file: Any, source: Any) -> Image.Image:
    try:
        return Image.open(file, formats=_formats())
    except UnidentifiedImageError as error:
        kinds = ", ".join(_FORMATS)
        raise ImageError(f"{_name(source)} is not an image of a known format ({kinds}); convert it") from error
    except Image.DecompressionBombError as error:
        raise ImageError(f"{_name(source)} is too large to open safely ({_reason(error)}); shrink it") from error


@functools.cache
def _formats() -> tuple[str, ...]:
    """The accepted formats that this build of Pillow can read."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        # Pillow clips these at 255 instead of scaling them.
        values = np.asarray(image)
        if image.mode != "F" and values.size and (values.min() < 0 or values.max() > 65535):
            raise ImageError("an integer image has values outside 0-65535; convert it to 8 or 16 bits")
        if image.mode == "I" and 0 < values.max() <= 255:
            raise ImageError("a 32-bit integer image has values up to 255 alone, 8-bit or 16-bit ones; convert it to L")
        image = Image.fromarray(_eight_bits(values if image.mode == "F" else values.astype(np.uint16)))
    if image.mode == "La":  # Pillow knows no other way out of it
        image = image.convert("LA")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        canvas = Image.new("RGBA", image.size, "white")
        canvas.alpha_composite(image)
        image = canvas
    return image.convert("RGB") if image.mode != "RGB" else image


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
    if array.dtype == np.uint16:
        return np.rint(array / 257).astype(np.uint8)
    if np.issubdtype(array.dtype, np.floating) and np.all((array >= 0) & (array <= 1)):
        return np.rint(array * 255).astype(np.uint8)
    raise ImageError(
        f"an array of {array.dtype} values from {array.min()} to {array.max()} has no certain scale; "
        "use uint8, uint16, or floats between 0 and 1"
    )


def _file_bytes(source: Any) -> bytes | None:
    """The bytes of the file behind a source; None for a source without one."""
    if isinstance(source, Mapping):
        return _file_bytes(source.get("path") if source.get("bytes") is None else source["bytes"])
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if isinstance(source, str) and source.startswith("data:"):
        return image_bytes(source)
    if isinstance(source, (str, os.PathLike)) and Path(source).is_file():
        return Path(source).read_bytes()
    return None


def _identity(source: Any) -> Any:
    """What tells sources apart within a call, without reading them."""
    if isinstance(source, Mapping):
        return _identity(source.get("path") if source.get("bytes") is None else source["bytes"])
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return hashlib.sha256(source).digest()
    return id(source)


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
