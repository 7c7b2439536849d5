"""`torch.hub`: the folder for downloads, downloading files, and models of local folders with a `hubconf.py`."""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from ...runtime.errors import ArgumentError
from ...serialization.loading import load as load_file
from ..placeholders import placeholder_error

__all__ = [
    "HASH_REGEX", "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir",
    "urlparse",
]  # fmt: skip

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_REMEDY = "Copy the repository to a folder, and pass the folder with source='local'."
_folder: str | None = None


def _get_torch_home() -> str:
    """Return the folder of PyTorch's downloads: TORCH_HOME, else `torch` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return str(Path(os.environ.get("TORCH_HOME", str(Path(cache) / "torch"))).expanduser())


def get_dir() -> str:
    """Return the folder for downloads: the one of `set_dir`, else `hub` in PyTorch's folder."""
    return _folder if _folder is not None else str(Path(_get_torch_home()) / "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set the folder for downloads.

    Args:
        d: Path of the folder.
    """
    global _folder
    _folder = str(Path(d).expanduser())


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download a file. `dst` is replaced only when the download is complete and its checksum right.

    Args:
        url: Address.
        dst: Path of the file to write.
        hash_prefix: First hexadecimal digits of the file's SHA-256.
        progress: Print the name of the file.

    Raises:
        ArgumentError: The file has another checksum.
        OSError: The server or the file system reports an error.
    """
    if progress:
        print(f"downloading {url} to {dst}", file=sys.stderr)
    checksum = hashlib.sha256()
    target = Path(dst).expanduser()
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        try:
            with urlopen(Request(url, headers={"User-Agent": "weftgrad"})) as response:
                while chunk := response.read(1 << 20):
                    checksum.update(chunk)
                    file.write(chunk)
            if hash_prefix is not None and not checksum.hexdigest().startswith(hash_prefix):
                raise ArgumentError(
                    f"torch.hub: {url} has the SHA-256 {checksum.hexdigest()}, which does not begin with {hash_prefix}"
                )
            file.close()
            shutil.move(file.name, target)
        finally:
            Path(file.name).unlink(missing_ok=True)


def _entry_points(function: str, folder: str | os.PathLike[str], source: str) -> dict[str, Callable[..., Any]]:
    """Run the `hubconf.py` of a local folder, and return its public functions by name."""
    if source == "github":
        raise placeholder_error(f"torch.hub.{function} from GitHub", _REMEDY)
    if source != "local":
        raise ArgumentError(f"torch.hub.{function}: source is 'github' or 'local', not {source!r}")
    path = Path(folder).expanduser().resolve()
    spec = importlib.util.spec_from_file_location("hubconf", path / "hubconf.py")
    if spec is None or spec.loader is None:
        raise ArgumentError(f"torch.hub.{function}: {path} has no hubconf.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path))
    missing = [name for name in getattr(module, "dependencies", ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"torch.hub.{function}: {path} needs packages that are not installed: {', '.join(missing)}")
    return {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}


def _entry_point(function: str, folder: str | os.PathLike[str], source: str, name: str) -> Callable[..., Any]:
    entry_points = _entry_points(function, folder, source)
    if name not in entry_points:
        raise RuntimeError(
            f"torch.hub.{function}: hubconf.py has no function {name!r}; it has {', '.join(sorted(entry_points))}"
        )
    return entry_points[name]


def list(
    github: str | os.PathLike[str], force_reload: bool = False, skip_validation: bool = False,
    trust_repo: object = None, verbose: bool = True, *, source: str = "github",
) -> builtins.list[str]:  # fmt: skip
    """Return the names of the models of a local folder, whose `hubconf.py` is run.

    Args:
        github: Path of the folder.
        force_reload: Ignored.
        skip_validation: Ignored.
        trust_repo: Ignored.
        verbose: Ignored.
        source: `local`: repositories on GitHub are not downloaded.

    Returns:
        Names of the public functions of `hubconf.py`.

    Raises:
        NotSupported: `source` is `github`.
    """
    return [*_entry_points("list", github, source)]


def help(
    github: str | os.PathLike[str], model: str, force_reload: bool = False, skip_validation: bool = False,
    trust_repo: object = None, *, source: str = "github",
) -> str:  # fmt: skip
    """Return the docstring of a model of a local folder, whose `hubconf.py` is run.

    Args:
        github: Path of the folder.
        model: Name of the function in `hubconf.py`.
        force_reload: Ignored.
        skip_validation: Ignored.
        trust_repo: Ignored.
        source: `local`: repositories on GitHub are not downloaded.

    Returns:
        The docstring, or "".

    Raises:
        NotSupported: `source` is `github`.
        RuntimeError: There is no such function.
    """
    return _entry_point("help", github, source, model).__doc__ or ""


def load(
    repo_or_dir: str | os.PathLike[str], model: str, *args: object, source: str = "github", trust_repo: object = None,
    force_reload: bool = False, verbose: bool = True, skip_validation: bool = False, **kwargs: object,
) -> Any:  # fmt: skip
    """Construct a model by a function in the `hubconf.py` of a local folder, which is run.

    Args:
        repo_or_dir: Path of the folder.
        model: Name of the function.
        *args: Its arguments.
        source: `local`: repositories on GitHub are not downloaded.
        trust_repo: Ignored.
        force_reload: Ignored.
        verbose: Ignored.
        skip_validation: Ignored.
        **kwargs: The function's keyword arguments.

    Returns:
        What the function returns, mostly a module.

    Raises:
        NotSupported: `source` is `github`.
        RuntimeError: There is no such function, or a package of `dependencies` is not installed.
    """
    return _entry_point("load", repo_or_dir, source, model)(*args, **kwargs)


def load_state_dict_from_url(
    url: str, model_dir: str | os.PathLike[str] | None = None, map_location: Any = None, progress: bool = True,
    check_hash: bool = False, file_name: str | None = None, weights_only: bool = False,
) -> Any:  # fmt: skip
    """Load a checkpoint from the folder for downloads, and download it first unless it is there.

    Args:
        url: Address, such as `https://...` or `file:///...`.
        model_dir: Folder of downloads; None: `checkpoints` in the folder of `get_dir`.
        map_location: As that of `load`.
        progress: Print the name of a file that is downloaded.
        check_hash: Compare a download with the first digits of its SHA-256 in its name, such as `name-0123abcd.pth`.
        file_name: Name of the file in the folder; None: the last part of the address.
        weights_only: Ignored: `load` runs no code of a file.

    Returns:
        What the file has, mostly a state_dict.

    Raises:
        ArgumentError: The download has another checksum.
        OSError: The server or the file system reports an error.
    """
    folder = Path(model_dir) if model_dir is not None else Path(get_dir()) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file_name or Path(urlparse(url).path).name)
    if not path.exists():
        match = HASH_REGEX.search(path.name) if check_hash else None
        download_url_to_file(url, str(path), match[1] if match else None, progress)
    return load_file(path, map_location=map_location)
