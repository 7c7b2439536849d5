"""Turn the calls of a model into an ONNX graph. Read the modules in this order:

    capture          a mode that records every call of `dispatch` while the model runs
    dynamic_sizes    `Size`, a number that depends on dynamic dimensions: it has a value for each run
    resizing         example arguments with other sizes in the dynamic dimensions
    program          the runs, merged into one list of calls in which sizes that differ are `Size` objects
    graph            nodes, initializers and names of the ONNX graph, by the package `onnx`
    memory           the value that a tensor has at a point of the program, though ops write in place and into views
    conversion       the table of ops, and a loop over the calls
    expressions      formulas of specs as nodes: all pointwise, rowwise and additive reduction ops without a row
    *_rows           the table of ops, by topic
"""
