"""FlashAttention-3's functions, with its names, its order of arguments and its results.

What is refused raises NotImplementedError with the cure: what FlashAttention-3 has and these kernels have not. Hints (`num_splits`, `pack_gqa`)
change no result, and are taken: the kernels split keys and pack heads where that pays. The log-sum-exp of a query that sees no key is -inf.
"""

from typing import Literal, overload

import torch
from torch import Tensor

from flashbook import arguments, interface, ops
from flashbook._torch import is_any_autocast_enabled
from flashbook.arguments import ORDER_3
from flashbook.interface import ALL_KEYS, Window

WithLse = tuple[Tensor, Tensor]  # o, lse
Options = tuple[float | None, int, int, float]
THEIRS = "or use FlashAttention-3's own function"


def _options(softmax_scale: float | None, causal: bool, qv: Tensor | None, window_size: Window, attention_chunk: int, softcap: float,
             num_splits: int, pack_gqa: bool | None, sm_margin: int) -> Options:
    """The scale, keys before and after a query's own, and the softcap. Raises for what is not taken."""
    scale, causal = arguments.scale(softmax_scale, ORDER_3), arguments.flag("causal", causal, ORDER_3)
    if arguments.whole_number("num_splits", num_splits, ORDER_3) < 0:
        raise ValueError(f"num_splits is {num_splits}: give 0 or more")
    if pack_gqa is not None:
        arguments.flag("pack_gqa", pack_gqa, ORDER_3)
    arguments.refuse(qv=(qv, None, f"add its product to the scores by more columns of q and k, {THEIRS}"),
                     attention_chunk=(arguments.whole_number("attention_chunk", attention_chunk, ORDER_3), 0,
                                      f"give chunks as sequences to flash_attn_varlen_func, {THEIRS}"),
                     sm_margin=(arguments.whole_number("sm_margin", sm_margin, ORDER_3), 0, f"kernels take all multiprocessors, {THEIRS}"))
    left, right = arguments.window(window_size, ORDER_3)
    return scale, left, 0 if causal else right, arguments.softcap(softcap, ORDER_3)


def _contiguous(*scales: Tensor | None) -> ops.Scales:
    """Of [batch, kv_heads] numbers, which are often expanded from one."""
    q, k, v = (scale.contiguous() if isinstance(scale, Tensor) else scale for scale in scales)
    return q, k, v


@overload
def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = ..., causal: bool = ..., qv: Tensor | None = ...,
                    q_descale: Tensor | None = ..., k_descale: Tensor | None = ..., v_descale: Tensor | None = ..., window_size: Window = ...,
                    attention_chunk: int = ..., softcap: float = ..., num_splits: int = ..., pack_gqa: bool | None = ..., deterministic: bool = ...,
                    sm_margin: int = ..., return_attn_probs: Literal[False] = ...) -> Tensor: ...
@overload
def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = ..., causal: bool = ..., qv: Tensor | None = ...,
                    q_descale: Tensor | None = ..., k_descale: Tensor | None = ..., v_descale: Tensor | None = ..., window_size: Window = ...,
                    attention_chunk: int = ..., softcap: float = ..., num_splits: int = ..., pack_gqa: bool | None = ..., deterministic: bool = ...,
                    sm_margin: int = ..., *, return_attn_probs: Literal[True]) -> WithLse: ...
@overload
def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = ..., causal: bool = ..., qv: Tensor | None = ...,
                    q_descale: Tensor | None = ..., k_descale: Tensor | None = ..., v_descale: Tensor | None = ..., window_size: Window = ...,
                    attention_chunk: int = ..., softcap: float = ..., num_splits: int = ..., pack_gqa: bool | None = ..., deterministic: bool = ...,
                    sm_margin: int = ..., *, return_attn_probs: bool) -> Tensor | WithLse: ...
def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False, qv: Tensor | None = None,
                    q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
                    window_size: Window = ALL_KEYS, attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1,
                    pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
                    return_attn_probs: bool = False) -> Tensor | WithLse:
    """Attention.

    Args:
        q: [batch, seqlen_q, heads, head_dim], float16, bfloat16 or float8_e4m3fn
        k, v: [batch, seqlen_k, kv_heads, head_dim]; kv_heads divides heads
        softmax_scale: default 1 / sqrt(head_dim)
        causal: query i sees keys up to i + seqlen_k - seqlen_q
        q_descale, k_descale, v_descale: [batch, kv_heads], float32, of float8_e4m3fn: what its elements are multiples of
        window_size: keys before and after a query's own, i + seqlen_k - seqlen_q, that it sees; -1: all
        softcap: scores become softcap * tanh(score / softcap); 0: they stay
        num_splits, pack_gqa: hints
        deterministic: the gradient has the same bits every time
        return_attn_probs: return (o, lse), lse [batch, heads, seqlen_q]
    Not supported: qv, attention_chunk, sm_margin.
    Returns: o, as q; bfloat16 of float8_e4m3fn.
    """
    key: object = None
    if qv is None and q_descale is None and k_descale is None and v_descale is None and ops.is_untraced(q, k, v):
        if is_any_autocast_enabled():
            q, k, v = interface._cast(q, k, v)
        known, key = interface.known_call("dense of 3", q, k, v, None, None, window_size, softmax_scale, causal, attention_chunk, softcap, num_splits,
                                          pack_gqa, sm_margin, deterministic, return_attn_probs)
        if known is not None:
            o, lse = interface.repeat(known, q, k, v, deterministic, return_attn_probs)
            return (o, lse) if return_attn_probs else o
    arguments.tensors(4, "[batch, seqlen, heads, head_dim]", q=q, k=k, v=v)
    scale, left, right, softcap = _options(softmax_scale, causal, qv, window_size, attention_chunk, softcap, num_splits, pack_gqa, sm_margin)
    deterministic = arguments.flag("deterministic", deterministic, ORDER_3)
    with_lse = arguments.flag("return_attn_probs", return_attn_probs, ORDER_3)
    scales = _contiguous(q_descale, k_descale, v_descale)
    views = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    known = interface.remember_forward(key, views, scale, left, right, softcap, False)
    if known is not None:
        o, lse = interface.repeat(known, q, k, v, deterministic, with_lse)
    else:
        o, lse = interface.attend(*views, scale, left, right, softcap, None, None, None, deterministic, scales=scales)
        o = o.transpose(1, 2)
    return (o, lse) if with_lse else o


@overload
def flash_attn_qkvpacked_func(qkv: Tensor, softmax_scale: float | None = ..., causal: bool = ..., q_descale: Tensor | None = ...,
                              k_descale: Tensor | None = ..., v_descale: Tensor | None = ..., window_size: Window = ..., attention_chunk: int = ...,
                              softcap: float = ..., deterministic: bool = ..., num_heads_q: int | None = ..., sm_margin: int = ...,
                              return_attn_probs: Literal[False] = ...) -> Tensor: ...
@overload
def flash_attn_qkvpacked_func(qkv: Tensor, softmax_scale: float | None = ..., causal: bool = ..., q_descale: Tensor | None = ...,
                              k_descale: Tensor | None = ..., v_descale: Tensor | None = ..., window_size: Window = ..., attention_chunk: int = ...,
                              softcap: float = ..., deterministic: bool = ..., num_heads_q: int | None = ..., sm_margin: int = ..., *,
                              return_attn_probs: Literal[True]) -> WithLse: ...
@overload
def flash_attn_qkvpacked_func(qkv: Tensor, softmax_scale: float | None = ..., causal: bool = ..., q_descale: Tensor | None = ...,
                              k_descale: Tensor | None = ..., v_descale: Tensor | None = ..., window_size: Window = ..., attention_chunk: int = ...,
                              softcap: float = ..., deterministic: bool = ..., num_heads_q: int | None = ..., sm_margin: int = ..., *,
                              return_attn_probs: bool) -> Tensor | WithLse: ...
def flash_attn_qkvpacked_func(qkv: Tensor, softmax_scale: float | None = None, causal: bool = False, q_descale: Tensor | None = None,
                              k_descale: Tensor | None = None, v_descale: Tensor | None = None, window_size: Window = ALL_KEYS,
                              attention_chunk: int = 0, softcap: float = 0.0, deterministic: bool = False, num_heads_q: int | None = None,
                              sm_margin: int = 0, return_attn_probs: bool = False) -> Tensor | WithLse:
    """flash_attn_func of the three parts of qkv, read where they lie: [batch, seqlen, 3, heads, head_dim]; or [batch, seqlen, heads + 2 *
    kv_heads, head_dim] with heads in num_heads_q."""
    if num_heads_q is None:
        arguments.tensors(5, "[batch, seqlen, 3, heads, head_dim]", qkv=qkv)
        if qkv.shape[2] != 3:
            raise ValueError(f"qkv is {tuple(qkv.shape)}: give [batch, seqlen, 3, heads, head_dim]")
        q, k, v = qkv.unbind(2)
    else:
        arguments.tensors(4, "[batch, seqlen, heads + 2 * kv_heads, head_dim]", qkv=qkv)
        heads = arguments.whole_number("num_heads_q", num_heads_q, ORDER_3)
        kv_heads = (qkv.shape[2] - heads) // 2
        if heads < 1 or kv_heads < 1 or heads + 2 * kv_heads != qkv.shape[2]:
            raise ValueError(f"num_heads_q is {heads} of {qkv.shape[2]} heads: give what leaves as many for keys as for values")
        q, k, v = qkv.split([heads, kv_heads, kv_heads], 2)
    return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk, softcap,
                           deterministic=deterministic, sm_margin=sm_margin, return_attn_probs=return_attn_probs)


@overload
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                           seqused_q: Tensor | None = ..., seqused_k: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ...,
                           qv: Tensor | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ..., v_descale: Tensor | None = ...,
                           window_size: Window = ..., attention_chunk: int = ..., softcap: float = ..., num_splits: int = ...,
                           pack_gqa: bool | None = ..., deterministic: bool = ..., sm_margin: int = ...,
                           return_attn_probs: Literal[False] = ...) -> Tensor: ...
@overload
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                           seqused_q: Tensor | None = ..., seqused_k: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ...,
                           qv: Tensor | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ..., v_descale: Tensor | None = ...,
                           window_size: Window = ..., attention_chunk: int = ..., softcap: float = ..., num_splits: int = ...,
                           pack_gqa: bool | None = ..., deterministic: bool = ..., sm_margin: int = ..., *,
                           return_attn_probs: Literal[True]) -> WithLse: ...
@overload
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                           seqused_q: Tensor | None = ..., seqused_k: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ...,
                           qv: Tensor | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ..., v_descale: Tensor | None = ...,
                           window_size: Window = ..., attention_chunk: int = ..., softcap: float = ..., num_splits: int = ...,
                           pack_gqa: bool | None = ..., deterministic: bool = ..., sm_margin: int = ..., *,
                           return_attn_probs: bool) -> Tensor | WithLse: ...
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                           seqused_q: Tensor | None = None, seqused_k: Tensor | None = None, softmax_scale: float | None = None,
                           causal: bool = False, qv: Tensor | None = None, q_descale: Tensor | None = None, k_descale: Tensor | None = None,
                           v_descale: Tensor | None = None, window_size: Window = ALL_KEYS, attention_chunk: int = 0, softcap: float = 0.0,
                           num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
                           return_attn_probs: bool = False) -> Tensor | WithLse:
    """Attention of sequences that are packed one after another.

    Args:
        q: [all queries, heads, head_dim], float16 or bfloat16
        k, v: [all keys, kv_heads, head_dim]
        cu_seqlens_q, cu_seqlens_k: [sequences + 1], int32 on q's device: where each begins, and last how many there are. Nobody looks at the
            values, since that would wait for the device. Rows behind the last sequence have an output and gradients of 0
        max_seqlen_q, max_seqlen_k: not needed
        others: as in flash_attn_func; windows are aligned in each sequence, and lse is [heads, all queries]
    Not supported: seqused_q, seqused_k, qv, q_descale, k_descale, v_descale, attention_chunk, sm_margin.
    Returns: o, as q.
    """
    key: object = None
    if (seqused_q is None and seqused_k is None and qv is None and q_descale is None and k_descale is None and v_descale is None
            and ops.is_untraced(q, k, v)):
        if is_any_autocast_enabled():
            q, k, v = interface._cast(q, k, v)
        known, key = interface.known_call("packed of 3", q, k, v, cu_seqlens_q, cu_seqlens_k, window_size, softmax_scale, causal,
                                          attention_chunk, softcap, num_splits, pack_gqa, sm_margin, deterministic, return_attn_probs)
        if known is not None:
            o, lse = interface.repeat(known, q, k, v, deterministic, return_attn_probs, cu_seqlens_q, cu_seqlens_k)
            return (o, lse) if return_attn_probs else o
    scale, left, right, softcap = _options(softmax_scale, causal, qv, window_size, attention_chunk, softcap, num_splits, pack_gqa, sm_margin)
    with_lse = arguments.flag("return_attn_probs", return_attn_probs, ORDER_3)
    cut = f"cut the sequences in cu_seqlens, {THEIRS}"
    arguments.refuse(seqused_q=(seqused_q, None, cut), seqused_k=(seqused_k, None, cut), **_no_descales(q_descale, k_descale, v_descale))
    o, lse = interface.attend_packed(q, k, v, cu_seqlens_q, cu_seqlens_k, scale, left, right, softcap, None,
                                     arguments.flag("deterministic", deterministic, ORDER_3), key=key)
    return (o, lse) if with_lse else o


@overload
def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = ..., v: Tensor | None = ..., qv: Tensor | None = ...,
                            rotary_cos: Tensor | None = ..., rotary_sin: Tensor | None = ..., cache_seqlens: int | Tensor | None = ...,
                            cache_batch_idx: Tensor | None = ..., cache_leftpad: Tensor | None = ..., page_table: Tensor | None = ...,
                            cu_seqlens_q: Tensor | None = ..., cu_seqlens_k_new: Tensor | None = ..., max_seqlen_q: int | None = ...,
                            rotary_seqlens: Tensor | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ...,
                            v_descale: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ..., window_size: Window = ...,
                            attention_chunk: int = ..., softcap: float = ..., rotary_interleaved: bool = ...,
                            scheduler_metadata: Tensor | None = ..., num_splits: int = ..., pack_gqa: bool | None = ..., sm_margin: int = ...,
                            return_softmax_lse: Literal[False] = ..., *, s_aux: Tensor | None = ...) -> Tensor: ...
@overload
def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = ..., v: Tensor | None = ..., qv: Tensor | None = ...,
                            rotary_cos: Tensor | None = ..., rotary_sin: Tensor | None = ..., cache_seqlens: int | Tensor | None = ...,
                            cache_batch_idx: Tensor | None = ..., cache_leftpad: Tensor | None = ..., page_table: Tensor | None = ...,
                            cu_seqlens_q: Tensor | None = ..., cu_seqlens_k_new: Tensor | None = ..., max_seqlen_q: int | None = ...,
                            rotary_seqlens: Tensor | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ...,
                            v_descale: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ..., window_size: Window = ...,
                            attention_chunk: int = ..., softcap: float = ..., rotary_interleaved: bool = ...,
                            scheduler_metadata: Tensor | None = ..., num_splits: int = ..., pack_gqa: bool | None = ..., sm_margin: int = ..., *,
                            return_softmax_lse: Literal[True], s_aux: Tensor | None = ...) -> WithLse: ...
@overload
def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = ..., v: Tensor | None = ..., qv: Tensor | None = ...,
                            rotary_cos: Tensor | None = ..., rotary_sin: Tensor | None = ..., cache_seqlens: int | Tensor | None = ...,
                            cache_batch_idx: Tensor | None = ..., cache_leftpad: Tensor | None = ..., page_table: Tensor | None = ...,
                            cu_seqlens_q: Tensor | None = ..., cu_seqlens_k_new: Tensor | None = ..., max_seqlen_q: int | None = ...,
                            rotary_seqlens: Tensor | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ...,
                            v_descale: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ..., window_size: Window = ...,
                            attention_chunk: int = ..., softcap: float = ..., rotary_interleaved: bool = ...,
                            scheduler_metadata: Tensor | None = ..., num_splits: int = ..., pack_gqa: bool | None = ..., sm_margin: int = ..., *,
                            return_softmax_lse: bool, s_aux: Tensor | None = ...) -> Tensor | WithLse: ...
def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None, qv: Tensor | None = None,
                            rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None, cache_seqlens: int | Tensor | None = None,
                            cache_batch_idx: Tensor | None = None, cache_leftpad: Tensor | None = None, page_table: Tensor | None = None,
                            cu_seqlens_q: Tensor | None = None, cu_seqlens_k_new: Tensor | None = None, max_seqlen_q: int | None = None,
                            rotary_seqlens: Tensor | None = None, q_descale: Tensor | None = None, k_descale: Tensor | None = None,
                            v_descale: Tensor | None = None, softmax_scale: float | None = None, causal: bool = False,
                            window_size: Window = ALL_KEYS, attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True,
                            scheduler_metadata: Tensor | None = None, num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
                            return_softmax_lse: bool = False, *, s_aux: Tensor | None = None) -> Tensor | WithLse:
    """Attention of a few queries against a cache, into which k and v are written first.

    Args:
        q: [batch, seqlen_q, heads, head_dim], or with cu_seqlens_q [all queries, heads, head_dim]
        k_cache, v_cache: [batch, seqlen_cache, kv_heads, head_dim], or [pages, rows of a page, kv_heads, head_dim] with page_table; a page has
            1, 2, 4, 8, ... rows, and is fastest with 64 or more
        k, v: [batch, new keys, kv_heads, head_dim], written to the cache behind cache_seqlens keys; None: nothing
        cache_seqlens: keys in the cache before that: [batch], int32, or one number; None: the cache is full
        rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens, cache_batch_idx, cache_leftpad: as in flashbook.flash_attn_with_kvcache;
            rotary_seqlens, [batch], int32, are the places of the first new keys if they are not cache_seqlens
        page_table: [batch, most pages of a sequence], int32; with cache_batch_idx each sequence has the row that is named there
        window_size, softcap: as in flash_attn_func. Keys before the window are not read
        causal: the last query sees all keys, the one before it one less, ...
        cu_seqlens_q: [batch + 1], int32: where each sequence's queries begin. With page_table, cache_seqlens and max_seqlen_q, the most queries of
            a sequence, and without new keys; lse is [heads, all queries]
        num_splits: 1: no sequence's keys are split over blocks, so its result has the same bits alone and in any batch; any other number is a
            hint, and so is pack_gqa
        return_softmax_lse: return (o, lse), lse [batch, heads, seqlen_q]. FlashAttention-3 returns its parts behind these two
        s_aux: [heads], a learned score of each head that belongs to no key (gpt-oss): e^s_aux is a term of every row's sum, and of the
            log-sum-exp. It is vLLM's fork that has this argument, so it is taken by name only
        k_descale, v_descale: [batch, kv_heads], float32, of a cache in float8_e4m3fn: what its elements are multiples of. q and o stay in 16
            bits, where FlashAttention-3 wants q in float8_e4m3fn, too; and such a cache takes no new keys, window, softcap, s_aux,
            cache_leftpad and cu_seqlens_q
        scheduler_metadata: what get_scheduler_metadata returns, a hint
    Not supported: qv, cu_seqlens_k_new, q_descale, attention_chunk, sm_margin.
    Returns: o, as q. A gradient is refused. A call that is refused has written nothing.
    """
    key: object = None
    if (k is None and v is None and qv is None and rotary_cos is None and rotary_sin is None and cache_batch_idx is None and cache_leftpad is None
            and cu_seqlens_q is None and cu_seqlens_k_new is None and q_descale is None and k_descale is None and v_descale is None and s_aux is None
            and ops.is_untraced(q, k_cache, v_cache)):
        known, key = interface.known_call("cache of 3", q, k_cache, v_cache, cache_seqlens, page_table, window_size, softmax_scale, causal,
                                          attention_chunk, softcap, num_splits, pack_gqa, sm_margin, rotary_interleaved, return_softmax_lse)
        if known is not None and not ops.wants_gradient(q, k_cache, v_cache):
            o, lse = known.forward(q, k_cache, v_cache, cache_seqlens, page_table, return_softmax_lse)
            return (o, lse) if return_softmax_lse else o
    scale, left, right, softcap = _options(softmax_scale, causal, qv, window_size, attention_chunk, softcap, num_splits, pack_gqa, sm_margin)
    rotary_interleaved = arguments.flag("rotary_interleaved", rotary_interleaved, ORDER_3)
    with_lse = arguments.flag("return_softmax_lse", return_softmax_lse, ORDER_3)
    ragged = f"give as many new keys of each sequence, {THEIRS}"
    arguments.refuse(cu_seqlens_k_new=(cu_seqlens_k_new, None, ragged),
                     q_descale=(q_descale, None, f"queries of a cache have 16 bits: give such, {THEIRS}"))
    k_scale, v_scale, _ = _contiguous(k_descale, v_descale, None)
    if page_table is not None and cache_batch_idx is not None:
        arguments.tensors(2, "[sequences, most pages of a sequence]", page_table=page_table)
        arguments.tensors(1, "[batch]", cache_batch_idx=cache_batch_idx)
        ops.check_array("cache_batch_idx", cache_batch_idx, q, torch.int32)
        page_table, cache_batch_idx = page_table.index_select(0, cache_batch_idx), None
    if cu_seqlens_q is not None:
        if k_scale is not None or v_scale is not None:
            raise NotImplementedError("cu_seqlens_q packs queries, and k_descale and v_descale are those of a cache in float8_e4m3fn: give as many "
                                      f"queries of each sequence, {THEIRS}")
        if k is not None or v is not None or cache_batch_idx is not None or cache_leftpad is not None:
            raise NotImplementedError("cu_seqlens_q packs queries, and only against pages without new keys, cache_batch_idx and cache_leftpad: "
                                      f"give as many queries of each sequence, {THEIRS}")
        if max_seqlen_q is None or cache_seqlens is None or page_table is None:
            raise ValueError("cu_seqlens_q packs queries against pages: give page_table, cache_seqlens and max_seqlen_q")
        lengths = interface._lengths(page_table, cache_seqlens, page_table.shape[1] * k_cache.shape[1])
        sinks = s_aux.float() if isinstance(s_aux, Tensor) and s_aux.is_floating_point() else s_aux
        o, lse = interface.cached_packed(q, k_cache, v_cache, cu_seqlens_q, max_seqlen_q, lengths, page_table, scale, left, right, softcap,
                                         sinks=sinks, unsplit=num_splits == 1)
        return (o, lse) if with_lse else o
    rotary = interface._rotary(q, k, rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens)
    o, lse = interface.cached(q, k_cache, v_cache, k, v, cache_seqlens, page_table, scale, left, right, softcap, None, s_aux, cache_batch_idx,
                              cache_leftpad, rotary, k_scale, v_scale, num_splits == 1, key)
    return (o, lse) if with_lse else o


def get_scheduler_metadata(batch_size: int, max_seqlen_q: int, max_seqlen_k: int, num_heads_q: int, num_heads_kv: int, headdim: int,
                           cache_seqlens: Tensor, qkv_dtype: torch.dtype = torch.bfloat16, headdim_v: int | None = None,
                           cu_seqlens_q: Tensor | None = None, cu_seqlens_k_new: Tensor | None = None, cache_leftpad: Tensor | None = None,
                           page_size: int | None = None, max_seqlen_k_new: int = 0, causal: bool = False, window_size: Window = ALL_KEYS,
                           attention_chunk: int = 0, has_softcap: bool = False, num_splits: int = 0, pack_gqa: bool | None = None,
                           sm_margin: int = 0) -> Tensor:
    """A plan for calls of flash_attn_with_kvcache. Chapter 8 plans each call on the device by itself, so this one is empty.

    Args:
        cache_seqlens: [batch], int32, on the device of the calls
        others: not read
    Returns: an empty tensor, int32, to be given as scheduler_metadata.
    """
    arguments.tensors(1, "[batch]", cache_seqlens=cache_seqlens)
    return torch.empty(0, device=cache_seqlens.device, dtype=torch.int32)


def _no_descales(*descales: Tensor | None) -> dict[str, tuple[object, object, str]]:
    instead = f"FP8 is for flash_attn_func and for caches: give 16 bits, {THEIRS}"
    return {name: (given, None, instead) for name, given in zip(("q_descale", "k_descale", "v_descale"), descales)}
