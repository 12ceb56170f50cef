"""Compares qv, a second product in the scores, with float64."""

import math

import pytest
import torch
from conftest import DEVICE
from reference import assert_as_good_as_plain, attention

import flashbook
from flashbook import flash_attn_3


def make(*size, dtype=torch.bfloat16):
    return torch.randn(*size, device=DEVICE, dtype=dtype)


def ints(values):
    return torch.tensor(values, device=DEVICE, dtype=torch.int32)


def check(got, lse, q, k, v, qv, **options):
    """Compares O, [1, seqlen, heads, value_dim], and the log-sum-exp with attention whose keys are [k | v]."""
    scale = options.pop("scale", 1 / math.sqrt(q.shape[-1] + v.shape[-1]))
    runs = [attention(*(torch.cat(pair, -1).to(kind) for pair in ((q, qv), (k, v))), v.to(kind), scale=scale, **options)
            for kind in (torch.float64, torch.bfloat16)]
    assert_as_good_as_plain(got, runs[0][0], runs[1][0], floor=1e-3)
    torch.testing.assert_close(lse.double(), runs[0][1], atol=5e-3, rtol=1e-5)


@pytest.mark.kernels
@pytest.mark.parametrize("options", [{}, {"causal": True, "softcap": 5.0}, {"window_size": (9, 2)}, {"attention_chunk": 16}], ids=str)
def test_narrow_values_have_every_mask(options):
    q, k, v, qv = make(2, 40, 4, 64), make(2, 40, 2, 64), make(2, 40, 2, 128), make(2, 40, 4, 128).requires_grad_()
    names = {"window_size": "window", "attention_chunk": "chunk"}
    o, lse = flash_attn_3.flash_attn_func(q, k, v, qv=qv, return_attn_probs=True, **options)
    check(o.detach(), lse.detach(), q, k, v, qv.detach(), **{names.get(name, name): value for name, value in options.items()})
    assert torch.autograd.grad(o.float().sum(), qv)[0].any()
    first, flat = ints([0, 40, 80]), [tensor.detach().flatten(0, 1) for tensor in (q, k, v, qv)]
    packed = flash_attn_3.flash_attn_varlen_func(*flat[:3], first, first, 40, 40, qv=flat[3], **options)
    torch.testing.assert_close(packed.view(o.shape), o.detach(), atol=2e-2, rtol=1e-2)


@pytest.mark.kernels
@pytest.mark.parametrize("form", ["one tensor", "two tensors", "narrow", "entries", "pages", "packed", "packed pages"])
@pytest.mark.parametrize("new", [0, 2])
def test_latents_in_a_cache(form, new):
    """In tensors that are read in place, rows after the last key are NaN."""
    columns = (32, 256) if form == "narrow" else (64, 512)
    batch, most, lengths, queries = 3, 128, [100, 5, 64], [3, 3, 3]
    if "packed" in form:
        queries = [1, 3, 2]
    whole = torch.full((batch, most, 1, sum(columns)), math.nan, device=DEVICE, dtype=torch.bfloat16)
    if form in ("narrow", "two tensors"):
        whole.zero_()
    rows = [make(length, 1, sum(columns)) for length in lengths]
    for one, into in zip(rows, whole):
        into[:len(one) - new] = one[:len(one) - new]
    fresh = torch.stack([one[len(one) - new:] for one in rows])
    cache, given = whole, {"cache_seqlens": ints(lengths) - new, "causal": True, "softmax_scale": 0.07, "return_softmax_lse": True}
    if form == "entries":
        cache, given["cache_batch_idx"] = torch.cat([whole, whole])[[4, 2, 0, 1, 3, 5]], ints([2, 0, 5])
    elif "pages" in form:
        order = torch.randperm(2 * batch, device=DEVICE)
        cache, given["page_table"] = whole.view(-1, 64, 1, sum(columns))[order], order.argsort().view(batch, 2).to(torch.int32)
        cache = cache.contiguous()
    v_cache, k_cache = cache[..., :columns[1]], cache[..., columns[1]:]
    if form == "two tensors":
        v_cache, k_cache = v_cache.contiguous(), k_cache.contiguous()
    if new:
        given |= {"v": fresh[..., :columns[1]], "k": fresh[..., columns[1]:]}
    packed = make(sum(queries), 8, sum(columns))
    q, qv = packed[..., columns[1]:], packed[..., :columns[1]]
    if "packed" in form:
        given |= {"cu_seqlens_q": ints([0, 1, 4, 6]), "max_seqlen_q": 3}
    else:
        q, qv = (tensor.unflatten(0, (batch, 3)) for tensor in (q, qv))
    found = flashbook.explain(flash_attn_3.flash_attn_with_kvcache, q, k_cache, v_cache, qv=qv, **given)
    assert (found.chapter, found.step, found.copied) == (8, "latent", ("q", "k", "v") if form in ("two tensors", "narrow", "entries") else ("q",))
    o, lse = flash_attn_3.flash_attn_with_kvcache(q, k_cache, v_cache, qv=qv, **given)
    if "packed" not in form:
        o, lse = o.flatten(0, 1), lse.transpose(0, 1).flatten(1)
    begin = 0
    for one, count in zip(rows, queries):
        at = slice(begin, begin := begin + count)
        check(o[None, at], lse[None, :, at], packed[None, at, :, columns[1]:], one[None, ..., columns[1]:], one[None, ..., :columns[1]],
              packed[None, at, :, :columns[1]], causal=True, scale=0.07)
    if new and form == "one tensor":
        assert all(torch.equal(cache[i, :length], one) for i, (length, one) in enumerate(zip(lengths, rows)))


@pytest.mark.kernels
def test_what_the_second_product_does_not_support():
    q, k, v, qv = make(1, 3, 4, 64), make(1, 40, 1, 64), make(1, 40, 1, 512), make(1, 3, 4, 512)
    for options, kind, because in (({"window_size": (3, 0)}, NotImplementedError, "qv is given with window_size"), ({"qv": qv[..., :8]}, ValueError, "qv is"),
                                   ({"softcap": 3.0, "cache_leftpad": ints([1])}, NotImplementedError, "softcap, cache_leftpad"),
                                   ({"k_cache": v, "q": qv}, NotImplementedError, "head_dim up to 64"), ({"qv": 3.0}, TypeError, "qv is"),
                                   ({"k": k, "cache_seqlens": 0}, ValueError, "one of k and v"), ({"v": v, "k": v, "cache_seqlens": 0}, ValueError, "k is"),
                                   ({"page_table": ints([[0]])}, ValueError, "64 rows")):
        with pytest.raises(kind, match=because):
            flash_attn_3.flash_attn_with_kvcache(**{"q": q, "k_cache": k, "v_cache": v, "qv": qv} | options)
    with pytest.raises(NotImplementedError, match="64 columns and qv 512"):
        flash_attn_3.flash_attn_func(q, k, v, qv=qv)
    with pytest.raises(NotImplementedError, match="a cache has no gradient"):
        flash_attn_3.flash_attn_with_kvcache(q, k, v, qv=qv.requires_grad_())
