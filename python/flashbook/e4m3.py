"""Calls in float8_e4m3fn for which there is no kernel: 16-bit copies of the tensors run instead.

Every e4m3 value is exact in 16 bits. The scales, [batch, kv_heads], are factors of the queries and of O.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from flashbook import ops

Scale: TypeAlias = Tensor | None


class _In16Bits(torch.autograd.Function):
    """Copies a tensor. Its gradient would have to be rounded to e4m3, so there is none, as in FlashAttention-3."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        return tensor.to(dtype)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise ops.no_gradient_in_e4m3()


def is_e4m3(*tensors: Tensor) -> bool:
    return all(isinstance(tensor, Tensor) and tensor.dtype == torch.float8_e4m3fn for tensor in tensors)


def in_16_bits(tensor: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    copy: Tensor = _In16Bits.apply(tensor, dtype)
    return copy


def scaled(tensor: Tensor, scales: dict[str, Scale], kv_heads: int, sequence: Tensor | None = None) -> Tensor:
    """Multiplies [batch, seqlen, heads, head_dim], or with the sequence of each token [tokens, heads, head_dim], by these
    scales, which are named for errors."""
    for name, scale in scales.items():
        if scale is None:
            continue
        ops.check_array(name, scale, tensor, torch.float32)
        batch = len(tensor) if sequence is None else len(scale)
        if scale.shape != (batch, kv_heads):
            raise ValueError(f"{name} is {tuple(scale.shape)}: pass {(batch, kv_heads)}, [batch, kv_heads]")
        by_head = scale.repeat_interleave(tensor.shape[-2] // kv_heads, 1)
        tensor = (tensor * (by_head[:, None] if sequence is None else by_head[sequence])[..., None]).to(tensor.dtype)
    return tensor


def attend(call: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, q_descale: Scale, k_descale: Scale, v_descale: Scale,
           sequence: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns O in bfloat16 and the log-sum-exp that `call` returns for 16-bit copies."""
    kv_heads = k.shape[-2]
    factors = {"q_descale": q_descale, "k_descale": k_descale}
    o, lse = call(scaled(in_16_bits(q), factors, kv_heads, sequence), in_16_bits(k), in_16_bits(v))
    return scaled(o, {"v_descale": v_descale}, kv_heads, sequence), lse
