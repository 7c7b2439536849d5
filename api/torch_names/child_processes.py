"""Make `import torch` mean weftgrad in the processes that `multiprocessing` starts, such as workers of a DataLoader.

A process that starts by `spawn` or `forkserver` imports the main program again, in an interpreter where `torch` is
still PyTorch. Before that import it unpickles a dictionary, which `multiprocessing.spawn.get_preparation_data` returns
in this process. `install` adds an object to the dictionary whose unpickling imports `torch_compat`.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import spawn

__all__ = ["install"]

_PACKAGE = __package__.rpartition(".")[0]  # weftgrad
_SOURCE = f"import sys; sys.path[:] = path; import {_PACKAGE}.torch_compat"
# The name with which a forkserver gets its own data, by which newer versions of Python import the main program before
# the first fork. It must not do so: it does not unpickle the data, and `torch` would be PyTorch.
_FORKSERVER = "ignore"


class _Installation:
    """An object whose unpickling imports `torch_compat`.

    The pickle refers to the built-in `exec` alone, and carries the path: a new process can import from the path of this
    one only after it has unpickled the dictionary.

    Args:
        path: The path that the new process will have.
    """

    def __init__(self, path: list[str]):
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str, dict[str, list[str]]]]:
        return exec, (_SOURCE, {"path": self._path})


def install() -> None:
    """Let `multiprocessing` add the object to what new processes unpickle."""
    original = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, object]:
        data = original(name)
        if name == _FORKSERVER:
            return {key: value for key, value in data.items() if key != "init_main_from_path"}
        return {**data, "torch": _Installation(data["sys_path"])}

    spawn.get_preparation_data = get_preparation_data
