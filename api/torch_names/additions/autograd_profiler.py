"""Names of `torch.autograd.profiler` for other tools than weftgrad's profiler."""

from ..placeholders import placeholder

__all__ = ["EventList", "FunctionEvent", "emit_itt", "emit_nvtx"]

_REMEDY = "Use torch.profiler.profile."
emit_itt = placeholder("torch.autograd.profiler.emit_itt", _REMEDY)
emit_nvtx = placeholder("torch.autograd.profiler.emit_nvtx", _REMEDY)
EventList = placeholder("torch.autograd.profiler.EventList", _REMEDY)
FunctionEvent = placeholder("torch.autograd.profiler.FunctionEvent", _REMEDY)
