"""`torch.autograd.graph`: the nodes of the graph. Hooks on saved tensors are names only."""

from ...runtime.autograd.node import AccumulateGrad, Node
from ..placeholders import placeholder

__all__ = [
    "AccumulateGrad", "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip

_MEMORY = "Use torch.utils.checkpoint to save memory."
_HOOK = "Use Tensor.register_hook for each tensor."
saved_tensors_hooks = placeholder("torch.autograd.graph.saved_tensors_hooks", _MEMORY)
save_on_cpu = placeholder("torch.autograd.graph.save_on_cpu", _MEMORY)
disable_saved_tensors_hooks = placeholder("torch.autograd.graph.disable_saved_tensors_hooks", _MEMORY)
allow_mutation_on_saved_tensors = placeholder("torch.autograd.graph.allow_mutation_on_saved_tensors", _MEMORY)
register_multi_grad_hook = placeholder("torch.autograd.graph.register_multi_grad_hook", _HOOK)
get_gradient_edge = placeholder("torch.autograd.graph.get_gradient_edge", _HOOK)
increment_version = placeholder("torch.autograd.graph.increment_version", "Write to the tensor in place.")
GradientEdge = placeholder("torch.autograd.graph.GradientEdge", _HOOK)
