"""Turn the calls of a model into an ONNX graph.

Read the modules in this order:

    capture          a mode that records every call of `dispatch` while the model runs
    dynamic_sizes    `Size`, a number that depends on dynamic dimensions: it has a value for each run
    resizing         example arguments with other sizes in the dynamic dimensions
    tracing          run the model once for each set of sizes
    program          the runs, merged into one list of calls in which sizes that differ are `Size` objects
    graph            nodes, initializers and names of the ONNX graph, by the package `onnx`
    memory           the value that a tensor has at a point of the program, though ops write in place and into views
    boxes            the part of a tensor that a view shows
    conversion       what a row of the table of ops sees of a call; `converter` is the loop over the calls
    expressions      formulas of specs as nodes: all pointwise, rowwise and additive reduction ops without a row
    *_rows           the table of ops, by topic; `table` puts it together
    model_file       inputs, outputs and their shapes
"""
