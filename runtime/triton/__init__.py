"""The Triton target below the backends: source text, signatures, the compiler, the interpreter.

`source` and `signature` are pure; `compile` and `interpret` import triton, and are imported when first needed.
"""
