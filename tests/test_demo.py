"""Check that the demo learns, needs no memory after the first epoch, and draws what it learned, by two ways."""

import importlib.util
import json
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest

from weftgrad.cli import main
from weftgrad.demo import digits, figure, picture, train
from weftgrad.runtime.errors import ArgumentError


def decode(data):
    """Return the pixels of an RGB PNG whose rows use filter 0."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    offset, chunks = 8, []
    while offset < len(data):
        (size,) = struct.unpack(">I", data[offset : offset + 4])
        chunk_type, payload = data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + size]
        assert struct.unpack(">I", data[offset + 8 + size : offset + 12 + size])[0] == zlib.crc32(chunk_type + payload)
        chunks.append((chunk_type, payload))
        offset += 12 + size
    assert [k for k, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *remaining_fields = struct.unpack(">IIBBBBB", chunks[0][1])
    assert remaining_fields == [8, 2, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_png_round_trip():
    pixels = np.random.default_rng(0).integers(0, 256, (13, 7, 3), np.uint8)
    np.testing.assert_array_equal(decode(picture.png(pixels)), pixels)


def test_canvas_and_ticks():
    canvas = picture.Canvas(60, 30)
    canvas.rectangle(10, 5, 20, 10, (1, 2, 3))
    canvas.line([(40, 2), (40, 28)], (200, 0, 0), 2)
    pixels = canvas.pixels()
    assert pixels.shape == (30, 60, 3)
    assert (pixels[5:15, 10:30] == (1, 2, 3)).all()
    assert (pixels[0] == 255).all()
    assert (pixels[15, 39:41] == (200, 0, 0)).all()
    canvas.text(30, 22, "8!", anchor="middle")
    canvas.text(4, 15, "up", is_vertical=True)
    assert (canvas.pixels() < 100).any()
    assert picture.nice_ticks(0, 2.3, 5) == [0, 0.5, 1, 1.5, 2]
    assert picture.nice_ticks(0, 15, 6) == [0, 5, 10, 15]


SEEDS = 5
RUN = f"""
import json, sys
from pathlib import Path
from weftgrad.demo import figure, train
reports = [train.train(seed=seed, device="cpu", progress=lambda *at: None) for seed in range({SEEDS})]
figure.draw_on_canvas(reports[0], Path(sys.argv[1]))
print(json.dumps([vars(report) for report in reports]))
"""


def test_learns_without_further_memory(tmp_path):
    """Run in a separate process, because other tests leave memory in the pool."""
    path = tmp_path / "demo.png"
    process = subprocess.run([sys.executable, "-c", RUN, str(path)], capture_output=True, text=True, check=True)
    reports = json.loads(process.stdout)
    assert len(reports) == SEEDS
    assert sum(report["accuracy"] for report in reports) / SEEDS >= 0.985, [r["accuracy"] for r in reports]
    assert len({tuple(report["losses"]) for report in reports}) == SEEDS
    for report in reports:
        assert report["losses"][-1] < report["losses"][0] / 3
        assert len(report["losses"]) == train.EPOCHS * (digits.TRAINING_IMAGES // train.BATCH_SIZE)
        assert len(report["driver_allocations"]) == train.EPOCHS
        assert not any(report["driver_allocations"][1:])
        assert report["launches"] > 0
    assert reports[0]["reserved"] <= 1.3 * reports[0]["peak"]
    repeated = train.train(epochs=1, steps=1, seed=0, device="cpu")
    assert repeated.losses[0] == reports[0]["losses"][0]
    pixels = decode(path.read_bytes())
    assert pixels.shape[0] > 300
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 50


def test_the_command(tmp_path):
    path = tmp_path / "demo.png"
    command = [sys.executable, "-m", "weftgrad.cli", "demo", "--epochs", "1", "--device", "cpu", "--output", str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    for word in ("test accuracy", "samples/s", "kernels launched", "reserved", "driver allocations", "device"):
        assert word in process.stdout
    assert path.read_bytes().startswith(b"\x89PNG")
    if importlib.util.find_spec("matplotlib") is None:
        assert decode(path.read_bytes()).any()


@pytest.fixture
def report():
    """Return a report with two mistakes."""
    labels = digits.load()[3].tolist()
    guesses = [(label + 1) % 10 if i in (3, 200) else label for i, label in enumerate(labels)]
    losses = np.geomspace(2.3, 0.2, 44).tolist()
    return train.Report("a device", 358 / 360, losses, guesses, 1234.0, driver_allocations=[5, 0])


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_picture_by_matplotlib(tmp_path, report, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"demo{suffix}"
    figure.check_output(path)
    figure.draw(report, path)
    assert path.read_bytes().startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    if suffix == ".svg":
        text = path.read_text(encoding="utf-8")
        title = "Handwritten digits: 99.4 % of 360 test images right"
        for words in (title, "Training loss", "cross-entropy", "a device, 1,234 samples/s"):
            assert f"<!-- {words} -->" in text
        assert text.count("<image") == 24
        assert text.count("stroke: #c92a2a") == 2 * 4  # the frames of the two mistakes


def test_the_picture_without_matplotlib(tmp_path, report, monkeypatch):
    monkeypatch.setattr(figure.importlib.util, "find_spec", lambda name: None)
    path = tmp_path / "demo.png"
    figure.check_output(path)
    figure.draw(report, path)
    assert (decode(path.read_bytes()) == picture.RED).all(2).any()
    with pytest.raises(ArgumentError, match=r"must end with \.png .*need matplotlib"):
        figure.check_output(tmp_path / "demo.svg")


def test_output_is_checked_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train, "train", lambda *_, **__: pytest.fail("trained first"))
    (tmp_path / "folder.png").mkdir()
    for name, words in [
        ("demo.txt", "must end with .png"),
        ("demo", "must end with .png"),
        ("missing/demo.png", "there is no folder"),
        ("folder.png", "it is a folder"),
    ]:
        assert main(["demo", "--output", str(tmp_path / name)]) != 0
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line
        assert name in line
    monkeypatch.setattr(figure.os, "access", lambda path, mode: path != tmp_path)
    assert main(["demo", "--output", str(tmp_path / "demo.png")]) != 0
    assert "no permission to write there" in capsys.readouterr().err
