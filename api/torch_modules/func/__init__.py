"""Functions of functions, as in `torch.func`: derivatives, maps over slices, calls of modules with other parameters.

    gradients = wg.func.grad(loss)(parameters, images, labels)      # `parameters` may be a dict
    per_example = wg.func.vmap(wg.func.grad(loss), in_dims=(None, 0, 0))(parameters, images, labels)

Arguments and results may be nested tuples, lists and dicts of tensors. Transforms can be nested. There is no forward
mode: `jvp` and `linearize` differentiate backward twice. `vmap` calls the function for each slice.
"""

from .gradients import grad, grad_and_value, jvp, linearize, vjp
from .jacobians import hessian, jacfwd, jacrev
from .mapping import vmap
from .modules import functional_call, stack_module_state

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip
