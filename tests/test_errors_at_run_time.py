"""Check errors of graphs, memory, missing drivers and forked processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from error_checks import raises, tensor

import weftgrad as wg
from weftgrad.runtime import errors

# Graphs


def test_a_second_backward() -> None:
    x = tensor(3, grad=True)
    y = (x * x).sum()
    y.backward()
    with raises(errors.FreedGraphError, RuntimeError, "backward of", "retain_graph=True"):
        y.backward()


def test_roots_without_a_gradient() -> None:
    with raises(errors.GradientError, RuntimeError, "does not require grad", "requires_grad=True"):
        tensor(1).backward()
    with raises(errors.GradientError, RuntimeError, "scalar", "[3]", ".sum()"):
        (tensor(3, grad=True) * 2).backward()
    with raises(errors.ShapeError, RuntimeError, "[2]", "[3]"):
        (tensor(3, grad=True) * 2).backward(tensor(2))
    with raises(errors.GradientError, RuntimeError, "int64"):
        tensor(3, dtype=wg.int64).requires_grad_(True)
    with raises(errors.ArgumentError, TypeError, "backward", "float"):
        wg.autograd.backward(1.0)
    with raises(errors.GradientError, RuntimeError, "input 1", "[4]", "requires_grad_()"):
        wg.autograd.grad(tensor(3, grad=True).sum(), [tensor(3, grad=True), tensor(4)])
    with raises(errors.GradientError, RuntimeError, "allow_unused"):
        wg.autograd.grad(tensor(3, grad=True).sum(), tensor(3, grad=True))
    with raises(errors.GradientError, RuntimeError, "detach()"):
        tensor(3, grad=True).numpy()


def test_a_saved_tensor_that_was_written_to() -> None:
    x = tensor(3, grad=True)
    y = x * 1
    z = y.sin().sum()
    y.add_(1)
    with raises(errors.VersionError, RuntimeError, "sin", "[3]", "float32", "version 1", "version 0", "clone()"):
        z.backward()
    weight = tensor(3, grad=True)
    loss = (weight * x).sum()
    with wg.no_grad():
        weight.mul_(2)
    with raises(errors.VersionError, RuntimeError, "mul"):
        loss.backward()


def test_a_result_that_was_written_to() -> None:
    x = tensor(3, grad=True)
    y = x.exp()  # the backward of exp reads its result
    y.mul_(2)
    with raises(errors.VersionError, RuntimeError, "exp"):
        y.sum().backward()


def test_leaves_in_place() -> None:
    x = tensor(3, grad=True)
    with raises(errors.GradientError, RuntimeError, "add_", "leaf", "no_grad()"):
        x.add_(1)
    with raises(errors.GradientError, RuntimeError, "leaf", "no_grad()"):
        x[1:].mul_(2)
    with raises(errors.GradientError, RuntimeError, "out=", "no_grad()"):
        wg.add(x, x, out=tensor(3))
    with wg.no_grad():
        x.add_(1)
    assert x.tolist() == [2, 2, 2]


def test_writes_that_overlap() -> None:
    with raises(errors.ShapeError, RuntimeError, "[3, 4]", "[0, 1]", ".clone()"):
        tensor(1, 4).expand(3, 4).add_(1)
    memory = tensor(6)
    with raises(errors.ShapeError, RuntimeError, "share memory", ".clone()"):
        wg.add(memory[:-1], 1, out=memory[1:])
    windows = tensor(6).as_strided((3, 3), (1, 1))
    with raises(errors.ShapeError, RuntimeError, "several indices", ".clone()"):
        windows.mul_(2)
    even, odd = memory[::2], memory[1::2]
    with raises(errors.ShapeError, RuntimeError, "share memory"):
        wg.add(even, 1, out=memory[:3])
    wg.add(even, 1, out=odd)  # their extents overlap, but they share no element
    assert odd.tolist() == [n + 1 for n in even.tolist()]


# Memory


def test_out_of_memory() -> None:
    device = wg.testing.synthetic_device(907, "")
    held_tensor = wg.zeros(1000, device=device)
    wg.set_memory_limit(64 << 20, device)
    try:
        with raises(errors.OutOfMemoryError, MemoryError, "400 MiB", "limit 64.0 MiB", "set_memory_limit"):
            wg.zeros(100 << 20, device=device)
        assert wg.zeros(1 << 20, device=device).sum().item() == 0  # the device still works
    finally:
        wg.set_memory_limit(None, device)
    assert held_tensor.sum().item() == 0


# Without a driver, and after a fork


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own with extra environment variables."""
    full_environment = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env=full_environment,
        check=False,
    )


def test_without_pyopencl() -> None:
    process = run("""
        import sys
        sys.modules["pyopencl"] = None
        import pickle
        import numpy as np
        import weftgrad as wg
        x = wg.tensor([[1.0, 2.0], [3.0, 4.0]])
        assert str(x.device) == "cpu" and x.T[0].tolist() == [1.0, 3.0]
        assert "tensor([[1., 2.]" in repr(x), repr(x)
        assert wg.from_numpy(np.arange(3.0)).numpy().sum() == 3
        assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
        assert [d.type for d in wg.devices() if d.type == "opencl"] == []
        assert (x + 1).tolist() == [[2.0, 3.0], [4.0, 5.0]]  # on cpu, which needs none
        try:
            wg.zeros(2, device="opencl:0") + 1
        except ImportError as error:
            assert isinstance(error, wg.runtime.errors.DriverNotFound), error
            assert "pip install pyopencl" in str(error), error
        else:
            raise AssertionError("it ran")
        print("done")
        """)
    assert process.stdout.strip() == "done", process.stderr


def test_constants_need_no_driver() -> None:
    process = run("""
        import sys
        sys.modules["pyopencl"] = None
        import weftgrad as wg
        assert wg.zeros(2).tolist() == [0, 0] and wg.ones(2).tolist() == [1, 1]
        print("done")
        """)
    assert process.stdout.strip() == "done", process.stderr


def _launch_in_child(queue: Any) -> None:
    try:
        assert (wg.ones(3, device="cpu") + 1).tolist() == [2, 2, 2]
        (wg.ones(3, device="opencl:0") + 1).tolist()
        queue.put("ran")
    except errors.ForkError as error:
        queue.put(f"{isinstance(error, RuntimeError)} {error}")
    except BaseException as error:
        queue.put(repr(error))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_launch_after_a_fork() -> None:
    """A forked child computes on `cpu`; on an OpenCL device a launch raises, as its driver does not survive a fork."""
    pytest.importorskip("pocl_binary_distribution")
    (tensor(3) + 1).tolist()
    (wg.ones(3, device="opencl:0") + 1).tolist()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_launch_in_child, args=(queue,))
    child.start()
    child.join(60)
    hung = child.is_alive()
    if hung:
        child.kill()
    assert not hung
    assert child.exitcode == 0
    answer = queue.get()
    assert answer.startswith("True"), answer
    assert "spawn" in answer
    assert (tensor(3) + 1).tolist() == [2, 2, 2]  # the parent still works
