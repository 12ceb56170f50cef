"""FlashAttention's functions, and `attention`, which runs any step of any chapter."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from flashbook import ops

Output = Any  # a tensor, or with the log-sum-exp a tuple of two or three
_cached_calls: dict[object, ops.CachedCall] = {}  # calls of flash_attn_func


def _cast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """To autocast's type, where it is on."""
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device):
        return tuple(tensor.to(torch.get_autocast_dtype(device)) if tensor.is_floating_point() else tensor for tensor in tensors)
    return tensors


def _scale(softmax_scale: float | None, head_dim: int) -> float:
    return 1 / math.sqrt(head_dim) if softmax_scale is None else float(softmax_scale)


def _window(causal: bool, window_size: tuple[int, int]) -> tuple[int, int]:
    """Keys before and after a query's own; -1: all."""
    left, right = window_size
    return max(left, -1), 0 if causal else max(right, -1)


def _refuse_dropout(dropout_p: float) -> None:
    if dropout_p:
        raise NotImplementedError(f"dropout_p is {dropout_p}: chapter 9 drops probabilities, but has no gradient of that. Give 0.0, or use "
                                  "torch.nn.functional.scaled_dot_product_attention")


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, left: int, right: int, softcap: float, slopes: Tensor | None,
            first_query: Tensor | None, first_key: Tensor | None, deterministic: bool, chapter: int = 0, step: int = 0) -> tuple[Tensor, Tensor]:
    q, k, v = _cast(q, k, v)
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in (q, k, v)):
        raise NotImplementedError("there are no forward-mode derivatives here: use torch.nn.functional.scaled_dot_product_attention with "
                                  "SDPBackend.MATH")
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    options = scale, left, right, softcap, slopes, first_query, first_key
    unwatched, wants_gradient = ops.is_untraced(q, k, v), ops.wants_gradient(q, k, v)
    if unwatched and wants_gradient:
        forward = lambda q, k, v: ops.forward(q, k, v, *options, deterministic, chapter, step)
        backward = lambda d_o, q, k, v, o, lse, deterministic: ops.backward(d_o, q, k, v, o, lse, *options, deterministic)
        o, lse = ops.UntracedCall.apply(q, k, v, forward, backward, deterministic)
    else:
        call = ops.forward if unwatched else torch.ops.flashbook.forward
        o, lse = call(q, k, v, *options, deterministic, chapter, step)
    return o, lse


def attention(q: Tensor, k: Tensor, v: Tensor, chapter: int | None = None, step: int | None = None, *, causal: bool = False,
              softmax_scale: float | None = None, return_lse: bool = False) -> Output:
    """softmax(scale Q K^T) V by a step of a chapter.

    Args:
        q: [batch, heads, seqlen_q, head_dim], float16 or bfloat16; chapters 1 and 2 take float32, chapter 6 float8_e4m3fn
        k: [batch, kv_heads, seqlen_k, head_dim]; kv_heads divides heads
        v: as k
        chapter: 1 to 6, 8 or 9. Default: 5 on a GPU, 2 on the CPU. Chapters 1 and 3 to 9 take CPU tensors where the library was built for
            the simulator
        step: 1 ...; default: the last one
        causal: query i sees keys up to i + seqlen_k - seqlen_q
        softmax_scale: default 1 / sqrt(head_dim)
        return_lse: return (o, lse) with the log-sum-exp of the scores, [batch, heads, seqlen_q]
    Returns: o, of q's shape and order in memory. The gradient is chapter 7's.
    Source: Milakov and Gimelshein (arXiv 1805.02867), algorithm 3; Dao (arXiv 2307.08691), algorithm 1.
    """
    if q.dim() != 4:
        raise ValueError(f"q has {q.dim()} dimensions: give 4, [batch, heads, seqlen, head_dim]")
    o, lse = _attend(q, k, v, _scale(softmax_scale, q.shape[-1]), -1, 0 if causal else -1, 0.0, None, None, None, False, chapter or 0, step or 0)
    return (o, lse) if return_lse else o


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Output:
    """Attention.

    Args:
        q: [batch, seqlen_q, heads, head_dim]
        k, v: [batch, seqlen_k, kv_heads, head_dim]; kv_heads divides heads
        dropout_p: 0.0
        softmax_scale: default 1 / sqrt(head_dim)
        causal: query i sees keys up to i + seqlen_k - seqlen_q
        window_size: keys before and after a query's own, i + seqlen_k - seqlen_q, that it sees; -1: all
        softcap: scores become softcap * tanh(score / softcap); 0: they stay
        alibi_slopes: [heads], float32: slope * distance is taken from a score. No gradient of it
        deterministic: the gradient has the same bits every time (full and causal attention)
        return_attn_probs: return (o, lse, None), lse [batch, heads, seqlen_q]; there are no probabilities without dropout
    Returns: o, as q.
    """
    left, right = window_size
    repeats = alibi_slopes is None and not dropout_p and ops.is_untraced(q, k, v)
    if repeats:
        if torch._C._is_any_autocast_enabled():
            q, k, v = _cast(q, k, v)
        key = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, softmax_scale,
               causal, left, right, softcap)
        known = _cached_calls.get(key)
        if known is not None:
            if ops.wants_gradient(q, k, v):
                o, lse = ops.UntracedCall.apply(q, k, v, known.forward, known.backward, deterministic or torch.are_deterministic_algorithms_enabled())
            elif known.is_short and not return_attn_probs:
                return known.output(q, k, v)
            else:
                o, lse = known.forward(q, k, v)
            return (o, lse, None) if return_attn_probs else o
    _refuse_dropout(dropout_p)
    left, right = _window(causal, window_size)
    views = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    options: tuple[Any, ...] = _scale(softmax_scale, q.shape[-1]), left, right, softcap, alibi_slopes, None, None
    o, lse = _attend(*views, *options, deterministic)
    if repeats and not isinstance(softmax_scale, Tensor) and (plan := ops.plan_to_repeat(*views, *options[:4])) is not None:
        if len(_cached_calls) >= ops.MOST_PLANS:
            _cached_calls.clear()
        _cached_calls[key] = ops.CachedCall(plan, options)
    o = o.transpose(1, 2)
    return (o, lse, None) if return_attn_probs else o


def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                              window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
                              deterministic: bool = False, return_attn_probs: bool = False) -> Output:
    """flash_attn_func of qkv[:, :, 0], qkv[:, :, 1] and qkv[:, :, 2], [batch, seqlen, 3, heads, head_dim], read where they lie."""
    if qkv.dim() != 5 or qkv.shape[2] != 3:
        raise ValueError(f"qkv is {tuple(qkv.shape)}: give [batch, seqlen, 3, heads, head_dim]")
    return flash_attn_func(*qkv.unbind(2), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                             window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
                             deterministic: bool = False, return_attn_probs: bool = False) -> Output:
    """flash_attn_func of q, kv[:, :, 0] and kv[:, :, 1], [batch, seqlen, 2, kv_heads, head_dim], read where they lie."""
    if kv.dim() != 5 or kv.shape[2] != 2:
        raise ValueError(f"kv is {tuple(kv.shape)}: give [batch, seqlen, 2, kv_heads, head_dim]")
    return flash_attn_func(q, *kv.unbind(2), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                           dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                           window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
                           deterministic: bool = False, return_attn_probs: bool = False, block_table: Tensor | None = None) -> Output:
    """Attention of sequences that are packed one after another.

    Args:
        q: [all queries, heads, head_dim]
        k, v: [all keys, kv_heads, head_dim]
        cu_seqlens_q, cu_seqlens_k: [sequences + 1], int32 on q's device: where each begins, and last how many there are. Nobody looks at the
            values, since that would wait for the device
        max_seqlen_q, max_seqlen_k: not needed
        block_table: None; flash_attn_with_kvcache knows pages
        others: as in flash_attn_func; windows are aligned in each sequence, and lse is [heads, all queries]
    Returns: o, as q.
    """
    _refuse_dropout(dropout_p)
    if block_table is not None:
        raise NotImplementedError("block_table is for flash_attn_with_kvcache here: give k and v of one piece")
    if q.dim() != 3 or k.dim() != 3 or v.dim() != 3:
        raise ValueError(f"q is {tuple(q.shape)} and k is {tuple(k.shape)}: give [tokens, heads, head_dim]")
    left, right = _window(causal, window_size)
    o, lse = _attend(*(tensor.transpose(0, 1).unsqueeze(0) for tensor in (q, k, v)), _scale(softmax_scale, q.shape[-1]), left, right, softcap,
                     alibi_slopes, cu_seqlens_q, cu_seqlens_k, deterministic)
    o = o.squeeze(0).transpose(0, 1)
    return (o, lse.squeeze(0), None) if return_attn_probs else o


def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
                            rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None, cache_seqlens: int | Tensor | None = None,
                            cache_batch_idx: Tensor | None = None, cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
                            softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
                            softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None, num_splits: int = 0,
                            return_softmax_lse: bool = False) -> Output:
    """Attention of a few queries against a cache, into which k and v are written first.

    Args:
        q: [batch, seqlen_q, heads, head_dim]
        k_cache, v_cache: [batch, seqlen_cache, kv_heads, head_dim], or [pages, rows of a page, kv_heads, head_dim] with block_table; a page has
            16, 32, 64, ... rows. Fastest if the rows of a head lie side by side in memory (README)
        k, v: [batch, new keys, kv_heads, head_dim], written to the cache behind cache_seqlens keys; None: nothing
        cache_seqlens: keys in the cache before that: [batch], int32, or one number; None: the cache is full
        block_table: [batch, most pages of a sequence], int32
        causal: the last query sees all keys, the one before it one less, ...
        num_splits: 0; chapter 8 deals the keys out evenly by itself
        return_softmax_lse: return (o, lse), lse [batch, heads, seqlen_q]
    Not supported: rotary_cos, rotary_sin, cache_batch_idx, cache_leftpad, alibi_slopes; window_size and softcap with lengths or pages.
    Returns: o, as q. There is no gradient.
    """
    for name, given, instead in (("rotary_cos", rotary_cos, "rotate q and k beforehand"), ("rotary_sin", rotary_sin, "rotate q and k beforehand"),
                                 ("cache_batch_idx", cache_batch_idx, "give block_table"), ("cache_leftpad", cache_leftpad, "pad on the right"),
                                 ("alibi_slopes", alibi_slopes, "use flash_attn_func")):
        if given is not None:
            raise NotImplementedError(f"{name} is not supported here: {instead}, or use FlashAttention's own function")
    if num_splits:
        raise NotImplementedError(f"num_splits is {num_splits}: give 0, chapter 8 deals the keys out evenly by itself, or use "
                                  "FlashAttention's own function")
    if (k is None) != (v is None):
        raise ValueError("one of k and v is None: give both or neither")
    if q.dim() != 4 or k_cache.dim() != 4:
        raise ValueError(f"q is {tuple(q.shape)} and k_cache is {tuple(k_cache.shape)}: give [batch, seqlen, heads, head_dim]")
    batch = q.shape[0]
    lengths = torch.full((batch,), cache_seqlens, dtype=torch.int32, device=q.device) if isinstance(cache_seqlens, int) else cache_seqlens
    if k is not None and v is not None:
        if lengths is None:
            raise ValueError("cache_seqlens is None, so the cache is full: say behind how many keys k and v go")
        _append(k_cache, v_cache, k, v, lengths, block_table)
        lengths = lengths + k.shape[1]
    scale = _scale(softmax_scale, q.shape[-1])
    left, right = _window(causal, window_size)
    views = q.transpose(1, 2), k_cache.transpose(1, 2), v_cache.transpose(1, 2)
    if left >= 0 or right > 0 or softcap:
        if lengths is not None or block_table is not None:
            raise NotImplementedError("window_size and softcap are for caches that are full and of one piece here: use flash_attn_varlen_func on "
                                      "packed sequences, or FlashAttention's own function")
        o, lse = _attend(*views, scale, left, right, softcap, None, None, None, False)
    else:
        direct = ops.is_untraced(q, k_cache, v_cache) and not ops.wants_gradient(q, k_cache, v_cache)
        call = ops.decode if direct else torch.ops.flashbook.decode
        o, lse = call(*views, lengths, block_table, scale, right == 0)
    o = o.transpose(1, 2)
    return (o, lse) if return_softmax_lse else o


def _append(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, lengths: Tensor, block_table: Tensor | None) -> None:
    """Writes new keys and values behind `lengths` of them. Nobody checks that they fit, since that would wait for the device."""
    places = lengths[:, None].long() + torch.arange(k.shape[1], device=k.device)  # [batch, new keys]
    if block_table is None:
        where = torch.arange(k.shape[0], device=k.device)[:, None], places
    else:
        rows = k_cache.shape[1]
        where = block_table.long().gather(1, places // rows), places % rows
    k_cache[where] = k.to(k_cache.dtype)
    v_cache[where] = v.to(v_cache.dtype)
