"""A fake GPU: it computes on the CPU, but refuses the CPU's tensors, and records whatever makes the program wait.

    install()
    with FakeGpu() as gpu:
        model.to(gpu.name)
        ...
    assert len(gpu.waits) == 1

Code that asks for `device.type` takes the paths of a GPU, so a test can compare these with the paths of a CPU. As with
CUDA, an operation on tensors of two devices raises RuntimeError. What this cannot show: kernels, memory and speed.

To PyTorch this is a backend written in Python. It can never be unregistered, and the first backward pass of a process
must come after it, so use it in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "fake"
aten = torch.ops.aten
COPIES = (aten._to_copy, aten.copy_, aten.to)  # the operations that may see tensors of two devices
# The program waits for their values, or for the shape of their result.
WAITING = (
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.repeat_interleave.Tensor,
    aten._unique2.default,
)
CAST = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm")  # those of autocast's operations that the program uses
_libraries: list[torch.library.Library] = []


class OnFakeGpu(torch.Tensor):
    """A tensor on the fake GPU; `held`, on the CPU, has its values."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> OnFakeGpu:
        """Wrap a tensor on the CPU."""
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        self.held = held
        return self

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Make `Module.to` keep the identity of weights, and so their ties."""
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *_: Any) -> OnFakeGpu:
        return OnFakeGpu(inner["held"])

    def tolist(self) -> Any:
        """The values. PyTorch has no `tolist` for subclasses."""
        return self.cpu().tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnFakeGpu({self.held!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside of the context of a FakeGpu")


class FakeGpu(TorchDispatchMode):
    """Context manager: the device. It runs each operation on what the tensors hold."""

    name = NAME  # a device for PyTorch

    def __init__(self) -> None:
        super().__init__()
        self.forget()
        self._lifts: list[bool] = []

    def forget(self) -> None:
        """Count from zero."""
        self.waits: list[str] = []  # the operations that waited for the device
        self.uploads = 0  # copies to the device

    def __enter__(self) -> FakeGpu:
        self._lifts.append(torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor` makes its tensor on the CPU, then copies it
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch._C._set_only_lift_cpu_tensors(self._lifts.pop())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation of PyTorch."""
        if not torch.is_inference_mode_enabled():
            return self._run(func, args, kwargs or {})
        # Inference mode hands over operations in large pieces, such as `to`, and has no views of wrappers.
        with torch.inference_mode(False), torch.no_grad(), self:
            return func(*args, **kwargs or {})

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensors = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        here = [isinstance(each, OnFakeGpu) for each in tensors]
        is_copy = func.overloadpacket in COPIES
        elsewhere = any(not on and x.dim() > 0 for on, x in zip(here, tensors, strict=True))  # numbers may be anywhere
        if any(here) and elsewhere and not is_copy:
            raise RuntimeError(f"{func}: expected all tensors to be on the same device, found {NAME} and cpu")
        if kwargs.get("device") is not None:
            stays = torch.device(kwargs["device"]).type == NAME
            kwargs = kwargs | {"device": torch.device("cpu")}
        else:
            stays = here[0] if is_copy else any(here)
        self.uploads += is_copy and stays and not all(here)
        by_mask = func is aten.index.Tensor and any(each is not None and each.dtype == torch.bool for each in args[1])
        if any(here) and (not stays or func in WAITING or by_mask):
            self.waits.append(str(func))
        own_args, own_kwargs = pytree.tree_map_only(OnFakeGpu, lambda each: each.held, (args, kwargs))
        result = func(*own_args, **own_kwargs)
        if not stays:
            return args[0] if func is aten.copy_.default else result
        result = pytree.tree_map_only(Tensor, OnFakeGpu, result)
        return return_and_correct_aliasing(func, args, kwargs, result) if any(here) else result


def install() -> None:
    """Make the device known to PyTorch."""
    _setup_privateuseone_for_python_backend(NAME)
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    others, cast = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for name in CAST:
        cast.impl(name, _with_cast(getattr(aten, name).default), "AutocastPrivateUse1")
    _libraries.extend((others, cast))  # they take back what they registered when they are deleted


def _with_cast(func: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An operation as autocast runs it: with floating-point tensors cast first."""

    def run(*args: Any, **kwargs: Any) -> Tensor:
        dtype = torch.get_autocast_dtype(NAME)
        with torch.autocast(NAME, enabled=False):
            args, kwargs = pytree.tree_map_only(
                Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, (args, kwargs)
            )
            return func(*args, **kwargs)

    return run
