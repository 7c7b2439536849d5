"""Names that torchvision, timm, transformers, Lightning and other packages import from PyTorch, used as they use them.

These tests need no such package. docs/third-party.md says which packages run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_programs import run_program

import weftgrad as wg
from weftgrad.runtime import errors
from weftgrad.torch_names.additions.foreach import FUNCTIONS


def test_import_chain_of_torchvision() -> None:
    run_program("""
        import torch
        from torch import nn, Tensor
        import torch._custom_ops, torch.library
        from torch.hub import _get_torch_home, load_state_dict_from_url
        from torch.jit.annotations import BroadcastingList2
        from torch.utils._pytree import tree_flatten, tree_unflatten, TreeSpec
        from torch.utils.model_zoo import tqdm
        from torch.fx import Graph, GraphModule, Node, Tracer
        from torch.fx.graph_module import _CodeOnlyModule
        from torch.ao.quantization import DeQuantStub, QuantStub
        from torch._C import DisableTorchFunctionSubclass
        from torch.types import _device, _dtype, _size
        from torch.onnx import symbolic_opset11
        from torch.onnx.symbolic_helper import parse_args

        torch._C._log_api_usage_once("torchvision.models.resnet")
        try:
            torch.ops.load_library("/usr/lib/_C.so")
        except OSError as error:
            assert "is linked to PyTorch's libraries" in str(error)
        else:
            raise AssertionError("loaded a library of PyTorch's ops")

        @torch.library.register_fake("torchvision::nms")
        def meta_nms(boxes, scores, threshold): ...

        @parse_args("v", "f")
        def symbolic(g, x): ...

        @torch.jit._script_if_tracing
        def clip(boxes: Tensor, sizes: BroadcastingList2[int]) -> Tensor:
            torch._assert(boxes.ndim == 2, "boxes have two dimensions")
            return boxes.clamp(max=sizes[0])

        class LeafTracer(Tracer):
            def is_leaf_module(self, module, name): return True

        class Block(nn.Module):
            @torch.jit._overload_method
            def forward(self, x): return x
            def forward(self, x): return x if torch.jit.is_scripting() else nn.functional.relu(x)

        fx_wrapped = torch.fx.wrap(clip)
        assert fx_wrapped is clip and clip(torch.full((2, 4), 9.0), [3, 3]).max() == 3
        assert Block()(torch.tensor([-1.0])).item() == 0 and not isinstance(Block(), (GraphModule, QuantStub))
        try:
            torch._assert(False, "the message")
        except AssertionError as error:
            assert str(error) == "the message"
        else:
            raise SystemExit("torch._assert accepted False")
    """)


def test_tensor_subclasses_as_in_torchvision() -> None:
    run_program("""
        import torch

        class Picture(torch.Tensor):
            def __new__(cls, data, *, dtype=None, format=None):
                return torch.as_tensor(data, dtype=dtype).as_subclass(cls)

        class Box(torch.Tensor):
            def __new__(cls, data):
                return torch.Tensor._make_subclass(cls, torch.as_tensor(data), False)

        x = torch.arange(4, dtype=torch.uint8)
        picture = Picture(x, format="RGB")
        assert type(picture) is Picture and picture.dtype == torch.uint8 and picture.tolist() == [0, 1, 2, 3]
        assert picture.untyped_storage() == x.untyped_storage()
        assert type(Box([[1.0, 2.0]])) is Box and type(picture + 1) is Picture
        w = torch.ones(2, requires_grad=True)
        (w * 3).as_subclass(Picture).sum().backward()
        assert w.grad.tolist() == [3, 3]
    """)


def test_import_chain_of_timm() -> None:
    run_program("""
        import torch
        from torch.hub import HASH_REGEX, download_url_to_file, get_dir, urlparse
        from torch.nn.parallel import DistributedDataParallel
        from torch.optim.optimizer import ParamsT, _use_grad_for_differentiable
        from torch.distributed.tensor import DTensor
        import torch.onnx

        assert HASH_REGEX.search("resnet18-f37072fd.pth").group(1) == "f37072fd"
        assert get_dir().endswith("hub") and not torch.onnx.is_in_onnx_export()
        torch.hub.set_dir("/somewhere")
        assert get_dir() == "/somewhere"
        model = torch.nn.Linear(2, 3)
        assert not isinstance(model, (torch.nn.DataParallel, DistributedDataParallel, torch.jit.ScriptModule))
        parameters = [p.detach().clone() for p in model.parameters()]
        expected = [p * 0.9 + 0.1 * (p * p) for p in parameters]
        torch._foreach_mul_(parameters, 0.9)
        torch._foreach_addcmul_(parameters, [p / 0.9 for p in parameters], [p / 0.9 for p in parameters], 0.1)
        for p, q in zip(parameters, expected):
            torch.testing.assert_close(p, q)
        norms = torch._foreach_norm(parameters)
        torch._foreach_maximum_(norms, 1e-6)
        torch._foreach_div_(parameters, norms)
        assert abs(sum(torch._foreach_norm(parameters)).item() - 2) < 1e-5

        class Halving(torch.optim.Optimizer):
            def __init__(self, params: ParamsT): super().__init__(params, {})
            @_use_grad_for_differentiable
            def step(self):
                for group in self.param_groups:
                    torch._foreach_mul_(group["params"], 0.5)

        before = model.weight.sum().item()
        Halving(model.parameters()).step()
        assert abs(model.weight.sum().item() - before / 2) < 1e-6
    """)


def test_import_chain_of_transformers_and_accelerate() -> None:
    run_program("""
        import typing
        import torch
        from torch.autograd.graph import save_on_cpu
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.nn.attention.flex_attention import BlockMask, flex_attention
        from torch.utils.checkpoint import checkpoint
        import torch.utils._pytree, torch.utils.hooks
        from torch.fx.experimental.symbolic_shapes import guard_or_false

        finfos = [torch.finfo(d).max for d in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16)]
        assert finfos[:2] == [448.0, 57344.0]
        sizes = {torch.complex64: 8, torch.uint16: 2, torch.float8_e4m3fn: 1}
        assert all(dtype.itemsize == size for dtype, size in sizes.items())
        assert torch.complex64.is_complex and not torch.uint16.is_floating_point and torch.uint16 != torch.int16
        assert torch.iinfo(torch.uint16).max == 65535 and "complex64" in repr(torch.complex64)
        for use in (
            lambda: torch.zeros(2, dtype=torch.complex64), lambda: torch.ones(2).to(torch.float8_e4m3fn),
            lambda: torch.promote_types(torch.float32, torch.complex64),
        ):
            try:
                use()
            except NotImplementedError as error:
                assert "only its name; use one of bool," in str(error)
            else:
                raise AssertionError

        class Model(torch.nn.Module):
            width: int
            def forward(self, x: torch.Tensor) -> torch.Tensor: return x
        assert typing.get_type_hints(Model)["width"] is int
        assert torch._C._nn._parse_to("cpu", torch.float16)[:2] == (torch.device("cpu"), torch.float16)
        torch._dynamo.mark_static_address(torch.ones(1))
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
            q = torch.ones(1, 1, 2, 4)
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
        assert torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX == "_extra_state"
        assert not hasattr(torch, "npu") and not torch.xpu.is_available()
        assert torch.get_device_module("cpu") is torch.cpu
    """)


def test_import_chain_of_lightning_and_ignite() -> None:
    run_program("""
        import torch
        from torch.nn.modules.module import _IncompatibleKeys
        from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter
        from torch.storage import TypedStorage, UntypedStorage
        from torch.overrides import TorchFunctionMode
        from torch.distributed.algorithms.join import Join
        from torch.types import Number
        from torch.utils._pytree import SUPPORTED_NODES, LeafSpec, TreeSpec, _get_node_type, tree_unflatten

        class EmptyInit(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None): ...

        loader = torch.utils.data.DataLoader(torch.arange(4), batch_size=2)
        assert isinstance(iter(loader), _BaseDataLoaderIter)
        assert not isinstance(iter(loader), _MultiProcessingDataLoaderIter)
        spec = TreeSpec(dict, ["a", "b"], [LeafSpec(), TreeSpec(_get_node_type([1]), None, [LeafSpec()])])
        assert tree_unflatten([1, 2], spec) == {"a": 1, "b": [2]} and list in SUPPORTED_NODES
        try:
            EmptyInit()
        except NotImplementedError as error:
            assert "torch.overrides.TorchFunctionMode" in str(error)
        else:
            raise AssertionError("constructed a mode that has no effect")
    """)


def test_optimizer_wrapper_may_skip_base_class_init() -> None:
    """accelerate's class is an `Optimizer` that does not call `super().__init__`."""
    run_program("""
        import torch

        class Wrapper(torch.optim.Optimizer):
            def __init__(self, optimizer): self.optimizer = optimizer
            def step(self, closure=None): self.optimizer.step(closure)

        x = torch.ones(1, requires_grad=True)
        x.sum().backward()
        Wrapper(torch.optim.SGD([x], lr=0.25)).step()
        assert x.item() == 0.75
    """)


def test_einops_runs_as_it_is() -> None:
    pytest.importorskip("einops")
    run_program("""
        import torch
        from einops import rearrange, reduce
        from einops.layers.torch import EinMix, Rearrange

        x = torch.arange(24.0, requires_grad=True)
        y = reduce(rearrange(x, "(a b c) -> c a b", a=2, b=3), "c a b -> a", "mean")
        y.sum().backward()
        assert torch.allclose(y, x.detach().reshape(2, 12).mean(1))
        assert torch.allclose(x.grad, torch.full((24,), 1 / 12))
        mix = torch.nn.Sequential(Rearrange("a b -> b a"), EinMix("b a -> b c", weight_shape="a c", a=2, c=5))
        assert mix(torch.ones(2, 3)).shape == (3, 5)
    """)


def test_pytrees_are_flattened_and_rebuilt() -> None:
    run_program("""
        import collections
        from dataclasses import dataclass
        from torch.utils import _pytree as pytree

        Point = collections.namedtuple("Point", "x y")

        @dataclass
        class Pair:
            first: object
            second: object

        pytree.register_pytree_node(Pair, lambda p: ([p.first, p.second], None), lambda values, _: Pair(*values))
        tree = {"b": [1, (2, None)], "a": Point(3, Pair(4, [])), "c": collections.OrderedDict(z=5)}
        leaves, spec = pytree.tree_flatten(tree)
        assert leaves == [1, 2, None, 3, 4, 5] and spec.num_leaves == 6
        assert pytree.tree_unflatten(leaves, spec) == tree
        doubled = pytree.tree_map_only(int, lambda n: 2 * n, tree)
        assert doubled["a"] == Point(6, Pair(8, [])) and doubled["b"] == [2, (4, None)]
        assert pytree.tree_map(lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6]
        try:
            pytree.tree_unflatten([1], spec)
        except ValueError as error:
            assert "1 leaves for a structure with 6" in str(error)
        else:
            raise AssertionError("built a structure from too few leaves")
    """)


def test_custom_ops_are_functions_with_gradients() -> None:
    run_program("""
        import torch

        @torch.library.custom_op("mylib::scaled", mutates_args=())
        def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
            return x * factor

        @scaled.register_fake
        def _(x, factor=2.0): return torch.empty_like(x)

        x = torch.ones(3, requires_grad=True)
        try:
            scaled(x).sum().backward()
        except RuntimeError as error:
            assert "mylib::scaled: the op has no gradient" in str(error)
        else:
            raise AssertionError
        def setup_context(ctx, inputs, output): ctx.factor = inputs[1]
        scaled.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=setup_context)
        torch.ops.mylib.scaled(x, 3.0).sum().backward()
        assert x.grad.tolist() == [3, 3, 3] and torch.ops.mylib.scaled.default(x.detach()).tolist() == [2, 2, 2]
        assert not hasattr(torch.ops.mylib, "other")
    """)


def test_gradients_of_convolutions_are_functions() -> None:
    run_program("""
        import torch
        from torch.nn.grad import conv1d_weight, conv2d_input, conv2d_weight
        x, weight = torch.randn(2, 4, 7, 7, requires_grad=True), torch.randn(6, 2, 3, 3, requires_grad=True)
        out = torch.nn.functional.conv2d(x, weight, None, 2, 1, 1, 2)
        grad = torch.randn_like(out)
        out.backward(grad)
        assert torch.equal(conv2d_input(x.shape, weight, grad, 2, 1, 1, 2), x.grad)
        assert torch.equal(conv2d_weight(x, weight.shape, grad, 2, 1, 1, 2), weight.grad)
        ones = torch.ones(1, 1, 5)
        assert conv1d_weight(ones, (1, 1, 2), torch.ones(1, 1, 4)).tolist() == [[[4, 4]]]
    """)


def test_nvtx_ranges_nest_and_are_recorded() -> None:
    run_program("""
        import torch
        from torch.cuda import nvtx
        with torch.profiler.profile() as recording:
            assert nvtx.range_push("outer") == 0 and nvtx.range_push("inner") == 1
            range_id = nvtx.range_start("over")
            assert nvtx.range_pop() == 1 and nvtx.range_pop() == 0 and nvtx.range_pop() == -1
            nvtx.range_end(range_id)
            nvtx.mark("point")
            with nvtx.range("step {}", 3):
                torch.ones(2)
        names = {event.key for event in recording.key_averages()}
        assert {"outer", "inner", "over", "point", "step 3"} <= names, names
    """)


def test_weak_dictionaries_compare_tensors_by_identity_and_drop_freed_ones() -> None:
    run_program("""
        import gc, torch
        from torch.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakTensorKeyDictionary
        a, b = torch.ones(2), torch.ones(2)
        names = WeakTensorKeyDictionary({a: "a", b: "b"})
        names[a] = "first"
        assert names[a] == "first" and names[b] == "b" and len(names) == 2 and a in names
        assert torch.ones(2) not in names and [names[key] for key in names] == ["first", "b"]
        reference = TensorWeakRef(a)
        assert reference() is a
        del a
        gc.collect()
        assert reference() is None and len(names) == 1
        del names[b]
        assert not names and WeakTensorKeyDictionary is WeakIdKeyDictionary
    """)


def test_hub_runs_local_repositories_and_loads_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("import torch\nclass Net(torch.nn.Linear): pass\n")
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['torch']\nfrom parts import Net as _Net\n"
        "def net(size, *, bias=True):\n    'A layer.'\n    return _Net(size, 2, bias=bias)\n"
    )
    run_program(f"""
        import pathlib, torch
        folder = pathlib.Path({str(tmp_path)!r})
        model = torch.hub.load(str(folder), "net", 3, bias=False, source="local", trust_repo=True)
        assert tuple(model.weight.shape) == (2, 3) and model.bias is None
        assert torch.hub.list(folder, source="local") == ["net"]
        assert torch.hub.help(folder, "net", source="local") == "A layer."
        torch.save(model.state_dict(), folder / "net-0.pth")
        torch.hub.set_dir(folder / "cache")
        url = (folder / "net-0.pth").as_uri()
        state = torch.hub.load_state_dict_from_url(url, map_location="cpu", progress=False)
        assert torch.equal(state["weight"], model.weight)
        (folder / "net-0.pth").unlink()  # the second time it comes from the folder for downloads
        assert torch.hub.load_state_dict_from_url(url, progress=False).keys() == state.keys()
        try:
            torch.hub.load_state_dict_from_url(
                (folder / "cache/checkpoints/net-0.pth").as_uri(), file_name="other-0123.pth", check_hash=True
            )
        except ValueError as error:
            assert "0123" in str(error)
        else:
            raise SystemExit("accepted a wrong checksum")
        for arguments, options, message in (
            (["owner/repository", "net"], dict(), "source='local'"),
            ([folder, "other"], dict(source="local"), "no function 'other'; it has net"),
        ):
            try:
                torch.hub.load(*arguments, **options)
            except (NotImplementedError, RuntimeError) as error:
                assert message in str(error), error
            else:
                raise SystemExit("no error")
    """)


@pytest.mark.parametrize("name", ["_foreach_add", "_foreach_add_", "_foreach_maximum", "_foreach_addcmul"])
def test_foreach_functions_refuse_lists_of_different_lengths(name: str) -> None:
    tensors = [wg.ones(2), wg.ones(3)]
    lists = (tensors, tensors) if name == "_foreach_addcmul" else ()
    with pytest.raises(errors.ArgumentError, match=f"^{name}: lists of 2 and 3 items"):
        FUNCTIONS[name](tensors, *lists, [1.0, 2.0, 3.0])


def test_torchscript_isinstance_takes_unions_and_containers() -> None:
    run_program("""
        from typing import List, Optional, Union
        import torch
        assert torch.jit.isinstance(None, Optional[int]) and torch.jit.isinstance(1, Union[int, str])
        assert torch.jit.isinstance([1], Optional[List[int]]) and torch.jit.isinstance([1], list[int] | None)
        assert not torch.jit.isinstance("a", Optional[int])
    """)


def test_dlpack_module_exports_and_imports_tensors() -> None:
    run_program("""
        import torch
        from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack
        x = torch.arange(3)
        assert type(to_dlpack(x)).__name__ == "PyCapsule"
        y = from_dlpack(x)
        y[0] = 5
        assert x.tolist() == [5, 1, 2] and x.__dlpack_device__()[0] == DLDeviceType.kDLCPU
    """)
