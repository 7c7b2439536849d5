"""Compare modules with PyTorch: the same statements in both packages must write the same log.

Skipped where torch is not installed.
"""

import pytest
from container_scenes import containers, lazy
from module_scenes import hooks, state

import weftgrad as wg

torch = pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scene", [hooks, state, containers, lazy])
def test_both_packages_leave_the_same_log(scene):
    theirs, ours = scene(torch), scene(wg)
    assert len(theirs) == len(ours)
    for i, (expected, actual) in enumerate(zip(theirs, ours, strict=True)):
        assert actual == expected, f"entry {i}"
