"""Check that every example runs at a small size and learns, and that train.py resumes to bit-identical results."""

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
import time
import wave
from pathlib import Path

import numpy as np
import pytest
from distributed_ranks import find_launcher
from pretrained_references import bert_vector, silero_probabilities, write_bert, write_silero

import weftgrad as wg
from weftgrad.cli.samples import capture_steps
from weftgrad.demo import digits
from weftgrad.demo import train as demo

ROOT = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)
EXAMPLES = ROOT / "examples"
SCRIPT = EXAMPLES / "train.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="needs the checkout: set WEFTGRAD_CHECKOUT")


def train(*arguments, scale=False):
    """Run the example; with `scale`, enable gradient scaling although the losses are float32."""
    scaler = wg.amp.GradScaler
    if scale:
        wg.amp.GradScaler = lambda device, enabled: scaler(device, 2.0**10, growth_interval=7)
    try:
        return runpy.run_path(str(SCRIPT))["main"](["--device", "cpu", *map(str, arguments)])
    finally:
        wg.amp.GradScaler = scaler


def fingerprint(run):
    """Return a digest of every bit of a run's state."""
    digest = hashlib.sha256()

    def update(value):
        if isinstance(value, wg.Tensor):
            digest.update(str((value.dtype, tuple(value.shape))).encode() + value.cpu().numpy().tobytes())
        elif isinstance(value, dict):
            for key, element in value.items():
                digest.update(repr(key).encode())
                update(element)
        elif isinstance(value, (list, tuple)):
            for element in value:
                update(element)
        else:
            digest.update(repr(value).encode())

    update([part.state_dict() for part in run.parts().values()])
    update([wg.get_rng_state(), run.epoch, run.steps, run.loss])
    return digest.hexdigest()


RESUME = """
import json, sys
sys.path.insert(0, sys.argv[1])
from test_examples import fingerprint, train
run = train("--epochs", 2, "--checkpoint", sys.argv[2], "--stop", 31, scale=True)
print(json.dumps([fingerprint(run), run.scaler.get_scale()]))
"""


def test_resuming_in_another_process_gives_the_same_bits(tmp_path, capsys):
    """Stop at step 17, two steps after a checkpoint, and resume in another process.

    An epoch has 22 steps. Both runs end in the second epoch, at step 31, with the same dropout masks, sample order and
    scaler state.
    """
    images, labels, *_ = (wg.tensor(a, device="cpu") for a in digits.load())
    demo.prepare(images.device, images, labels)  # compile kernels in batches; most are the demo's
    complete = train("--epochs", 2, "--stop", 31, scale=True)
    expected = fingerprint(complete)
    path = tmp_path / "run.pt"
    stopped = train("--epochs", 2, "--checkpoint", path, "--every", 5, "--stop", 17, scale=True)
    assert stopped.steps == 17
    assert fingerprint(stopped) != expected
    command = [sys.executable, "-c", RESUME, str(Path(__file__).parent), str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    message, *_, output_line = process.stdout.splitlines()
    assert message == "going on after step 15"
    assert json.loads(output_line) == [expected, 2.0**14]
    assert complete.scaler.get_scale() == 2.0**14  # doubled every 7 steps
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:scheduler.step")  # kernels do not run here, so the flag of the scaler is arbitrary
@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_types(half):
    """Record launches without running them: this checks which dtype each op computes in, not the values."""
    with capture_steps(wg.device("cpu")) as steps:
        run = train("--autocast", half, "--stop", 3)
        with run.autocast():
            assert run.net(run.test_images[:2]).dtype is getattr(wg, half)
    first = {(s.instance.name, s.instance.slots[0].dtype) for s in steps}
    assert {("convolution", half), ("contraction", half), ("cross_entropy_row", "float32")} <= first
    assert ("cross_entropy_row", half) not in first
    assert all(p.dtype is p.grad.dtype is wg.float32 for p in run.net.parameters())
    assert run.scaler.is_enabled() == (half == "float16")


def output_of(name, folder, *arguments):
    """Run an example in a session of its own with warnings as errors, and return what it prints.

    An example must end all processes that it starts.
    """
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    deadline = time.monotonic() + 60  # the fork server ends shortly after its client
    while processes_of_session(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not processes_of_session(process.pid)
    return output


def processes_of_session(session):
    """Return the ids of the processes in a session, without those that have ended and wait for their parent."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, process_session, *_ = path.read_text().rpartition(")")[2].split()
            if int(process_session) == session and state not in "ZX":
                pids.append(int(path.parent.name))
    return pids


def numbers(pattern, output):
    """Return the number that the pattern's group matches, everywhere in an example's output."""
    return [float(text.replace(",", "")) for text in re.findall(pattern, output)]


def test_digits_cnn(tmp_path):
    accuracies = numbers(r"test accuracy ([\d.]+)", output_of("digits_cnn", tmp_path, "--epochs", 2))
    assert len(accuracies) == 2
    assert accuracies[-1] > 80


def test_ddp(tmp_path):
    """Two ranks learn, and a run that continues from a checkpoint ends with the same bits."""
    command = [find_launcher(), "-n", "2", sys.executable, str(EXAMPLES / "ddp.py"), "--epochs", "3"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    output = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True
    ).stdout
    assert numbers(r"test accuracy ([\d.]+)", output)[0] > 80
    assert "resumed run has the same bits" in output


@pytest.mark.thorough
def test_char_gpt(tmp_path):
    output = output_of("char_gpt", tmp_path, "--steps", 30, "--context", 24, "--length", 20, "--prompt", "The ")
    (uniform,) = numbers(r"has loss ([\d.]+)", output)
    assert numbers(r"step +30  loss ([\d.]+)", output)[0] < uniform - 1
    _, _, written = output.partition("\nThe ")
    assert len(written.removesuffix("\n")) == 20


def test_own_op(tmp_path):
    output = output_of("own_op", tmp_path, "--steps", 150)
    assert "finite differences: True" in output
    errors = dict(re.findall(r"^(snake|relu) +([\d.]+)", output, re.MULTILINE))
    assert float(errors["snake"]) < float(errors["relu"])


def test_gan(tmp_path):
    output = output_of("gan", tmp_path, "--steps", 300)
    (distance,) = numbers(r"nearest real one: ([\d.]+)", output)
    assert distance < 2.5  # 3.6 for noise
    assert len(output.splitlines()[-8:][0]) == 5 * 16 + 4 * 3


def test_pytorch_paper(tmp_path):
    output = output_of("pytorch_paper", tmp_path, "--epochs", 2, "--steps", 300)
    assert numbers(r"accuracy ([\d.]+)", output)[0] > 60
    before, after = numbers(r"([\d.]+) (?:before|after)", output)
    assert after < before - 0.3


def test_listings_of_the_pytorch_paper_run_alone():
    """Listing 1 has no step between convolution and product: `mm` then takes the convolution's rows, of length 128."""
    listings = runpy.run_path(str(EXAMPLES / "pytorch_paper.py"))
    model = listings["FullBasicModel"]()
    with pytest.warns(UserWarning, match="dim=1"):
        out = model(wg.randn(2, 1, 5, 130))
    assert out.shape == (2, 128, 3, 10)
    out.square().sum().backward()
    networks = (listings["discriminator"], listings["generator"])
    before = [p.detach().clone() for network in networks for p in network.parameters()]
    listings["step"](wg.rand(64, 64))
    after = [p for network in networks for p in network.parameters()]
    for parameter in (*model.parameters(), *after):
        assert parameter.grad.shape == parameter.shape
        assert parameter.grad.abs().max().item() > 0
    assert all((old != new).any().item() for old, new in zip(before, after, strict=True))


def test_hogwild(tmp_path):
    output = output_of("hogwild", tmp_path, "--epochs", 4, "--processes", 2)
    rows = re.findall(r"^ +(\d+) +([\d.]+) +([\d.]+)% +([\d.]+)$", output, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 2]
    assert min(float(row[2]) for row in rows) > 70
    assert min(float(row[3]) for row in rows) > 1  # in the parent, which runs no optimizer


def test_custom_function(tmp_path):
    output = output_of("custom_function", tmp_path, "--steps", 60)
    assert "gradient [0.0, 1.0, 1.0, 0.0]" in output
    assert numbers(r"test accuracy ([\d.]+)", output)[-1] > 80


@pytest.mark.thorough
def test_data_loading(tmp_path):
    output = output_of("data_loading", tmp_path, "--items", 1024, "--workers", 0, 2)
    losses, accuracies = (numbers(rf"{word} ([\d.]+)", output) for word in ("last loss", "test accuracy"))
    assert losses[0] == losses[1]  # the order is the same for any number of workers
    assert accuracies[0] == accuracies[1] > 80


@pytest.mark.thorough
def test_mixed_precision(tmp_path):
    path = tmp_path / "run.pt"
    output = output_of("mixed_precision", tmp_path, "--steps", 3, "--dtype", "bfloat16", "--file", path)
    assert "the same losses: True" in output
    (first_full, last_full), (first_half, last_half), recomputed = (
        [float(text) for text in re.findall(r"[\d.]+", line)[1:3]] for line in output.splitlines()[1:4]
    )
    assert (first_half, last_half) == tuple(recomputed)  # the same gradients
    assert first_half == pytest.approx(first_full, rel=0.05)
    assert last_half < first_half
    assert last_full < first_full
    _, without, with_checkpoint = numbers(r"([\d.]+) MiB", output)
    assert with_checkpoint < without
    assert path.stat().st_size > 0


@pytest.mark.thorough
def test_profiling(tmp_path):
    output = output_of("profiling", tmp_path, "--steps", 2, "--batch-size", 4, "--output", "profile")
    assert "convolution" in output
    names = {event["name"] for event in json.loads((tmp_path / "profile" / "trace.json").read_text())["traceEvents"]}
    assert {"forward", "backward", "update", "convolution"} <= names
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "profile" / "ops.png").read_bytes().startswith(b"\x89PNG")


def test_two_devices(tmp_path):
    output = output_of("two_devices", tmp_path, "--devices", "cpu", "nothing:7", "--samples", 3, "--size", 64)
    assert "nothing:7 is left out" in output
    assert numbers(r"([\d.]+) us", output)[0] > 0
    assert "1.00 x the fastest" in output


def test_simulated_gpt(tmp_path):
    output = output_of("simulated_gpt", tmp_path, "--width", 48, "--layers", 2, "--vocabulary", 500)
    efficiencies = numbers(r"efficiency ([\d.]+)%", output)
    assert len(efficiencies) == 12
    assert all(0 < efficiency < 200 for efficiency in efficiencies)
    assert "ddp, tensor 8 on 8192 devices" in output


def test_sentence_similarity(tmp_path):
    """A BERT of random weights, from the files that a package has, beside NumPy's."""
    weights = write_bert(tmp_path)
    sentences = ("Cats sit on a CAFÉ!", "a dog", "cat cats ca on sit a a a a")
    pieces = ([2, 5, 6, 7, 12, 4, 8, 9, 3], [2, 4, 1, 3], [2, 5, 5, 6, 11, 12, 7, 3])
    example = runpy.run_path(str(EXAMPLES / "sentence_similarity.py"))
    encoder = example["SentenceEncoder"](tmp_path)
    assert [encoder.split(sentence, 9) for sentence in sentences[:2]] == list(pieces[:2])
    assert encoder.split(sentences[2], 8) == pieces[2]  # the last pieces are left out
    expected = np.stack([bert_vector(weights, numbers[: len(numbers)]) for numbers in pieces[1:]])
    np.testing.assert_allclose(encoder(sentences[1:]).numpy(), expected, rtol=1e-4, atol=1e-5)
    output = output_of("sentence_similarity", tmp_path, "--folder", tmp_path, *sentences[1:])
    cosines = numbers(r" (-?\d\.\d{3})", output)
    np.testing.assert_allclose(cosines, (expected @ expected.T).flatten(), atol=6e-4)


def test_voice_activity(tmp_path):
    """Silero VAD's network with random weights on noise, beside NumPy's."""
    weights = write_silero(tmp_path / "weights.safetensors")
    sound = (0.3 * np.random.default_rng(2).standard_normal(6000)).clip(-1, 1)
    samples = (sound * 32767).astype("<i2")
    with wave.open(str(tmp_path / "noise.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    expected = silero_probabilities(weights, samples / 32768)
    example = runpy.run_path(str(EXAMPLES / "voice_activity.py"))
    network = example["VoiceActivity"](tmp_path / "weights.safetensors")
    actual = network(wg.tensor(example["read_sound"](tmp_path / "noise.wav"))).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    output = output_of(
        "voice_activity", tmp_path, tmp_path / "noise.wav", "--weights", tmp_path / "weights.safetensors"
    )
    np.testing.assert_allclose(numbers(r"s  ([\d.]+)", output), [expected[:8].mean(), expected[8:].mean()], atol=6e-4)


def test_every_example_is_tested_and_short():
    tests = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert path == SCRIPT or f"def test_{path.stem}(" in tests
        assert len(text.splitlines()) < 130
        assert text.endswith('if __name__ == "__main__":\n    main()\n')
