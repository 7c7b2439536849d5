"""Write the names that PyTorch offers to docs/_data/torch_names.json, for the coverage tables of the site.

Run it in an environment with torch:

    python docs/refresh_torch_names.py
"""

import importlib
import json
import types
from pathlib import Path

import torch

MODULES = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.optim",
    "torch.optim.lr_scheduler", "torch.autograd", "torch.amp", "torch.utils.data", "torch.linalg", "torch.special",
    "torch.cuda", "torch.random", "torch.testing", "torch.func", "torch.distributions",
)  # fmt: skip


# Classes of the module `torch` that programs use; the others are parts of its engine.
CLASSES = {"Tensor", "Generator", "Size", "device", "dtype", "finfo", "iinfo", "Event", "Stream", "memory_format"}


def is_api(value: object, module_name: str) -> bool:
    """Return True for functions, classes and dtypes of this module, and False for its engine and imported names."""
    if isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType, types.GetSetDescriptorType, property)):
        return True
    defining_module = getattr(value, "__module__", None) or ""
    if isinstance(value, type):
        if defining_module == "torch":
            return module_name == "torch" and (value.__name__ in CLASSES or value.__name__.endswith("Tensor"))
        return defining_module.startswith(module_name) and not defining_module.startswith(("torch._C", "torch.jit"))
    if callable(value):
        is_internal = defining_module.startswith(("torch._jit", "torch.overrides"))
        return defining_module.startswith("torch") and not is_internal
    return isinstance(value, torch.dtype)


def public_names(module_name: str) -> list[str]:
    """Return the sorted public names of a module or of `torch.Tensor`, without submodules."""
    owner = torch.Tensor if module_name == "torch.Tensor" else importlib.import_module(module_name)
    if module_name in ("torch.nn", "torch.optim", "torch.autograd", "torch.amp", "torch.utils.data"):
        names = list(getattr(owner, "__all__", dir(owner)))
    else:
        names = dir(owner)
    names = [name for name in names if not name.startswith("_")]
    return sorted(name for name in names if is_api(getattr(owner, name, None), module_name))


if __name__ == "__main__":
    names = {"version": torch.__version__.partition("+")[0]} | {module: public_names(module) for module in MODULES}
    path = Path(__file__).with_name("_data") / "torch_names.json"
    path.write_text(json.dumps(names, indent=0) + "\n", encoding="utf-8")
