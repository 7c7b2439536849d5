"""`torch.autograd.graph`: the classes of the graph's nodes. All other names are placeholders, which raise when used."""

from ...runtime.autograd.node import AccumulateGrad, Node
from ..placeholders import placeholder

__all__ = [
    "AccumulateGrad", "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip

_CHECKPOINT_REMEDY = "Use torch.utils.checkpoint to save memory."
_HOOK_REMEDY = "Use Tensor.register_hook for each tensor."
saved_tensors_hooks = placeholder("torch.autograd.graph.saved_tensors_hooks", _CHECKPOINT_REMEDY)
save_on_cpu = placeholder("torch.autograd.graph.save_on_cpu", _CHECKPOINT_REMEDY)
disable_saved_tensors_hooks = placeholder("torch.autograd.graph.disable_saved_tensors_hooks", _CHECKPOINT_REMEDY)
allow_mutation_on_saved_tensors = placeholder(
    "torch.autograd.graph.allow_mutation_on_saved_tensors", _CHECKPOINT_REMEDY
)
register_multi_grad_hook = placeholder("torch.autograd.graph.register_multi_grad_hook", _HOOK_REMEDY)
get_gradient_edge = placeholder("torch.autograd.graph.get_gradient_edge", _HOOK_REMEDY)
increment_version = placeholder("torch.autograd.graph.increment_version", "Write to the tensor in place.")
GradientEdge = placeholder("torch.autograd.graph.GradientEdge", _HOOK_REMEDY)
