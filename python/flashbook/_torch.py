"""What is private in PyTorch, and asked at every call because the public ways take longer than the rest of it.

A PyTorch that has one of them no longer loses time, not answers: behind each stands a public way, or the answer that sends a call through
PyTorch's dispatcher, which is right for all calls.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad


def _private(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(torch._C, name, otherwise)
    return found


are_transforms_active = _private("_are_functorch_transforms_active", lambda: True)
tracing_state = _private("_get_tracing_state", lambda: torch.jit.is_tracing() or None)
modes = _private("_len_torch_dispatch_stack", lambda: 1)
is_any_autocast_enabled = _private("_is_any_autocast_enabled", lambda: any(map(torch.is_autocast_enabled, ("cpu", "cuda"))))
current_device = _private("_cuda_getDevice", torch.cuda.current_device)
graph_task = _private("_current_graph_task_id", lambda: -1)
raw_stream = _private("_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream)
is_capturing = _private("_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing)


# What torch.autograd.grad(..., is_grads_batched=True) hands to a backward pass. Without it such a call says that a tensor has no storage.
is_batch_of_gradients: Callable[[Any], bool] = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda _: False)


def may_have_tangents() -> bool:
    """Whether somebody may be computing forward-mode derivatives."""
    return bool(getattr(forward_ad, "_current_level", 0) >= 0)
