"""Functions that change the shape of tensors, split, join, repeat and assemble them.

`exports` collects them for the package's namespace and for Tensor.
"""
