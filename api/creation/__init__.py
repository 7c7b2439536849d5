"""Functions that create tensors: from data, filled, as sequences, as windows; and PyTorch's legacy constructors.

Read `factories` first. `options` reads the arguments that all factories share.
"""
