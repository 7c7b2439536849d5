"""Read and write elements at positions: `x[items]`, gather, scatter, masks, embeddings' bounds checks.

`subscripts` holds `x[items]` and `x[items] = value`, `assignment` prepares assigned values, and `bounds` checks index
tensors.
"""
