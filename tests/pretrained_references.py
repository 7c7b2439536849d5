"""Small random files in the form of two pretrained networks, and NumPy's computation of what the networks answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from scipy.special import erf, expit

from weftgrad import from_numpy
from weftgrad.serialization import save_safetensors

Weights = dict[str, np.ndarray]
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "##s", "sit", "cafe", "!", "##ti", "ca", "on")
WIDTH, HEADS, LAYERS, HIDDEN, POSITIONS = 12, 3, 2, 20, 8
EPSILON = 1e-12


def write_bert(folder: Path) -> Weights:
    """Write a BERT of random weights in the files that a package has, and return its weights."""
    generator = np.random.default_rng(0)
    config = {
        "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "intermediate_size": HIDDEN,
        "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "vocab_size": len(VOCABULARY),
        "layer_norm_eps": EPSILON,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    modules = {"embeddings.LayerNorm": (WIDTH,)}
    for layer in range(LAYERS):
        attention = {f"attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")}
        rest = {
            "attention.output.dense": (WIDTH, WIDTH), "attention.output.LayerNorm": (WIDTH,),
            "intermediate.dense": (HIDDEN, WIDTH), "output.dense": (WIDTH, HIDDEN), "output.LayerNorm": (WIDTH,),
        }  # fmt: skip
        modules |= {f"encoder.layer.{layer}.{name}": shape for name, shape in (attention | rest).items()}
    for name, shape in modules.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    weights = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    position_ids = np.arange(POSITIONS)[None]  # a buffer, which such files also have
    save_safetensors(
        {name: from_numpy(w) for name, w in (weights | {"embeddings.position_ids": position_ids}).items()},
        str(folder / "model.safetensors"),
    )
    return {name: weight.astype(np.float64) for name, weight in weights.items()}


def _linear(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPSILON)
    return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def bert_vector(weights: Weights, pieces: list[int]) -> np.ndarray:
    """Return the unit vector of one sentence, whose pieces have these numbers."""
    embeddings = (
        weights["embeddings.word_embeddings.weight"][pieces]
        + weights["embeddings.position_embeddings.weight"][: len(pieces)]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    x = _norm(weights, "embeddings.LayerNorm", embeddings)
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            _linear(weights, f"{name}.attention.self.{part}", x).reshape(len(pieces), HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(WIDTH / HEADS)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(len(pieces), WIDTH)
        x = _norm(
            weights, f"{name}.attention.output.LayerNorm", x + _linear(weights, f"{name}.attention.output.dense", mixed)
        )
        hidden = _linear(weights, f"{name}.intermediate.dense", x)
        hidden = hidden * (1 + erf(hidden / np.sqrt(2))) / 2
        x = _norm(weights, f"{name}.output.LayerNorm", x + _linear(weights, f"{name}.output.dense", hidden))
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def write_silero(path: Path) -> Weights:
    """Write random weights under the names of Silero VAD's safetensors file, and return them."""
    generator = np.random.default_rng(1)
    shapes = {
        "stft_conv.weight": (258, 1, 256), "conv1.weight": (128, 129, 3), "conv1.bias": (128,),
        "conv2.weight": (64, 128, 3), "conv2.bias": (64,), "conv3.weight": (64, 64, 3), "conv3.bias": (64,),
        "conv4.weight": (128, 64, 3), "conv4.bias": (128,), "lstm_cell.weight_ih": (512, 128),
        "lstm_cell.weight_hh": (512, 128), "lstm_cell.bias_ih": (512,), "lstm_cell.bias_hh": (512,),
        "final_conv.weight": (1, 128, 1), "final_conv.bias": (1,),
    }  # fmt: skip
    weights = {
        name: (generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }
    save_safetensors({name: from_numpy(weight) for name, weight in weights.items()}, str(path))
    return {name: weight.astype(np.float64) for name, weight in weights.items()}


def _convolution(x: np.ndarray, weight: np.ndarray, stride: int, padding: int = 0) -> np.ndarray:
    """Return a convolution of `x`, of shape `(channels, length)`."""
    x = np.pad(x, ((0, 0), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[-1], axis=1)[:, ::stride]
    return np.einsum("clk,ock->ol", windows, weight)


def silero_probabilities(weights: Weights, sound: np.ndarray) -> np.ndarray:
    """Return the probabilities of speech, one piece of 512 samples after the other."""
    state = cell = np.zeros(128)
    context = np.zeros(64)
    probabilities = []
    for piece in np.pad(sound.astype(np.float64), (0, -len(sound) % 512)).reshape(-1, 512):
        x = np.pad(np.concatenate([context, piece]), (0, 64), "reflect")[None]
        context = piece[-64:]
        spectrum = _convolution(x, weights["stft_conv.weight"], 128)
        x = np.hypot(spectrum[:129], spectrum[129:])
        for name, stride in (("conv1", 1), ("conv2", 2), ("conv3", 2), ("conv4", 1)):
            x = np.maximum(0, _convolution(x, weights[f"{name}.weight"], stride, 1) + weights[f"{name}.bias"][:, None])
        gates = weights["lstm_cell.weight_ih"] @ x[:, 0] + weights["lstm_cell.bias_ih"]
        gates += weights["lstm_cell.weight_hh"] @ state + weights["lstm_cell.bias_hh"]
        into, keep, new, out = gates.reshape(4, 128)
        cell = expit(keep) * cell + expit(into) * np.tanh(new)
        state = expit(out) * np.tanh(cell)
        probabilities.append(
            expit(weights["final_conv.weight"][0, :, 0] @ np.maximum(0, state) + weights["final_conv.bias"][0])
        )
    return np.array(probabilities)
