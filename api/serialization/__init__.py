"""Save and load tensors, containers and numbers in one file. Loading runs no code from the file by default.

A file is a header, a pickle of everything except tensor memory, a table, and the bytes of each storage that tensors
use. Tensors that share memory when saved share it when loaded. All numbers are little-endian:

    8 bytes   b"weftgrad"
    4 x 8     version (1), bytes of the pickle, number of storages, CRC-32 of the pickle
    pickle
    n x 24    for each storage: offset of the first saved byte, number of bytes, CRC-32 of the bytes
    bytes of the storages, one after the other

A file without this header may be a plain pickle of tensors, or a file of PyTorch's (`torch_reading`, `torch_writing`);
`load` reads them as well. `SafetensorsFile`, `load_safetensors` and `save_safetensors` are for safetensors files.
"""

from .allowed_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .file_memory import _rebuild as _rebuild  # files name it by this path
from .loading import load
from .safetensors_files import SafetensorsFile, load_safetensors, save_safetensors
from .saving import save

__all__ = [
    "SafetensorsFile", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "load_safetensors",
    "safe_globals", "save", "save_safetensors",
]  # fmt: skip
