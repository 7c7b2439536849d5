"""`weftgrad.torch_compat` and `python -m weftgrad.as_torch`: programs written for PyTorch run unchanged."""

from __future__ import annotations

import abc
import json
import os
from pathlib import Path

import pytest
from torch_programs import run, run_program

from weftgrad.torch_names.tables import ADDITIONS, NAMES_ONLY, STAND_INS, remedy_of
from weftgrad.torch_names.torch_module import TORCH_VERSION


def test_names_of_torch_are_the_modules_of_weftgrad_themselves() -> None:
    run_program("""
        import sys
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        from torch.optim.lr_scheduler import StepLR
        from torch.nn.modules.batchnorm import _BatchNorm
        import weftgrad
        assert nn is weftgrad.nn and F is weftgrad.nn.functional and torch.nn is nn
        assert torch.optim.lr_scheduler.StepLR is StepLR is weftgrad.optim.lr_scheduler.StepLR
        assert torch.Tensor is weftgrad.Tensor and torch.randn is weftgrad.randn and torch.bool is weftgrad.bool
        assert nn.__spec__.name == nn.__name__ == "weftgrad.nn"
        assert issubclass(nn.BatchNorm2d, _BatchNorm)
        assert not hasattr(torch, "no_such_name") and not hasattr(torch, "codegen") and not hasattr(torch, "runtime")
        try:
            import torch.no_such_module
        except ModuleNotFoundError as error:
            assert error.name == "torch.no_such_module"
        else:
            raise AssertionError
        import weftgrad.torch_compat  # a second time
        assert sum(type(finder).__name__ == "Finder" for finder in sys.meta_path) == 1
    """)


def test_versions_are_those_of_the_torch_whose_names_there_are() -> None:
    run_program("""
        import importlib.metadata
        import torch
        from torch import __version__
        import weftgrad
        assert importlib.metadata.version("torch") == torch.__version__ == __version__
        assert torch.__version__ >= "2.4.0" and torch.__version__ >= (2, 10) and not torch.__version__ < "2.9"
        assert [int(n) for n in torch.__version__.split("+")[0].split(".")] >= [2, 4, 0]
        assert torch.version.cuda is None and weftgrad.__version__ != torch.__version__
        assert importlib.metadata.version("numpy")
    """)


def test_the_version_is_that_of_the_table_of_names() -> None:
    """docs/refresh_torch_names.py writes the table, which tells the coverage of PyTorch's names."""
    checkout = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)
    table = checkout / "docs" / "_data" / "torch_names.json"
    assert json.loads(table.read_text(encoding="utf-8"))["version"] == TORCH_VERSION.partition("+")[0]


def test_a_torch_that_was_imported_before_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '2.0'\n")
    error = run("-c", "import torch, weftgrad.torch_compat", status=1, folder=tmp_path)
    assert "PyTorch 2.0 was imported before" in error
    assert "python -m weftgrad.as_torch PROGRAM" in error


def test_a_torch_on_the_path_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise AssertionError('the wrong torch')\n")
    run("-c", "import weftgrad.torch_compat, torch; assert torch.ones(2).sum() == 2", folder=tmp_path)


def test_as_torch_runs_a_file_like_python(tmp_path: Path) -> None:
    program = tmp_path / "scripts" / "program.py"
    program.parent.mkdir()
    (program.parent / "helper.py").write_text("import torch\nvalue = torch.ones(3)\n")
    program.write_text(
        "import sys\nfrom helper import value\nassert __name__ == '__main__'\nassert sys.path[0] == sys.argv[2]\n"
        "print(sys.argv[0], sys.argv[1:2], float(value.sum()))\nsys.exit(int(sys.argv[1]))\n"
    )
    output = run("-m", "weftgrad.as_torch", str(program), "0", str(program.parent))
    assert output == f"{program} ['0'] 3.0\n"
    run("-m", "weftgrad.as_torch", str(program), "3", str(program.parent), status=3)


def test_as_torch_leaves_the_path_alone_where_python_does(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(sys.path)\n")
    assert run("-P", "-m", "weftgrad.as_torch", str(program)) == run("-P", str(program))


def test_as_torch_runs_a_module_and_a_folder(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys, torch\nprint(__name__, sys.argv[1:], torch.arange(3).tolist())\n")
    expected = "__main__ ['--epochs', '2'] [0, 1, 2]\n"
    assert run("-m", "weftgrad.as_torch", "-m", "package", "--epochs", "2", folder=tmp_path) == expected
    assert run("-m", "weftgrad.as_torch", str(package), "--epochs", "2") == expected


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_processes_of_the_program_import_weftgrad_as_torch(method: str, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(f"""if True:
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Versions(Dataset):
            def __len__(self):
                return 2

            def __getitem__(self, index):
                return torch.__version__

        def check(index):
            assert torch.__version__ == {TORCH_VERSION!r}

        if __name__ == "__main__":
            loader = DataLoader(Versions(), 2, num_workers=1, collate_fn=list, multiprocessing_context={method!r})
            print(*loader)
            torch.multiprocessing.start_processes(check, start_method={method!r})
    """)
    assert run("-m", "weftgrad.as_torch", str(program)) == f"{[TORCH_VERSION] * 2}\n"


def test_a_forkserver_does_not_import_the_program(tmp_path: Path) -> None:
    """Newer versions of Python would import it there, before `torch` means weftgrad."""
    program = tmp_path / "program.py"
    program.write_text(
        "from multiprocessing.spawn import get_preparation_data\n"
        "print(['init_main_from_path' in get_preparation_data(name) for name in ('ignore', 'Process-1')])\n"
    )
    assert run("-m", "weftgrad.as_torch", str(program)) == "[False, True]\n"


def test_as_torch_says_what_it_needs(tmp_path: Path) -> None:
    assert "usage: python -m weftgrad.as_torch" in run("-m", "weftgrad.as_torch", status=2)
    missing = str(tmp_path / "missing.py")
    assert f"there is no file {missing}" in run("-m", "weftgrad.as_torch", missing, status=1)


@pytest.mark.parametrize("name", ["torch.fx.symbolic_trace", "torch.export.export", "torch.fft.fft",
                                  "torch.jit.freeze", "torch.nested.nested_tensor"])  # fmt: skip
def test_what_is_only_a_name_says_so_when_it_is_used(name: str) -> None:
    module = name.rpartition(".")[0]
    run_program(f"""
        import {module}
        try:
            {name}(1)
        except NotImplementedError as error:
            text = str(error)
        assert text.startswith("{name}: weftgrad has nothing for this name of PyTorch. "), text
        assert len(text.split(". ", 1)[1]) > 10, text
    """)


def test_placeholders_are_classes_without_instances() -> None:
    from weftgrad.torch_names.placeholders import PlaceholderModule, placeholder

    tracer = placeholder("torch.fx.Tracer", "Call the module.")

    class Own(tracer):  # type: ignore[valid-type,misc]
        pass

    class Abstract(tracer, abc.ABC):  # type: ignore[valid-type,misc]
        pass

    assert not isinstance(1, tracer)
    assert not isinstance(1, Abstract)
    with pytest.raises(NotImplementedError, match=r"torch\.fx\.Tracer: .*Call the module\."):
        Own()
    error_type = placeholder("torch._dynamo.exc.Unsupported", "Nothing is traced.")
    assert issubclass(error_type, Exception)
    module = PlaceholderModule("torch.fx", "Call the module.")
    assert module.Tracer is module.Tracer
    assert module.Tracer.Inner is module.Tracer.Inner
    assert repr(module.Tracer.Inner) == "<placeholder of torch.fx.Tracer.Inner>"
    with pytest.raises(AttributeError):
        module.__wrapped__  # inspect asks for it


def test_dir_lists_names_that_torch_has() -> None:
    run_program("""
        import torch
        assert torch.float32 in [getattr(torch, name) for name in dir(torch)]
        assert {"nn", "ones", "Tensor", "__version__"} < set(dir(torch)) and "runtime" not in dir(torch)
    """)


def test_the_version_can_be_saved_and_loaded() -> None:
    run_program("""
        import io, torch
        file = io.BytesIO()
        torch.save({"version": torch.__version__, "weight": torch.ones(2)}, file)
        file.seek(0)
        assert torch.load(file)["version"] >= (2, 0)
    """)


def test_files_are_pytorchs_where_pytorch_can_read_them(tmp_path: Path) -> None:
    run_program(f"""
        import zipfile
        import torch
        path = {str(tmp_path / "a.pt")!r}
        state = torch.nn.Linear(2, 3).state_dict()
        torch.save({{"model": state, "epoch": 3}}, path)
        assert "archive/data.pkl" in zipfile.ZipFile(path).namelist()
        loaded = torch.load(path, mmap=True)
        assert torch.equal(loaded["model"]["weight"], state["weight"]) and loaded["epoch"] == 3
        torch.save(torch.ones(2).to("opencl:0"), path, _use_new_zipfile_serialization=False)
        assert str(torch.load(path).device) == "opencl:0"
        model = torch.nn.Linear(2, 3)
        torch.save(model, path)  # a class of weftgrad's, which PyTorch does not have
        assert not zipfile.is_zipfile(path)
        assert torch.equal(torch.load(path, weights_only=False).weight, model.weight)
    """)


def test_tables_name_modules_that_exist_and_say_what_to_do() -> None:
    import weftgrad

    assert weftgrad.__file__
    folder = Path(weftgrad.__file__).parent / "torch_names"
    assert {f.stem for f in (folder / "stand_ins").glob("[!_]*.py")} == set(STAND_INS.values())
    assert {f.stem for f in (folder / "additions").glob("[!_]*.py")} == {*ADDITIONS.values(), "root", "foreach"}
    assert all(text.endswith(".") and len(text) > 15 for text in NAMES_ONLY.values())
    assert remedy_of("torch.fx.passes.infra") == NAMES_ONLY["torch.fx"]
    assert remedy_of("torch.nn") is None


def test_submodules_have_the_names_that_programs_import_from_them() -> None:
    run_program("""
        from torch.optim.rmsprop import RMSprop
        from torch.nn.modules.padding import ZeroPad2d
        from torch.nn.modules.pixelshuffle import PixelShuffle
        from torch.nn.common_types import _size_2_t
        from torch.cuda.amp.autocast_mode import custom_fwd
        from torch.functional import einsum
        from torch.multiprocessing.queue import SimpleQueue
        import torch
        assert RMSprop is torch.optim.RMSprop and ZeroPad2d is torch.nn.ZeroPad2d and einsum is torch.einsum
        assert torch.torch_version.TorchVersion("2.1") < "2.13" and torch.__version__ >= (2, 1)
    """)
