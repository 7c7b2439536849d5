"""The module `torch` of programs that run on weftgrad unchanged. `weftgrad.torch_compat` installs it.

`finder` maps names of modules; `tables` says which module each name means. `stand_ins` has modules that exist only
under torch's name, and `additions` has names that torch's modules have beside those of weftgrad's. A module or a class
that weftgrad has nothing for can be imported, subclassed and tested for with `isinstance`; calling it raises
`NotSupported`, which says what to do instead (`placeholders`).
"""
