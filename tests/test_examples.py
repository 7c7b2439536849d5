"""examples/train.py runs, in half types too, and goes on from a checkpoint in another process to the same bits."""

import hashlib
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import weftgrad as wg
from weftgrad.cli.samples import collecting
from weftgrad.demo import digits
from weftgrad.demo import train as demo

ROOT = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)
SCRIPT = ROOT / "examples" / "train.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="needs the checkout: set WEFTGRAD_CHECKOUT")


def train(*arguments, scale=False):
    """A run of the example; with `scale`, its losses are scaled although they are float32."""
    scaler = wg.amp.GradScaler
    if scale:
        wg.amp.GradScaler = lambda device, enabled: scaler(device, 2.0**10, growth_interval=7)
    try:
        return runpy.run_path(str(SCRIPT))["main"](["--device", "cpu", *map(str, arguments)])
    finally:
        wg.amp.GradScaler = scaler


def fingerprint(run):
    """Every bit of a run's state."""
    found = hashlib.sha256()

    def take(value):
        if isinstance(value, wg.Tensor):
            found.update(str((value.dtype, tuple(value.shape))).encode() + value.cpu().numpy().tobytes())
        elif isinstance(value, dict):
            for key, inner in value.items():
                found.update(repr(key).encode())
                take(inner)
        elif isinstance(value, (list, tuple)):
            for inner in value:
                take(inner)
        else:
            found.update(repr(value).encode())

    take([part.state_dict() for part in run.parts().values()])
    take([wg.get_rng_state(), run.epoch, run.steps, run.loss])
    return found.hexdigest()


RESUME = """
import json, sys
sys.path.insert(0, sys.argv[1])
from test_examples import fingerprint, train
run = train("--epochs", 2, "--checkpoint", sys.argv[2], "--stop", 31, scale=True)
print(json.dumps([fingerprint(run), run.scaler.get_scale()]))
"""


def test_resuming_in_another_process_gives_the_same_bits(tmp_path, capsys):
    """Stopped at step 17, two steps after a checkpoint in the middle of an epoch of 22; dropout, order, scaler and all.

    Both ways end in the second epoch, at step 31.
    """
    images, labels, *_ = (wg.tensor(a, device="cpu") for a in digits.load())
    demo.prepare(images.device, images, labels)  # kernels, most of which are the demo's: in batches
    whole = train("--epochs", 2, "--stop", 31, scale=True)
    wanted = fingerprint(whole)
    path = tmp_path / "run.pt"
    stopped = train("--epochs", 2, "--checkpoint", path, "--every", 5, "--stop", 17, scale=True)
    assert stopped.steps == 17
    assert fingerprint(stopped) != wanted
    command = [sys.executable, "-c", RESUME, str(Path(__file__).parent), str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    said, *_, found = ran.stdout.splitlines()
    assert said == "going on after step 15"
    assert json.loads(found) == [wanted, 2.0**14]
    assert whole.scaler.get_scale() == 2.0**14  # doubled every 7 steps
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:scheduler.step")  # what is in the flag of a step that was not run is anything
@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_types(half):
    """With launches only listed: what is computed in which type is the question, not the values."""
    with collecting(wg.device("cpu")) as steps:
        run = train("--autocast", half, "--stop", 3)
        with run.autocast():
            assert run.net(run.test_images[:2]).dtype is getattr(wg, half)
    first = {(s.instance.name, s.instance.slots[0].dtype) for s in steps}
    assert {("convolution", half), ("contraction", half), ("cross_entropy_row", "float32")} <= first
    assert ("cross_entropy_row", half) not in first
    assert all(p.dtype is p.grad.dtype is wg.float32 for p in run.net.parameters())
    assert run.scaler.is_enabled() == (half == "float16")
