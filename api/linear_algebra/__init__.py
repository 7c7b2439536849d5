"""Products, contractions, distances and triangles of matrices. `weftgrad.linalg` has PyTorch's names for them.

Read `products` first.
"""
