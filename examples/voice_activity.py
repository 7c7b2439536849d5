"""Tell where someone speaks, by Silero VAD, a pretrained network, whose weights a package of PyPI has.

    pip install --no-deps silero-vad
    python examples/voice_activity.py                     # of vowels that a formula makes, with noise between them
    python examples/voice_activity.py recording.wav       # 16 kHz, 16 bits, one channel

Convolutions turn a piece of 32 ms into its spectrum and that into 128 numbers, an LSTM follows these numbers, and a
probability of speech comes out for each piece. The licence of the network (Silero Team, 2021) is MIT.
"""

import argparse
import importlib.util
import wave
from pathlib import Path

import numpy as np

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn import functional as F

PACKAGE = "silero_vad"
RATE, PIECE, CONTEXT = 16_000, 512, 64  # samples in a second, in a piece, and in the end of the piece before


def weights_path():
    """Return the safetensors file of the installed package."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None:
        raise SystemExit(f"no weights: pip install --no-deps {PACKAGE.replace('_', '-')}, or pass --weights")
    return Path(package.origin).parent / "data" / "silero_vad_16k.safetensors"


class VoiceActivity(nn.Module):
    """Map sound `(samples,)` to the probabilities of speech in its pieces `(pieces,)`."""

    def __init__(self, weights):
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)  # cosines, then sines, of 129 frequencies
        self.conv1, self.conv4 = nn.Conv1d(129, 128, 3, padding=1), nn.Conv1d(64, 128, 3, padding=1)
        self.conv2, self.conv3 = (nn.Conv1d(n, 64, 3, stride=2, padding=1) for n in (128, 64))
        self.lstm = nn.LSTM(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)
        state = wg.serialization.load_safetensors(weights)
        renamed = {name.replace("lstm_cell.", "lstm.") + "_l0" * ("lstm" in name): state[name] for name in state}
        self.load_state_dict(renamed)

    @wg.no_grad()
    def forward(self, sound):
        sound = F.pad(sound, (CONTEXT, -len(sound) % PIECE))
        pieces = F.pad(sound.unfold(0, CONTEXT + PIECE, PIECE), (0, CONTEXT), "reflect").unsqueeze(1)
        cosines, sines = self.stft_conv(pieces).chunk(2, dim=1)
        x = (cosines.square() + sines.square()).sqrt()
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = layer(x).relu()
        followed, _ = self.lstm(x.squeeze(-1))  # one piece after the other
        return self.final_conv(followed.relu().unsqueeze(-1)).sigmoid().flatten()


def make_vowels(seconds=6.0):
    """Return noise of this length, and a voice that sings vowels for a second, then pauses for one, and so on.

    A vowel is a pulse train, whose frequencies near the formants of a vocal tract are louder than others.
    """
    generator = np.random.default_rng(0)
    time = np.arange(int(seconds * RATE)) / RATE
    pitch = 120 + 15 * np.sin(2 * np.pi * 0.7 * time) + 3 * np.sin(2 * np.pi * 5 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    vowels = ((730, 1090, 2440), (270, 2290, 3010), (570, 840, 2410))  # Hz: a, i, o
    sound = 0.003 * generator.standard_normal(len(time))
    for number, formants in enumerate(vowels):
        is_sung = (time >= 2 * number + 1) & (time < 2 * number + 2)
        loudness = np.convolve(is_sung, np.hanning(800) / np.hanning(800).sum(), "same")
        for harmonic in range(1, 40):
            gains = [1 / (1 + ((harmonic * pitch - formant) / 90) ** 2) for formant in formants]
            sound += loudness * (gains[0] + 0.5 * gains[1] + 0.2 * gains[2]) * np.sin(harmonic * phase) * 0.15
    return sound.astype(np.float32)


def read_sound(path):
    """Return the samples of a WAV file, from -1 to 1."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (RATE, 2, 1):
            raise SystemExit(f"{path}: must have {RATE} samples of 16 bits a second, and one channel")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sound", nargs="?", help="a WAV file; default: vowels that a formula makes")
    parser.add_argument("--weights", type=Path, help="the safetensors file; default: the package's")
    options = parser.parse_args()
    network = VoiceActivity(options.weights or weights_path())
    sound = read_sound(options.sound) if options.sound else make_vowels()
    probabilities = network(wg.from_numpy(sound))
    seconds = PIECE / RATE
    for start in range(0, len(probabilities), 8):
        group = probabilities[start : start + 8]
        bar = "#" * round(40 * group.mean().item())
        print(f"{start * seconds:6.2f} s  {group.mean().item():.3f}  {bar}")
    print(f"speech in {(probabilities > 0.5).float().mean().item():.0%} of {len(sound) / RATE:.1f} s")


if __name__ == "__main__":
    main()
