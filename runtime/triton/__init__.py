"""The Triton target, used by the backends `cuda` and `interpreter`.

    source     from a kernel's text to a module that Triton can compile
    signature  types and constants of a kernel's parameters
    compile    Triton's compiler and a cache of machine code
    interpret  run kernels on host memory (with `language`, `builder` and `libdevice`)

`source` and `signature` do not import triton. `compile` and `interpret` do, and are imported when first needed.
"""
