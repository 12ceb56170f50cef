"""Sparse latent attention under FlashMLA's names: each token attends to the latents in its own list (chapter 8, steps 11 and 12).

A latent has 576 elements in bfloat16, of which the first 512 are its value; or 656 bytes: 512 elements in float8_e4m3fn, a float32 for every 128
of them, which is their scale, and 64 elements in bfloat16. There are no gradients.
"""

import math
from typing import Any

import torch
from torch import Tensor

from flashbook import arguments, interface, ops
from flashbook._library import BF16, Problem

KEY_DIM, VALUE_DIM, ROW_BYTES = 576, 512, 656
_known: dict[object, tuple[ops.Plan, Tensor | None]] = {}  # plans, and the pages in order


def sparse_latent_attention(q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float | None = None) -> tuple[Tensor, Tensor]:
    """Computes attention of tokens, q [tokens, heads, 576], to the rows of kv that indices, [tokens, count] in int32, lists for each.

    kv is [rows, columns] or [pages, rows per page, columns], with 576 columns in bfloat16 or 656 of one byte. A list counts rows over all pages; -1,
    or any other number that is no row, stands for no key, and a row that is listed twice counts twice. Returns O, [tokens, heads, 512], and the
    natural log-sum-exp, [tokens, heads]; 0 and -inf for a list without keys.
    """
    arguments.tensors(3, "[tokens, heads, head_dim]", q=q)
    if not isinstance(kv, Tensor) or kv.dim() not in (2, 3):
        raise ValueError("kv has to be [rows, columns] or [pages, rows, columns]: pass such a tensor")
    if q.dtype != torch.bfloat16 or q.shape[-1] != KEY_DIM:
        raise ValueError(f"q is {q.dtype} of {tuple(q.shape)}: pass bfloat16 with {KEY_DIM} columns")
    if (kv.element_size(), kv.shape[-1]) not in ((2, KEY_DIM), (1, ROW_BYTES)) or (kv.element_size() == 2 and kv.dtype != q.dtype):
        raise ValueError(f"kv is {kv.dtype} of {tuple(kv.shape)}: pass bfloat16 with {KEY_DIM} columns, or {ROW_BYTES} bytes per row")
    if kv.device != q.device:
        raise ValueError(f"kv is on {kv.device} and q on {q.device}: pass both on one device")
    ops.check_array("indices", indices, q, torch.int32)
    if indices.dim() != 2 or len(indices) != len(q) or indices.shape[1] < 1:
        raise ValueError(f"indices is {tuple(indices.shape)}: pass ({len(q)}, count), a list for each token")
    scale = 1 / math.sqrt(KEY_DIM) if sm_scale is None else sm_scale
    if not 0 < scale < math.inf:
        raise ValueError(f"sm_scale is {scale}: pass a finite number above 0")
    interface.refuse_gradients(q, kv)
    q, kv = (tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in (q, kv if kv.dim() == 3 else kv[None]))
    o, lse = torch.ops.flashbook.sparse(q, kv, indices, scale)
    return o, lse.T


def flash_mla_sparse_fwd(q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float, d_v: int = VALUE_DIM, attn_sink: Tensor | None = None,
                         topk_length: Tensor | None = None) -> tuple[Tensor, None, Tensor]:
    """Sparse prefill: kv is [tokens, 1, 576] in bfloat16, and indices [tokens, 1, count]. Returns O, None in place of the rows' maxima, and the
    log-sum-exp, [tokens, heads], which is -inf, not inf, for a list without keys."""
    _refuse(d_v, attn_sink=attn_sink, topk_length=topk_length)
    arguments.tensors(3, "[tokens, 1, ...]", kv=kv, indices=indices)
    o, lse = sparse_latent_attention(q, kv[:, 0], indices[:, 0].contiguous(), sm_scale)
    return o, None, lse


def flash_mla_with_kvcache(q: Tensor, k_cache: Tensor, block_table: Tensor | None, cache_seqlens: Tensor | None, head_dim_v: int,
                           tile_scheduler_metadata: object = None, num_splits: object = None, softmax_scale: float | None = None,
                           causal: bool = False, is_fp8_kvcache: bool = False, indices: Tensor | None = None, attn_sink: Tensor | None = None,
                           **others: object) -> tuple[Tensor, Tensor]:
    """Sparse decoding: q is [batch, tokens, heads, 576], k_cache [pages, rows per page, 1, columns], and indices [batch, tokens, count], rows of the
    whole cache. block_table, cache_seqlens and tile_scheduler_metadata are not read. Returns O and the log-sum-exp, [batch, heads, tokens]."""
    _refuse(head_dim_v, attn_sink=attn_sink, **others)
    if indices is None or causal:
        raise NotImplementedError("only sparse attention is supported: pass indices and causal=False, or call flash_attn_with_kvcache")
    arguments.tensors(4, "[batch, tokens, heads, head_dim]", q=q, k_cache=k_cache)
    if (k_cache.element_size() == 1) != is_fp8_kvcache:
        raise ValueError(f"k_cache is {k_cache.dtype} with is_fp8_kvcache={is_fp8_kvcache}: pass is_fp8_kvcache={not is_fp8_kvcache}")
    o, lse = sparse_latent_attention(q.flatten(0, 1), k_cache[:, :, 0], indices.flatten(0, 1).contiguous(), softmax_scale)
    return o.unflatten(0, q.shape[:2]), lse.unflatten(0, q.shape[:2]).transpose(1, 2)


def get_mla_metadata(*_: object, **__: object) -> tuple[None, None]:
    """Returns nothing: the launch is planned in the call."""
    return None, None


def _refuse(value_dim: int, **others: object) -> None:
    if value_dim != VALUE_DIM:
        raise ValueError(f"the values have {value_dim} columns: pass {VALUE_DIM}")
    if given := [name for name, value in others.items() if value is not None]:
        raise NotImplementedError(f"{given[0]} is not supported: leave it out, or put -1 in indices")


def plan_of(q: Tensor, kv: Tensor, indices: Tensor, scale: float) -> tuple[ops.Plan, Tensor | None]:
    """Returns what is known about a call: everything except its pointers."""
    key = q.shape, kv.shape, q.stride(), kv.stride(), q.device, indices.shape, scale
    if key in _known:
        return _known[key]
    ops.check_machine(q.device, ops.DECODING)
    (tokens, heads, _), (pages, rows, columns) = q.shape, kv.shape
    e4m3, row = columns == ROW_BYTES, kv.stride(1) if rows > 1 else columns
    plan = ops.Plan(chapter=ops.DECODING, step="sparse_decode" if e4m3 else "sparse_prefill", reason="a list of latents for each token",
                    empty=q.numel() == 0 or kv.numel() == 0, index=-1 if q.device.type == "cpu" else q.device.index,
                    simulated=q.device.type == "cpu")
    has_gaps, table = pages > 1 and kv.stride(0) != rows * row, None
    if not plan.empty:
        plan.sizes = Problem(batch=1, heads=heads, kv_heads=1, seqlen_q=tokens, seqlen_k=pages * rows, head_dim=KEY_DIM, dtype=BF16, scale=scale)
        of_o = (tokens * heads * VALUE_DIM, VALUE_DIM, heads * VALUE_DIM, 1), (1, heads, tokens, VALUE_DIM)
        ops.set_strides(ops.add(plan, "Layout"), q=((tokens * q.stride(0), q.stride(1), q.stride(0), 1), (1, heads, tokens, KEY_DIM)), o=of_o,
                        k=((kv.stride(0) if has_gaps else rows * pages * row, row, row, 1), (pages, 1, pages * rows, columns)))
        ops.add(plan, "Indices", "indices", count=indices.shape[1])
        if has_gaps:
            table = torch.arange(pages, dtype=torch.int32, device=q.device)
            ops.add(plan, "Pages", "page_table", page_rows=rows, pages=pages)
        if e4m3:
            ops.add(plan, "Scales")
        ops.described(plan, "attention", q.device)
    _known[key] = plan, table
    return _known[key]


def sparse(q: Tensor, kv: Tensor, indices: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The operator: O, [tokens, heads, 512], and the log-sum-exp, [heads, tokens]."""
    o, lse = results(q, kv)
    plan, table = plan_of(q, kv, indices, scale)
    if plan.empty:
        return o.zero_(), lse.fill_(-math.inf)
    launch = ops.Launch(plan)
    launch.run(*launch.problem(None, {"indices": indices, "page_table": table}), launch.tensors(q, kv, kv, o, lse), results=(o, lse))
    return o, lse


def results(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:2], VALUE_DIM), q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32)


_definitions = torch.library.Library("flashbook", "FRAGMENT")
_definitions.define("sparse(Tensor q, Tensor kv, Tensor indices, float scale) -> (Tensor, Tensor)")
for _place in ("CPU", "CUDA"):
    _definitions.impl("sparse", sparse, _place)
torch.library.register_fake("flashbook::sparse", results, lib=_definitions)
