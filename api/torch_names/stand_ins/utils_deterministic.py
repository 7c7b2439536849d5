"""`torch.utils.deterministic`: an option that changes nothing, because all ops are deterministic."""

__all__: list[str] = []

fill_uninitialized_memory = True
