"""Which work of the `cpu` device the calling thread does, and which its workers: by what it costs, not by its size."""

from typing import Any

import pytest

import weftgrad as wg
from weftgrad.runtime import dispatch
from weftgrad.runtime.backends.opencl_cpu import SMALL
from weftgrad.runtime.records import registry


def work(name: str, *operands: Any) -> int:
    (step,) = dispatch.plan_for(registry[name], operands).steps
    return step.work


def at_once(name: str, *operands: Any) -> bool:
    return work(name, *operands) <= SMALL


@pytest.mark.parametrize("name", ["neg", "exp", "tanh", "sin", "lgamma"])
def test_work_grows_with_elements(name: str) -> None:
    assert work(name, wg.empty(1000)) > 0
    assert work(name, wg.empty(4000)) == 4 * work(name, wg.empty(1000))


def test_dear_elements_go_to_the_workers_earlier() -> None:
    found = [work(name, wg.empty(1 << 16)) for name in ("neg", "exp", "tanh", "sin", "lgamma")]
    assert found == sorted(set(found)), "an addition costs least, a gamma function most"
    assert at_once("neg", wg.empty(1 << 17))
    assert not at_once("neg", wg.empty(1 << 18))
    assert at_once("exp", wg.empty(1 << 16))
    assert not at_once("lgamma", wg.empty(1 << 13))
    assert work("neg", wg.empty(1 << 16, dtype=wg.float64)) == 2 * work("neg", wg.empty(1 << 16))


def test_elements_far_apart_count_for_more() -> None:
    x = wg.empty(256, 256)
    assert work("add", x, wg.empty(256)) == work("add", x, x) < work("add", x, x.t())


def test_a_sum_in_vectors_is_cheap() -> None:
    """A middling sum is one launch in the calling thread, not partial sums of workers."""

    def plan(x: wg.Tensor) -> Any:
        return dispatch.plan_for(registry["sum"], (x,), (None, False, None)).steps

    (step,) = plan(wg.empty(1 << 17))
    assert step.work <= SMALL
    assert plan(wg.empty(1 << 16))[0].work < plan(wg.empty(1 << 17)[::2])[0].work
