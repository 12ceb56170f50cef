"""FlashAttention-2's functions, PyTorch's scaled_dot_product_attention, and `attention`, which runs any step of any chapter."""

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from flashbook import _library, arguments, ops
from flashbook._torch import is_any_autocast_enabled, is_wrapped
from flashbook.arguments import ORDER_2

Window = tuple[int, int]
Result: TypeAlias = Tensor | Any  # O, or a tuple if the log-sum-exp is requested; Any makes type checkers accept both uses
WithLse = tuple[Tensor, Tensor, None]  # O and lse, but no probabilities
Options = tuple[float, float | None, bool, Window, float, bool, bool]
Rotary = tuple[Tensor, Tensor, bool, Tensor | None]  # cosines, sines, whether pairs are adjacent columns, positions if not the cache's

MAX_QUERIES = 64  # with more queries, a mask and a full cache, chapter 9 reads fewer keys twice than chapter 8

ALL_KEYS: Window = (-1, -1)  # default of window_size

_cached_calls: dict[object, ops.CachedCall] = {}


# ---- shared by all functions -------------------------------------------------------------------------------------------------------


def _cast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Casts to autocast's type if autocast is on."""
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device):
        return tuple(tensor.to(torch.get_autocast_dtype(device)) if tensor.is_floating_point() else tensor for tensor in tensors)
    return tensors


def _scale(softmax_scale: float | None, head_dim: int) -> float:
    return 1 / math.sqrt(head_dim) if softmax_scale is None else softmax_scale


def _window(causal: bool, window_size: Window) -> Window:
    """Returns the number of keys before and after a query's own; -1 means all."""
    left, right = window_size
    return max(left, -1), 0 if causal else max(right, -1)


def _options(dropout_p: float, softmax_scale: float | None, causal: bool, window_size: Window, softcap: float, deterministic: bool,
             return_attn_probs: bool) -> Options:
    """Returns FlashAttention-2's options, checked and converted to their types."""
    return (arguments.number("dropout_p", dropout_p, ORDER_2), arguments.scale(softmax_scale, ORDER_2), arguments.flag("causal", causal, ORDER_2),
            arguments.window(window_size, ORDER_2), arguments.softcap(softcap, ORDER_2), arguments.flag("deterministic", deterministic, ORDER_2),
            arguments.flag("return_attn_probs", return_attn_probs, ORDER_2))


def _refuse_probabilities(dropout_p: float, return_attn_probs: bool) -> None:
    """Refuses to return probabilities, which FlashAttention-2 does with dropout, for its own tests."""
    if dropout_p and return_attn_probs:
        raise NotImplementedError(f"return_attn_probs is True with dropout_p {dropout_p}, and no kernel here writes probabilities: leave one out")


def _seed(dropout: float, softcap: float) -> Tensor | None:
    """Returns the seed of a call's dropout, drawn from PyTorch's CPU generator: this does not wait for the device, and
    torch.manual_seed repeats it."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout_p is {dropout}: pass at least 0 and less than 1")
    if dropout == 0:
        return None
    if softcap > 0:
        raise NotImplementedError(f"dropout_p is {dropout} with softcap {softcap}, which no kernel supports together: leave one out")
    return torch.randint(2**63 - 1, (1,), dtype=torch.int64, device="cpu")


def _contiguous_slopes(slopes: Tensor | None) -> Tensor | None:
    """Returns contiguous slopes: [heads] if all sequences share them, otherwise [sequences, heads]."""
    if isinstance(slopes, Tensor) and slopes.dim() == 2:
        return slopes[0] if slopes.shape[0] == 1 else slopes.contiguous()
    return slopes


def padded(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Pads views [batch, heads, seqlen, head_dim] with zero columns up to a multiple of 8, as FlashAttention does; the
    copies are differentiable. Tensors that need no padding, or whose head dimensions padding cannot fix, are returned
    unchanged."""
    missing = ops.missing_columns(*tensors)
    return tuple(_with_columns(tensor, missing) for tensor in tensors)


def _with_columns(tensor: Tensor, missing: int) -> Tensor:
    """Appends zero columns to a view, and keeps the order of heads and tokens in memory."""
    if not missing:
        return tensor
    if tensor.stride(1) < tensor.stride(2):
        return torch.nn.functional.pad(tensor.transpose(1, 2), (0, missing)).transpose(1, 2)
    return torch.nn.functional.pad(tensor, (0, missing))


def as_wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Pads views with zero columns up to the widest of them; the copies are differentiable."""
    columns = max(tensor.shape[-1] for tensor in tensors)
    return tuple(_with_columns(tensor, columns - tensor.shape[-1]) for tensor in tensors)


def attend(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None, left: int, right: int, softcap: float, slopes: Tensor | None,
           first_query: Tensor | None, first_key: Tensor | None, deterministic: bool, chapter: int = 0, step: int = 0,
           scales: ops.Scales = ops.NO_SCALES, dropout: float = 0.0, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns O and the log-sum-exp of views [batch, heads, seqlen, head_dim]. `left` and `right` count keys before and
    after a query's own; -1 means all."""
    q, k, v = _cast(q, k, v)
    if v.shape[-1] > ops.MAX_HEAD_DIM >= q.shape[-1] and not dropout:  # each part of the columns computes the scores again
        options: tuple[Any, ...] = (softmax_scale, left, right, softcap, slopes, first_query, first_key, deterministic, chapter, step, scales,
                                    dropout, bias)
        parts = [attend(q, k, part, *options) for part in v.split(ops.MAX_HEAD_DIM, -1)]
        by_token = q.stride(1) < q.stride(2)
        o = torch.cat([part.transpose(1, 2) if by_token else part for part, _ in parts], -1)
        return o.transpose(1, 2) if by_token else o, parts[0][1]
    ops.check_tangents(q, k, v)
    ops.check_other_gradients(alibi_slopes=slopes, q_scale=scales[0], k_scale=scales[1], v_scale=scales[2])
    slopes = _contiguous_slopes(slopes)
    drops: tuple[Any, ...] = dropout, _seed(dropout, softcap)
    columns = v.shape[-1]
    options = _scale(softmax_scale, q.shape[-1]), left, right, softcap, slopes, first_query, first_key
    functions = softcap > 0 or slopes is not None or dropout > 0 or bias is not None
    has_gradient = ops.has_gradient_of_values(q.shape[-1], columns) or not ops.wants_gradient(q, k, v)
    if columns != q.shape[-1] and (functions or chapter not in (0, ops.MASKS) or not has_gradient):
        q, k, v = as_wide(q, k, v)
    q, k, v = padded(q, k, v)
    unwatched, wants_gradient = ops.is_untraced(q, k, v), ops.wants_gradient(q, k, v)
    if bias is not None:  # the operator checks for gradients itself
        ops.check_bias_gradient(bias, ops.is_deterministic(deterministic))
        unwatched, drops = False, (*drops, bias)
    if wants_gradient:
        masked = ops.is_masked(left, right, softcap, slopes is not None, -1 if first_query is None else 0, dropout, ops.reach_of(bias))
        deterministic = ops.is_deterministic(deterministic)
        if not is_dynamo_compiling():  # otherwise the operator checks
            ops.check_gradient(q, v.shape[-1], masked)
    if unwatched and wants_gradient:
        forward = lambda q, k, v: ops.forward(q, k, v, *options, deterministic, chapter, step, *scales, *drops)

        def backward(d_o: Tensor, d_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> tuple[Tensor, ...]:
            call = torch.ops.flashbook.backward if ops.is_batched(d_o, d_lse) else ops.backward
            found: tuple[Tensor, ...] = call(d_o, q, k, v, o, lse, *options, deterministic, *drops, d_lse=d_lse)  # type: ignore[misc]
            return found

        o, lse = ops.UntracedCall.apply(q, k, v, forward, backward)
    else:
        call = ops.forward if unwatched else torch.ops.flashbook.forward
        o, lse = call(q, k, v, *options, deterministic, chapter, step, *scales, *drops)
    return o if columns == o.shape[-1] else o[..., :columns], lse


def attend_packed(q: Tensor, k: Tensor, v: Tensor, first_query: Tensor, first_key: Tensor, softmax_scale: float | None, left: int, right: int,
                  softcap: float, slopes: Tensor | None, deterministic: bool, dropout: float = 0.0, key: object = None) -> tuple[Tensor, Tensor]:
    """Returns O and the log-sum-exp, [heads, all queries], of packed sequences, [tokens, heads, head_dim]. If there is
    a key, the call is remembered."""
    arguments.tensors(3, "[tokens, heads, head_dim]", q=q, k=k, v=v)
    arguments.tensors(1, "[sequences + 1]", cu_seqlens_q=first_query, cu_seqlens_k=first_key)
    views = ops.packed_to_view(q), ops.packed_to_view(k), ops.packed_to_view(v)
    known = remember_forward(key, views, softmax_scale, left, right, softcap, True, first_query, first_key)
    if known is not None:
        return repeat(known, q, k, v, deterministic, True, first_query, first_key)
    o, lse = attend(*views, softmax_scale, left, right, softcap, slopes, first_query, first_key, deterministic, dropout=dropout)
    return ops.view_to_packed(o), lse.squeeze(0)


def _with_lse(o: Tensor, lse: Tensor, has_empty_rows: bool) -> WithLse:
    """Returns FlashAttention-2's results, whose log-sum-exp is +inf for a row that sees no key."""
    return o, lse.nan_to_num(math.nan, math.inf, math.inf) if has_empty_rows else lse, None  # one kernel; masked_fill launches two


def _may_have_empty_rows(seqlen_q: int, seqlen_k: int, right: int) -> bool:
    """Returns whether the first query might see no key."""
    return seqlen_k == 0 or (right >= 0 and seqlen_q > seqlen_k + right)


# ---- remembered calls --------------------------------------------------------------------------------------------------------------
#
# The key holds everything that decides what a call does: the tensors' sizes, strides, types and devices, and the options together with their
# classes. Without the classes, a call with 1 would match one with True and skip its type check.


def exactly(window: Window) -> object:
    return (window, *map(type, window)) if isinstance(window, tuple) else [window]


def array_key(array: Any) -> object:
    return (array.shape, array.stride(), array.dtype, array.device) if type(array) is Tensor else [array]


def known_call(kind: str, q: Tensor, k: Tensor, v: Tensor, first: object, second: object, window: Window,
               *options: object) -> tuple[ops.CachedCall | None, object]:
    """Returns the remembered call, if there is one, and the key. `first` and `second` are the call's arrays. A call has
    no key if an option is a list or an array; it then takes the slow path."""
    key = (kind, options, tuple(map(type, options)), window if window is ALL_KEYS else exactly(window), None if first is None else array_key(first),
           None if second is None else array_key(second), q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype,
           q.device, k.device, v.device)
    try:
        return _cached_calls.get(key), key
    except TypeError:  # an option that cannot be hashed
        return None, None


def remember(key: object, call: ops.CachedCall) -> None:
    if len(_cached_calls) >= ops.MAX_PLANS:
        _cached_calls.clear()
    _cached_calls[key] = call


def remember_forward(key: object, views: tuple[Tensor, ...], softmax_scale: float | None, left: int, right: int, softcap: float,
                     has_empty_rows: bool, first_query: Tensor | None = None, first_key: Tensor | None = None) -> ops.CachedCall | None:
    """Remembers a forward pass if it has a key and its tensors need no copy. This happens before the first run, so that the first call saves the
    same tensors for the gradient as later ones: checkpointing compares them when it recomputes. Raises the call's errors."""
    options = _scale(softmax_scale, views[0].shape[-1]), left, right, softcap
    plan = None if key is None else ops.plan_to_repeat(*views, *options, first_query, first_key)
    if plan is None:
        return None
    known = ops.CachedCall(plan, (*options, None), has_empty_rows, first_query is not None)
    remember(key, known)
    return known


def repeat(known: ops.CachedCall, q: Tensor, k: Tensor, v: Tensor, deterministic: bool, wants_lse: bool, first: Tensor | None = None,
           second: Tensor | None = None) -> tuple[Tensor, Any]:
    """Returns O, and the log-sum-exp if requested."""
    if not ops.wants_gradient(q, k, v):
        return known.forward(q, k, v, first, second, wants_lse)
    if v.shape[-1] != q.shape[-1] and not ops.has_gradient_of_values(q.shape[-1], v.shape[-1]):
        o, lse = attend(known.view(q), known.view(k), known.view(v), *known.options, first, second, deterministic)
        return known.given(o), lse[0] if known.packed else lse
    apply = ops.apply_repeated
    if is_wrapped(q) or is_wrapped(k) or is_wrapped(v):  # a tensor of a transform that has ended, which PyTorch's `apply` unwraps
        apply = ops.RepeatedCall.apply
    found = apply(q, k, v, (known, known.is_deterministic(deterministic, q), first, second, wants_lse))
    return found if wants_lse else (found, None)


# ---- attention, and PyTorch's function ---------------------------------------------------------------------------------------------


def attention(q: Tensor, k: Tensor, v: Tensor, chapter: int | None = None, step: int | str | None = None, *, causal: bool = False,
              softmax_scale: float | None = None, return_lse: bool = False, q_scale: Tensor | None = None, k_scale: Tensor | None = None,
              v_scale: Tensor | None = None, bias: Tensor | None = None) -> Result:
    """Computes softmax(scale Q K^T) V with a step of a chapter.

    Args:
        q: [batch, heads, seqlen_q, head_dim], float16 or bfloat16; chapters 1 and 2 also support float32, chapter 6 only float8_e4m3fn
        k: [batch, kv_heads, seqlen_k, head_dim]; kv_heads divides heads
        v: same shape as k
        chapter: 1 to 6, 8 or 9. The default depends on the call (see `explain`): usually 5 on a Hopper GPU, 4 on other GPUs, 2 on the CPU.
            Chapters 1 and 3 to 9 accept CPU tensors if the library was built for the simulator
        step: its name, such as "pingpong", or its number, from 1 on; default: the last step. In chapter 6 promoted_sums is right for rows of any
            length; transpose_once and linear_exp are faster in long rows, but O comes out too small if values have a nonzero mean
        causal: query i sees keys up to i + seqlen_k - seqlen_q
        softmax_scale: default 1 / sqrt(head_dim)
        return_lse: return (o, lse) with the log-sum-exp of the scores, [batch, heads, seqlen_q], -inf where a query sees no key
        q_scale, k_scale, v_scale: float32, the scales of float8_e4m3fn elements. All three per tensor, [1]; per key head, [batch, kv_heads]; or
            per block (in block_scales, hadamard and promoted_sums), [batch, heads, seqlen_q / 64] and [batch, kv_heads, seqlen_k / 128], rounded up.
            None means 1
        bias: [heads, 2 * reach + 1], added to the scaled score of a key that comes -reach ... reach keys after the query's own; keys further away
            get the value at the nearer end. Differentiable; 16-bit biases are copied to float32
    Returns: o, with q's shape and memory order. Gradients come from chapter 7, with a bias from chapter 9.
    Source: Milakov and Gimelshein (arXiv 1805.02867), algorithm 3; Dao (arXiv 2307.08691), algorithm 1.
    """
    arguments.tensors(4, "[batch, heads, seqlen, head_dim]", q=q, k=k, v=v)
    chapter = 0 if chapter is None else arguments.whole_number("chapter", chapter)
    step = _library.step(chapter, step) if isinstance(step, str) else 0 if step is None else arguments.whole_number("step", step)
    right = 0 if arguments.flag("causal", causal) else -1
    if bias is not None:
        arguments.tensors(2, "[heads, 2 * reach + 1]", bias=bias)
        bias = bias.float().contiguous() if bias.dtype in (torch.float16, torch.bfloat16) else bias.contiguous()
    scales = q_scale, k_scale, v_scale
    o, lse = attend(q, k, v, arguments.scale(softmax_scale), -1, right, 0.0, None, None, None, False, chapter, step, scales, bias=bias)
    return (o, lse) if arguments.flag("return_lse", return_lse) else o


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention.

    Args:
        query: [batch, heads, seqlen_q, head_dim]
        key, value: [batch, kv_heads, seqlen_k, head_dim]
        attn_mask: None, or torch.nn.attention.bias.causal_lower_right or causal_upper_left
        dropout_p: as in flash_attn_func
        is_causal: query i sees keys up to i, as in PyTorch; causal_lower_right aligns the last query with the last key
        scale: default 1 / sqrt(head_dim)
        enable_gqa: allow fewer kv_heads than heads; kv_heads must divide heads
    Returns: o, as query.
    """
    arguments.tensors(4, "[batch, heads, seqlen, head_dim]", query=query, key=key, value=value)
    dropout_p = arguments.number("dropout_p", dropout_p)
    is_causal, lower_right = arguments.flag("is_causal", is_causal), False
    if isinstance(attn_mask, Tensor) and type(attn_mask) is not Tensor:
        from torch.nn.attention.bias import CausalBias, CausalVariant  # here, since this imports the compiler

    if isinstance(attn_mask, Tensor) and type(attn_mask) is not Tensor and isinstance(attn_mask, CausalBias):
        if is_causal:
            raise ValueError("attn_mask and is_causal are both set: pass one of them")
        is_causal, lower_right = True, attn_mask.variant == CausalVariant.LOWER_RIGHT
        if (attn_mask.seq_len_q, attn_mask.seq_len_kv) != (query.shape[2], key.shape[2]):
            raise ValueError(f"attn_mask is for {attn_mask.seq_len_q} queries and {attn_mask.seq_len_kv} keys: make it for {query.shape[2]} and "
                             f"{key.shape[2]}")
    else:
        arguments.refuse(attn_mask=(attn_mask, None, "use is_causal, a mask from torch.nn.attention.bias, or flash_attn_func's window_size"))
    if query.shape[1] != key.shape[1] and not arguments.flag("enable_gqa", enable_gqa):
        raise ValueError(f"there are {query.shape[1]} query heads and {key.shape[1]} key heads: pass enable_gqa=True, or equally many")
    right = 0 if is_causal else -1
    if is_causal and not lower_right:
        if query.shape[2] < key.shape[2]:  # no query sees the keys after these
            key, value = key[:, :, :query.shape[2]], value[:, :, :query.shape[2]]
        right = query.shape[2] - key.shape[2]
    return attend(query, key, value, arguments.scale(scale), -1, right, 0.0, None, None, None, False, dropout=dropout_p)[0]


# ---- FlashAttention-2's ------------------------------------------------------------------------------------------------------------


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                    window_size: Window = ALL_KEYS, softcap: float = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Result:
    """Attention.

    Args:
        q: [batch, seqlen_q, heads, head_dim]; head_dim up to 256. If it is not a multiple of 8, q, k and v are copied with zero columns added
        k, v: [batch, seqlen_k, kv_heads, head_dim]; kv_heads divides heads. v may have another multiple of 8 as its last dimension, such as 128
            with a head_dim of 192; more than 256 columns are read in parts of 256, each of which computes the scores again. With a gradient,
            softcap, alibi_slopes or dropout_p the narrower ones are then copied with zero columns added
        dropout_p: the chance that a probability is dropped; the others are divided by 1 - dropout_p. The seed comes from PyTorch's CPU generator,
            so torch.manual_seed repeats it. Cannot be combined with softcap, alibi_slopes or return_attn_probs
        softmax_scale: default 1 / sqrt(head_dim)
        causal: query i sees keys up to i + seqlen_k - seqlen_q
        window_size: (left, right), how many keys query i sees before and after its own, i + seqlen_k - seqlen_q; -1 means all
        softcap: scores become softcap * tanh(score / softcap); 0 disables it
        alibi_slopes: [heads] or [batch, heads], float32: slope * distance is subtracted from a score. Not differentiable
        deterministic: make the gradient bitwise reproducible
        return_attn_probs: return (o, lse, None), lse [batch, heads, seqlen_q], +inf where a query sees no key. lse is differentiable;
            probabilities are never returned
    Returns: o, as q, with the columns of v.
    """
    key: object = None
    if alibi_slopes is None and not dropout_p and ops.is_untraced(q, k, v):
        if is_any_autocast_enabled():
            q, k, v = _cast(q, k, v)
        known, key = known_call("dense", q, k, v, None, None, window_size, dropout_p, softmax_scale, causal, softcap, deterministic,
                                return_attn_probs)
        if known is not None:
            o, lse = repeat(known, q, k, v, deterministic, return_attn_probs)
            return _with_lse(o, lse, known.has_empty_rows) if return_attn_probs else o
    dropout_p, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs = _options(
        dropout_p, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs)
    arguments.tensors(4, "[batch, seqlen, heads, head_dim]", q=q, k=k, v=v)
    _refuse_probabilities(dropout_p, return_attn_probs)
    scale = _scale(softmax_scale, q.shape[-1])
    left, right = _window(causal, window_size)
    views = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    has_empty_rows = _may_have_empty_rows(q.shape[1], k.shape[1], right)
    known = remember_forward(key, views, scale, left, right, softcap, has_empty_rows)
    if known is not None:
        o, lse = repeat(known, q, k, v, deterministic, return_attn_probs)
    else:
        o, lse = attend(*views, scale, left, right, softcap, alibi_slopes, None, None, deterministic, 0, 0, ops.NO_SCALES, dropout_p)
        o = o.transpose(1, 2)
    return _with_lse(o, lse, has_empty_rows) if return_attn_probs else o


def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                              window_size: Window = ALL_KEYS, softcap: float = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False,
                              return_attn_probs: bool = False) -> Result:
    """flash_attn_func of qkv[:, :, 0], qkv[:, :, 1] and qkv[:, :, 2], read in place. qkv is [batch, seqlen, 3, heads,
    head_dim]."""
    arguments.tensors(5, "[batch, seqlen, 3, heads, head_dim]", qkv=qkv)
    if qkv.shape[2] != 3:
        raise ValueError(f"qkv is {tuple(qkv.shape)}: pass [batch, seqlen, 3, heads, head_dim]")
    q, k, v = qkv.unbind(2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs=return_attn_probs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                             window_size: Window = ALL_KEYS, softcap: float = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False,
                             return_attn_probs: bool = False) -> Result:
    """flash_attn_func of q, kv[:, :, 0] and kv[:, :, 1], read in place. kv is [batch, seqlen, 2, kv_heads, head_dim]."""
    arguments.tensors(5, "[batch, seqlen, 2, kv_heads, head_dim]", kv=kv)
    if kv.shape[2] != 2:
        raise ValueError(f"kv is {tuple(kv.shape)}: pass [batch, seqlen, 2, kv_heads, head_dim]")
    k, v = kv.unbind(2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs=return_attn_probs)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                           dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False, window_size: Window = ALL_KEYS,
                           softcap: float = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False,
                           block_table: Tensor | None = None) -> Result:
    """Computes attention of packed sequences.

    Args:
        q: [all queries, heads, head_dim]
        k, v: [all keys, kv_heads, head_dim]
        cu_seqlens_q, cu_seqlens_k: [sequences + 1], int32 on q's device: where each sequence begins, then the total. The values are not checked,
            since that would wait for the device. Rows after the last sequence get an output and gradients of 0
        max_seqlen_q, max_seqlen_k: not needed, except max_seqlen_q with block_table
        block_table: [sequences, max pages per sequence], int32: k and v are [pages, rows per page, kv_heads, head_dim], as in
            flash_attn_with_kvcache, and sequence i has cu_seqlens_k[i + 1] - cu_seqlens_k[i] keys. Not differentiable
        others: as in flash_attn_func; masks are aligned within each sequence, alibi_slopes is [heads] or [sequences, heads], and lse is
            [heads, all queries]
    Returns: o, as q.
    """
    key: object = None
    if alibi_slopes is None and block_table is None and not dropout_p and ops.is_untraced(q, k, v):
        if is_any_autocast_enabled():
            q, k, v = _cast(q, k, v)
        known, key = known_call("packed", q, k, v, cu_seqlens_q, cu_seqlens_k, window_size, dropout_p, softmax_scale, causal, softcap,
                                deterministic, return_attn_probs)
        if known is not None:
            o, lse = repeat(known, q, k, v, deterministic, return_attn_probs, cu_seqlens_q, cu_seqlens_k)
            return _with_lse(o, lse, True) if return_attn_probs else o
    dropout_p, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs = _options(
        dropout_p, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs)
    _refuse_probabilities(dropout_p, return_attn_probs)
    left, right = _window(causal, window_size)
    if block_table is not None:
        arguments.refuse(dropout_p=(dropout_p, 0.0, "chapter 8, which reads pages, has no dropout"))
        arguments.tensors(1, "[sequences + 1]", cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
        o, lse = cached_packed(q, k, v, cu_seqlens_q, max_seqlen_q, cu_seqlens_k.diff(), block_table, softmax_scale, left, right, softcap,
                               alibi_slopes)
        return _with_lse(o, lse, True) if return_attn_probs else o
    o, lse = attend_packed(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale, left, right, softcap, alibi_slopes, deterministic, dropout_p, key)
    return _with_lse(o, lse, True) if return_attn_probs else o


def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
                                     causal: bool = False, window_size: Window = ALL_KEYS, softcap: float = 0.0, alibi_slopes: Tensor | None = None,
                                     deterministic: bool = False, return_attn_probs: bool = False) -> Result:
    """flash_attn_varlen_func of qkv[:, 0], qkv[:, 1] and qkv[:, 2], read in place. qkv is [all tokens, 3, heads,
    head_dim]."""
    arguments.tensors(4, "[tokens, 3, heads, head_dim]", qkv=qkv)
    if qkv.shape[1] != 3:
        raise ValueError(f"qkv is {tuple(qkv.shape)}: pass [tokens, 3, heads, head_dim]")
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal, window_size,
                                  softcap, alibi_slopes, deterministic, return_attn_probs=return_attn_probs)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
                                    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                                    window_size: Window = ALL_KEYS, softcap: float = 0.0, alibi_slopes: Tensor | None = None,
                                    deterministic: bool = False, return_attn_probs: bool = False) -> Result:
    """flash_attn_varlen_func of q, kv[:, 0] and kv[:, 1], read in place. kv is [all keys, 2, kv_heads, head_dim]."""
    arguments.tensors(4, "[tokens, 2, kv_heads, head_dim]", kv=kv)
    if kv.shape[1] != 2:
        raise ValueError(f"kv is {tuple(kv.shape)}: pass [tokens, 2, kv_heads, head_dim]")
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
                                  window_size, softcap, alibi_slopes, deterministic, return_attn_probs=return_attn_probs)


def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
                            rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None, cache_seqlens: int | Tensor | None = None,
                            cache_batch_idx: Tensor | None = None, cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
                            softmax_scale: float | None = None, causal: bool = False, window_size: Window = ALL_KEYS, softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None, num_splits: int = 0,
                            return_softmax_lse: bool = False, *, s_aux: Tensor | None = None) -> Result:
    """Computes attention for a few queries against a cache, after appending k and v to it.

    Args:
        q: [batch, seqlen_q, heads, head_dim]
        k_cache, v_cache: [batch, seqlen_cache, kv_heads, head_dim], or [pages, rows per page, kv_heads, head_dim] with block_table. Powers
            of two from 64 rows per page on are fastest; pages whose number of rows is no power of two are slow
        k, v: [batch, new keys, kv_heads, head_dim], appended after cache_seqlens keys, or None
        rotary_cos, rotary_sin: [positions, rotated columns / 2]. Each new key is rotated by its position in the cache. A query is rotated by the
        position of its own key, or without causal and window_size by that of the first new key. PyTorch does this before the kernel
        cache_seqlens: number of keys in the cache before appending: [batch], int32, or one int; None means that the cache is full
        cache_batch_idx: [batch], int32: the cache entry of each sequence; requires cache_seqlens, excludes block_table
        cache_leftpad: [batch], int32: rows before a sequence's first key, included in cache_seqlens. With block_table, whose pages are then read row
            by row, this is slower
        block_table: [batch, max pages per sequence], int32
        causal: the last query sees all keys, the one before it all but the last, and so on
        window_size, softcap: as in flash_attn_func. Keys before the window are not read
        rotary_interleaved: rotate adjacent columns (0 and 1, 2 and 3, ...) as pairs; False: columns i and i + half
        alibi_slopes: [heads] or [batch, heads], float32
        num_splits: 1 keeps each sequence's keys in one block, so that a sequence's result is bitwise the same alone and in any batch; small batches
            of long sequences then take longer. Any other number is only a hint: chapter 8 chooses the splits itself
        return_softmax_lse: return (o, lse), lse [batch, heads, seqlen_q], +inf where a query sees no key
        s_aux: [heads], a learned score per head that belongs to no key (gpt-oss): e^s_aux is added to every row's sum. Keyword-only, since
            FlashAttention-2 has no such argument
    Returns: o, as q. Not differentiable. A call that raises has not written to the cache.
    """
    key: object = None
    if (k is None and v is None and rotary_cos is None and rotary_sin is None and cache_batch_idx is None and cache_leftpad is None
            and alibi_slopes is None and s_aux is None and ops.is_untraced(q, k_cache, v_cache)):
        known, key = known_call("cache", q, k_cache, v_cache, cache_seqlens, block_table, window_size, softmax_scale, causal, softcap,
                                rotary_interleaved, num_splits, return_softmax_lse)
        if known is not None and not ops.wants_gradient(q, k_cache, v_cache):
            o, lse = known.forward(q, k_cache, v_cache, cache_seqlens, block_table, return_softmax_lse)
            return _with_lse(o, lse, known.has_empty_rows)[:2] if return_softmax_lse else o
    softmax_scale, causal = arguments.scale(softmax_scale, ORDER_2), arguments.flag("causal", causal, ORDER_2)
    left, right = _window(causal, arguments.window(window_size, ORDER_2))
    softcap, return_softmax_lse = arguments.softcap(softcap, ORDER_2), arguments.flag("return_softmax_lse", return_softmax_lse, ORDER_2)
    rotary_interleaved = arguments.flag("rotary_interleaved", rotary_interleaved, ORDER_2)
    if arguments.whole_number("num_splits", num_splits, ORDER_2) < 0:
        raise ValueError(f"num_splits is {num_splits}: pass 0 or more")
    if cache_batch_idx is not None and cache_seqlens is None:  # since cache_seqlens has this position in FlashAttention-3
        raise ValueError(f"cache_batch_idx is given, and cache_seqlens is None: pass both, {k_cache.shape[1]} for a full cache ({ORDER_2})")
    rotary = _rotary(q, k, rotary_cos, rotary_sin, rotary_interleaved, None)
    o, lse = cached(q, k_cache, v_cache, k, v, cache_seqlens, block_table, softmax_scale, left, right, softcap, alibi_slopes, s_aux, cache_batch_idx,
                    cache_leftpad, rotary, unsplit=num_splits == 1, key=key)
    if not return_softmax_lse:
        return o
    may_be_empty = cache_seqlens is not None or cache_leftpad is not None or _may_have_empty_rows(q.shape[1], k_cache.shape[1], right)
    return _with_lse(o, lse, may_be_empty)[:2]


def cached(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None, v: Tensor | None, cache_seqlens: int | Tensor | None,
           pages: Tensor | None, softmax_scale: float | None, left: int, right: int, softcap: float, slopes: Tensor | None = None,
           sinks: Tensor | None = None, entries: Tensor | None = None, paddings: Tensor | None = None,
           rotary: Rotary | None = None, k_scale: Tensor | None = None, v_scale: Tensor | None = None, unsplit: bool = False,
           key: object = None) -> tuple[Tensor, Tensor]:
    """Returns attention against a cache, and the log-sum-exp, [batch, heads, seqlen_q]. All checks run before anything
    is written. k_scale and v_scale are the scales of a float8_e4m3fn cache, `entries` the cache entry of each sequence,
    and `paddings` the rows before its first key. The call is remembered if it has a key, no new keys, and no arrays
    except lengths and pages."""
    arguments.tensors(4, "[batch, seqlen, heads, head_dim]", q=q, k_cache=k_cache, v_cache=v_cache)
    new = [tensor for tensor in (k, v) if tensor is not None]
    if len(new) == 1:
        raise ValueError("one of k and v is None: pass both or neither")
    refuse_gradients(q, k_cache, v_cache, *new)
    ops.check_tangents(q, k_cache, v_cache, *new)
    ops.check_other_gradients(alibi_slopes=slopes, s_aux=sinks, k_descale=k_scale, v_descale=v_scale)
    if pages is not None:
        arguments.tensors(2, "[batch, max pages per sequence]", block_table=pages)
        if entries is not None:
            raise ValueError("cache_batch_idx and block_table are both given: pass one of them")
    if entries is not None:  # a cache entry is treated as a page that holds a whole sequence
        arguments.tensors(1, "[batch]", cache_batch_idx=entries)
        ops.check_array("cache_batch_idx", entries, q, torch.int32)
        pages = entries[:, None]
    if paddings is not None:
        arguments.tensors(1, "[batch]", cache_leftpad=paddings)
        ops.check_array("cache_leftpad", paddings, q, torch.int32)
        if paddings.shape != q.shape[:1]:
            raise ValueError(f"cache_leftpad is {tuple(paddings.shape)}: pass {tuple(q.shape[:1])}")
    slopes = _contiguous_slopes(slopes)
    if isinstance(sinks, Tensor) and sinks.dtype in (torch.float16, torch.bfloat16):  # models store them in 16 bits
        sinks = sinks.float()
    refuse_wider_keys(k_cache, *new)
    if new:
        _check_new(q, k_cache, new, cache_seqlens, v_cache.shape[-1])
    added = new[0].shape[1] if new else 0
    whole = k_cache.shape[1] if pages is None else pages.shape[1] * k_cache.shape[1]
    written = _lengths(q, cache_seqlens, whole - added)  # number of keys in the cache, including padding
    k_read, v_read, table, hidden = k_cache, v_cache, pages, paddings
    if pages is not None and are_read_by_row(pages, k_cache.shape[1], paddings):
        k_read, v_read, table = rows_as_pages(k_cache, v_cache, pages, paddings)
        paddings = None
    views: tuple[Any, ...] = (q.transpose(1, 2), k_read.transpose(1, 2), v_read.transpose(1, 2))
    scale = _scale(softmax_scale, q.shape[-1])
    rules: tuple[Any, ...] = (left, right, softcap, slopes, sinks, paddings, None, 0, k_scale, v_scale, unsplit)
    if q.dtype == k_cache.dtype and q.shape[1] > MAX_QUERIES and written is None and pages is None and paddings is None and sinks is None:
        if ops.is_masked(left, right, softcap, slopes is not None, -1) and not (softcap and slopes is not None):
            o, lse = attend(*views, softmax_scale, left, right, softcap, slopes, None, None, False)
            return o.transpose(1, 2), lse
    direct = ops.is_untraced(q, k_cache, v_cache)
    if direct and new:
        ops.check_decode(*ops.as_padded(*views), written, table, scale, *rules)
    if new and written is not None:
        if rotary is not None:
            q, new[0] = _rotated(q, new[0], written, rotary, left >= 0 or right >= 0)
            views = q.transpose(1, 2), *views[1:]
        _append(k_cache, v_cache, new[0], new[1], written, pages)
        written = written + added
    if hidden is not None:
        written = (whole if written is None else written) - hidden
    if key is not None and direct and not ops.missing_columns(*views):
        plan = ops.decode_plan(*views, written, table, scale, *rules)
        if not plan.copies:
            may_be_empty = written is not None or _may_have_empty_rows(q.shape[1], k_cache.shape[1], right)
            known = ops.CachedDecode(plan, (scale, *rules), may_be_empty)
            remember(key, known)
            return known.forward(q, k_cache, v_cache, written, pages)
    o, lse = (ops.decode if direct else torch.ops.flashbook.decode)(*padded(*views), written, table, scale, *rules)
    return o[..., :q.shape[-1]].transpose(1, 2), lse


def are_read_by_row(pages: Tensor, rows: int, paddings: Tensor | None = None) -> bool:
    """Returns whether kernels cannot read pages of this many rows, and each row must be a page."""
    return pages.shape[1] > 1 and (paddings is not None or rows & (rows - 1) != 0)


def rows_as_pages(k_cache: Tensor, v_cache: Tensor, pages: Tensor, paddings: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the pages, [pages, rows, heads, head_dim], as pages of one row each, and a table of each sequence's rows
    after its padding, if there is one. The caches are views unless the distance between pages is no multiple of that between rows."""
    rows = k_cache.shape[1]
    row = torch.arange(pages.shape[1] * rows, device=pages.device).expand(len(pages), -1)
    if paddings is not None:
        row = (row + paddings[:, None]).clamp(0, row.shape[1] - 1)
    page = pages.gather(1, row // rows)
    if rows == 1:
        return k_cache, v_cache, page
    if k_cache.stride(0) % k_cache.stride(1) or k_cache.stride()[:2] != v_cache.stride()[:2]:
        k_cache, v_cache = k_cache.contiguous(), v_cache.contiguous()
    apart = k_cache.stride(0) // k_cache.stride(1)
    count = (len(k_cache) - 1) * apart + rows
    k_rows, v_rows = (cache.as_strided((count, 1, *cache.shape[2:]), (cache.stride(1), *cache.stride()[1:])) for cache in (k_cache, v_cache))
    return k_rows, v_rows, (page * apart + row % rows).to(torch.int32)


def refuse_gradients(*tensors: Tensor) -> None:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise NotImplementedError("a cache has no gradient, and a tensor requires one: call under torch.no_grad(), detach it, or use "
                                  "flash_attn_func")


def refuse_wider_keys(k_cache: Tensor, *new: Tensor) -> None:
    if k_cache.dtype == torch.float8_e4m3fn and any(tensor.dtype != k_cache.dtype for tensor in new):
        raise NotImplementedError(f"k is {new[0].dtype} and v is {new[-1].dtype}, and a float8_e4m3fn cache has scales that may not fit: pass k and "
                                  "v in float8_e4m3fn, divided by the scales")


def packed_views(q: Tensor, k_cache: Tensor, v_cache: Tensor) -> tuple[Any, ...]:
    """Returns views [batch, heads, seqlen, head_dim] of packed queries and pages."""
    return q.transpose(0, 1)[None], k_cache.transpose(1, 2), v_cache.transpose(1, 2)


def cached_packed(q: Tensor, k_cache: Tensor, v_cache: Tensor, first_query: Tensor, max_queries: int, lengths: Tensor, pages: Tensor,
                  softmax_scale: float | None, left: int, right: int, softcap: float, slopes: Tensor | None = None, sinks: Tensor | None = None,
                  paddings: Tensor | None = None, unsplit: bool = False) -> tuple[Tensor, Tensor]:
    """Computes attention of packed queries, [all queries, heads, head_dim], against pages, in one launch: some
    sequences may be decoding while others process a chunk of their prompt. The log-sum-exp is [heads, all queries]."""
    arguments.tensors(3, "[all queries, heads, head_dim]", q=q)
    arguments.tensors(4, "[pages, rows, heads, head_dim]", k=k_cache, v=v_cache)
    arguments.tensors(2, "[sequences, max pages per sequence]", block_table=pages)
    arguments.tensors(1, "[sequences + 1]", cu_seqlens_q=first_query)
    max_queries = arguments.whole_number("max_seqlen_q", max_queries)
    max_queries = min(max_queries, max(len(q), 1))
    if max_queries < 1 or len(first_query) != len(pages) + 1:
        raise ValueError(f"max_seqlen_q is {max_queries} and cu_seqlens_q is {tuple(first_query.shape)} with {len(pages)} sequences in block_table: "
                         f"pass at least 1, and ({len(pages) + 1},)")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k_cache, v_cache)):
        raise NotImplementedError("block_table is given, pages have no gradient, and a tensor requires one: call under torch.no_grad(), or pass "
                                  "contiguous k and v")
    ops.check_tangents(q, k_cache, v_cache)
    ops.check_other_gradients(alibi_slopes=slopes, s_aux=sinks)
    slopes = _contiguous_slopes(slopes)
    if are_read_by_row(pages, k_cache.shape[1], paddings):
        k_cache, v_cache, pages = rows_as_pages(k_cache, v_cache, pages, paddings)
        paddings = None
    views = packed_views(q, k_cache, v_cache)
    call = ops.decode if ops.is_untraced(q, k_cache, v_cache) else torch.ops.flashbook.decode
    o, lse = call(*padded(*views), lengths, pages, _scale(softmax_scale, q.shape[-1]), left, right, softcap, slopes, sinks, paddings, first_query,
                  max_queries, None, None, unsplit)
    return o[0, :, :, :q.shape[-1]].transpose(0, 1), lse[0]


def _rotary(q: Tensor, k: Tensor | None, cos: Tensor | None, sin: Tensor | None, interleaved: bool, places: Tensor | None,
            batch: int | None = None) -> Rotary | None:
    """Returns the rotary embedding of new keys, or None. Raises TypeError or ValueError for invalid arguments."""
    if cos is None and sin is None:
        return None
    if cos is None or sin is None:
        raise ValueError("one of rotary_cos and rotary_sin is None: pass both or neither")
    arguments.tensors(2, "[positions, rotated columns / 2]", rotary_cos=cos, rotary_sin=sin)
    if k is None:
        raise ValueError("rotary_cos and rotary_sin are given, but k is None: pass k and v, or leave them out")
    if cos.shape != sin.shape or cos.dtype != sin.dtype or not cos.is_floating_point() or cos.device != q.device or sin.device != q.device:
        raise ValueError(f"rotary_cos is {cos.dtype} of {tuple(cos.shape)} on {cos.device} and rotary_sin {sin.dtype} of {tuple(sin.shape)} on "
                         f"{sin.device}: pass floating-point tensors of equal shape and type, on {q.device}")
    if not 0 < 2 * cos.shape[1] <= q.shape[-1]:
        raise ValueError(f"rotary_cos has {cos.shape[1]} columns: pass 1 to {q.shape[-1] // 2}, half the number of columns that rotate")
    if places is not None:
        arguments.tensors(1, "[batch]", rotary_seqlens=places)
        ops.check_array("rotary_seqlens", places, q, torch.int32)
        if tuple(places.shape) != (batch := len(q) if batch is None else batch,):
            raise ValueError(f"rotary_seqlens is {tuple(places.shape)}: pass ({batch},)")
    if cos.dtype == torch.float8_e4m3fn:  # PyTorch cannot index it everywhere
        cos, sin = cos.float(), sin.float()
    return cos, sin, interleaved, places


def _rotated(q: Tensor, k: Tensor, written: Tensor, rotary: Rotary, by_row: bool) -> tuple[Tensor, Tensor]:
    """Rotates q and new keys by their positions. These are not checked, since that would wait for the device."""
    first = (written if rotary[3] is None else rotary[3])[:, None].long()
    queries, keys = (torch.arange(x.shape[1], device=x.device) for x in (q, k))
    return rotated(q, first + queries * int(by_row), rotary), rotated(k, first + keys, rotary)


def rotated(x: Tensor, at: Tensor, rotary: Rotary) -> Tensor:
    """Rotates rows, [..., heads, head_dim], by their positions, [...]."""
    cos, sin, interleaved, _ = rotary
    c, s = cos[at][..., None, :].float(), sin[at][..., None, :].float()
    turning, half = x[..., :2 * cos.shape[1]].float(), cos.shape[1]
    a, b = (turning[..., ::2], turning[..., 1::2]) if interleaved else (turning[..., :half], turning[..., half:])
    pair = a * c - b * s, a * s + b * c
    found = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat([found, x[..., 2 * half:].float()], -1).to(x.dtype)


def _lengths(q: Tensor, cache_seqlens: int | Tensor | None, limit: int) -> Tensor | None:
    """Returns lengths of shape [batch], int32. A number is checked; a tensor is not, since that would wait for the
    device."""
    if cache_seqlens is None or isinstance(cache_seqlens, Tensor):
        return cache_seqlens
    length = arguments.whole_number("cache_seqlens", cache_seqlens)
    if not 0 <= length <= limit:
        raise ValueError(f"cache_seqlens is {length}: pass a number from 0 to {limit}, the cache's rows minus the new keys")
    return torch.full((q.shape[0],), length, dtype=torch.int32, device=q.device)


def _check_new(q: Tensor, k_cache: Tensor, new: list[Tensor], cache_seqlens: int | Tensor | None, value_dim: int) -> None:
    """Raises ValueError if these cannot be appended to the cache, whose values have value_dim columns."""
    if cache_seqlens is None:
        raise ValueError("cache_seqlens is None, so the cache is full: pass the number of keys after which k and v are written")
    arguments.tensors(4, "[batch, new keys, kv_heads, head_dim]", k=new[0], v=new[1])
    for name, tensor, columns in (("k", new[0], k_cache.shape[3]), ("v", new[1], value_dim)):
        sizes = q.shape[0], new[0].shape[1], k_cache.shape[2], columns
        if tuple(tensor.shape) != sizes:
            raise ValueError(f"{name} is {tuple(tensor.shape)}: pass {sizes}, [batch, new keys, kv_heads, head_dim]")
        if tensor.dtype != k_cache.dtype or tensor.device != k_cache.device:
            raise ValueError(f"the cache is {k_cache.dtype} on {k_cache.device} and {name} is {tensor.dtype} on {tensor.device}: pass one type "
                             "on one device")


def _append(k_cache: Tensor, v_cache: Tensor, k: Tensor, v: Tensor, lengths: Tensor, pages: Tensor | None) -> None:
    """Writes new keys and values after the first `lengths` rows. Whether they fit is not checked, since that would wait
    for the device."""
    places = lengths[:, None].long() + torch.arange(k.shape[1], device=k.device)  # [batch, new keys]
    if pages is None:
        where = torch.arange(k.shape[0], device=k.device)[:, None], places
    else:
        rows = k_cache.shape[1]
        where = pages.long().gather(1, places // rows), places % rows
    for cache, new in ((k_cache, k), (v_cache, v)):
        if cache.dtype == torch.float8_e4m3fn:  # PyTorch cannot index it everywhere
            cache, new = cache.view(torch.uint8), new.view(torch.uint8)
        cache[where] = new
