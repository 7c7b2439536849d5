"""Run ONNX graphs with weftgrad's ops. `module` has the module that holds a graph, and the others the table of ops."""
