"""Compares chunks and unused rows of sequences, dense and packed, with float64, sequence by sequence."""

import itertools
import math

import pytest
import torch
from conftest import DEVICE
from reference import assert_as_good_as_plain, attention

from flashbook import flash_attn_3

MASKS = [{}, {"causal": True}, {"window_size": (20, 9)}, {"softcap": 5.0, "causal": True}]


def make(*size, heads=2, head_dim=64):
    return torch.randn(*size, heads, head_dim, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)


def begins(*lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], device=DEVICE, dtype=torch.int32)


def compare(found, leaves, sequences, window_size=(-1, -1), **options):
    """Compares O, [tokens, heads, head_dim], the log-sum-exp, [heads, tokens], and all gradients with float64. `sequences` has a slice of queries
    and a slice of keys for each sequence; all other rows must be 0."""
    o, lse = found
    d_o = torch.randn_like(o)
    got = o, *torch.autograd.grad(o, leaves, d_o)
    got = [tensor.flatten(0, -3) for tensor in got]
    d_o, *leaves = (tensor.detach().flatten(0, -3) for tensor in (d_o, *leaves))
    seen = [torch.zeros(len(tensor), dtype=torch.bool, device=DEVICE) for tensor in got]
    runs = [], []
    for rows, columns in sequences:
        places = rows, rows, columns, columns
        for run, kind in zip(runs, (torch.float64, torch.bfloat16)):
            q, k, v = (leaf[None, place].to(kind).requires_grad_() for leaf, place in zip(leaves, places[1:]))
            right, right_lse = attention(q, k, v, window=window_size, **options)
            run.append((right, *torch.autograd.grad(right, (q, k, v), d_o[None, rows].to(kind))))
            if kind == torch.float64:
                torch.testing.assert_close(lse[None, :, rows].double(), right_lse, atol=2e-3, rtol=1e-5)
        for place, mark in zip(places, seen):
            mark[place] = True
    # One bound for all sequences: with a single query, plain attention may happen to be nearly exact.
    for i, one in enumerate(got):
        found = torch.cat([one[None, sequence[i > 1]] for sequence in sequences], 1)
        exact, plain = (torch.cat([of[i] for of in run], 1) for run in runs)
        assert_as_good_as_plain(found, exact, plain, factor=2 if i == 0 else 3, floor=2e-4)
    assert not any(one[~mark].any() for one, mark in zip(got, seen)) and lse[:, ~seen[0]].isneginf().all()


@pytest.mark.kernels
@pytest.mark.parametrize("options", MASKS, ids=str)
@pytest.mark.parametrize("which, chunk", [("seqused_q", 0), ("seqused_k", 32), ("both", 0), ("both", 32)])
def test_sequences_shorter_than_their_slots(which, chunk, options):
    """Includes unused slots and a sequence that fills its slot. The rows in between are NaN."""
    slots_q, slots_k, used_q, used_k = (70, 9, 133, 40, 5), (70, 40, 133, 9, 20), (50, 9, 0, 33, 1), (70, 25, 60, 0, 3)
    used_q, used_k = slots_q if which == "seqused_k" else used_q, slots_k if which == "seqused_q" else used_k
    first, first_key = begins(*slots_q), begins(*slots_k)
    leaves = make(sum(slots_q), heads=4), make(sum(slots_k)), make(sum(slots_k))
    sequences = list(zip(*([slice(begin, begin + count) for begin, count in zip(of.tolist(), used)] for of, used in ((first, used_q), (first_key, used_k)))))
    for leaf, places in zip(leaves, (0, 1, 1)):
        unused = torch.ones(len(leaf), dtype=torch.bool, device=DEVICE)
        for sequence in sequences:
            unused[sequence[places]] = False
        leaf.data[unused] = math.nan
    used = {name: torch.tensor(of, device=DEVICE, dtype=torch.int32) for name, of in (("seqused_q", used_q), ("seqused_k", used_k)) if which in (name, "both")}
    found = flash_attn_3.flash_attn_varlen_func(*leaves, first, first_key, 133, 133, attention_chunk=chunk, return_attn_probs=True, **used, **options)
    compare(found, leaves, sequences, chunk=chunk, **options)
    for wrong in (next(iter(used.values()))[:2], next(iter(used.values())).long()):
        with pytest.raises(ValueError, match=f"{next(iter(used))} is"):
            flash_attn_3.flash_attn_varlen_func(*leaves, first, first_key, 133, 133, **used | {next(iter(used)): wrong})


@pytest.mark.kernels
@pytest.mark.parametrize("form", ["contiguous", "entries", "padded", "pages", "padded pages"])
@pytest.mark.parametrize("queries, chunk", [((1, 1, 1, 1), 64), ((40, 40, 40, 40), 32), ((40, 40, 40, 40), 500), ((1, 37, 0, 20), 40), ((1, 37, 0, 20), 0)])
@pytest.mark.parametrize("new", [None, (3, 3, 3, 3), (5, 0, 1, 20)], ids=str)
def test_chunks_of_caches_and_packed_queries_and_new_keys(new, queries, chunk, form):
    """Sequences begin within a chunk, have fewer keys than queries, or none; the cache's other rows are NaN."""
    lengths, paddings = (150, 130, 60, 0), (70, 0, 59, 0) if "padded" in form else (0,) * 4
    added, entries = new or (0,) * 4, (3, 5, 0, 2) if form == "entries" else range(4)
    whole = [torch.randn(4, 192, 2, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)]
    fresh = [torch.randn(sum(added), 2, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)]
    first, first_new = begins(*queries), begins(*added)
    caches = [torch.full((6, 192, 2, 64), math.nan, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)]
    for tensor, cache, more in zip(whole, caches, fresh):
        for i, length in enumerate(lengths):
            cache[entries[i], paddings[i]:length] = tensor[i, paddings[i]:length]
            tensor[i, length:length + added[i]] = more[first_new[i]:first_new[i + 1]]
    ints = lambda of: torch.tensor(list(of), device=DEVICE, dtype=torch.int32)
    given = {"cache_seqlens": ints(lengths), "causal": True, "attention_chunk": chunk, "s_aux": torch.tensor([0.5, 1.0, -1.0, 0.0], device=DEVICE)}
    if form == "entries":
        given["cache_batch_idx"] = ints(entries)
    if "padded" in form:
        given["cache_leftpad"] = ints(paddings)
    if "pages" in form:
        order = torch.randperm(6 * 12, device=DEVICE)
        given["page_table"] = order.argsort().view(6, 12)[:4].to(torch.int32).contiguous()
        caches = [cache.view(-1, 16, 2, 64)[order] for cache in caches]
    elif form != "entries":
        caches = [cache[:4].contiguous() for cache in caches]
    q = torch.randn(sum(queries), 4, 64, device=DEVICE, dtype=torch.bfloat16)
    is_packed = len(set(queries)) > 1
    if is_packed:
        given |= {"cu_seqlens_q": first, "max_seqlen_q": max(queries)}
    if new and len(set(new)) > 1:
        given |= {"k": fresh[0], "v": fresh[1], "cu_seqlens_k_new": first_new}
    elif new:
        given |= {"k": fresh[0].view(4, -1, 2, 64), "v": fresh[1].view(4, -1, 2, 64)}
    o, lse = flash_attn_3.flash_attn_with_kvcache(q if is_packed else q.unflatten(0, (4, -1)), *caches, return_softmax_lse=True, **given)
    if not is_packed:
        o, lse = o.flatten(0, 1), lse.transpose(0, 1).flatten(1)
    for i, (begin, end) in enumerate(itertools.pairwise(first.tolist())):
        k, v = (tensor[i:i + 1, paddings[i]:lengths[i] + added[i]] for tensor in whole)
        runs = [attention(*(tensor.to(kind) for tensor in (q[None, begin:end], k, v)), causal=True, chunk=chunk, sinks=given["s_aux"])
                for kind in (torch.float64, torch.bfloat16)]
        assert_as_good_as_plain(o[None, begin:end], runs[0][0], runs[1][0])
        torch.testing.assert_close(lse[None, :, begin:end].double(), runs[0][1], atol=2e-3, rtol=1e-5)
        assert "pages" in form or torch.equal(caches[0][entries[i], lengths[i]:lengths[i] + added[i]], fresh[0][first_new[i]:first_new[i + 1]])


@pytest.mark.kernels
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("places", [None, [3, 10]])
def test_packed_queries_and_new_keys_rotate_as_others_do(places, causal):
    make = lambda *size: torch.randn(2, *size, 2, 64, device=DEVICE, dtype=torch.bfloat16)
    ints = lambda of: torch.tensor(of, device=DEVICE, dtype=torch.int32)
    q, k, v, *caches = make(5), make(3), make(3), make(90), make(90)
    angles = torch.rand(90, 16, device=DEVICE) * 6
    given = {"cache_seqlens": ints([20, 80]), "rotary_cos": angles.cos(), "rotary_sin": angles.sin(), "causal": causal,
             "rotary_seqlens": None if places is None else ints(places)}
    runs = []
    for q_, new, more in ((q, (k, v), {}), (q.flatten(0, 1), (k, v), {"cu_seqlens_q": ints([0, 5, 10]), "max_seqlen_q": 5}),
                          (q, (k.flatten(0, 1), v.flatten(0, 1)), {"cu_seqlens_k_new": ints([0, 3, 6])})):
        written = [cache.clone() for cache in caches]
        o = flash_attn_3.flash_attn_with_kvcache(q_, *written, *new, **given, **more)
        runs.append((o.view(q.shape), *written))
    for run in runs[1:]:
        torch.testing.assert_close(run[0], runs[0][0], atol=1e-2, rtol=1e-2)
        assert torch.equal(run[1], runs[0][1]) and torch.equal(run[2], runs[0][2]) and not torch.equal(run[1], caches[0])


@pytest.mark.kernels
def test_chunks_in_the_other_functions_and_what_is_refused():
    q, k, v = (tensor.detach() for tensor in (make(2, 40), make(2, 40), make(2, 40)))
    o = flash_attn_3.flash_attn_func(q, k, v, causal=True, attention_chunk=16)
    assert torch.equal(flash_attn_3.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), causal=True, attention_chunk=16), o)
    assert torch.equal(flash_attn_3.flash_attn_func(q, k, v, causal=True, attention_chunk=40), flash_attn_3.flash_attn_func(q, k, v, causal=True))
    for tensors, options, because in (((q, k[:1], v[:1]), {}, "same batch"), ((q, k, v), {"attention_chunk": -1}, "attention_chunk is -1: pass")):
        with pytest.raises(ValueError, match=because):
            flash_attn_3.flash_attn_func(*tensors, **{"attention_chunk": 16} | options)
