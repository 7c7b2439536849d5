"""`DataParallel` on one device, where it is the module itself under the name `module`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...runtime.device import DeviceLike
from ...runtime.errors import NotSupported
from ..module import Module

__all__ = ["DataParallel", "data_parallel"]


def _check_devices(device_ids: Sequence[DeviceLike] | None, where: str) -> None:
    if device_ids is not None and len(set(device_ids)) > 1:
        raise NotSupported(
            f"{where}: device_ids names {len(set(device_ids))} devices, and a module runs on one; pass one of "
            "them, or call the module itself"
        )


class DataParallel(Module):
    """Call a module on its one device, as PyTorch's class does where there is no second device.

    Paths of parameters begin with `module.`, as in state dicts that PyTorch's class saved.

    Args:
        module: The module.
        device_ids: At most one device. None: the device of the module's parameters.
        output_device: Ignored.
        dim: Ignored: the batch is not split.

    Raises:
        NotSupported: `device_ids` names several devices.

    Example:
        >>> model = wg.nn.DataParallel(wg.nn.Linear(2, 3))
        >>> model(wg.ones(4, 2)).shape, next(iter(model.state_dict()))
        (weftgrad.Size([4, 3]), 'module.weight')
    """

    module: Module

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
    ):
        super().__init__()
        _check_devices(device_ids, "DataParallel")
        self.module = module
        self.dim = dim
        self.device_ids: list[DeviceLike] = list(device_ids or ())
        self.output_device = output_device

    def forward(self, *inputs: object, **kwargs: object) -> object:
        """Call the module.

        Args:
            *inputs: Arguments of the module.
            **kwargs: Named arguments of the module.

        Returns:
            Result of the module.
        """
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: object,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: Mapping[str, object] | None = None,
) -> object:
    """Call a module on its one device.

    Args:
        module: The module.
        inputs: Arguments of the module: a tuple, or the only one.
        device_ids: At most one device.
        output_device: Ignored.
        dim: Ignored: the batch is not split.
        module_kwargs: Named arguments of the module.

    Returns:
        Result of the module.

    Raises:
        NotSupported: `device_ids` names several devices.

    Example:
        >>> wg.nn.parallel.data_parallel(wg.nn.Linear(2, 3), wg.ones(4, 2)).shape
        weftgrad.Size([4, 3])
    """
    _check_devices(device_ids, "data_parallel")
    return module(*inputs if isinstance(inputs, tuple) else (inputs,), **(module_kwargs or {}))
