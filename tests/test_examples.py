"""Check that examples/train.py runs, also in half types, and resumes from a checkpoint to bit-identical results."""

import hashlib
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import weftgrad as wg
from weftgrad.cli.samples import capture_steps
from weftgrad.demo import digits
from weftgrad.demo import train as demo

ROOT = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)
SCRIPT = ROOT / "examples" / "train.py"
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
