"""`DistributedDataParallel` for several processes; `DataParallel`, which calls its module on one device."""

from .data_parallel import DataParallel, data_parallel
from .distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
