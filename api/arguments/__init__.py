"""What many functions' arguments have in common.

`aliases` reads NumPy's names `axis` and `keepdims`, `out` writes results to `out=`, `types` names the types of
arguments for annotations, and `descriptions` adds the text about shared parameters to docstrings.
"""
