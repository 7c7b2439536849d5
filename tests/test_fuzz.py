"""Compare random calls and programs with NumPy, and with PyTorch if it is installed.

A case is drawn from its number, the seed, so that a failure names what to run again:

    WEFTGRAD_FUZZ_SEED=123 WEFTGRAD_FUZZ_CASES=1 pytest tests/test_fuzz.py

`WEFTGRAD_FUZZ_CASES` sets the number of cases of each test; thorough runs have 1000, others 100.
`WEFTGRAD_TEST_DEVICE` is the device, `cpu` by default. All cases of a test are launched before the first value is read,
because kernels are compiled together while launches wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fuzz_programs
import numpy as np
import pytest
from fuzz_calls import OPS, Call, draw_call
from fuzz_reference import DTYPES, FLOATS, Array, cast, mismatch

import weftgrad as wg

FIRST_SEED = int(os.environ.get("WEFTGRAD_FUZZ_SEED", "0"))
CASES = int(os.environ.get("WEFTGRAD_FUZZ_CASES", "1000" if os.environ.get("WEFTGRAD_TEST_THOROUGH") else "100"))
DEVICE = os.environ.get("WEFTGRAD_TEST_DEVICE", "cpu")
SEEDS = range(FIRST_SEED, FIRST_SEED + CASES)
MAX_REPORTS = 5


def to_array(tensor: Any) -> Array:
    """Return a tensor's values; bfloat16 as float32."""
    tensor = tensor.detach().cpu()
    return np.array((tensor.float() if str(tensor.dtype).endswith("bfloat16") else tensor).numpy())


def dtype_name(tensor: Any) -> str:
    """Return the name of a tensor's dtype, of weftgrad or torch."""
    return str(tensor.dtype).rpartition(".")[2]


def difference(tensor: Any, expected: Any, name: str, ulps: float, scale: float = 0.0) -> str:
    """Return how a tensor differs from its dtype and exact values; "" if it does not."""
    if dtype_name(tensor) != name:
        return f"dtype {dtype_name(tensor)}, expected {name}"
    return mismatch(to_array(tensor), expected, name, ulps, scale)


def report(failures: list[str]) -> None:
    """Fail with the first messages, if there are any."""
    assert not failures, f"{len(failures)} of {CASES} cases differ:\n" + "\n".join(failures[:MAX_REPORTS])


@contextmanager
def naming(case: object) -> Iterator[None]:
    """Add the case to the message of an error that it raises."""
    try:
        yield
    except Exception as error:
        error.add_note(str(case))
        raise


def run_all(run: Callable[[Any], Any], cases: list[Any]) -> list[Any]:
    """Return the result of each case. An error names its case."""
    results = []
    for case in cases:
        with naming(case), wg.device(DEVICE):
            results.append(run(case))
    return results


# Calls ----------------------------------------------------------------------------------------------------------------


def test_calls_agree_with_numpy() -> None:
    calls = [draw_call(seed) for seed in SEEDS]
    failures = []
    for call, result in zip(calls, run_all(lambda call: call.run(wg), calls), strict=True):
        expected, dtype, scale = call.expected()
        if message := difference(result, expected, dtype, call.op.ulps, scale):
            failures.append(f"{call}: {message}")
    report(failures)


def test_every_op_is_drawn_with_every_dtype() -> None:
    """The generator itself: no op and no dtype that it names is left out."""
    drawn = {(call.op.name, operand.dtype) for call in map(draw_call, range(8_000)) for operand in call.operands}
    assert {name for name, _ in drawn} == {op.name for op in OPS}
    missing = {(op.name, dtype) for op in OPS for dtype in op.takes} - drawn
    assert not missing, sorted(missing)


def test_references_agree_with_known_values() -> None:
    """The references: a wrong one would accept a wrong op."""
    values = np.array([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 3.39e38, np.nan])
    np.testing.assert_array_equal(cast(values, "bfloat16"), np.float32([1, 1, 1 + 2**-6, 3.3895314e38, np.nan]))
    assert cast([300, -1], "uint8").tolist() == [44, 255]
    assert mismatch(np.float32([1.0]), [1.0 + 2e-7], "float32", 2, 0) == ""
    assert "1 of 2 differ" in mismatch(np.float32([1.0, 2.0]), [1.0, 2.1], "float32", 4, 0)
    assert "shape" in mismatch(np.float32([1.0]), [[1.0]], "float32", 4, 0)
    assert mismatch(np.array([np.nan, np.inf]), [np.nan, np.inf], "float64", 1, 0) == ""
    assert mismatch(np.array([np.inf]), [1.0], "float64", 1, 0)


# Programs -------------------------------------------------------------------------------------------------------------


def test_views_and_writes_agree_with_numpy() -> None:
    programs = [fuzz_programs.draw_writes(seed, DTYPES) for seed in SEEDS]
    failures = []
    for program, values in zip(programs, run_all(lambda program: run_writes(program, wg), programs), strict=True):
        with np.errstate(all="ignore"):
            expected = program.reference(program.inputs)
        failures += [
            f"{program}\nv{i}: {message}"
            for i, (value, array) in enumerate(zip(values, expected, strict=True))
            if (message := difference(value, array.astype(np.float64) if program.dtype in FLOATS else array,
                                      program.dtype, 1))
        ][:1]  # fmt: skip
    report(failures)


def run_writes(program: fuzz_programs.Program, m: Any) -> list[Any]:
    """Run a program of writes on tensors of the module `m`."""
    return program.run(m, [fuzz_programs.as_tensor(m, array, program.dtype) for array in program.inputs])


def weights_of(program: fuzz_programs.Program, values: list[Array]) -> list[Array]:
    """Return a weight for each element of the values of a program that the loss sums: those after the inputs."""
    rng = np.random.default_rng(program.seed)
    return [rng.normal(size=value.shape) for value in values[len(program.inputs) :]]


def loss_of(program: fuzz_programs.Program, inputs: list[Array]) -> float:
    """Return the loss by NumPy."""
    values = program.reference(inputs)
    weights = weights_of(program, values)
    return float(sum((v * w).sum() for v, w in zip(values[len(inputs) :], weights, strict=True)))


def gradients_of(program: fuzz_programs.Program, m: Any) -> list[Any] | None:
    """Return the values of a program and the gradients of its loss, as tensors of the module `m`.

    None if the program writes to a tensor that its backward needs: that raises an error, as it should.
    """
    leaves = [fuzz_programs.as_tensor(m, array, "float64").requires_grad_() for array in program.inputs]
    values = program.run(m, leaves)
    weights = weights_of(program, [np.empty(tuple(value.shape)) for value in values])
    loss = sum((v * fuzz_programs.as_tensor(m, w, "float64")).sum() for v, w in zip(values[2:], weights, strict=True))
    try:
        return [*values[2:], *backward(m, loss, leaves)]
    except RuntimeError as error:
        if "modified" in str(error):
            return None
        raise


def backward(m: Any, loss: Any, leaves: list[Any]) -> list[Any]:
    """Return the gradients of the leaves; zeros if the loss does not depend on them."""
    if not loss.requires_grad:
        return [m.zeros_like(leaf) for leaf in leaves]
    gradients = m.autograd.grad(loss, leaves, allow_unused=True)
    return [m.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)]


def test_gradients_agree_with_differences() -> None:
    """The derivative along one random direction, by central differences of the program in NumPy."""
    programs = [fuzz_programs.draw_smooth(seed) for seed in SEEDS]
    failures, compared = [], 0
    for program, results in zip(programs, run_all(lambda program: gradients_of(program, wg), programs), strict=True):
        if results is None:
            continue
        compared += 1
        expected_values = program.reference(program.inputs)[2:]
        for i, (value, array) in enumerate(zip(results[:-2], expected_values, strict=True)):
            if message := difference(value, array, "float64", 64, float(np.abs(array).max(initial=1))):
                failures.append(f"{program}\nv{i + 2}: {message}")
                break
        else:
            rng = np.random.default_rng(program.seed + 1)
            directions = [rng.normal(size=array.shape) for array in program.inputs]
            step = 1e-6
            losses = [
                loss_of(program, [x + sign * step * d for x, d in zip(program.inputs, directions, strict=True)])
                for sign in (1, -1)
            ]
            by_difference = (losses[0] - losses[1]) / (2 * step)
            derivative = sum(float((to_array(g) * d).sum()) for g, d in zip(results[-2:], directions, strict=True))
            error = abs(derivative - by_difference)
            if not error <= 1e-5 * max(1, abs(by_difference), *map(abs, losses)):
                failures.append(f"{program}\nderivative {derivative}, by differences {by_difference}")
    report(failures)
    assert compared >= CASES // 2, f"only {compared} of {CASES} programs have gradients"


# PyTorch --------------------------------------------------------------------------------------------------------------

# PyTorch raises an error for an integer divided by zero; here the result is 0.
_INTEGER_DIVISIONS = ("fmod", "remainder", "floor_divide")


def divides_by_zero(call: Call) -> bool:
    return call.op.name in _INTEGER_DIVISIONS and not np.all(call.operands[1].values)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_calls_agree_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    calls = [call for call in map(draw_call, SEEDS) if not divides_by_zero(call)]
    failures = []
    for call, result in zip(calls, run_all(lambda call: call.run(wg), calls), strict=True):
        try:
            expected = call.run(torch)
        except (RuntimeError, TypeError) as error:
            if "must be Tensor, not" not in str(error):  # some functions take numbers here only
                failures.append(f"{call}: PyTorch raises {error}")
            continue
        scale = call.expected()[2]
        message = difference(result, to_array(expected), dtype_name(expected), 2 * call.op.ulps + 2, scale)
        failures += [f"{call}: {message}"] if message else []
    report(failures)


def test_programs_agree_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    failures = []
    for seed in SEEDS:
        for program, run in (
            (fuzz_programs.draw_writes(seed, DTYPES), run_writes),
            (fuzz_programs.draw_smooth(seed), gradients_of),
        ):
            with naming(program):
                (results,) = run_all(lambda program, run=run: run(program, wg), [program])
                expected = run(program, torch)
            if results is None or expected is None:
                continue
            for result, tensor in zip(results, expected, strict=True):
                scale = float(tensor.detach().abs().double().max()) if tensor.numel() and program.dtype != "bool" else 0
                if message := difference(result, to_array(tensor), dtype_name(tensor), 256, scale):
                    failures.append(f"{program}\n{message}")
                    break
    report(failures)
