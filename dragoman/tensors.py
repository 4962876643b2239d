"""Weights and training state as bytes, and back. Reading runs no code, and no NaN or infinity is saved."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from dragoman.errors import CheckpointError, NotFiniteError


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights on the CPU, to be saved as safetensors. A tensor with several names is there once, under the first.

    Pass the raw model: the wrappers of torch.compile and of data parallelism add prefixes to the names.

    Raises:
        NotFiniteError: a tensor holds NaN or an infinite value.
    """
    state = model.state_dict()
    assert not any(name.startswith(("_orig_mod.", "module.")) for name in state), "pass the model, not its wrapper"
    tensors = {name: state[name].cpu().contiguous() for name in dict.fromkeys(first_names(state).values())}
    check_finite(tensors)
    return tensors


def load_weights(model: nn.Module, data: bytes) -> None:
    """Load `weights_of` a model, as safetensors, into the model, cast to the model's own types; all of it or nothing.

    Raises:
        CheckpointError: the data is not safetensors, or a name or shape differs; the message names the first.
    """
    load_unpacked(model, unpack_weights(data))


def load_unpacked(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load what `unpack_weights` returned, as `load_weights` does. Raises CheckpointError."""
    check_shapes(model, tensors)
    state = model.state_dict()
    first = first_names(state)
    model.load_state_dict({name: tensors[first[name]] for name in state})


def check_shapes(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Check that weights fit a model, which may be on the meta device and so take no memory.

    Raises:
        CheckpointError: a name or shape differs; the message names the first.
    """
    state = model.state_dict()
    expected = {name: tuple(state[name].shape) for name in first_names(state).values()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in [*expected, *sorted(shapes)]:
        if expected.get(name) != shapes.get(name):
            raise CheckpointError(
                f"the weights do not fit the model: {name} has shape {shapes.get(name, 'none')} in the checkpoint and "
                f"{expected.get(name, 'none')} in the model. Use the configuration that the checkpoint was made with."
            )


def unpack_weights(data: bytes) -> dict[str, Tensor]:
    """Unpack safetensors.

    Raises:
        CheckpointError: the data is not safetensors.
    """
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # its Rust parser has its own exception type, and its wrapper adds KeyError and others
        raise CheckpointError(f"the weights are not safetensors ({error}): use another checkpoint.") from error


def first_names(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Map each name to the first name of the same tensor; the two differ for tied weights."""
    seen: dict[tuple, str] = {}
    return {
        name: seen.setdefault((storage_of(t), t.storage_offset(), t.shape, t.stride(), t.dtype), name)
        for name, t in state.items()
    }


def storage_of(tensor: Tensor) -> int:
    """Identify the storage of a tensor, also of one on the meta device, where no storage has an address."""
    return tensor.untyped_storage()._cdata


def tensors_bytes(value: Any) -> bytes:
    """Pack tensors, numbers, strings, lists and dicts, such as an optimizer's state, for `load_tensors`.

    Raises:
        NotFiniteError: a tensor holds NaN or an infinite value.
    """
    check_finite(value)
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def load_tensors(data: bytes) -> Any:
    """Unpack the bytes of `tensors_bytes` on the CPU, without running any code in them.

    Raises:
        CheckpointError: the data is damaged, holds anything but plain values, or would take more memory than its size.
    """
    try:
        _check_archive(data)
        value = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        _check_sizes(value, len(data))
        return value
    except CheckpointError:
        raise
    except Exception as error:  # what damage raises depends on where it is
        # Do not repeat torch's own message: it advises weights_only=False, which would run the code in a hostile file.
        raise CheckpointError(
            f"the training state does not hold plain tensors and numbers only ({type(error).__name__}), "
            "and was not loaded: use another checkpoint."
        ) from error


def _check_archive(data: bytes) -> None:
    """Check that an archive of `torch.save` unpacks to no more than its size. Raises CheckpointError."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size for entry in entries):
        raise _too_large("it is packed, which this program never does")
    if sum(entry.file_size for entry in entries) > len(data):
        raise _too_large("its parts overlap")


def _check_sizes(value: Any, size: int) -> None:
    """Check that all tensors at any depth, and their storages, have no more than `size` bytes. Raises CheckpointError.

    An expanded tensor (stride 0) is small in the file and large once copied.
    A storage may say that it is larger than its part of the archive, and torch believes it.
    """
    tensors, storages = {}, {}
    waiting = [value]
    while waiting:
        match waiting.pop():
            case Tensor() as tensor if tensor.layout != torch.strided or tensor.is_quantized:
                raise _too_large("a tensor is not a plain one")
            case Tensor() as tensor:
                storages[storage_of(tensor)] = tensor.untyped_storage().nbytes()
                view = storage_of(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
                tensors[view] = tensor.numel() * tensor.element_size()
            case Mapping() as parts:
                waiting += parts.values()
            case list() | tuple() | set() as parts:
                waiting += parts
    if max(sum(tensors.values()), sum(storages.values())) > size:
        raise _too_large("its tensors are larger than its file")


def _too_large(why: str) -> CheckpointError:
    return CheckpointError(
        f"the training state could take more memory than its size ({why}), and was not loaded: use another checkpoint."
    )


def check_finite(value: Any, name: str = "") -> None:
    """Check every tensor, at any depth. Raises NotFiniteError."""
    if isinstance(value, Tensor) and not torch.isfinite(value).all():
        raise NotFiniteError(
            f"cannot save the training state, because {name} holds NaN or infinite values. Lower training.lr or raise "
            "training.warmup_steps, and run the same command again, which resumes from the last checkpoint."
        )
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, part in parts:
        check_finite(part, f"{name}.{key}" if name else str(key))
