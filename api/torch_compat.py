"""Run PyTorch programs unchanged: importing this module makes `import torch` mean weftgrad.

It does so in this process, and in those that `multiprocessing` starts from it, such as workers of a DataLoader.

    import weftgrad.torch_compat       # before anything imports torch
    import torch                       # weftgrad
    import torch.nn.functional as F    # the module weftgrad.nn.functional itself

`python -m weftgrad.as_torch program.py` does the same for a whole program. Neither changes the environment: an
installed PyTorch remains as it is, and all other processes import it as before. The code is in `torch_names`.
"""

from .torch_names.finder import install as _install

__all__: list[str] = []

_install()
