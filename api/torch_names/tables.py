"""Which module each name of a torch module means.

A name is looked up in this order: `STAND_INS`, `MOVED`, the modules of weftgrad that have torch's names (`ALIASES` and
the modules below them), `NAMES_ONLY`.
"""

from __future__ import annotations

__all__ = ["ADDITIONS", "ALIASES", "MOVED", "NAMES_ONLY", "STAND_INS", "remedy_of"]

ALIASES = (
    "accelerator", "amp", "autograd", "backends", "compiler", "cpu", "cuda", "distributed", "distributions", "func",
    "jit", "linalg", "mps", "multiprocessing", "nn", "onnx", "optim", "profiler", "random", "serialization", "signal",
    "special", "testing", "utils", "version", "xpu",
)  # fmt: skip
"""Modules of weftgrad that are torch's modules of the same name, with everything below them."""

MOVED = {
    "torch.accelerator.memory": "weftgrad.accelerator",
    "torch.amp.grad_scaler": "weftgrad.amp",
    "torch.autograd.anomaly_mode": "weftgrad.autograd",
    "torch.cpu.amp.autocast_mode": "weftgrad.cpu.amp",
    "torch.cpu.amp.grad_scaler": "weftgrad.cpu.amp",
    "torch.cuda.amp.autocast_mode": "weftgrad.cuda.amp",
    "torch.cuda.amp.grad_scaler": "weftgrad.cuda.amp",
    "torch.distributions.bernoulli": "weftgrad.distributions",
    "torch.distributions.beta": "weftgrad.distributions",
    "torch.distributions.binomial": "weftgrad.distributions",
    "torch.distributions.cauchy": "weftgrad.distributions",
    "torch.distributions.chi2": "weftgrad.distributions",
    "torch.distributions.dirichlet": "weftgrad.distributions",
    "torch.distributions.exp_family": "weftgrad.distributions",
    "torch.distributions.exponential": "weftgrad.distributions",
    "torch.distributions.fishersnedecor": "weftgrad.distributions",
    "torch.distributions.generalized_pareto": "weftgrad.distributions",
    "torch.distributions.geometric": "weftgrad.distributions",
    "torch.distributions.gumbel": "weftgrad.distributions",
    "torch.distributions.half_cauchy": "weftgrad.distributions",
    "torch.distributions.half_normal": "weftgrad.distributions",
    "torch.distributions.independent": "weftgrad.distributions",
    "torch.distributions.inverse_gamma": "weftgrad.distributions",
    "torch.distributions.kumaraswamy": "weftgrad.distributions",
    "torch.distributions.laplace": "weftgrad.distributions",
    "torch.distributions.lkj_cholesky": "weftgrad.distributions",
    "torch.distributions.log_normal": "weftgrad.distributions",
    "torch.distributions.logistic_normal": "weftgrad.distributions",
    "torch.distributions.lowrank_multivariate_normal": "weftgrad.distributions",
    "torch.distributions.mixture_same_family": "weftgrad.distributions",
    "torch.distributions.multinomial": "weftgrad.distributions",
    "torch.distributions.multivariate_normal": "weftgrad.distributions",
    "torch.distributions.negative_binomial": "weftgrad.distributions",
    "torch.distributions.one_hot_categorical": "weftgrad.distributions",
    "torch.distributions.pareto": "weftgrad.distributions",
    "torch.distributions.poisson": "weftgrad.distributions",
    "torch.distributions.relaxed_bernoulli": "weftgrad.distributions",
    "torch.distributions.relaxed_categorical": "weftgrad.distributions",
    "torch.distributions.studentT": "weftgrad.distributions",
    "torch.distributions.uniform": "weftgrad.distributions",
    "torch.distributions.weibull": "weftgrad.distributions",
    "torch.distributions.wishart": "weftgrad.distributions",
    "torch.multiprocessing.pool": "weftgrad.multiprocessing",
    "torch.multiprocessing.queue": "weftgrad.multiprocessing",
    "torch.multiprocessing.spawn": "weftgrad.multiprocessing",
    "torch.nn.modules.adaptive": "weftgrad.nn.modules",
    "torch.nn.modules.channelshuffle": "weftgrad.nn.modules",
    "torch.nn.modules.distance": "weftgrad.nn.modules",
    "torch.nn.modules.flatten": "weftgrad.nn.modules",
    "torch.nn.modules.fold": "weftgrad.nn.modules",
    "torch.nn.modules.padding": "weftgrad.nn.modules",
    "torch.nn.modules.pixelshuffle": "weftgrad.nn.modules",
    "torch.nn.modules.upsampling": "weftgrad.nn.modules",
    "torch.optim.adadelta": "weftgrad.optim",
    "torch.optim.adagrad": "weftgrad.optim",
    "torch.optim.adam": "weftgrad.optim.adam",
    "torch.optim.adamax": "weftgrad.optim",
    "torch.optim.adamw": "weftgrad.optim.adam",
    "torch.optim.asgd": "weftgrad.optim",
    "torch.optim.nadam": "weftgrad.optim",
    "torch.optim.radam": "weftgrad.optim",
    "torch.optim.rmsprop": "weftgrad.optim",
    "torch.optim.rprop": "weftgrad.optim",
    "torch.optim.sgd": "weftgrad.optim.algorithms",
    "torch.profiler.profiler": "weftgrad.profiler",
    "torch.signal.windows.windows": "weftgrad.signal.windows",
}
"""Modules of torch whose names are those of a module of weftgrad, which may have further names."""

STAND_INS: dict[str, str] = {
    "torch._ops": "ops",
    "torch._prims_common": "prims_common",
    "torch._utils": "utils_internal",
    "torch.autograd.graph": "autograd_graph",
    "torch.cuda.amp.common": "cuda_amp_common",
    "torch.cuda.nvtx": "cuda_nvtx",
    "torch.distributed.elastic.multiprocessing.errors": "distributed_elastic_errors",
    "torch.functional": "functional",
    "torch.hub": "hub",
    "torch.jit.annotations": "jit_annotations",
    "torch.library": "library",
    "torch.nn.common_types": "nn_common_types",
    "torch.nn.grad": "nn_grad",
    "torch.ops": "ops",
    "torch.overrides": "overrides",
    "torch.storage": "storage",
    "torch.torch_version": "torch_version",
    "torch.types": "types",
    "torch.utils._pytree": "pytree",
    "torch.utils.deterministic": "utils_deterministic",
    "torch.utils.dlpack": "utils_dlpack",
    "torch.utils.hooks": "utils_hooks",
    "torch.utils.model_zoo": "model_zoo",
    "torch.utils.weak": "utils_weak",
}
"""Modules that exist only under torch's name, by the module of `stand_ins` that has their names."""

ADDITIONS: dict[str, str] = {
    "torch._C": "c",
    "torch._dynamo": "dynamo",
    "torch._dynamo.utils": "dynamo_utils",
    "torch.autograd.profiler": "autograd_profiler",
    "torch.autograd": "autograd",
    "torch.profiler": "profiler",
    "torch.fx": "fx",
    "torch.fx._compatibility": "fx",
    "torch.jit": "jit",
    "torch.cuda": "cuda",
    "torch.distributed.checkpoint": "distributed_checkpoint",
    "torch.distributed.fsdp": "distributed_fsdp",
    "torch.distributed.pipelining": "distributed_pipelining",
    "torch.distributed.tensor": "distributed_tensor",
    "torch.distributed.tensor.parallel": "distributed_tensor_parallel",
    "torch.nn.attention": "attention",
    "torch.nn.modules.module": "nn_module",
    "torch.optim.optimizer": "optimizer",
    "torch.utils.data.dataloader": "data_loader",
    "torch.onnx": "onnx",
    "torch.onnx.symbolic_helper": "onnx",
}
"""Names that a module of torch has beside those of weftgrad's module, by the module of `additions` that has them."""

_TRACING = "Calls run compiled kernels as they come, so nothing is traced: call the module or function itself."
_QUANTIZED = "Use weftgrad.float16 or weftgrad.bfloat16 for smaller weights."
_DISTRIBUTED = "Use torch.distributed with the backend mpi or nccl, and torch.nn.parallel.DistributedDataParallel."
_EXPORT = "Save the state_dict with torch.save, and load it where PyTorch exports the model."

NAMES_ONLY = {
    "torch._C": "This is PyTorch's compiled part: use the functions of torch.",
    "torch._custom_ops": _TRACING,
    "torch._dynamo": _TRACING,
    "torch._export": _EXPORT,
    "torch._functorch": "Use torch.autograd.functional for Jacobians and Hessians.",
    "torch._guards": _TRACING,
    "torch._higher_order_ops": _TRACING,
    "torch._inductor": _TRACING,
    "torch._logging": _TRACING,
    "torch._subclasses": _TRACING,
    "torch._tensor": "Use torch.Tensor.",
    "torch.accelerator.graphs": "Use torch.cuda.CUDAGraph.",
    "torch.ao": _QUANTIZED,
    "torch.autograd.forward_ad": "Use torch.autograd.functional.jvp, which differentiates backward twice.",
    "torch.autograd.profiler_legacy": "Use torch.profiler.",
    "torch.autograd.profiler_util": "Use torch.profiler.",
    "torch.cuda.comm": _DISTRIBUTED,
    "torch.cuda.gds": "Read files with torch.load(mmap=True).",
    "torch.cuda.green_contexts": "Use torch.cuda.Stream.",
    "torch.cuda.jiterator": "Write the op as a spec, and load it with weftgrad.ops.load.",
    "torch.cuda.nccl": _DISTRIBUTED,
    "torch.cuda.profiler": "Use torch.profiler.",
    "torch.cuda.sparse": "Use dense tensors.",
    "torch.cuda.tunable": "Tune kernels with weftgrad tune.",
    "torch.distributed": _DISTRIBUTED,
    "torch.export": _EXPORT,
    "torch.fft": "There are no complex dtypes: use numpy.fft on Tensor.numpy(), which records no gradients.",
    "torch.futures": _DISTRIBUTED,
    "torch.fx": _TRACING,
    "torch.masked": "Multiply by the mask, or use torch.where.",
    "torch.monitor": "Use torch.profiler.",
    "torch.mtia": "Devices are cpu, cuda:N and opencl:N.",
    "torch.nativert": _EXPORT,
    "torch.nested": "Pad the tensors to one length, and pass a mask.",
    "torch.nn.attention.bias": "Use torch.nn.functional.scaled_dot_product_attention with is_causal or attn_mask.",
    "torch.nn.attention.experimental": "Use torch.nn.functional.scaled_dot_product_attention.",
    "torch.nn.attention.flex_attention": "Use torch.nn.functional.scaled_dot_product_attention with attn_mask.",
    "torch.nn.attention.varlen": "Pad the sequences to one length, and pass attn_mask.",
    "torch.nn.cpp": "Write modules in Python.",
    "torch.nn.intrinsic": _QUANTIZED,
    "torch.nn.modules.linear_cross_entropy": "Use torch.nn.functional.linear and cross_entropy.",
    "torch.nn.modules.linear_cross_entropy_options": "Use torch.nn.functional.linear and cross_entropy.",
    "torch.nn.parallel.comm": _DISTRIBUTED,
    "torch.nn.parallel.parallel_apply": _DISTRIBUTED,
    "torch.nn.parallel.replicate": _DISTRIBUTED,
    "torch.nn.parallel.scatter_gather": _DISTRIBUTED,
    "torch.nn.qat": _QUANTIZED,
    "torch.nn.quantizable": _QUANTIZED,
    "torch.nn.quantized": _QUANTIZED,
    "torch.nn.utils.prune": "Multiply the weights by a mask, with torch.nn.utils.parametrize.",
    "torch.numa": _DISTRIBUTED,
    "torch.onnx": "Use torch.onnx.export, and weftgrad.onnx.load to read a file.",
    "torch.optim.sparse_adam": "Use torch.optim.Adam: gradients are dense.",
    "torch.package": "Save the state_dict with torch.save.",
    "torch.profiler.itt": "Use torch.profiler.record_function.",
    "torch.quantization": _QUANTIZED,
    "torch.quasirandom": "Draw quasi-random points with scipy.stats.qmc, and convert them with torch.from_numpy.",
    "torch.sparse": "Use dense tensors.",
    "torch.utils._sympy": _TRACING,
    "torch.utils.backend_registration": "Write a backend as one file of weftgrad.runtime.backends.",
    "torch.utils.bundled_inputs": _EXPORT,
    "torch.utils.collect_env": "Run weftgrad doctor.",
    "torch.utils.cpp_backtrace": "Errors are raised in Python.",
    "torch.utils.cpp_extension": "Write the op as a spec, and load it with weftgrad.ops.load.",
    "torch.utils.data.datapipes": "Use torch.utils.data.Dataset and IterableDataset.",
    "torch.utils.data.graph": "Use torch.utils.data.Dataset and IterableDataset.",
    "torch.utils.data.graph_settings": "Use torch.utils.data.Dataset and IterableDataset.",
    "torch.utils.flop_counter": "Measure with torch.profiler.",
    "torch.utils.hipify": "Kernels are generated for each vendor.",
    "torch.utils.jit": _TRACING,
    "torch.utils.mkldnn": "Kernels for processors need no conversion of the module.",
    "torch.utils.mobile_optimizer": _EXPORT,
    "torch.utils.model_dump": "Print the module or its state_dict.",
    "torch.utils.throughput_benchmark": "Measure with torch.profiler or weftgrad bench.",
}
"""Modules of torch that weftgrad has nothing for, with what to do instead. What is below them is a name only, too."""


def remedy_of(name: str) -> str | None:
    """Return what to do instead of using a module of `NAMES_ONLY`, or one below it; None for other modules.

    Args:
        name: The module's whole name, such as `torch.fx.passes`.

    Returns:
        A sentence, or None.

    Example:
        >>> from weftgrad.torch_names.tables import remedy_of
        >>> remedy_of('torch.nested')
        'Pad the tensors to one length, and pass a mask.'
    """
    while name:
        if name in NAMES_ONLY:
            return NAMES_ONLY[name]
        name = name.rpartition(".")[0]
    return None
