"""The generator: it turns op specs into kernels, Python functions and gradients. Start with `generate.py`."""
