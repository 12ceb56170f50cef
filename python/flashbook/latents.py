"""A second product in the scores, q k^T + qv v^T: attention whose keys are the columns of k next to those of v.

Up to 256 columns together run in any kernel. Up to 64 columns of k with 512 of v run in chapter 8's latent kernel, which reads one tensor of
576 columns, those of v first.
"""

import math
from typing import Any

import torch
from torch import Tensor

from flashbook import arguments, documents, interface, ops

KEY_DIM, VALUE_DIM = 64, 512  # columns of the latent kernel's tensor: values, then keys


def check(q: Tensor, v: Tensor, qv: object, axes: str) -> Tensor:
    """Returns qv, [..., heads, value_dim], if it has the sizes, the type and the device of the others."""
    arguments.tensors(q.dim(), axes, qv=qv)
    assert isinstance(qv, Tensor)
    sizes = (*q.shape[:-1], v.shape[-1])
    if tuple(qv.shape) != sizes or qv.dtype != q.dtype or qv.device != q.device:
        raise ValueError(f"qv is {qv.dtype} of {tuple(qv.shape)} on {qv.device}: pass {q.dtype} of {sizes} on {q.device}")
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise NotImplementedError(f"qv is {qv.dtype}, and a second product in the scores needs float16 or bfloat16: pass tensors of 16 bits")
    return qv


def side_by_side(q: Tensor, k: Tensor, v: Tensor, qv: Tensor, scale: float | None) -> tuple[Tensor, Tensor, float]:
    """Returns the queries, the keys and the scale of a call with a single product."""
    if q.shape[-1] + v.shape[-1] > ops.MAX_HEAD_DIM:
        raise NotImplementedError(f"q has {q.shape[-1]} columns and qv {v.shape[-1]}, and kernels for masks and gradients support "
                                  f"{ops.MAX_HEAD_DIM} together: use flash_attn_with_kvcache, full or causal, with up to {KEY_DIM} and {VALUE_DIM}")
    return torch.cat([q, qv], -1), torch.cat([k, v], -1), scale_of(q, qv, scale)


def scale_of(q: Tensor, qv: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1] + qv.shape[-1]) if scale is None else scale


def one_tensor(k: Tensor, v: Tensor) -> Tensor:
    """Returns [v | k], [..., 576]: the tensor of which k and v are views, or a copy."""
    places = k.untyped_storage().data_ptr() == v.untyped_storage().data_ptr() and k.storage_offset() == v.storage_offset() + VALUE_DIM
    same = all(size == 1 or a == b for size, a, b in zip(k.shape[:-1], k.stride(), v.stride()))
    if places and same and (k.shape[-1], v.shape[-1]) == (KEY_DIM, VALUE_DIM) and k.stride(-1) == v.stride(-1) == 1:
        return v.as_strided((*v.shape[:-1], VALUE_DIM + KEY_DIM), v.stride())
    return _columns(v, k)


def _columns(values: Tensor, keys: Tensor) -> Tensor:
    """Concatenates values and keys, each padded with zero columns to the kernel's sizes."""
    parts = ((values, VALUE_DIM), (keys, KEY_DIM))
    return torch.cat([interface._with_columns(part, columns - part.shape[-1]) for part, columns in parts], -1)


def cached(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None, v: Tensor | None, qv: Tensor, lengths: int | Tensor | None,
           entries: Tensor | None, pages: Tensor | None, first_query: Tensor | None, max_queries: int | None, rotary: interface.Rotary | None,
           scale: float | None, causal: bool) -> tuple[Tensor, Tensor]:
    """Computes attention of queries, [batch, seqlen, heads, ...] or packed, against a cache, after appending k and v to it."""
    arguments.tensors(4, "[batch, seqlen, heads, head_dim]", k_cache=k_cache, v_cache=v_cache)
    if not (k_cache.shape[-1] == q.shape[-1] <= KEY_DIM and 0 < v_cache.shape[-1] <= VALUE_DIM and k_cache.shape[:3] == v_cache.shape[:3]):
        raise NotImplementedError(f"q is {tuple(q.shape)}, k_cache {tuple(k_cache.shape)} and v_cache {tuple(v_cache.shape)} with qv: pass a "
                                  f"head_dim up to {KEY_DIM} and values of up to {VALUE_DIM} columns")
    new = [tensor for tensor in (k, v) if tensor is not None]
    interface.refuse_gradients(q, qv, k_cache, v_cache, *new)
    packed = first_query is not None
    if first_query is not None:
        if max_queries is None:
            raise ValueError("cu_seqlens_q is given, and max_seqlen_q is None: pass the maximum number of queries in a sequence")
        most = arguments.whole_number("max_seqlen_q", max_queries)
        sequence, row = documents._rows(first_query, len(q))
        count = first_query.diff()
        place = (first_query[1:, None] - most + torch.arange(most, device=q.device)).clamp(0, max(len(q) - 1, 0))  # ends with the last query
        q, qv = q[place], qv[place]
    whole = k_cache.shape[1] if pages is None else pages.shape[1] * k_cache.shape[1]
    added = new[0].shape[1] if new else 0
    written = interface._lengths(q, lengths, whole - added)
    if len(new) == 1:
        raise ValueError("one of k and v is None: pass both or neither")
    if new:
        interface._check_new(q, k_cache, new, lengths, v_cache.shape[-1])
    keys, scale = one_tensor(k_cache, v_cache), scale_of(q, qv, scale)

    def call(run: Any, keys: Tensor, written: Tensor | None) -> Any:
        keys = (keys if entries is None else keys[entries.long()]).transpose(1, 2)
        return run(_columns(qv, q).transpose(1, 2), keys, keys[..., :VALUE_DIM], written, pages, scale, -1, 0 if causal else -1)

    if new and written is not None:
        call(ops.check_decode, keys, written)
        if rotary is not None:
            q, new[0] = interface._rotated(q, new[0], written, rotary, causal)
        table = entries[:, None] if pages is None and entries is not None else pages
        interface._append(k_cache, v_cache, new[0], new[1], written, table)
        if keys.untyped_storage().data_ptr() != v_cache.untyped_storage().data_ptr():  # a copy, which needs the new rows, too
            interface._append(keys[..., VALUE_DIM:VALUE_DIM + q.shape[-1]], keys[..., :v_cache.shape[-1]], new[0], new[1], written, table)
        written = written + added
    direct = ops.is_untraced(q, k_cache, v_cache)
    o, lse = call(ops.decode if direct else torch.ops.flashbook.decode, keys, written)
    o = o.transpose(1, 2)[..., :v_cache.shape[-1]]
    if not packed:
        return o, lse
    place, unused = row + most - count[sequence], row >= count[sequence]
    place = place.clamp(0, most - 1)
    return o[sequence, place].masked_fill(unused[:, None, None], 0), lse[sequence, :, place].masked_fill(unused[:, None], -math.inf).T.contiguous()
