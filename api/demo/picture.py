"""Draw charts without a plotting library: shapes and text on a NumPy canvas, and a PNG writer.

Shapes are drawn at three times the size and averaged, which smooths edges. The PNG format is that of the W3C's
specification, third edition: signature, IHDR, one zlib-compressed IDAT with filter 0 on every row, IEND.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..runtime.dtypes import Array

__all__ = ["Canvas", "draw_gallery", "draw_loss", "nice_ticks", "png"]

Colour = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""
INK, GREY, PALE = (33, 37, 41), (134, 142, 150), (233, 236, 239)
BLUE, SKY, GREEN, RED = (28, 100, 200), (165, 200, 240), (43, 138, 62), (201, 42, 42)
_SUPERSAMPLING = 3
# The printable characters of ASCII, from space to tilde: five columns each, a byte per column; bit 0 is the top row.
_FONT = bytes.fromhex(
    "000000000000005f00000007000700147f147f14242a7f2a12231308646236495620500008070300001c2241000041221c002a1c7f1c2a"
    "08083e080800807030000808080808000060600020100804023e5149453e00427f400072494949462141494d331814127f102745454539"
    "3c4a49493141211109073649494936464949291e0000140000004034000000081422411414141414004122140802015909063e415d594e"
    "7c1211127c7f494949363e414141227f4141413e7f494949417f090909013e414151737f0808087f00417f41002040413f017f08142241"
    "7f404040407f021c027f7f0408107f3e4141413e7f090909063e4151215e7f09192946264949493203017f01033f4040403f1f2040201f"
    "3f4038403f631408146303047804036159494d43007f4141410204081020004141417f0402010204404040404000030708002054547840"
    "7f284444383844444428384444287f385454541800087e090218a4a49c787f0804047800447d40002040403d007f1028440000417f4000"
    "7c047804787c080404783844444438fc1824241818242418fc7c08040408485454542404043f44243c4040207c1c2040201c3c4030403c"
    "44281028444c9090907c4464544c440008364100000077000000413608000201020402"
)
_FIRST_CODE, _LAST_CODE = ord(" "), ord("~")
_ROW_CENTRE = 3.5  # of the seven rows of a character


def png(pixels: Array) -> bytes:
    """Encode an RGB image, uint8 of shape `(height, width, 3)`, as a PNG file."""
    height, width, _ = pixels.shape

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # a row begins with its filter: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)
    bits_per_channel, rgb = 8, 2
    header = struct.pack(">IIBBBBB", width, height, bits_per_channel, rgb, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + chunk(b"IEND", b"")
    )


class Canvas:
    """A white picture of `width` by `height` pixels; coordinates may be fractions, y grows downwards."""

    def __init__(self, width: int, height: int):
        self.size = width, height
        self.supersampled = np.full((height * _SUPERSAMPLING, width * _SUPERSAMPLING, 3), 255, np.uint8)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """Draw a filled rectangle."""
        left, top, right, bottom = (max(0, round(v * _SUPERSAMPLING)) for v in (x, y, x + width, y + height))
        self.supersampled[top:bottom, left:right] = colour

    def line(self, points: Sequence[tuple[float, float]], colour: Colour, thickness: float = 1.0) -> None:
        """Draw a line through `points`, with round ends and corners."""
        radius = thickness * _SUPERSAMPLING / 2
        for start, end in pairwise(np.asarray(points, float) * _SUPERSAMPLING):
            left, top = np.floor(np.minimum(start, end) - radius).astype(int).clip(0)
            right, bottom = np.ceil(np.maximum(start, end) + radius).astype(int) + 1
            window = self.supersampled[top:bottom, left:right]
            rows, columns = window.shape[:2]
            x, y = left + np.arange(columns)[None] + 0.5, top + np.arange(rows)[:, None] + 0.5  # centres of pixels
            dx, dy = end - start
            # The point of the segment that is closest to a pixel, as a fraction of the way from start to end.
            fraction = (((x - start[0]) * dx + (y - start[1]) * dy) / max(dx * dx + dy * dy, 1e-9)).clip(0, 1)
            window[np.hypot(x - start[0] - fraction * dx, y - start[1] - fraction * dy) <= radius] = colour

    def text(
        self,
        x: float,
        y: float,
        text: str,
        colour: Colour = INK,
        size: int = 2,
        anchor: str = "left",
        is_vertical: bool = False,
    ) -> None:
        """Draw text.

        Args:
            x: The horizontal position of the anchor.
            y: The vertical centre of the line.
            text: ASCII text; other characters become `?`.
            colour: The colour.
            size: Pixels per dot of the 5 x 7 font.
            anchor: The point of the text that is at `x`: `left`, `middle` or `right`.
            is_vertical: Draw the text upwards. Then `x` is the centre of the line, and `y` is the anchor's position.
        """
        codes = [ord(c) if _FIRST_CODE <= ord(c) <= _LAST_CODE else ord("?") for c in text]
        font = np.frombuffer(_FONT, np.uint8).reshape(-1, 5)
        glyph_columns = np.pad(font[[code - _FIRST_CODE for code in codes]], ((0, 0), (0, 1)))  # a gap after each
        dots = (glyph_columns.reshape(-1)[None, :-1] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
        pixels = _enlarge(dots, size * _SUPERSAMPLING).astype(bool)
        width = pixels.shape[1]
        to_anchor = {"left": 0.0, "middle": 0.5, "right": 1.0}[anchor] * width
        to_centre = _ROW_CENTRE * size * _SUPERSAMPLING
        if is_vertical:
            pixels = np.rot90(pixels)
            left = round(x * _SUPERSAMPLING - to_centre)
            top = round(y * _SUPERSAMPLING - width + to_anchor)
        else:
            left = round(x * _SUPERSAMPLING - to_anchor)
            top = round(y * _SUPERSAMPLING - to_centre)
        rows, columns = pixels.shape
        window = self.supersampled[max(top, 0) : top + rows, max(left, 0) : left + columns]
        window[pixels[: window.shape[0], : window.shape[1]]] = colour

    def image(self, x: float, y: float, grey: Array, cell: int) -> None:
        """Draw a grey image (0 white, 1 almost black), with `cell` by `cell` pixels for each of its elements."""
        pixels = _enlarge(255 - np.rint(grey.clip(0, 1) * 235), cell * _SUPERSAMPLING).astype(np.uint8)
        left, top = round(x * _SUPERSAMPLING), round(y * _SUPERSAMPLING)
        self.supersampled[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels[..., None]

    def pixels(self) -> Array:
        """Return the picture, uint8 of shape `(height, width, 3)`."""
        width, height = self.size
        blocks = self.supersampled.reshape(height, _SUPERSAMPLING, width, _SUPERSAMPLING, 3).astype(np.uint16)
        return (blocks.sum((1, 3)) // (_SUPERSAMPLING * _SUPERSAMPLING)).astype(np.uint8)

    def save(self, path: Path) -> None:
        """Write a PNG file."""
        path.write_bytes(png(self.pixels()))


def _enlarge(array: Array, factor: int) -> Array:
    """Return a matrix with each element repeated `factor` times in both directions."""
    return array.repeat(factor, 0).repeat(factor, 1)


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers from `low` to `high`, in steps of 1, 2 or 5 times a power of ten."""
    min_step = max(high - low, 1e-9) / max(count, 1)
    power = 10.0 ** np.floor(np.log10(min_step))
    step = float(next(m * power for m in (1, 2, 5, 10) if m * power >= min_step * 0.999))  # 0.999: rounding errors
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [round(i * step, 10) for i in range(first, last + 1)]


def draw_loss(
    canvas: Canvas, box: tuple[float, float, float, float], losses: Sequence[float], epochs: int, title: str
) -> None:
    """Draw the loss over training: every step in light blue, the mean of each epoch in dark blue, axes with ticks.

    Args:
        canvas: The canvas.
        box: Left, top, width and height of the area inside the axes, in pixels.
        losses: The loss of every step.
        epochs: The number of epochs.
        title: The title above the chart.
    """
    left, top, width, height = box
    right, bottom = left + width, top + height
    values = np.asarray(losses, float)
    max_loss = float(values.max()) * 1.04 if len(values) else 1.0

    def to_pixel(epoch: float, loss: float) -> tuple[float, float]:
        return left + width * epoch / epochs, top + height * (1 - loss / max_loss)

    for tick in nice_ticks(0, max_loss, 6):
        y = to_pixel(0, tick)[1]
        canvas.line([(left, y), (right, y)], PALE)
        canvas.text(left - 8, y, f"{tick:g}", GREY, anchor="right")
    for tick in nice_ticks(0, epochs, 6):
        x = to_pixel(tick, 0)[0]
        canvas.line([(x, bottom), (x, bottom + 5)], GREY)
        canvas.text(x, bottom + 16, f"{tick:g}", GREY, anchor="middle")
    steps_per_epoch = max(len(values) // epochs, 1)
    canvas.line([to_pixel((i + 0.5) / steps_per_epoch, loss) for i, loss in enumerate(values)], SKY, 1.0)
    means = [float(values[i : i + steps_per_epoch].mean()) for i in range(0, len(values), steps_per_epoch)]
    canvas.line([to_pixel(i + 0.5, mean) for i, mean in enumerate(means)], BLUE, 2.4)
    canvas.line([(left, top), (left, bottom), (right, bottom)], INK, 1.2)
    canvas.text(left + width / 2, top - 22, title, anchor="middle")
    canvas.text(left + width / 2, bottom + 40, "epoch", anchor="middle")
    canvas.text(left - 56, top + height / 2, "cross-entropy", anchor="middle", is_vertical=True)
    for y, label, colour, thickness in ((top + 14, "batch", SKY, 1.5), (top + 34, "epoch", BLUE, 2.4)):
        canvas.line([(right - 130, y), (right - 104, y)], colour, thickness)
        canvas.text(right - 96, y, label, GREY)


def draw_gallery(
    canvas: Canvas,
    left: float,
    top: float,
    images: Array,
    predictions: Sequence[int],
    labels: Sequence[int],
    columns: int,
    title: str,
) -> None:
    """Draw images in rows, with the model's predictions: green if right, else red with the true label in brackets.

    Args:
        canvas: The canvas.
        left: The left edge of the first image, in pixels.
        top: The upper edge of the first image, in pixels.
        images: Grey images of shape `(N, H, H)`, 0 white and 1 black.
        predictions: The digit that the model sees in each image.
        labels: The digit that each image shows.
        columns: The number of images in a row.
        title: The title above the images.
    """
    cell, frame, gap, text_height = 7, 2, 14, 20
    side = cell * images.shape[-1]
    canvas.text(left + (columns * (side + gap) - gap) / 2, top - 22, title, anchor="middle")
    for i, (grey, prediction, label) in enumerate(zip(images, predictions, labels, strict=True)):
        x = left + i % columns * (side + gap)
        y = top + i // columns * (side + gap + text_height)
        is_right = prediction == label
        text, colour = (f"{prediction}", GREEN) if is_right else (f"{prediction} ({label})", RED)
        canvas.rectangle(x - frame, y - frame, side + 2 * frame, side + 2 * frame, PALE if is_right else RED)
        canvas.image(x, y, grey, cell)
        canvas.text(x + side / 2, y + side + gap, text, colour, anchor="middle")
