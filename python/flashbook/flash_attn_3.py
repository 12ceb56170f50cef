"""FlashAttention-3's functions, with its names, argument order and results.

Options that these kernels do not support raise NotImplementedError. The hints `num_splits`, `pack_gqa` and
`sm_margin` are accepted and change no result: the kernels split keys and pack heads where that pays off, and use all multiprocessors. The
log-sum-exp of a query that sees no key is -inf.
"""

import torch
from torch import Tensor

from flashbook import arguments, documents, e4m3, interface, latents, ops
from flashbook._torch import is_any_autocast_enabled
from flashbook.arguments import ORDER_3
from flashbook.interface import ALL_KEYS, Result, Window

Options = tuple[float | None, int, int, float, int]


def _options(softmax_scale: float | None, causal: bool, window_size: Window, attention_chunk: int, softcap: float,
             num_splits: int, pack_gqa: bool | None, sm_margin: int) -> Options:
    """Returns the scale, the numbers of keys before and after a query's own, the softcap and the chunk. Raises for
    unsupported options."""
    scale, causal = arguments.scale(softmax_scale, ORDER_3), arguments.flag("causal", causal, ORDER_3)
    if arguments.whole_number("num_splits", num_splits, ORDER_3) < 0:
        raise ValueError(f"num_splits is {num_splits}: pass 0 or more")
    if pack_gqa is not None:
        arguments.flag("pack_gqa", pack_gqa, ORDER_3)
    if arguments.whole_number("attention_chunk", attention_chunk, ORDER_3) < 0:
        raise ValueError(f"attention_chunk is {attention_chunk}: pass the number of positions per chunk, or 0 for no chunks")
    if arguments.whole_number("sm_margin", sm_margin, ORDER_3) < 0:
        raise ValueError(f"sm_margin is {sm_margin}: pass 0 or more")
    left, right = arguments.window(window_size, ORDER_3)
    return scale, left, 0 if causal else right, arguments.softcap(softcap, ORDER_3), int(attention_chunk)


def _is_plain(left: int, right: int, softcap: float, chunk: int) -> bool:
    """Returns whether attention is full or causal, without functions on scores."""
    return left < 0 and right <= 0 and softcap == 0 and chunk == 0


def _scales_of(q: Tensor) -> ValueError:
    return ValueError(f"q_descale, k_descale and v_descale are for float8_e4m3fn, and q is {q.dtype}: leave them out")


def _contiguous(*scales: Tensor | None) -> ops.Scales:
    """Returns the scales, [batch, kv_heads], without gaps, since they are often expanded from one number."""
    q, k, v = (scale.contiguous() if isinstance(scale, Tensor) else scale for scale in scales)
    return q, k, v


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False, qv: Tensor | None = None,
                    q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
                    window_size: Window = ALL_KEYS, attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1,
                    pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
                    return_attn_probs: bool = False) -> Result:
    """Attention.

    Args:
        q: [batch, seqlen_q, heads, head_dim], float16, bfloat16 or float8_e4m3fn. For the latter, O is right for any number of keys, whereas
            FlashAttention-3's own O comes out too small if values have a nonzero mean. Full and causal attention with a head_dim of 64, 128 or 256
            has kernels in FP8; other calls run on copies in bfloat16. Neither has a gradient
        k, v: [batch, seqlen_k, kv_heads, head_dim]; kv_heads divides heads
        softmax_scale: default 1 / sqrt(head_dim), with qv 1 / sqrt(head_dim + value_dim)
        causal: query i sees keys up to i + seqlen_k - seqlen_q
        qv: [batch, seqlen_q, heads, value_dim]: qv v^T is added to q k^T. head_dim + value_dim is at most 256 here, and q, k are copied
        q_descale, k_descale, v_descale: [batch, kv_heads], float32, the scales of float8_e4m3fn elements
        window_size: (left, right), how many keys query i sees before and after its own, i + seqlen_k - seqlen_q; -1 means all
        attention_chunk: positions per chunk; a query sees only keys of its own chunk, in addition to the other masks. Key i has position i, query i
            has position i + seqlen_k - seqlen_q. 0 means no chunks. Differentiable, unlike those of FlashAttention-3
        softcap: scores become softcap * tanh(score / softcap); 0 disables it
        num_splits, pack_gqa, sm_margin: hints
        deterministic: make the gradient bitwise reproducible
        return_attn_probs: return (o, lse), lse [batch, heads, seqlen_q]
    Returns: o, as q; bfloat16 for float8_e4m3fn inputs.
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
    scale, left, right, softcap, chunk = _options(softmax_scale, causal, window_size, attention_chunk, softcap, num_splits, pack_gqa, sm_margin)
    deterministic = arguments.flag("deterministic", deterministic, ORDER_3)
    with_lse = arguments.flag("return_attn_probs", return_attn_probs, ORDER_3)
    scales = _contiguous(q_descale, k_descale, v_descale)
    if qv is not None:
        q, k, scale = latents.side_by_side(q, k, v, latents.check(q, v, qv, "[batch, seqlen, heads, value_dim]"), scale)
    if e4m3.is_e4m3(q, k, v) and not (_is_plain(left, right, softcap, chunk) and q.shape[-1] == v.shape[-1] in ops.HEAD_DIMS):
        found = e4m3.attend(lambda q, k, v: flash_attn_func(q, k, v, scale, causal, window_size=window_size, attention_chunk=chunk, softcap=softcap,
                                                            return_attn_probs=True), q, k, v, *scales)
        return found if with_lse else found[0]
    if chunk and (chunk < k.shape[1] or q.shape[1] > k.shape[1]):  # otherwise all positions are in one chunk
        if scales != ops.NO_SCALES:
            raise _scales_of(q)
        o, lse = documents.attend(q, k, v, chunk, scale, left, right, softcap, None, deterministic)
        return (o, lse) if with_lse else o
    views = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    known = interface.remember_forward(key, views, scale, left, right, softcap, False)
    if known is not None:
        o, lse = interface.repeat(known, q, k, v, deterministic, with_lse)
    else:
        o, lse = interface.attend(*views, scale, left, right, softcap, None, None, None, deterministic, scales=scales)
        o = o.transpose(1, 2)
    return (o, lse) if with_lse else o


def flash_attn_qkvpacked_func(qkv: Tensor, softmax_scale: float | None = None, causal: bool = False, q_descale: Tensor | None = None,
                              k_descale: Tensor | None = None, v_descale: Tensor | None = None, window_size: Window = ALL_KEYS,
                              attention_chunk: int = 0, softcap: float = 0.0, deterministic: bool = False, num_heads_q: int | None = None,
                              sm_margin: int = 0, return_attn_probs: bool = False) -> Result:
    """flash_attn_func of the three parts of qkv, read in place. qkv is [batch, seqlen, 3, heads, head_dim], or [batch,
    seqlen, heads + 2 * kv_heads, head_dim] if num_heads_q gives the number of heads."""
    if num_heads_q is None:
        arguments.tensors(5, "[batch, seqlen, 3, heads, head_dim]", qkv=qkv)
        if qkv.shape[2] != 3:
            raise ValueError(f"qkv is {tuple(qkv.shape)}: pass [batch, seqlen, 3, heads, head_dim]")
        q, k, v = qkv.unbind(2)
    else:
        arguments.tensors(4, "[batch, seqlen, heads + 2 * kv_heads, head_dim]", qkv=qkv)
        heads = arguments.whole_number("num_heads_q", num_heads_q, ORDER_3)
        kv_heads = (qkv.shape[2] - heads) // 2
        if heads < 1 or kv_heads < 1 or heads + 2 * kv_heads != qkv.shape[2]:
            raise ValueError(f"num_heads_q is {heads} of {qkv.shape[2]} heads: pass a number that leaves equally many key and value heads")
        q, k, v = qkv.split([heads, kv_heads, kv_heads], 2)
    return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk, softcap,
                           deterministic=deterministic, sm_margin=sm_margin, return_attn_probs=return_attn_probs)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                           seqused_q: Tensor | None = None, seqused_k: Tensor | None = None, softmax_scale: float | None = None,
                           causal: bool = False, qv: Tensor | None = None, q_descale: Tensor | None = None, k_descale: Tensor | None = None,
                           v_descale: Tensor | None = None, window_size: Window = ALL_KEYS, attention_chunk: int = 0, softcap: float = 0.0,
                           num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
                           return_attn_probs: bool = False) -> Result:
    """Attention of packed sequences.

    Args:
        q: [all queries, heads, head_dim], float16 or bfloat16; float8_e4m3fn runs on copies in bfloat16
        k, v: [all keys, kv_heads, head_dim]
        cu_seqlens_q, cu_seqlens_k: [sequences + 1], int32 on q's device: where each sequence begins, then the total. The values are not checked,
            since that would wait for the device. Rows after the last sequence get an output and gradients of 0
        max_seqlen_q, max_seqlen_k: not needed, except max_seqlen_k with attention_chunk
        seqused_q, seqused_k: [sequences], int32: how many of a sequence's leading queries and keys are used; masks are aligned to the last of them.
            The other rows get an output and gradients of 0, whereas FlashAttention-3 does not write them
        others: as in flash_attn_func; masks are aligned within each sequence, and lse is [heads, all queries]
    Returns: o, as q; bfloat16 for float8_e4m3fn inputs.
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
    scale, left, right, softcap, chunk = _options(softmax_scale, causal, window_size, attention_chunk, softcap, num_splits, pack_gqa, sm_margin)
    with_lse = arguments.flag("return_attn_probs", return_attn_probs, ORDER_3)
    scales = _contiguous(q_descale, k_descale, v_descale)
    deterministic = arguments.flag("deterministic", deterministic, ORDER_3)
    if qv is not None:
        arguments.tensors(3, "[tokens, heads, head_dim]", q=q, k=k, v=v)
        q, k, scale = latents.side_by_side(q, k, v, latents.check(q, v, qv, "[all queries, heads, value_dim]"), scale)
    if e4m3.is_e4m3(q, k, v):
        arguments.tensors(1, "[sequences + 1]", cu_seqlens_q=cu_seqlens_q)
        found = e4m3.attend(lambda q, k, v: flash_attn_varlen_func(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k, scale, causal, window_size=window_size,
            attention_chunk=chunk, softcap=softcap, return_attn_probs=True), q, k, v, *scales, documents._rows(cu_seqlens_q, len(q))[0])
        return found if with_lse else found[0]
    if scales != ops.NO_SCALES:
        raise _scales_of(q)
    if chunk or seqused_q is not None or seqused_k is not None:
        o, lse = documents.attend_packed(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_k, chunk, seqused_q, seqused_k, scale, left, right, softcap,
                                         None, deterministic)
    else:
        o, lse = interface.attend_packed(q, k, v, cu_seqlens_q, cu_seqlens_k, scale, left, right, softcap, None, deterministic, key=key)
    return (o, lse) if with_lse else o


def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None, qv: Tensor | None = None,
                            rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None, cache_seqlens: int | Tensor | None = None,
                            cache_batch_idx: Tensor | None = None, cache_leftpad: Tensor | None = None, page_table: Tensor | None = None,
                            cu_seqlens_q: Tensor | None = None, cu_seqlens_k_new: Tensor | None = None, max_seqlen_q: int | None = None,
                            rotary_seqlens: Tensor | None = None, q_descale: Tensor | None = None, k_descale: Tensor | None = None,
                            v_descale: Tensor | None = None, softmax_scale: float | None = None, causal: bool = False,
                            window_size: Window = ALL_KEYS, attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True,
                            scheduler_metadata: Tensor | None = None, num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
                            return_softmax_lse: bool = False, *, s_aux: Tensor | None = None) -> Result:
    """Computes attention for a few queries against a cache, after appending k and v to it.

    Args:
        q: [batch, seqlen_q, heads, head_dim], or with cu_seqlens_q [all queries, heads, head_dim]
        k_cache, v_cache: [batch, seqlen_cache, kv_heads, head_dim], or [pages, rows per page, kv_heads, head_dim] with page_table. Powers
            of two from 64 rows per page on are fastest; pages whose number of rows is no power of two are slow
        k, v: [batch, new keys, kv_heads, head_dim], appended after cache_seqlens keys, or None
        cache_seqlens: number of keys in the cache before appending: [batch], int32, or one int; None means that the cache is full
        qv: as q, with the columns of v_cache: qv v^T is added to q k^T, in full or causal attention. k_cache has up to 64 columns, v_cache up to 512,
            and pages a multiple of 64 rows. If both are views of one tensor of 576 columns, cache[..., 512:] and cache[..., :512], it is read in
            place; otherwise every call copies the whole cache
        rotary_cos, rotary_sin, rotary_interleaved, cache_batch_idx, cache_leftpad: as in flashbook.flash_attn_with_kvcache
        rotary_seqlens: [batch], int32: positions of the first new keys; default: cache_seqlens
        page_table: [batch, max pages per sequence], int32; cache_batch_idx selects each sequence's row
        window_size, softcap: as in flash_attn_func. Keys before the window are not read
        causal: the last query sees all keys, the one before it all but the last, and so on
        cu_seqlens_q: [batch + 1], int32: where each sequence's queries begin. Requires max_seqlen_q (the maximum number of queries in a sequence);
            lse is then [heads, all queries]
        cu_seqlens_k_new: [batch + 1], int32: where each sequence's new keys begin in k and v, [all new keys, kv_heads, head_dim], then their number
        attention_chunk: as in flash_attn_func, in 16 bits; with page_table, a multiple of the rows per page is faster
        num_splits: 1 keeps each sequence's keys in one block, so that a sequence's result is bitwise the same alone and in any batch. Any other
            number is only a hint, and so are pack_gqa and sm_margin
        return_softmax_lse: return (o, lse), lse [batch, heads, seqlen_q]. FlashAttention-3 also returns the partial results
        s_aux: [heads], a learned score per head that belongs to no key (gpt-oss): e^s_aux is added to every row's sum. Keyword-only: only
            vLLM's fork has this argument
        q_descale, k_descale, v_descale: [batch, kv_heads], float32, the scales of float8_e4m3fn. With a cache in that type, q may have 16 bits,
            whereas FlashAttention-3 requires q in float8_e4m3fn; o has 16 bits. Such a cache is read in place with a head_dim of 64, 128 or 256.
            With another one, window_size, attention_chunk, softcap, s_aux, cache_leftpad, cu_seqlens_q or cu_seqlens_k_new, every call copies the
            whole cache to 16 bits
        scheduler_metadata: the result of get_scheduler_metadata, a hint
    Returns: o, as q; bfloat16 for q in float8_e4m3fn. Not differentiable. A call that raises has not written to the cache.
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
    scale, left, right, softcap, chunk = _options(softmax_scale, causal, window_size, attention_chunk, softcap, num_splits, pack_gqa, sm_margin)
    rotary_interleaved = arguments.flag("rotary_interleaved", rotary_interleaved, ORDER_3)
    with_lse = arguments.flag("return_softmax_lse", return_softmax_lse, ORDER_3)
    q_scale, k_scale, v_scale = _contiguous(q_descale, k_descale, v_descale)
    if page_table is not None and cache_batch_idx is not None:
        arguments.tensors(2, "[sequences, max pages per sequence]", page_table=page_table)
        arguments.tensors(1, "[batch]", cache_batch_idx=cache_batch_idx)
        ops.check_array("cache_batch_idx", cache_batch_idx, q, torch.int32)
        page_table, cache_batch_idx = page_table.index_select(0, cache_batch_idx), None
    if qv is not None:
        arguments.tensors(4 if cu_seqlens_q is None else 3, "[batch, seqlen, heads, head_dim], or packed with cu_seqlens_q", q=q)
        given = {"window_size": left >= 0 or right > 0, "attention_chunk": chunk > 0, "softcap": softcap > 0, "s_aux": s_aux is not None,
                 "cache_leftpad": cache_leftpad is not None, "cu_seqlens_k_new": cu_seqlens_k_new is not None}
        if refused := [name for name, is_given in given.items() if is_given]:
            raise NotImplementedError(f"qv is given with {', '.join(refused)}, which chapter 8's latent kernel does not support: leave one out")
        rotary = interface._rotary(q, k, rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens,
                                   None if cu_seqlens_q is None else len(cu_seqlens_q) - 1)
        o, lse = latents.cached(q, k_cache, v_cache, k, v, latents.check(q, v_cache, qv, "[batch, seqlen, heads, value_dim]"), cache_seqlens,
                                cache_batch_idx, page_table, cu_seqlens_q, max_seqlen_q, rotary, scale, right == 0)
        return (o, lse) if with_lse else o
    if e4m3.is_e4m3(k_cache, v_cache) and isinstance(q, Tensor):
        dtype, kv_heads = torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype, k_cache.shape[-2]
        sequence = None
        if cu_seqlens_q is not None:
            arguments.tensors(1, "[batch + 1]", cu_seqlens_q=cu_seqlens_q)
            sequence = documents._rows(cu_seqlens_q, len(q))[0]
        if q.dtype == torch.float8_e4m3fn:
            q, key = e4m3.scaled(q.to(dtype), {"q_descale": q_scale}, kv_heads, sequence), None
            q_scale = None
        if not (_is_plain(left, right, softcap, chunk) and s_aux is None and cache_leftpad is None and cu_seqlens_q is None
                and cu_seqlens_k_new is None and q.shape[-1] in ops.HEAD_DIMS):
            interface.refuse_wider_keys(k_cache, *(tensor for tensor in (k, v) if tensor is not None))
            copies = k_cache.to(dtype), v_cache.to(dtype)
            o, lse = flash_attn_with_kvcache(
                e4m3.scaled(q, {"k_descale": k_scale}, kv_heads, sequence), copies[0], copies[1], None if k is None else k.to(dtype),
                None if v is None else v.to(dtype), None, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, page_table,
                cu_seqlens_q, cu_seqlens_k_new, max_seqlen_q, rotary_seqlens, None, None, None, scale, causal, window_size, chunk, softcap,
                rotary_interleaved, None, num_splits, return_softmax_lse=True, s_aux=s_aux)
            if k is not None:
                k_cache.copy_(copies[0]), v_cache.copy_(copies[1])
            o = e4m3.scaled(o, {"v_descale": v_scale}, kv_heads, sequence)
            return (o, lse) if with_lse else o
    if q_scale is not None:
        raise ValueError(f"q_descale is for float8_e4m3fn, and q is {q.dtype}, k_cache {k_cache.dtype}: leave it out")
    rotary = interface._rotary(q, k, rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens,
                               None if cu_seqlens_q is None else len(cu_seqlens_q) - 1)
    if chunk or cu_seqlens_q is not None or cu_seqlens_k_new is not None:
        if k_scale is not None or v_scale is not None:
            raise ValueError(f"k_descale and v_descale are for a float8_e4m3fn cache, and k_cache is {k_cache.dtype}: leave them out")
        o, lse = _cached_documents(q, k_cache, v_cache, k, v, cache_seqlens, cache_batch_idx, cache_leftpad, page_table, cu_seqlens_q,
                                   cu_seqlens_k_new, max_seqlen_q, chunk, rotary, (scale, left, right, softcap), s_aux, num_splits == 1)
        return (o, lse) if with_lse else o
    o, lse = interface.cached(q, k_cache, v_cache, k, v, cache_seqlens, page_table, scale, left, right, softcap, None, s_aux, cache_batch_idx,
                              cache_leftpad, rotary, k_scale, v_scale, num_splits == 1, key)
    return (o, lse) if with_lse else o


def _cached_documents(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None, v: Tensor | None, cache_seqlens: int | Tensor | None,
                      entries: Tensor | None, paddings: Tensor | None, pages: Tensor | None, first_query: Tensor | None, first_new: Tensor | None,
                      max_queries: int | None, chunk: int, rotary: interface.Rotary | None, options: tuple[float | None, int, int, float],
                      sinks: Tensor | None, unsplit: bool) -> tuple[Tensor, Tensor]:
    """Runs flash_attn_with_kvcache with chunks, packed queries or packed new keys. A cache without pages has one page
    per sequence."""
    arguments.tensors(4, "[batch, seqlen, heads, head_dim]", k_cache=k_cache, v_cache=v_cache)
    if (k is None) != (v is None) or (first_new is not None and k is None):
        raise ValueError("k or v is None: pass both, or neither and no cu_seqlens_k_new")
    if first_query is None:
        arguments.tensors(4, "[batch, seqlen, heads, head_dim]", q=q)
    else:
        arguments.tensors(3, "[all queries, heads, head_dim]", q=q)
        arguments.tensors(1, "[batch + 1]", cu_seqlens_q=first_query)
        if max_queries is None:
            raise ValueError("cu_seqlens_q is given, and max_seqlen_q is None: pass the maximum number of queries in a sequence")
    batch = len(q) if first_query is None else len(first_query) - 1
    added = k.shape[1] if k is not None and first_new is None else 0
    if pages is None:
        pages = (torch.arange(batch, dtype=torch.int32, device=q.device) if entries is None else entries)[:, None]
    new = [] if k is None or v is None else [k, v]
    interface.refuse_gradients(q, k_cache, v_cache, *new)
    whole = pages.shape[1] * k_cache.shape[1]
    if new and cache_seqlens is None:
        raise ValueError("cache_seqlens is None, so the cache is full: pass the number of keys after which k and v are written")
    lengths = interface._lengths(pages, whole if cache_seqlens is None else cache_seqlens, whole - added)
    assert lengths is not None
    for name, tensor in zip("kv", new):
        sizes = (batch, added, *k_cache.shape[2:]) if first_new is None else (len(tensor), *k_cache.shape[2:])
        if tuple(tensor.shape) != sizes or tensor.dtype != k_cache.dtype or tensor.device != k_cache.device or len(tensor) != len(new[0]):
            raise ValueError(f"{name} is {tensor.dtype} of {tuple(tensor.shape)} on {tensor.device}: pass {k_cache.dtype} of {sizes} on "
                             f"{k_cache.device}, for k and v alike")
    if new and first_new is None:
        first_new = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * added
        new = [tensor.flatten(0, 1) for tensor in new]
    is_packed, rows = first_query is not None, q.shape[1]
    if first_query is None:
        first_query, max_queries = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * rows, rows
    packed = q if is_packed else q.flatten(0, 1)
    sinks = sinks.float() if isinstance(sinks, Tensor) and sinks.is_floating_point() else sinks
    o, lse = documents.cached(packed, k_cache, v_cache, new, first_query, arguments.whole_number("max_seqlen_q", max_queries), first_new, lengths,
                              pages, paddings, chunk, *options, sinks, rotary, unsplit)
    return (o, lse) if is_packed else (o.unflatten(0, (batch, rows)), lse.unflatten(1, (batch, rows)).transpose(0, 1).contiguous())


def flash_attn_combine(out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = None,
                       out_dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Merges attention over parts of the keys. It uses PyTorch's operations, on a GPU or the CPU: chapter 8's kernels merge the parts of their own
    splits themselves.

    Args:
        out_partial: [num_splits, batch, seqlen, heads, head_dim], float32; not read where lse_partial is -inf
        lse_partial: [num_splits, batch, seqlen, heads], float32, the log-sum-exp of each part, -inf for a row that sees no key in it
        out: [batch, seqlen, heads, head_dim], receives the result; default: a new tensor
        out_dtype: float32, float16 or bfloat16; default: that of `out`, or float32
    Returns: (out, lse), lse [batch, seqlen, heads].
    """
    arguments.tensors(5, "[num_splits, batch, seqlen, heads, head_dim]", out_partial=out_partial)
    arguments.tensors(4, "[num_splits, batch, seqlen, heads]", lse_partial=lse_partial)
    dtype = out_dtype if out_dtype is not None else torch.float32 if out is None else out.dtype
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"out_dtype is {dtype}: pass float32, float16 or bfloat16")
    for name, tensor, shape, kind in (("out_partial", out_partial, out_partial.shape, torch.float32),
                                      ("lse_partial", lse_partial, out_partial.shape[:4], torch.float32), ("out", out, out_partial.shape[1:], dtype)):
        if tensor is not None and (tensor.shape != shape or tensor.dtype != kind or tensor.device != out_partial.device):
            raise ValueError(f"{name} is {tensor.dtype} of {tuple(tensor.shape)} on {tensor.device}: pass {kind} of {tuple(shape)} on "
                             f"{out_partial.device}")
    lse = lse_partial.logsumexp(0)
    weights = (lse_partial - lse.masked_fill(lse.isneginf(), 0)).exp()[..., None]
    merged = (weights * out_partial).masked_fill_(weights == 0, 0).sum(0)
    return (merged.to(dtype) if out is None else out.copy_(merged)), lse


def get_scheduler_metadata(batch_size: int, max_seqlen_q: int, max_seqlen_k: int, num_heads_q: int, num_heads_kv: int, headdim: int,
                           cache_seqlens: Tensor, qkv_dtype: torch.dtype = torch.bfloat16, headdim_v: int | None = None,
                           cu_seqlens_q: Tensor | None = None, cu_seqlens_k_new: Tensor | None = None, cache_leftpad: Tensor | None = None,
                           page_size: int | None = None, max_seqlen_k_new: int = 0, causal: bool = False, window_size: Window = ALL_KEYS,
                           attention_chunk: int = 0, has_softcap: bool = False, num_splits: int = 0, pack_gqa: bool | None = None,
                           sm_margin: int = 0) -> Tensor:
    """Returns a plan for calls of flash_attn_with_kvcache. Chapter 8 plans each call on the device, so this one is empty.

    Args:
        cache_seqlens: [batch], int32, on the device of the calls
        others: not read
    Returns: an empty int32 tensor, to be passed as scheduler_metadata.
    """
    arguments.tensors(1, "[batch]", cache_seqlens=cache_seqlens)
    return torch.empty(0, device=cache_seqlens.device, dtype=torch.int32)
