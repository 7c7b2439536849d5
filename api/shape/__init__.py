"""Functions that change the shape of tensors, split, join, repeat and assemble them.

`weftgrad/__init__.py` imports them all. Each module's `METHODS` lists those that are also methods of Tensor.
"""
