"""Private functions of PyTorch that every call uses, because the public ones take longer than the rest of the call.

If a version of PyTorch lacks one of them, calls get slower but stay correct: the fallback is a public function, or a
value that routes the call through PyTorch's dispatcher, which handles all calls.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad


def _private(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    found: Callable[..., Any] | None = functools.reduce(lambda module, part: getattr(module, part, None), name.split("."), torch._C)
    return found or otherwise


are_transforms_active = _private("_are_functorch_transforms_active", lambda: True)
tracing_state = _private("_get_tracing_state", lambda: torch.jit.is_tracing() or None)
modes = _private("_len_torch_dispatch_stack", lambda: 1)
is_any_autocast_enabled = _private("_is_any_autocast_enabled", lambda: any(map(torch.is_autocast_enabled, ("cpu", "cuda"))))
current_device = _private("_cuda_getDevice", torch.cuda.current_device)
graph_task = _private("_current_graph_task_id", lambda: -1)
raw_stream = _private("_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream)
saved_tensor_hooks = _private("_autograd._top_saved_tensors_default_hooks", lambda _: True)
is_capturing = _private("_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing)
is_wrapped = _private("_functorch.is_functorch_wrapped_tensor", lambda _: True)  # for tensors of transforms such as torch.func.grad
# Detects the tensors of torch.autograd.grad(..., is_grads_batched=True). Without this, such a call fails because they
# have no storage.
is_batch_of_gradients: Callable[[Any], bool] = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda _: False)


def may_have_tangents() -> bool:
    """Returns whether forward-mode derivatives might be in use."""
    return bool(getattr(forward_ad, "_current_level", 0) >= 0)


def without_checks(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Returns function.apply without the checks of PyTorch's wrappers: whether a transform is active, whether a tensor
    comes from a transform that has ended, and, in the backward pass, whether the function also has a `vjp`."""
    if hasattr(function, "_backward_cls"):
        function._backward_cls.apply = function.backward
    found: Callable[..., Any] = super(torch.autograd.Function, function).apply
    return found
