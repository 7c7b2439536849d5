"""Tensors' state, memory pools, streams, the autograd engine, dispatch, backends."""
