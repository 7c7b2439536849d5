"""Draw charts without a plotting library: shapes and text on a NumPy canvas, and a PNG writer.

Shapes are drawn at three times the size and averaged, which smooths edges. PNG after its specification (W3C, third
edition): signature, IHDR, one zlib-compressed IDAT with filter 0 on every row, IEND.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..runtime.dtypes import Array

__all__ = ["Canvas", "nice_ticks", "png"]

Colour = tuple[int, int, int]
INK, GREY, PALE = (33, 37, 41), (134, 142, 150), (233, 236, 239)
BLUE, SKY, GREEN, RED = (28, 100, 200), (165, 200, 240), (43, 138, 62), (201, 42, 42)
_SUPERSAMPLING = 3
# Five columns a character, from the space to the tilde; bit 0 is the top row.
_FONT = bytes.fromhex(
    "000000000000005f00000007000700147f147f14242a7f2a12231308646236495620500008070300001c2241000041221c002a1c7f1c2a"
    "08083e080800807030000808080808000060600020100804023e5149453e00427f4000724949494621414 94d331814127f10274545453 9"
    "3c4a4949314121110907364949493646494 9291e000014000000403400000008142241141414141400412214080201590906"
    "3e415d594e7c1211127c7f494949363e414141227f4141413e7f494949417f090909013e414151737f0808087f00417f41002040413f01"
    "7f081422417f404040407f021c027f7f0408107f3e4141413e7f090909063e4151215e7f09192946264949493203017f0103"
    "3f4040403f1f2040201f3f4038403f631408146303047804036159494d43007f41414102040810200041 41417f04020102044040404040"
    "0003070800205454784 07f284444383844444428384444287f385454541800087e090218a4a49c787f0804047800447d4000"
    "2040403d007f1028440000417f40007c047804787c080404783844444438fc182424181824 2418fc7c080404084854545424"
    "04043f44243c4040207c1c2040201c3c4030403c44281028444c9090907c4464544c4400083641000000770000004136080002010204 02"
    .replace(" ", "")
)  # fmt: skip


def png(pixels: Array) -> bytes:
    """Encode an RGB image, uint8 of shape `(height, width, 3)`, as a PNG file."""
    height, width, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # a row begins with its filter: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
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
        self.fine = np.full((height * _SUPERSAMPLING, width * _SUPERSAMPLING, 3), 255, np.uint8)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """Draw a filled rectangle."""
        a, b, c, d = (max(0, round(v * _SUPERSAMPLING)) for v in (x, y, x + width, y + height))
        self.fine[b:d, a:c] = colour

    def line(self, points: Sequence[tuple[float, float]], colour: Colour, thickness: float = 1.0) -> None:
        """Draw a line through `points`, with round ends and corners."""
        radius = thickness * _SUPERSAMPLING / 2
        for (x0, y0), (x1, y1) in pairwise(points):
            ends = np.array([x0, y0, x1, y1]) * _SUPERSAMPLING
            left, top = np.floor(np.minimum(ends[:2], ends[2:]) - radius).astype(int).clip(0)
            right, bottom = np.ceil(np.maximum(ends[:2], ends[2:]) + radius).astype(int) + 1
            window = self.fine[top:bottom, left:right]
            rows, columns = window.shape[:2]
            px, py = left + np.arange(columns)[None] + 0.5, top + np.arange(rows)[:, None] + 0.5
            dx, dy = ends[2] - ends[0], ends[3] - ends[1]
            part = (((px - ends[0]) * dx + (py - ends[1]) * dy) / max(dx * dx + dy * dy, 1e-9)).clip(0, 1)
            window[np.hypot(px - ends[0] - part * dx, py - ends[1] - part * dy) <= radius] = colour

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
        codes = [ord(c) - 32 if 32 <= ord(c) < 127 else ord("?") - 32 for c in text]
        columns = np.concatenate(
            [np.frombuffer(_FONT, np.uint8)[5 * c : 5 * c + 5].tolist() + [0] for c in codes] or [np.zeros(1)]
        )
        bits = (columns.astype(np.uint8)[None, :-1] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
        glyphs = np.kron(bits, np.ones((size * _SUPERSAMPLING, size * _SUPERSAMPLING), np.uint8)).astype(bool)
        shift = {"left": 0.0, "middle": 0.5, "right": 1.0}[anchor] * glyphs.shape[1]
        if is_vertical:
            glyphs = np.rot90(glyphs)
            left, top = (
                round(x * _SUPERSAMPLING - 3.5 * size * _SUPERSAMPLING),
                round(y * _SUPERSAMPLING - glyphs.shape[0] + shift),
            )
        else:
            left, top = round(x * _SUPERSAMPLING - shift), round(y * _SUPERSAMPLING - 3.5 * size * _SUPERSAMPLING)
        window = self.fine[max(top, 0) : top + glyphs.shape[0], max(left, 0) : left + glyphs.shape[1]]
        window[glyphs[: window.shape[0], : window.shape[1]]] = colour

    def image(self, x: float, y: float, grey: Array, cell: int) -> None:
        """Draw a grey image (0 white, 1 black), enlarged by the factor `cell`."""
        large = np.kron(
            255 - np.rint(grey.clip(0, 1) * 235), np.ones((cell * _SUPERSAMPLING, cell * _SUPERSAMPLING))
        ).astype(np.uint8)
        left, top = round(x * _SUPERSAMPLING), round(y * _SUPERSAMPLING)
        self.fine[top : top + large.shape[0], left : left + large.shape[1]] = large[..., None]

    def pixels(self) -> Array:
        """Return the picture, uint8 of shape `(height, width, 3)`."""
        width, height = self.size
        blocks = self.fine.reshape(height, _SUPERSAMPLING, width, _SUPERSAMPLING, 3).astype(np.uint16)
        return (blocks.sum((1, 3)) // (_SUPERSAMPLING * _SUPERSAMPLING)).astype(np.uint8)

    def save(self, path: Path) -> None:
        """Write a PNG file."""
        path.write_bytes(png(self.pixels()))


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers from `low` to `high`, in steps of 1, 2 or 5 times a power of ten."""
    rough = max(high - low, 1e-9) / max(count, 1)
    power = 10.0 ** np.floor(np.log10(rough))
    step = float(next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999))
    first = int(np.ceil(low / step - 1e-9))
    return [round(i * step, 10) for i in range(first, int(np.floor(high / step + 1e-9)) + 1)]


def chart(
    canvas: Canvas, box: tuple[float, float, float, float], steps: Sequence[float], epochs: int, title: str
) -> None:
    """Draw the loss over training: every step in light blue, the mean of each epoch in dark blue, axes with ticks.

    Args:
        canvas: The canvas.
        box: Left, top, width and height of the area inside the axes.
        steps: The loss of every step.
        epochs: The number of epochs.
        title: The title above the chart.
    """
    left, top, width, height = box
    values = np.asarray(steps, float)
    high = float(values.max()) * 1.04 if len(values) else 1.0
    ticks = nice_ticks(0, high, 6)

    def to_pixel(epoch: float, loss: float) -> tuple[float, float]:
        return left + width * epoch / epochs, top + height * (1 - loss / high)

    for tick in ticks:
        y = to_pixel(0, tick)[1]
        canvas.line([(left, y), (left + width, y)], PALE)
        canvas.text(left - 8, y, f"{tick:g}", GREY, anchor="right")
    for tick in nice_ticks(0, epochs, 6):
        x = to_pixel(tick, 0)[0]
        canvas.line([(x, top + height), (x, top + height + 5)], GREY)
        canvas.text(x, top + height + 16, f"{tick:g}", GREY, anchor="middle")
    steps_per_epoch = max(len(values) // epochs, 1)
    canvas.line([to_pixel((i + 0.5) / steps_per_epoch, v) for i, v in enumerate(values)], SKY, 1.0)
    means = [float(values[i : i + steps_per_epoch].mean()) for i in range(0, len(values), steps_per_epoch)]
    canvas.line([to_pixel(i + 0.5, v) for i, v in enumerate(means)], BLUE, 2.4)
    canvas.line([(left, top), (left, top + height), (left + width, top + height)], INK, 1.2)
    canvas.text(left + width / 2, top - 22, title, anchor="middle")
    canvas.text(left + width / 2, top + height + 40, "epoch", anchor="middle")
    canvas.text(left - 56, top + height / 2, "cross-entropy", anchor="middle", is_vertical=True)
    canvas.line([(left + width - 130, top + 14), (left + width - 104, top + 14)], SKY, 1.5)
    canvas.text(left + width - 96, top + 14, "batch", GREY)
    canvas.line([(left + width - 130, top + 34), (left + width - 104, top + 34)], BLUE, 2.4)
    canvas.text(left + width - 96, top + 34, "epoch", GREY)


def gallery(
    canvas: Canvas,
    left: float,
    top: float,
    images: Array,
    guesses: Sequence[int],
    labels: Sequence[int],
    columns: int,
    title: str,
) -> None:
    """Draw images `(N, H, W)` with the model's guesses: green if right, else red with the true label in brackets."""
    cell, side = 7, images.shape[-1] * 7
    canvas.text(left + columns * (side + 14) / 2 - 7, top - 22, title, anchor="middle")
    for i, (grey, guess, label) in enumerate(zip(images, guesses, labels, strict=True)):
        x, y = left + i % columns * (side + 14), top + i // columns * (side + 34)
        is_right = guess == label
        canvas.rectangle(x - 2, y - 2, side + 4, side + 4, PALE if is_right else RED)
        canvas.image(x, y, grey, cell)
        canvas.text(
            x + side / 2,
            y + side + 14,
            f"{guess}" if is_right else f"{guess} ({label})",
            GREEN if is_right else RED,
            anchor="middle",
        )
