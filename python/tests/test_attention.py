"""Compares O, the log-sum-exp and gradients with float64, by FlashAttention's rule, with the lengths, heads, masks and strides of its own tests."""

import itertools
import math

import pytest
import torch
import torch.utils.checkpoint
from conftest import DEVICE, GPU
from reference import assert_as_good_as_plain, attention, visible

import flashbook
from flashbook import flash_attn_3

HALVES = (torch.float16, torch.bfloat16)
LENGTHS = [(113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048)]
LENGTHS = [*LENGTHS, (1, 1), (3, 1000), (1, 239), (64, 128), (63, 129)] if GPU else [(113, 203), (65, 64), (1, 70), (1, 1)]
HEADS = [(6, 6), (6, 1), (6, 2)] if GPU else [(2, 2), (4, 2)]
BATCH = 4 if GPU else 2
MASKS = {"full": {}, "causal": {"causal": True}, "local": {"window_size": (31, 17)}, "local_causal": {"causal": True, "window_size": (57, -1)},
         "right": {"window_size": (-1, 5)}, "softcap": {"causal": True, "softcap": 15.0}}


def inputs(seqlen_q, seqlen_k, heads, kv_heads, head_dim, dtype, batch=BATCH, grad=False):
    make = lambda rows, count: torch.randn(batch, rows, count, head_dim, device=DEVICE, dtype=dtype)
    return [tensor.requires_grad_(grad) for tensor in (make(seqlen_q, heads), make(seqlen_k, kv_heads), make(seqlen_k, kv_heads))]


def held(got, q, k, v, floor=1e-5, **options):
    """Compares O, and the log-sum-exp if given, with float64."""
    o, lse = got if isinstance(got, tuple) else (got, None)
    options = {"window" if name == "window_size" else name: value for name, value in options.items()}
    exact, exact_lse = attention(*(tensor.detach().double() for tensor in (q, k, v)), **options)
    plain, _ = attention(*(tensor.detach() for tensor in (q, k, v)), **options)
    assert o.dtype == q.dtype
    assert_as_good_as_plain(o, exact, plain, floor=floor)
    if lse is not None:  # FlashAttention-2 returns +inf for a row that sees no key
        torch.testing.assert_close(lse.double(), exact_lse.where(exact_lse.isfinite(), math.inf), atol=2e-3, rtol=1e-5)


def held_with_gradients(q, k, v, **options):
    """Compares O, the log-sum-exp and all gradients with float64."""
    o, lse, _ = flashbook.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    held((o, lse), q, k, v, **options)
    d_o = torch.randn_like(o)
    got = torch.autograd.grad(o, (q, k, v), d_o)
    options = {"window" if name == "window_size" else name: value for name, value in options.items()}
    written_out = lambda kind, leaves: torch.autograd.grad(attention(*leaves, **options)[0], leaves, d_o.to(kind))
    exact, plain = (written_out(kind, [tensor.detach().to(kind).requires_grad_() for tensor in (q, k, v)]) for kind in (torch.float64, q.dtype))
    for gradient, right, by_torch in zip(got, exact, plain):
        assert_as_good_as_plain(gradient, right, by_torch, factor=3, floor=2e-4)


def in_pages(k, v, rows):
    """Returns a block_table and copies of k and v in pages of this many rows, in random order; with 0, None and copies."""
    if not rows:
        return None, k.clone(), v.clone()
    table = torch.randperm(k.shape[0] * k.shape[1] // rows, device=DEVICE)
    pages = (tensor.reshape(-1, rows, *tensor.shape[2:])[table.argsort()] for tensor in (k, v))
    return table.view(k.shape[0], -1).to(torch.int32), *pages


@pytest.mark.kernels
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_forward_and_backward(dtype, head_dim, mask):
    shift = list(MASKS).index(mask) + head_dim // 64  # so that over all masks every length is combined with all heads
    cases = [(lengths, HEADS[(i + shift) % len(HEADS)]) for i, lengths in enumerate(LENGTHS)]
    for (seqlen_q, seqlen_k), heads in cases:
        held_with_gradients(*inputs(seqlen_q, seqlen_k, *heads, head_dim, dtype, grad=True), **MASKS[mask])


@pytest.mark.kernels
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("head_dim", [8, 32, 40, 72, 80, 96, 112, 136, 160, 192, 224, 248] if GPU else [40, 80, 112, 192])
def test_head_dimensions_that_tiles_pad(head_dim, mask):
    for seqlen_q, seqlen_k in LENGTHS if GPU else LENGTHS[:2]:
        heads = HEADS[-1]
        q, k, v = (tensor.requires_grad_() for tensor in inputs(seqlen_q, seqlen_k, *heads, head_dim, torch.bfloat16))
        held_with_gradients(q, k, v, **MASKS[mask])
        # Columns of a wider tensor whose other columns are NaN: they must be read in place, and nothing else.
        wide = [torch.cat([tensor.detach(), torch.full_like(tensor[..., :8], math.nan)], 3)[..., :head_dim] for tensor in (q, k, v)]
        assert not flashbook.explain(flashbook.flash_attn_func, *wide, **MASKS[mask]).copied
        assert torch.equal(flashbook.flash_attn_func(*wide, **MASKS[mask]), flashbook.flash_attn_func(q, k, v, **MASKS[mask]))


@pytest.mark.kernels
@pytest.mark.parametrize("mask", [name for name in MASKS if name != "softcap"])
@pytest.mark.parametrize("dims", [(192, 128), (136, 40), (64, 128), (128, 64), (256, 128), (80, 200)] if GPU else [(192, 128), (40, 80)], ids=str)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_values_of_another_width(dtype, dims, mask):
    """Tests DeepSeek's 192 and 128, and other pairs, dense and packed. Rows after the last sequence are NaN, and nothing is copied."""
    head_dim, value_dim = dims
    for seqlen_q, seqlen_k in LENGTHS if GPU else LENGTHS[:2]:
        q, k, v = inputs(seqlen_q, seqlen_k, *HEADS[-1], 256, dtype)
        q, k, v = q[..., :head_dim], k[..., :head_dim], v[..., :value_dim]
        found = flashbook.explain(flashbook.flash_attn_func, q, k, v, **MASKS[mask])
        assert (found.chapter, found.step, found.copied) == (9, "ranges", ())
        o, lse, _ = flashbook.flash_attn_func(q, k, v, return_attn_probs=True, **MASKS[mask])
        held((o, lse), q, k, v, **MASKS[mask])
        first, first_key = (torch.arange(BATCH + 1, device=DEVICE, dtype=torch.int32) * of.shape[1] for of in (q, k))
        packed = [torch.cat([of.flatten(0, 1), of.new_full((3, *of.shape[2:]), math.nan)]) for of in (q, k, v)]
        for _ in range(2):  # the second call is remembered
            found = flashbook.flash_attn_varlen_func(*packed, first, first_key, seqlen_q, seqlen_k, **MASKS[mask])
            assert torch.equal(found[:-3].unflatten(0, (BATCH, seqlen_q)), o) and not found[-3:].any()
    assert flashbook.explain(flashbook.flash_attn_varlen_func, *packed, first, first_key, seqlen_q, seqlen_k, **MASKS[mask]).step == "varlen"


@pytest.mark.kernels
def test_values_of_another_width_in_a_compiled_call():
    q, k, v = inputs(70, 90, 4, 2, 192, torch.bfloat16)
    torch.library.opcheck(torch.ops.flashbook.forward, (*(of.transpose(1, 2) for of in (q, k, v[..., :128])), 0.1, -1, 0, 0.0, None, None, None, False,
                                                        0, 0), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.kernels
@pytest.mark.parametrize("options", [{"causal": True}, {"window_size": (40, 0)}, {"causal": True, "softcap": 15.0}], ids=str)
@pytest.mark.parametrize("dims", [(192, 128), (152, 40), (40, 80)], ids=str)
def test_values_of_another_width_have_gradients(dims, options):
    """Keys of up to 192 columns and values of up to 128 have tiles of their own; others, and functions on scores, get copies with zero
    columns, also if the same call without a gradient has been remembered."""
    head_dim, value_dim = dims
    q, k, v = inputs(113, 203, *HEADS[-1], 256, torch.bfloat16)
    q, k, v = q[..., :head_dim], k[..., :head_dim], v[..., :value_dim]
    expected = flashbook.flash_attn_func(q, k, v, **options)
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (q, k, v)]
    held_with_gradients(*leaves, **options)
    o = flashbook.flash_attn_func(q, k, leaves[2], **options)
    if dims != (40, 80) and "softcap" not in options:
        said = flashbook.explain(flashbook.flash_attn_func, q, k, leaves[2], deterministic=True, **options)
        assert (said.copied, said.backward.chapter, said.backward.step, said.backward.copied) == ((), 9, "deterministic", ())
        twice = [torch.autograd.grad(flashbook.flash_attn_func(*leaves, deterministic=True, **options).sum(), leaves) for _ in range(2)]
        assert all(map(torch.equal, *twice))
    assert o.shape == expected.shape and (o - expected).abs().max() < 0.05
    first = torch.tensor([0, 113], device=DEVICE, dtype=torch.int32)
    packed = flashbook.flash_attn_varlen_func(q[0], k[0, :113], leaves[2][0, :113], first, first, 113, 113, **options)
    packed.sum().backward()
    assert packed.shape == (113, HEADS[-1][0], value_dim) and leaves[2].grad[0, :113].any() and not leaves[2].grad[0, 113:].any()


@pytest.mark.kernels
def test_values_of_another_width_with_slopes_and_dropout():
    q, k, v = inputs(70, 90, 4, 2, 192, torch.bfloat16)
    slopes = torch.tensor([0.5, 0.25, 0.125, 1.0], device=DEVICE)
    held(flashbook.flash_attn_func(q, k, v[..., :128], alibi_slopes=slopes), q, k, v[..., :128], slopes=slopes)
    torch.manual_seed(3)
    whole = flashbook.flash_attn_func(q, k, v, dropout_p=0.5)
    torch.manual_seed(3)
    assert torch.equal(flashbook.flash_attn_func(q, k, v[..., :128], dropout_p=0.5), whole[..., :128])


def test_values_of_another_width_that_are_refused():
    q, k, v = inputs(5, 7, 4, 2, 192, torch.bfloat16)
    for wrong in (v[..., :100], v[:, :3, :, :128], v[..., :128].float()):
        with pytest.raises(ValueError, match="v is"):
            flashbook.flash_attn_func(q, k, wrong)
    with pytest.raises(ValueError, match="v is"):
        flashbook.flash_attn_func(q.float(), k.float(), v[..., :128].float())
    with pytest.raises(NotImplementedError, match="v has 136 columns and q has 192"):
        torch.ops.flashbook.forward(*(of.transpose(1, 2) for of in (q.requires_grad_(), k, v[..., :136])), 0.1, -1, 0, 0.0, None, None, None, False, 0, 0)


@pytest.mark.kernels
@pytest.mark.parametrize("head_dim", [8, 40, 80, 96, 136, 192, 248] if GPU else [40, 56])
@pytest.mark.parametrize("pages", [0, 16])
def test_caches_whose_head_dimension_tiles_pad(head_dim, pages):
    """Tests chapter 8 with and without masks; the columns after those of a row are NaN, and nothing may be copied."""
    q, k, v = inputs(2, 96, 4, 2, head_dim, torch.bfloat16, batch=2)
    k_cache, v_cache = (torch.cat([tensor, torch.full_like(tensor[..., :8], math.nan)], 3)[..., :head_dim] for tensor in (k, v))
    table, lengths = None, torch.tensor([90, 37], device=DEVICE, dtype=torch.int32)
    if pages:
        table, k_cache, v_cache = in_pages(k, v, pages)
    for options in ({"causal": True}, {"window_size": (20, 0), "softcap": 2.0, "alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 1.0], device=DEVICE)}):
        call = {"cache_seqlens": lengths, "block_table": table, **options}
        assert not flashbook.explain(flashbook.flash_attn_with_kvcache, q, k_cache, v_cache, **call).copied
        o, lse = flashbook.flash_attn_with_kvcache(q, k_cache, v_cache, return_softmax_lse=True, **call)
        exact = {"slopes" if name == "alibi_slopes" else name: value for name, value in options.items()}
        for i, length in enumerate(lengths.tolist()):
            held((o[i:i + 1], lse[i:i + 1]), q[i:i + 1], k[i:i + 1, :length], v[i:i + 1, :length], **exact)


def padding_by_hand(tensors, missing):
    return [torch.nn.functional.pad(tensor, (0, missing)) for tensor in tensors]


@pytest.mark.kernels
@pytest.mark.parametrize("mask", ["full", "causal", "local", "softcap"])
@pytest.mark.parametrize("head_dim", [1, 33, 59, 111, 250] if GPU else [33, 59])
def test_head_dimensions_that_are_no_multiple_of_8(head_dim, mask):
    """q, k and v are padded with zero columns, as in FlashAttention; the scale is that of the original head dimension."""
    q, k, v = inputs(70, 90, 4, 2, head_dim, torch.bfloat16, grad=True)
    held_with_gradients(q, k, v, **MASKS[mask])
    assert flashbook.explain(flashbook.flash_attn_func, q, k, v, **MASKS[mask]).copied == ("q", "k", "v")
    by_hand = flashbook.flash_attn_func(*padding_by_hand((q, k, v), -head_dim % 8), softmax_scale=head_dim ** -0.5, **MASKS[mask])[..., :head_dim]
    assert torch.equal(flashbook.flash_attn_func(q, k, v, **MASKS[mask]), by_hand)


@pytest.mark.kernels
def test_every_function_pads_head_dimensions():
    d = 59
    q, k, v = inputs(40, 40, 2, 2, d, torch.float16, grad=True)
    right = flashbook.flash_attn_func(q, k, v, causal=True)
    for again in (flash_attn_3.flash_attn_func(q, k, v, causal=True), flashbook.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), causal=True),
                  flash_attn_3.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), causal=True),
                  flashbook.flash_attn_kvpacked_func(q, torch.stack([k, v], 2), causal=True),
                  flashbook.scaled_dot_product_attention(*(tensor.transpose(1, 2) for tensor in (q, k, v)), is_causal=True).transpose(1, 2),
                  flashbook.attention(*(tensor.transpose(1, 2) for tensor in (q, k, v)), causal=True, chapter=5).transpose(1, 2)):
        assert torch.equal(again, right)
    first = torch.arange(BATCH + 1, device=DEVICE, dtype=torch.int32) * 40
    flat = [tensor.flatten(0, 1) for tensor in (q, k, v)]
    for module in (flashbook, flash_attn_3):
        o = module.flash_attn_varlen_func(*flat, first, first, 40, 40, causal=True)
        torch.testing.assert_close(o.view_as(right), right, atol=2e-3, rtol=2e-3)
        assert all(gradient.shape == tensor.shape for gradient, tensor in zip(torch.autograd.grad(o.sum(), flat), flat))
    q, k, v, *flat = (tensor.detach() for tensor in (q, k, v, *flat))
    k_cache, v_cache = k.clone(), v.clone()
    k_cache[:, 30:], v_cache[:, 30:] = math.nan, math.nan
    for function in (flashbook.flash_attn_with_kvcache, flash_attn_3.flash_attn_with_kvcache):  # new keys go into the caller's cache
        o = function(q[:, 39:], k_cache, v_cache, k[:, 30:], v[:, 30:], cache_seqlens=30)
        held(o, q[:, 39:], k, v)
        assert torch.equal(k_cache, k) and torch.equal(v_cache, v)
    lengths = torch.full((BATCH,), 30, device=DEVICE, dtype=torch.int32)
    pages = torch.arange(5 * BATCH, device=DEVICE, dtype=torch.int32).view(BATCH, 5)
    k_pages, v_pages = (torch.cat([tensor[:, :30], torch.full_like(tensor[:, 30:], math.nan)], 1).view(-1, 8, *k.shape[2:]) for tensor in (k, v))
    o = flashbook.flash_attn_with_kvcache(q[:, 39:], k_pages, v_pages, k[:, 30:], v[:, 30:], cache_seqlens=lengths, block_table=pages)
    held(o, q[:, 39:], k, v)
    assert torch.equal(k_pages.view_as(k), k) and torch.equal(v_pages.view_as(v), v)
    table = torch.arange(BATCH, device=DEVICE, dtype=torch.int32)[:, None]
    held(flashbook.flash_attn_with_kvcache(q[:, 39:], k, v, block_table=table), q[:, 39:], k, v)
    o = flashbook.flash_attn_varlen_func(flat[0], k, v, first, first, 40, 40, causal=True, block_table=table)
    torch.testing.assert_close(o.view_as(right), right.detach(), atol=2e-3, rtol=2e-3)
    with pytest.raises(ValueError, match="head_dim is 57"):
        flashbook.flash_attn_func(q[..., :57], k, v)
    with pytest.raises(ValueError, match="head_dim is 257"):
        flashbook.flash_attn_func(*(tensor.repeat(1, 1, 1, 5)[..., :257] for tensor in (q, k, v)))


@pytest.mark.kernels
@pytest.mark.parametrize("softcap", [0.0, 3.0])
def test_slopes_of_each_sequence(softcap):
    """Tests slopes per batch entry, per packed sequence, and with a cache. Sequences have slopes as different as possible."""
    q, k, v = inputs(70, 90, 4, 2, 64, torch.bfloat16, batch=3, grad=True)
    slopes = torch.tensor([[2.0, 1.0, 0.5, 0.25], [0.0, 0.0, 0.0, 0.0], [0.125, 4.0, 0.0625, 8.0]], device=DEVICE)
    o = flashbook.flash_attn_func(q, k, v, causal=True, softcap=softcap, alibi_slopes=slopes)
    d_o = torch.randn_like(o)
    got = torch.autograd.grad(o, (q, k, v), d_o)
    flat = [tensor.detach().flatten(0, 1).requires_grad_() for tensor in (q, k, v)]
    first, first_key = (torch.arange(4, device=DEVICE, dtype=torch.int32) * rows for rows in (70, 90))
    packed = flashbook.flash_attn_varlen_func(*flat, first, first_key, 70, 90, causal=True, softcap=softcap, alibi_slopes=slopes)
    gradients_packed = torch.autograd.grad(packed, flat, d_o.flatten(0, 1))
    cached = flashbook.flash_attn_with_kvcache(q.detach()[:, -2:], k.detach(), v.detach(), causal=True, softcap=softcap, alibi_slopes=slopes)
    for i in range(3):
        one, at = [tensor.detach()[i:i + 1] for tensor in (q, k, v)], {"causal": True, "softcap": softcap, "slopes": slopes[i]}
        held(o[i:i + 1], *one, **at)
        held(packed[None, 70 * i:70 * i + 70], *one, **at)
        held(cached[i:i + 1], one[0][:, -2:], *one[1:], **at)
        exact, plain = ([tensor.to(kind).requires_grad_() for tensor in one] for kind in (torch.float64, torch.bfloat16))
        pairs = [torch.autograd.grad(attention(*leaves, **at)[0], leaves, d_o[i:i + 1].to(leaves[0].dtype)) for leaves in (exact, plain)]
        for gradient, packed_gradient, rows, right, by_torch in zip(got, gradients_packed, (70, 90, 90), *pairs):
            assert_as_good_as_plain(gradient[i:i + 1], right, by_torch, factor=3, floor=2e-3)
            assert_as_good_as_plain(packed_gradient[None, rows * i:rows * i + rows], right, by_torch, factor=3, floor=2e-3)
    shared = [flashbook.flash_attn_func(q, k, v, alibi_slopes=of) for of in (slopes[0], slopes[:1], slopes[:1].expand(3, 4))]
    assert torch.equal(shared[0], shared[1]) and torch.equal(shared[0], shared[2])
    for wrong in (slopes[:2], slopes[:, :3]):
        with pytest.raises(ValueError, match=r"alibi_slopes is .*one per head and sequence"):
            flashbook.flash_attn_func(q, k, v, alibi_slopes=wrong)


@pytest.mark.kernels
def test_scale():
    q, k, v = inputs(65, 65, 2, 2, 64, torch.float16)
    held(flashbook.flash_attn_func(q, k, v, softmax_scale=0.3), q, k, v, scale=0.3)


@pytest.mark.kernels
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (20, 0)])
@pytest.mark.parametrize("head_dim", [64, 80, 128, 192] if GPU else [64, 80])
def test_packed_sequences(head_dim, causal, window):
    queries, keys = [70, 1, 133, 0, 64], [70, 40, 133, 9, 70]
    q = torch.randn(sum(queries), 4, head_dim, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.randn(sum(keys), 2, head_dim, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    first = [torch.tensor([0, *itertools.accumulate(of)], device=DEVICE, dtype=torch.int32) for of in (queries, keys)]
    o, lse, _ = flashbook.flash_attn_varlen_func(q, k, v, *first, max(queries), max(keys), causal=causal, window_size=window, return_attn_probs=True)
    assert o.shape == q.shape and lse.shape == (4, sum(queries))
    d_o = torch.randn_like(o)
    got = torch.autograd.grad(o, (q, k, v), d_o)
    for i, (rows, columns) in enumerate(zip(queries, keys)):
        if rows == 0:
            continue
        at, of = slice(first[0][i], first[0][i] + rows), slice(first[1][i], first[1][i] + columns)
        part = [tensor.detach()[None, place] for tensor, place in ((q, at), (k, of), (v, of))]
        held((o[None, at], lse[None, :, at]), *part, causal=causal, window=window)
        exact, plain = ([tensor.to(kind).requires_grad_() for tensor in part] for kind in (torch.float64, torch.bfloat16))
        pairs = [torch.autograd.grad(attention(*leaves, causal=causal, window=window)[0], leaves, d_o[None, at].to(leaves[0].dtype))
                 for leaves in (exact, plain)]
        for gradient, place, right, by_torch in zip(got, (at, of, of), *pairs):
            assert_as_good_as_plain(gradient[None, place], right, by_torch, factor=3, floor=2e-4)


@pytest.mark.kernels
def test_packed_projections_are_read_where_they_lie():
    qkv = torch.randn(2, 80, 3, 4, 64, device=DEVICE, dtype=torch.float16, requires_grad=True)
    o = flashbook.flash_attn_qkvpacked_func(qkv, causal=True)
    held(o, *qkv.unbind(2), causal=True)
    (gradient,) = torch.autograd.grad(o.float().square().sum(), qkv)
    q, k, v = (tensor.detach().clone().requires_grad_() for tensor in qkv.unbind(2))
    apart = torch.autograd.grad(flashbook.flash_attn_func(q, k, v, causal=True).float().square().sum(), (q, k, v))
    torch.testing.assert_close(gradient, torch.stack(apart, 2), atol=2e-2, rtol=1e-2)
    kv = qkv.detach()[:, :, 1:]
    assert torch.equal(flashbook.flash_attn_kvpacked_func(qkv.detach()[:, :, 0], kv, causal=True), o)
    if GPU:  # only O is allocated (the counter and the scratch for unwanted log-sum-exps exist by now)
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        with torch.no_grad():
            flashbook.flash_attn_qkvpacked_func(qkv, causal=True)
        assert torch.cuda.memory_stats()["allocation.all.allocated"] - before == 1


@pytest.mark.kernels
@pytest.mark.parametrize("how", ["transposed", "sliced", "expanded", "odd_rows", "misaligned", "backwards", "one_place"])
def test_strides(how):
    q, k, v = inputs(70, 70, 2, 2, 64, torch.bfloat16)
    if how == "transposed":
        q, k, v = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v))
    if how == "sliced":
        k = torch.cat([k, k], 3)[..., 64:]
        q = torch.cat([q, q], 1)[:, ::2]
    if how == "expanded":
        k, v = (tensor[:, :, :1].expand_as(tensor) for tensor in (k, v))
    if how == "odd_rows":
        k = torch.cat([k, k[..., :1]], 3)[..., :64]
    if how == "misaligned":
        q = torch.empty(q.numel() + 1, device=DEVICE, dtype=q.dtype)[1:].view(q.shape).copy_(q)
    if how == "backwards":
        v = v.transpose(1, 3).contiguous().transpose(1, 3)
    if how == "one_place":
        q, k, v = (tensor[:1].as_strided((1, 70, 2, 64), (3, 128, 64, 1)) for tensor in (q, k, v))
    q, k, v = (tensor.detach().requires_grad_() for tensor in (q, k, v))
    o = flashbook.flash_attn_func(q, k, v, causal=True)
    held(o, q, k, v, causal=True)
    d_o = torch.ones(1, device=DEVICE, dtype=o.dtype).expand_as(o)  # rows that overlap
    for gradient, tensor in zip(torch.autograd.grad(o, (q, k, v), d_o), (q, k, v)):
        assert gradient.shape == tensor.shape and gradient.isfinite().all()


@pytest.mark.kernels
@pytest.mark.parametrize("wanted", list(itertools.product([False, True], repeat=3))[1:])
def test_mixes_of_requires_grad(wanted):
    q, k, v = inputs(40, 40, 2, 2, 64, torch.bfloat16)
    every = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    flashbook.flash_attn_func(*every).sum().backward()
    some = [tensor.clone().requires_grad_(want) for tensor, want in zip((q, k, v), wanted)]
    flashbook.flash_attn_func(*some).sum().backward()
    for tensor, whole, want in zip(some, every, wanted):
        assert (tensor.grad is not None) == want
        if want:
            torch.testing.assert_close(tensor.grad, whole.grad, atol=1e-2, rtol=1e-2)


@pytest.mark.kernels
def test_zero_sizes():
    for batch, rows, columns in ((0, 5, 5), (2, 0, 5), (2, 5, 0)):
        q, k, v = inputs(rows, columns, 2, 2, 64, torch.bfloat16, batch=batch, grad=True)
        o, lse, _ = flashbook.flash_attn_func(q, k, v, return_attn_probs=True)
        assert o.shape == q.shape and not o.any() and lse.isposinf().all()
        for gradient, tensor in zip(torch.autograd.grad(o.sum(), (q, k, v)), (q, k, v)):
            assert gradient.shape == tensor.shape and not gradient.any()
    none = torch.zeros(1, device=DEVICE, dtype=torch.int32)  # no sequences
    q, k, v = (tensor[0] for tensor in inputs(0, 0, 2, 2, 64, torch.bfloat16))
    assert flashbook.flash_attn_varlen_func(q, k, v, none, none, 0, 0).shape == q.shape


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(70000, 1, 1, 64), (70000, 1, 16, 64), (70000, 3, 1, 64)])
@pytest.mark.parametrize("options", [{}, {"window_size": (1, 0)}, {"softcap": 5.0}])
def test_more_heads_than_a_grid_has_rows(sizes, options):
    """FlashMLA's issue 173: a grid has 65,535 blocks in y."""
    q, k, v = (torch.randn(*sizes, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    o = flashbook.flash_attn_func(q, k, v, **options)
    found = torch.autograd.grad(o, (q, k, v), torch.ones_like(o))
    for part in (slice(0, 100), slice(65500, 65600), slice(69900, 70000)):
        leaves = [of[part].detach().clone().requires_grad_() for of in (q, k, v)]
        few = flashbook.flash_attn_func(*leaves, **options)
        for got, right in zip((o, *found), (few, *torch.autograd.grad(few, leaves, torch.ones_like(few)))):
            torch.testing.assert_close(got[part], right, atol=2e-2, rtol=2e-2)
    with torch.no_grad():
        cached = flashbook.flash_attn_with_kvcache(q, k, v, cache_seqlens=torch.full((sizes[0],), sizes[1], device=DEVICE, dtype=torch.int32))
        torch.testing.assert_close(cached, flashbook.flash_attn_func(q, k, v), atol=2e-2, rtol=2e-2)


@pytest.mark.gpu
def test_offsets_beyond_an_int():
    """Tests batch entries that are 2^31 + 64 elements apart, which takes 4.3 GB."""
    if torch.cuda.mem_get_info()[0] < 8e9:
        pytest.skip("too little memory")
    apart = 2**31 + 64
    memory = torch.empty(apart + 100 * 6 * 64, device=DEVICE, dtype=torch.bfloat16)
    whole = memory.as_strided((2, 100, 6, 64), (apart, 6 * 64, 64, 1))
    whole.copy_(torch.randn(2, 100, 6, 64))
    close = whole.clone(memory_format=torch.contiguous_format)
    runs = []
    for tensor in (whole, close):
        q, k, v = (part.detach().requires_grad_() for part in tensor.split(2, 2))
        o = flashbook.flash_attn_func(q, k, v, causal=True, deterministic=True)
        runs.append((o.detach(), *torch.autograd.grad(o.float().square().sum(), (q, k, v))))
    assert all(torch.equal(*pair) for pair in zip(*runs))


@pytest.mark.kernels
@pytest.mark.parametrize("head_dim", [64, 128, 192])
@pytest.mark.parametrize("mask", [{"causal": True}, {"window_size": (50, 7)}, {"softcap": 5.0}, {"alibi_slopes": 2}, {"softcap": 5.0, "alibi_slopes": 2}], ids=str)
def test_deterministic_gradients_have_the_same_bits(mask, head_dim):
    length = 1000 if GPU else 200
    q, k, v = inputs(length, length, 2, 1, head_dim, torch.bfloat16, grad=True)
    if "alibi_slopes" in mask:
        mask = {**mask, "alibi_slopes": torch.tensor([0.5, 0.125], device=DEVICE)}
    runs = [torch.autograd.grad(flashbook.flash_attn_func(q, k, v, deterministic=True, **mask).sum(), (q, k, v)) for _ in range(3)]
    assert all(torch.equal(first, other) for run in runs[1:] for first, other in zip(runs[0], run))


@pytest.mark.kernels
def test_packed_gradients_have_the_same_bits_if_algorithms_are_deterministic():
    q, k, v = (torch.randn(300, heads, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for heads in (4, 2, 2))
    first = torch.tensor([0, 130, 131, 300], device=DEVICE, dtype=torch.int32)
    torch.use_deterministic_algorithms(True)
    try:
        o = flashbook.flash_attn_varlen_func(q, k, v, first, first, 169, 169, causal=True)
        assert flashbook.explain(flashbook.flash_attn_varlen_func, q, k, v, first, first, 169, 169, causal=True).backward.step == "deterministic"
    finally:
        torch.use_deterministic_algorithms(False)
    d_o = torch.randn_like(o)
    runs = [torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True) for _ in range(3)]
    assert all(torch.equal(first, other) for run in runs[1:] for first, other in zip(runs[0], run))


@pytest.mark.kernels
@pytest.mark.parametrize("head_dim", [64, 112, 256])
def test_a_softcap_and_slopes(head_dim):
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], device=DEVICE)
    q, k, v = inputs(*(800, 1000) if GPU else (70, 90), 4, 2, head_dim, torch.float16, grad=True)
    o, lse, _ = flashbook.flash_attn_func(q, k, v, causal=True, softcap=3.0, alibi_slopes=slopes, return_attn_probs=True)
    held((o, lse), q, k, v, causal=True, softcap=3.0, slopes=slopes)
    d_o = torch.randn_like(o)
    got = torch.autograd.grad(o, (q, k, v), d_o)
    exact, plain = (torch.autograd.grad(attention(*leaves, causal=True, softcap=3.0, slopes=slopes)[0], leaves, d_o.to(leaves[0].dtype))
                    for leaves in ([tensor.detach().double().requires_grad_() for tensor in (q, k, v)], [tensor.detach().requires_grad_() for tensor in (q, k, v)]))
    for ours, true, theirs in zip(got, exact, plain):
        assert_as_good_as_plain(ours, true, theirs, floor=2e-3)


# ---- any step of any chapter -------------------------------------------------------------------------------------------------------


def test_chapter_2_on_the_cpu():
    q, k, v = (torch.randn(2, 4, 50, 64) for _ in range(3))
    for step in range(1, 6):
        o, lse = flashbook.attention(q, k[:, :2], v[:, :2], chapter=2, step=step, causal=True, return_lse=True)
        exact, exact_lse = attention(*(tensor.double().transpose(1, 2) for tensor in (q, k[:, :2], v[:, :2])), causal=True)
        torch.testing.assert_close(o.double(), exact.transpose(1, 2), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(lse.double(), exact_lse, atol=1e-5, rtol=1e-5)
    assert torch.equal(flashbook.attention(q, k, v), flashbook.attention(q, k, v, chapter=2, step="register_blocks"))
    o = flashbook.flash_attn_func(*(tensor.transpose(1, 2).bfloat16() for tensor in (q, k, v)))
    assert o.shape == (2, 50, 4, 64) and o.dtype == torch.bfloat16


# ---- a cache -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.kernels
@pytest.mark.parametrize("pages", [0, 16, 64])
@pytest.mark.parametrize("new", [0, 1, 3])
@pytest.mark.parametrize("queries, causal", [(1, False), (3, True), (12, True)])
def test_cache(pages, new, queries, causal):
    batch, heads, kv_heads, d, most = 3, 4, 2, 64, 128 + 64
    lengths = torch.tensor([5, 130, 64], device=DEVICE, dtype=torch.int32)
    make = lambda *size: torch.randn(*size, d, device=DEVICE, dtype=torch.bfloat16)
    q, k, v = make(batch, queries, heads), make(batch, most, kv_heads), make(batch, most, kv_heads)
    k_new, v_new = (make(batch, new, kv_heads), make(batch, new, kv_heads)) if new else (None, None)
    table, k_cache, v_cache = in_pages(k, v, pages)
    o, lse = flashbook.flash_attn_with_kvcache(q, k_cache, v_cache, k_new, v_new, cache_seqlens=lengths, block_table=table, causal=causal,
                                               return_softmax_lse=True)
    for i, length in enumerate(lengths.tolist()):
        whole = [torch.cat([old[i:i + 1, :length], fresh[i:i + 1]], 1) if new else old[i:i + 1, :length] for old, fresh in ((k, k_new), (v, v_new))]
        held((o[i:i + 1], lse[i:i + 1]), q[i:i + 1], *whole, causal=causal)
    if new and not pages:
        assert all(torch.equal(k_cache[i, length:length + new], k_new[i]) for i, length in enumerate(lengths.tolist()))


@pytest.mark.kernels
@pytest.mark.parametrize("pages", [None, 16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cache_in_e4m3(pages, dtype):
    """Tests scales of any size, per sequence and key head; q and o stay in 16 bits."""
    batch, heads, kv_heads, d, most = 2, 4, 2, 64, 320
    lengths = torch.tensor([300, 1], device=DEVICE, dtype=torch.int32)
    q = torch.randn(batch, 1, heads, d, device=DEVICE, dtype=dtype)
    whole = [size * torch.randn(batch, most, kv_heads, d, device=DEVICE) for size in (1.0, 30.0)]
    scales = [tensor.abs().amax((1, 3)) / 448 for tensor in whole]
    encoded = [(tensor / scale[:, None, :, None]).to(torch.float8_e4m3fn) for tensor, scale in zip(whole, scales)]
    k, v = ((tensor.float() * scale[:, None, :, None]).double() for tensor, scale in zip(encoded, scales))
    table = None
    if pages:
        table, *encoded = in_pages(*(tensor.view(torch.uint8) for tensor in encoded), pages)
        encoded = [tensor.view(torch.float8_e4m3fn) for tensor in encoded]
    options = {"k_descale": scales[0], "v_descale": scales[1], "cache_seqlens": lengths, "page_table": table}
    o, lse = flashbook.flash_attn_3.flash_attn_with_kvcache(q, *encoded, return_softmax_lse=True, **options)
    assert o.dtype == dtype
    for i, length in enumerate(lengths.tolist()):
        k_, v_ = (tensor[i, :length].repeat_interleave(heads // kv_heads, 1) for tensor in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[i].double(), k_) / d ** 0.5
        right = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v_)
        assert (o[i] - right).abs().max() <= torch.finfo(dtype).eps * right.abs().max()
        assert (lse[i] - scores.logsumexp(-1)).abs().max() < 1e-4
    for wrong, words in (({"k_descale": scales[0][:1]}, "k_descale is"), ({"q_descale": scales[0]}, "q_descale is for float8"),
                         ({"k": q[:, :, :kv_heads], "v": q[:, :, :kv_heads]}, "pass k and v in float8_e4m3fn"),
                         ({"window_size": (9, 0), "k": q[:, :, :kv_heads], "v": q[:, :, :kv_heads]}, "pass k and v in float8_e4m3fn")):
        with pytest.raises((ValueError, NotImplementedError), match=words):
            flashbook.flash_attn_3.flash_attn_with_kvcache(q, *encoded, **options | wrong)


def in_e4m3(*size):
    """Returns an e4m3 tensor, its scales, [batch, heads], and the scaled values in float64."""
    tensor, scale = torch.randn(*size, device=DEVICE).to(torch.float8_e4m3fn), torch.rand(size[0], size[2], device=DEVICE) + 0.5
    return tensor, scale, tensor.double() * scale[:, None, :, None]


@pytest.mark.kernels
@pytest.mark.parametrize("head_dim, options", [
    (64, {"window_size": (20, 3)}), (64, {"softcap": 5.0, "causal": True}), (64, {"attention_chunk": 16}), (96, {"causal": True}), (64, {})], ids=str)
def test_e4m3_without_a_kernel(head_dim, options):
    """Dense and packed calls run on copies in 16 bits; their gradient is refused when it is computed."""
    (k, k_scale, k_value), (v, v_scale, v_value) = in_e4m3(2, 40, 2, head_dim), in_e4m3(2, 40, 2, head_dim)
    q, q_scale = in_e4m3(2, 40, 4, head_dim)[0], in_e4m3(2, 1, 2, 1)[1]
    q_value = q.double() * q_scale.repeat_interleave(2, 1)[:, None, :, None]
    names = {"window_size": "window", "attention_chunk": "chunk"}
    exact, exact_lse = attention(q_value, k_value, v_value, **{names.get(name, name): value for name, value in options.items()})
    first = torch.tensor([0, 40, 80], device=DEVICE, dtype=torch.int32)
    scales = {"q_descale": q_scale, "k_descale": k_scale, "v_descale": v_scale}
    q.requires_grad_()
    o, lse = flash_attn_3.flash_attn_func(q, k, v, return_attn_probs=True, **scales, **options)
    packed = flash_attn_3.flash_attn_varlen_func(*(tensor.flatten(0, 1) for tensor in (q, k, v)), first, first, 40, 40, return_attn_probs=True, **scales,
                                                 **options)
    for got, got_lse in ((o, lse), (packed[0].view(o.shape), packed[1].view(4, 2, 40).transpose(0, 1))):
        assert got.dtype == torch.bfloat16
        if options or got is not o:  # the others run in chapter 6
            assert (got.double() - exact).abs().max() < 0.02 * exact.abs().max() and (got_lse.double() - exact_lse).abs().max() < 0.02
        with pytest.raises(TypeError, match="float8_e4m3fn, which has no gradient"):
            got.sum().backward()
    for call in (lambda: flash_attn_3.flash_attn_func(q.bfloat16(), k.bfloat16(), v.bfloat16(), attention_chunk=9, **scales),
                 lambda: flash_attn_3.flash_attn_varlen_func(q[0].bfloat16(), k[0].bfloat16(), v[0].bfloat16(), first[:2], first[:2], 40, 40, **scales)):
        with pytest.raises(ValueError, match="descale are for float8_e4m3fn"):
            call()


@pytest.mark.kernels
@pytest.mark.parametrize("rules", [{}, {"window_size": (20, 0)}, {"attention_chunk": 32, "causal": True}, {"cache_leftpad": [5, 0]}, {"head_dim": 96},
                                   {"cu_seqlens_q": [0, 2, 4], "causal": True}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn])
def test_e4m3_queries_new_keys_and_rules(dtype, rules):
    """The cache's rows after the last key are not overwritten."""
    rules, head_dim = dict(rules), rules.get("head_dim", 64)
    rules.pop("head_dim", 0)
    lengths, padding = [30, 71], rules.get("cache_leftpad", [0, 0])
    (k, k_scale, k_value), (v, v_scale, v_value) = in_e4m3(2, 96, 2, head_dim), in_e4m3(2, 96, 2, head_dim)
    q, q_scale = torch.randn(2, 2, 4, head_dim, device=DEVICE).to(dtype), in_e4m3(2, 1, 2, 1)[1]
    q_value = q.double() * (q_scale if dtype == torch.float8_e4m3fn else torch.ones_like(q_scale)).repeat_interleave(2, 1)[:, None, :, None]
    caches, new, before = [k.clone(), v.clone()], [], [k.clone(), v.clone()]
    for cache, old in zip(caches, (k, v)):
        new.append(torch.stack([old[i, length - 2:length] for i, length in enumerate(lengths)]))
        for i, length in enumerate(lengths):
            cache[i, length - 2:length] = 0
    given = {name: torch.tensor(of, device=DEVICE, dtype=torch.int32) if isinstance(of, list) else of for name, of in rules.items()}
    given |= {"q_descale": q_scale} if dtype == torch.float8_e4m3fn else {}
    given |= {"max_seqlen_q": 2} if "cu_seqlens_q" in rules else {}
    given |= {"cache_seqlens": torch.tensor(lengths, device=DEVICE, dtype=torch.int32) - 2, "k_descale": k_scale, "v_descale": v_scale}
    tensors = q.flatten(0, 1) if "cu_seqlens_q" in rules else q, *caches, *new
    copied = flashbook.explain(flash_attn_3.flash_attn_with_kvcache, *tensors, **given).copied
    assert copied == (("q", "k", "v") if rules or head_dim == 96 else ("q",) if dtype == torch.float8_e4m3fn else ())
    o, lse = flash_attn_3.flash_attn_with_kvcache(*tensors, return_softmax_lse=True, **given)
    assert o.dtype == (torch.bfloat16 if dtype == torch.float8_e4m3fn else dtype)
    assert all(torch.equal(cache.view(torch.uint8), old.view(torch.uint8)) for cache, old in zip(caches, before))
    o, lse = o.view(q.shape), lse.view(4, 2, 2).transpose(0, 1) if "cu_seqlens_q" in rules else lse
    for i, length in enumerate(lengths):
        keys, values = (tensor[i:i + 1, padding[i]:length] for tensor in (k_value, v_value))
        exact, exact_lse = attention(q_value[i:i + 1], keys, values, causal=rules.get("causal", False), window=rules.get("window_size", (-1, -1)),
                                     chunk=rules.get("attention_chunk", 0))
        assert (o[i:i + 1].double() - exact).abs().max() < 0.02 * exact.abs().max() and (lse[i:i + 1].double() - exact_lse).abs().max() < 0.02


@pytest.mark.kernels
@pytest.mark.parametrize("options", [{}, {"causal": True, "softcap": 5.0}, {"window_size": (20, 3)}], ids=str)
def test_values_of_more_columns_than_a_tile(options):
    """Tests both halves of 512 columns, dense and packed, in chunks, with their gradients."""
    q, k, v = (torch.randn(2, 40, heads, columns, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for heads, columns in ((4, 64), (2, 64), (2, 512)))
    first = torch.tensor([0, 40, 80], device=DEVICE, dtype=torch.int32)
    for chunk in (0, 16):
        runs = [attention(*(tensor.to(kind) for tensor in (q, k, v)), causal="causal" in options, window=options.get("window_size", (-1, -1)),
                          softcap=options.get("softcap", 0.0), chunk=chunk)[0] for kind in (torch.float64, torch.bfloat16)]
        d_o = torch.randn_like(runs[1])
        exact, plain = ((run, *torch.autograd.grad(run, (q, k, v), d_o.to(run.dtype))) for run in runs)
        for packed in (False, True):
            if packed:
                o = flash_attn_3.flash_attn_varlen_func(*(tensor.flatten(0, 1) for tensor in (q, k, v)), first, first, 40, 40, attention_chunk=chunk,
                                                        **options).view(2, 40, 4, 512)
            else:
                o = flash_attn_3.flash_attn_func(q, k, v, attention_chunk=chunk, **options)
            assert o.is_contiguous()
            for got, right, rough in zip((o, *torch.autograd.grad(o, (q, k, v), d_o)), exact, plain):
                assert_as_good_as_plain(got, right, rough, factor=3, floor=1e-3)


@pytest.mark.kernels
def test_cache_in_its_other_forms():
    q, k, v = inputs(1, 100, 4, 2, 64, torch.float16)
    held(flashbook.flash_attn_with_kvcache(q, k, v), q, k, v)
    held(flashbook.flash_attn_with_kvcache(q, k, v, cache_seqlens=60), q, k[:, :60], v[:, :60])
    held(flashbook.flash_attn_with_kvcache(q, k, v, causal=True, window_size=(20, 0)), q, k, v, causal=True, window=(20, 0))
    many = torch.randn(2, 70, 4, 64, device=DEVICE, dtype=torch.float16)  # runs chapter 9
    k, v = (tensor[:1].expand(2, *tensor.shape[1:]) for tensor in (k, v))
    held(flashbook.flash_attn_with_kvcache(many, k, v, window_size=(20, 3), softcap=4.0), many, k, v, window=(20, 3), softcap=4.0)
    q, k, v = inputs(1, 100, 4, 2, 64, torch.float16)
    rows = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (k, v)]  # a head's rows are contiguous
    held(flashbook.flash_attn_with_kvcache(q, *rows), q, k, v)


SLOPES, SINKS = [0.5, 0.25, 0.125, 0.0625], [-1.0, 3.0, -math.inf, 0.5]
RULES = {"window": {"window_size": (40, 0)}, "both sides": {"window_size": (9, 1)}, "one key": {"window_size": (0, 0)}, "long window": {"window_size": (500, 0)},
         "softcap": {"softcap": 2.0, "causal": True}, "slopes": {"slopes": SLOPES, "causal": True}, "sinks": {"sinks": SINKS, "causal": True},
         "all": {"window_size": (70, 0), "softcap": 3.0, "slopes": SLOPES, "sinks": SINKS}}


@pytest.mark.kernels
@pytest.mark.parametrize("pages", [0, 4, 64])
@pytest.mark.parametrize("rule", RULES)
def test_cache_as_models_have_it(rule, pages):
    """Tests windows, score functions and sinks with lengths, pages and new keys. Keys before the window and rows after the last key are NaN."""
    batch, heads, kv_heads, d, most, new, queries = 3, 4, 2, 64, 192, 2, 3
    options = dict(RULES[rule])
    lengths = torch.tensor([0, 150, 64], device=DEVICE, dtype=torch.int32)
    make = lambda *size: torch.randn(*size, d, device=DEVICE, dtype=torch.bfloat16)
    q, k, v, k_new, v_new = make(batch, queries, heads), make(batch, most, kv_heads), make(batch, most, kv_heads), make(batch, new, kv_heads), make(batch, new, kv_heads)
    left = options.get("window_size", (-1, -1))[0]
    for i, length in enumerate(lengths.tolist()):
        for tensor in (k, v):
            tensor[i, length:] = math.nan
            if left >= 0:
                tensor[i, :max(0, length + new - queries - left)] = math.nan
    table, k_cache, v_cache = in_pages(k, v, pages)
    given = {{"slopes": "alibi_slopes", "sinks": "s_aux"}.get(name, name): torch.tensor(value, device=DEVICE) if isinstance(value, list) else value
             for name, value in options.items()}
    o, lse = flashbook.flash_attn_with_kvcache(q, k_cache, v_cache, k_new, v_new, cache_seqlens=lengths, block_table=table, return_softmax_lse=True, **given)
    exact = {name: torch.tensor(value, device=DEVICE) if isinstance(value, list) else value for name, value in options.items()}
    for i, length in enumerate(lengths.tolist()):
        whole = [torch.cat([old[i:i + 1, :length].nan_to_num(), fresh[i:i + 1]], 1) for old, fresh in ((k, k_new), (v, v_new))]
        held((o[i:i + 1], lse[i:i + 1]), q[i:i + 1], *whole, **exact)
    if "slopes" not in options:  # the same call through FlashAttention-3's function
        by_3 = flash_attn_3.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=lengths + new, page_table=table, **given)
        assert torch.equal(by_3, o)


@pytest.mark.kernels
@pytest.mark.parametrize("chapter", [8, 9])
@pytest.mark.parametrize("rule", ["window", "all", "causal"])
def test_packed_queries_against_pages(rule, chapter):
    """Tests decoding sequences, chunks of prompts, and a sequence without queries, in one launch: with few rows, or enough for chapter 9."""
    options = dict(RULES[rule]) if rule in RULES else {"causal": True}
    if rule == "all" and chapter == 9:
        pytest.skip("score functions are for chapter 8")
    queries, lengths, longest = ([1, 40, 0, 1, 12], [200, 90, 30, 1, 150], 208) if chapter == 8 else ([1, 400, 0, 1, 240], [200, 470, 30, 1, 300], 480)
    most, rows, d, pages_of_one = max(queries), 16, 64, longest // 16
    q = torch.randn(sum(queries), 4, d, device=DEVICE, dtype=torch.bfloat16)
    k, v = (torch.randn(5, longest, 2, d, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    table = torch.randperm(5 * pages_of_one, device=DEVICE).view(5, pages_of_one).to(torch.int32)
    k_pages, v_pages = (torch.empty_like(tensor).view(-1, rows, 2, d) for tensor in (k, v))
    for pages, whole in ((k_pages, k), (v_pages, v)):
        pages[table.flatten().long()] = whole.view(-1, rows, 2, d)
    first, first_key = (torch.tensor([0, *itertools.accumulate(of)], device=DEVICE, dtype=torch.int32) for of in (queries, lengths))
    exact = {name: torch.tensor(value, device=DEVICE) if isinstance(value, list) else value for name, value in options.items()}
    given = {name: value for name, value in exact.items() if name not in ("slopes", "sinks")}
    results = []
    found = flashbook.explain(flashbook.flash_attn_varlen_func, q, k_pages, v_pages, first, first_key, most, longest, block_table=table, **given)
    assert found.chapter == chapter
    if "sinks" not in exact:
        o, lse, _ = flashbook.flash_attn_varlen_func(q, k_pages, v_pages, first, first_key, most, longest, block_table=table, return_attn_probs=True, **given)
        results.append((o, lse, exact))
    exact = {name: value for name, value in exact.items() if name != "slopes"}
    o, lse = flash_attn_3.flash_attn_with_kvcache(q, k_pages, v_pages, cu_seqlens_q=first, max_seqlen_q=most, page_table=table, return_softmax_lse=True,
                                                  cache_seqlens=torch.tensor(lengths, device=DEVICE, dtype=torch.int32), s_aux=exact.get("sinks"), **given)
    results.append((o, lse, exact))
    for o, lse, options in results:
        assert o.shape == q.shape and lse.shape == (4, len(q))
        for i, (begin, end) in enumerate(itertools.pairwise(first.tolist())):
            if begin < end:
                held((o[None, begin:end], lse[None, :, begin:end]), q[None, begin:end], k[i:i + 1, :lengths[i]], v[i:i + 1, :lengths[i]], **options)
    for change, kind in (({"max_seqlen_q": None}, ValueError), ({"page_table": None}, ValueError), ({"cu_seqlens_q": first[:3]}, ValueError)):
        call = {"cu_seqlens_q": first, "max_seqlen_q": most, "page_table": table, "cache_seqlens": 20} | change
        with pytest.raises(kind):
            flash_attn_3.flash_attn_with_kvcache(q, k_pages, v_pages, **call)
    with pytest.raises(NotImplementedError, match="no gradient"):
        flashbook.flash_attn_varlen_func(q.clone().requires_grad_(), k_pages, v_pages, first, first_key, most, longest, block_table=table)


@pytest.mark.kernels
@pytest.mark.kernels
@pytest.mark.parametrize("by_token", (True, False))
@pytest.mark.parametrize("queries", (1, 5))
def test_num_splits_1_gives_the_same_bits_in_any_batch(by_token, queries):
    """A sequence gives the same bits alone and among others (flash-attention#1897, #2450; vllm#58131)."""
    lengths = torch.tensor([1000, 1, 17, 300, 900, 64, 129, 999], device=DEVICE, dtype=torch.int32)
    make = lambda rows, heads: torch.randn(8, rows, heads, 64, device=DEVICE, dtype=torch.bfloat16)
    q, k, v = make(queries, 8), make(1000, 2), make(1000, 2)
    if not by_token:
        k, v = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (k, v))
    call = lambda part: flashbook.flash_attn_with_kvcache(q[part], k[part], v[part], cache_seqlens=lengths[part], causal=True, num_splits=1,
                                                          return_softmax_lse=True)
    o, lse = call(slice(None))
    for i in range(8):
        alone = call(slice(i, i + 1))
        assert torch.equal(alone[0], o[i:i + 1]) and torch.equal(alone[1], lse[i:i + 1])


@pytest.mark.parametrize("padded", [False, True])
def test_entries_of_a_cache_and_paddings(padded):
    """cache_batch_idx selects a sequence's entry, cache_leftpad its first row; new keys must be written to the right rows."""
    q, k, v = (torch.randn(2, rows, heads, 64, device=DEVICE, dtype=torch.bfloat16) for rows, heads in ((2, 4), (3, 2), (3, 2)))
    k_cache, v_cache = (torch.randn(5, 101, 2, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    entries, lengths = (torch.tensor(of, device=DEVICE, dtype=torch.int32) for of in ([3, 1], [60, 98]))
    padding = torch.tensor([25, 7] if padded else [0, 0], device=DEVICE, dtype=torch.int32)
    before = k_cache.clone()
    for window in ((-1, -1), (30, 0)):
        o = flashbook.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, cache_batch_idx=entries, causal=True, window_size=window,
                                              cache_leftpad=padding if padded else None)
        for i in range(2):
            seen = slice(padding[i].item(), lengths[i].item() + 3)
            assert torch.equal(k_cache[entries[i], lengths[i]:lengths[i] + 3], k[i])
            held(o[i:i + 1], q[i:i + 1], k_cache[entries[i], seen][None], v_cache[entries[i], seen][None], causal=True, window=window)
    assert all(torch.equal(k_cache[i], before[i]) for i in (0, 2, 4))
    if padded:  # a full cache, without entries
        held(flashbook.flash_attn_with_kvcache(q[:1], k_cache[:1], v_cache[:1], cache_leftpad=padding[:1]), q[:1], k_cache[:1, 25:], v_cache[:1, 25:])


@pytest.mark.kernels
@pytest.mark.parametrize("rows", [1, 4, 6])
@pytest.mark.parametrize("layout", ["pages", "keys and values in one tensor", "heads before rows"])
def test_paddings_of_pages(layout, rows):
    q, k, v = (torch.randn(2, count, heads, 64, device=DEVICE, dtype=torch.bfloat16) for count, heads in ((2, 4), (3, 2), (3, 2)))
    count, lengths, padding = 192 // rows, [60, 45], [25, 16]
    if layout == "heads before rows":
        pages = torch.randn(2, count, 2, rows, 64, device=DEVICE, dtype=torch.bfloat16).transpose(2, 3)
    elif layout == "pages":
        pages = torch.randn(2, count, rows, 2, 64, device=DEVICE, dtype=torch.bfloat16)
    else:
        pages = torch.randn(count, 2, rows, 2, 64, device=DEVICE, dtype=torch.bfloat16).transpose(0, 1)
    table, lengths_, padding_ = (torch.tensor(of, device=DEVICE, dtype=torch.int32) for of in (torch.randperm(count).view(2, -1).tolist(), lengths, padding))
    for i in range(2):  # unused rows
        pages[:, table[i, :padding[i] // rows].long()] = math.nan
    for window in ((-1, -1), (30, 0)):
        o = flashbook.flash_attn_with_kvcache(q, *pages, k, v, cache_seqlens=lengths_, cache_leftpad=padding_, block_table=table, causal=True,
                                              window_size=window)
        for i in range(2):
            k_rows, v_rows = (tensor[table[i].long()].flatten(0, 1)[None, padding[i]:lengths[i] + 3] for tensor in pages)
            assert torch.equal(k_rows[0, -3:], k[i])
            held(o[i:i + 1], q[i:i + 1], k_rows, v_rows, causal=True, window=window)


@pytest.mark.kernels
@pytest.mark.parametrize("queries", [1, 20, 300])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_one_small_page_per_sequence(rows, queries):
    """Steps for many rows cannot read pages of fewer than 8 rows, not even a single one."""
    q, pages = torch.randn(2, queries, 4, 64, device=DEVICE, dtype=torch.bfloat16), torch.randn(2, 5, rows, 2, 64, device=DEVICE, dtype=torch.bfloat16)
    table = torch.tensor([[3], [1]], device=DEVICE, dtype=torch.int32)
    o = flashbook.flash_attn_with_kvcache(q, *pages, block_table=table, causal=True)
    held(o, q, *(part[[3, 1]] for part in pages), causal=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_of_the_keys_are_merged(dtype):
    """Tests flash_attn_combine, also for rows without keys in some parts or in all of them, whose partial results may be NaN."""
    q, k, v = (torch.randn(2, rows, heads, 64, device=DEVICE, dtype=torch.float64) for rows, heads in ((5, 4), (30, 2), (30, 2)))
    parts = [attention(q, k[:, begin:end], v[:, begin:end]) for begin, end in ((0, 7), (7, 8), (8, 30))]
    o, lse = torch.stack([o for o, _ in parts]).float(), torch.stack([lse.transpose(1, 2) for _, lse in parts]).float()
    whole, whole_lse = attention(q, k, v)
    lse[1, 1], o[1, 1], lse[:, 0, 2, 1], o[:, 0, 2, 1] = -math.inf, math.nan, -math.inf, math.nan
    right = torch.cat([k[1:, :7], k[1:, 8:]], 1), torch.cat([v[1:, :7], v[1:, 8:]], 1)
    whole[1:], whole_lse[1:] = attention(q[1:], *right)
    whole[0, 2, 1], whole_lse[0, 1, 2] = 0, -math.inf
    out = torch.empty(2, 5, 4, 64, device=DEVICE, dtype=dtype)
    for found in (flash_attn_3.flash_attn_combine(o, lse, out_dtype=dtype), flash_attn_3.flash_attn_combine(o, lse, out)):
        assert found[0].dtype == dtype
        torch.testing.assert_close(found[0].double(), whole, atol=1e-6 if dtype == torch.float32 else 2e-2, rtol=1e-2)
        torch.testing.assert_close(found[1].double(), whole_lse.transpose(1, 2), atol=1e-5, rtol=1e-5)
    assert found[0] is out
    for wrong, because in (((o.double(), lse), "out_partial is"), ((o, lse[:, :1]), "lse_partial is"), ((o, lse, out[:1]), "out is"),
                           ((o, lse, None, torch.int32), "out_dtype is"), ((o[0], lse), "out_partial has 4 dimensions")):
        with pytest.raises(ValueError, match=because):
            flash_attn_3.flash_attn_combine(*wrong)


@pytest.mark.kernels
def test_flash_attention_3_names_rows_of_a_page_table():
    """Tests cache_batch_idx together with page_table, and rotary_seqlens without a rotary embedding."""
    q, k, v = (torch.randn(2, rows, heads, 64, device=DEVICE, dtype=torch.bfloat16) for rows, heads in ((2, 4), (3, 2), (3, 2)))
    k_pages, v_pages = (torch.randn(15, 16, 2, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    table, entries, lengths = (torch.tensor(of, device=DEVICE, dtype=torch.int32) for of in (torch.randperm(15).view(5, 3).tolist(), [3, 1], [20, 45]))
    o = flash_attn_3.flash_attn_with_kvcache(q, k_pages, v_pages, k, v, cache_seqlens=lengths, cache_batch_idx=entries, page_table=table, causal=True,
                                             rotary_seqlens=lengths)
    for i in range(2):
        k_rows, v_rows = (pages[table[entries[i]].long()].flatten(0, 1)[None, :lengths[i] + 3] for pages in (k_pages, v_pages))
        assert torch.equal(k_rows[0, -3:], k[i])
        held(o[i:i + 1], q[i:i + 1], k_rows, v_rows, causal=True)


def rotated(x, cos, sin, interleaved):
    """Returns x, [rows, heads, head_dim], rotated as complex numbers."""
    half = cos.shape[1]
    turning = x[..., :2 * half].double()
    pairs = turning.unflatten(-1, (half, 2)) if interleaved else turning.unflatten(-1, (2, half)).transpose(-1, -2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.complex(cos.double(), sin.double())[:, None])
    flat = turned.flatten(-2) if interleaved else turned.transpose(-1, -2).flatten(-2)
    return torch.cat([flat.to(x.dtype), x[..., 2 * half:]], -1)


@pytest.mark.kernels
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_rotary_while_appending(causal, interleaved):
    angles = torch.rand(80, 24, device=DEVICE) * 6
    cos, sin = angles.cos(), angles.sin()
    q, k, v = (torch.randn(2, rows, heads, 64, device=DEVICE, dtype=torch.bfloat16) for rows, heads in ((3, 4), (3, 2), (3, 2)))
    lengths, places = [10, 37], [41, 5]
    for function, at in ((flashbook.flash_attn_with_kvcache, lengths), (flash_attn_3.flash_attn_with_kvcache, places)):
        k_cache, v_cache = (torch.randn(2, 64, 2, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
        others = {} if at is lengths else {"rotary_seqlens": torch.tensor(at, device=DEVICE, dtype=torch.int32)}
        o = function(q, k_cache, v_cache, k, v, rotary_cos=cos, rotary_sin=sin, cache_seqlens=torch.tensor(lengths, device=DEVICE, dtype=torch.int32), causal=causal,
                     rotary_interleaved=interleaved, **others)
        for i, (length, place) in enumerate(zip(lengths, at)):
            rows = torch.arange(3, device=DEVICE)
            torch.testing.assert_close(k_cache[i, length:length + 3], rotated(k[i], cos[place + rows], sin[place + rows], interleaved), atol=2**-6, rtol=2**-7)
            q_at = place + rows * int(causal)
            turned = rotated(q[i], cos[q_at], sin[q_at], interleaved)[None]
            exact, _ = attention(turned.double(), *(cache[i:i + 1, :length + 3].double() for cache in (k_cache, v_cache)), causal=causal)
            torch.testing.assert_close(o[i:i + 1].double(), exact, atol=2e-2, rtol=2e-2)


# ---- errors ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change, kind, because", [
    (lambda q, k, v: (q.double(), k.double(), v.double()), TypeError, "float64"),
    (lambda q, k, v: (q.int(), k.int(), v.int()), TypeError, "int32"),
    (lambda q, k, v: (q, k.bfloat16(), v), ValueError, "pass the same type"),
    (lambda q, k, v: (q, k.to("meta"), v), ValueError, "on the same device"),
    (lambda q, k, v: (q[..., :36], k, v), ValueError, "multiple of 8"),
    (lambda q, k, v: tuple(t.repeat(1, 1, 1, 5) for t in (q, k, v)), ValueError, "up to 256"),
    (lambda q, k, v: (q, k[:, :9], v), ValueError, "one shape"),
    (lambda q, k, v: (q[:, :, :3], k[:, :, :2], v[:, :, :2]), ValueError, "divides"),
    (lambda q, k, v: (q[:1], k, v), ValueError, "same batch"),
    (lambda q, k, v: (q[0], k[0], v[0]), (ValueError, IndexError), "dimensions"),
    (lambda q, k, v: (q[:1, :, :1].expand(2**31, 10, 1, 64), *(t[:1, :, :1].expand(2**31, 10, 1, 64) for t in (k, v))), ValueError, "2\\^31"),
])


def test_tensors_that_do_not_fit(change, kind, because):
    q, k, v = (torch.randn(2, 10, 4, 64, device=DEVICE, dtype=torch.float16) for _ in range(3))
    with pytest.raises(kind, match=because):
        flashbook.flash_attn_func(*change(q, k, v))


def test_invalid_options():
    q, k, v = (torch.randn(2, 10, 4, 64, device=DEVICE, dtype=torch.float16) for _ in range(3))
    for options, kind, because in (({"dropout_p": 1.0}, ValueError, "less than 1"), ({"dropout_p": -0.1}, ValueError, "dropout_p"),
                                   ({"dropout_p": math.nan}, ValueError, "dropout_p"), ({"softmax_scale": 0.0}, ValueError, "softmax_scale"),
                                   ({"softmax_scale": -1.0}, ValueError, "above 0"), ({"softmax_scale": math.nan}, ValueError, "finite")):
        with pytest.raises(kind, match=because):
            flashbook.flash_attn_func(q, k, v, **options)
    ints = torch.zeros(2, device=DEVICE, dtype=torch.int32)
    turns = {"rotary_cos": torch.ones(9, 8, device=DEVICE), "rotary_sin": torch.ones(9, 8, device=DEVICE)}
    new = {"k": k, "v": v, "cache_seqlens": 0}
    for options, kind, because in (
            ({"rotary_cos": turns["rotary_cos"]} | new, ValueError, "rotary_sin is None"), (turns, ValueError, "k is None"),
            (turns | {"rotary_sin": torch.ones(8, 8, device=DEVICE)} | new, ValueError, "equal shape"),
            ({name: torch.ones(9, 33, device=DEVICE) for name in turns} | new, ValueError, "1 to 32"),
            ({"cache_batch_idx": ints, "block_table": ints[:, None], "cache_seqlens": 3}, ValueError, "both given"),
            ({"cache_batch_idx": ints.long(), "cache_seqlens": 3}, ValueError, "int32"), ({"cache_batch_idx": ints}, ValueError, "cache_seqlens is None"),
            ({"cache_leftpad": ints[:1]}, ValueError, "cache_leftpad"),
            ({"alibi_slopes": torch.zeros(3, device=DEVICE)}, ValueError, "one per head"), ({"s_aux": torch.zeros(3, device=DEVICE)}, ValueError, "one per head"),
            ({"s_aux": torch.zeros(4, device=DEVICE).double()}, ValueError, "float32"), ({"s_aux": 1.0}, TypeError, "s_aux"),
            ({"softcap": 1e20}, ValueError, "1024")):
        with pytest.raises(kind, match=because):
            flashbook.flash_attn_with_kvcache(q, k, v, **options)
    with pytest.raises(ValueError, match="pass both or neither"):
        flashbook.flash_attn_with_kvcache(q, k, v, k)
    with pytest.raises(ValueError, match="cache_seqlens is None"):
        flashbook.flash_attn_with_kvcache(q, k, v, k, v)
    first = torch.tensor([0, 10], device=DEVICE, dtype=torch.int32)
    for options in ({"block_table": first[None]}, {"return_attn_probs": True}, {"softcap": 2.0}):
        with pytest.raises(NotImplementedError, match="dropout_p"):
            flashbook.flash_attn_varlen_func(q[0], k[0], v[0], first, first, 10, 10, dropout_p=0.5, **options)
    with pytest.raises(ValueError, match="pages"):
        flashbook.flash_attn_varlen_func(q[0], k[0], v[0], first, first, 10, 10, block_table=first[None])
    with pytest.raises(ValueError, match="chapter=77 is not supported"):
        flashbook.attention(q, k, v, chapter=77)
    with pytest.raises((ValueError, RuntimeError), match=r"no step '?9|runs on the CPU"):
        flashbook.attention(q, k, v, chapter=2, step=9)
    with pytest.raises(ValueError, match="qkv has 4 dimensions"):
        flashbook.flash_attn_qkvpacked_func(q)


# ---- dropout -----------------------------------------------------------------------------------------------------------------------


def seeded(function, *tensors, **options):
    torch.manual_seed(11)
    return function(*tensors, **options)


def kept_by(function, q, k, v, dropout_p, **options):
    """Returns dropout's factor for each probability of a seeded call, [batch, heads, seqlen_q, seqlen_k]: if V is the identity, O is P after
    dropout."""
    identity = torch.eye(k.shape[1], k.shape[-1], device=DEVICE, dtype=v.dtype)[:, None].expand(v.shape)
    left = seeded(function, q, k, identity, dropout_p, **options)[..., :k.shape[1]]
    return (left != 0).transpose(1, 2).double() / (1 - dropout_p)


def held_with_dropout(o, d_o, leaves, kept, **options):
    """Returns the gradients. Compares them and O with float64 and with plain attention, with the same elements
    dropped."""
    got = o, *torch.autograd.grad(o, leaves, d_o)

    def written_out(kind):
        own = [leaf.detach().to(kind).requires_grad_() for leaf in leaves]
        o = attention(*own, kept=kept, **options)[0]
        return o, *torch.autograd.grad(o, own, d_o.to(kind))

    for one, exact, plain in zip(got, written_out(torch.float64), written_out(o.dtype)):
        assert_as_good_as_plain(one, exact.detach(), plain.detach(), factor=3, floor=2e-4)
    return got[1:]


@pytest.mark.kernels
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_dropout(dtype, head_dim, deterministic):
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], device=DEVICE)
    for options in ({}, {"causal": True}, {"window_size": (9, 3)}, {"causal": True, "alibi_slopes": slopes}):
        leaves = q, k, v = inputs(50, 61, 4, 2, head_dim, dtype, grad=True)
        kept = kept_by(flashbook.flash_attn_func, *leaves, 0.25, **options)
        seen = visible(50, 61, options.get("causal", False), options.get("window_size", (-1, -1)), DEVICE)
        assert 0.7 < (kept * seen > 0).sum() / (seen.sum() * kept[..., 0, 0].numel()) < 0.8
        o = seeded(flashbook.flash_attn_func, q, k, v, 0.25, deterministic=deterministic, **options)
        d_o = torch.randn_like(o)
        gradients = held_with_dropout(o, d_o, leaves, kept, causal=options.get("causal", False), window=options.get("window_size", (-1, -1)),
                                      slopes=options.get("alibi_slopes"))
        if deterministic:
            again = seeded(flashbook.flash_attn_func, q, k, v, 0.25, deterministic=True, **options)
            assert all(map(torch.equal, gradients, torch.autograd.grad(again, leaves, d_o)))


@pytest.mark.kernels
def test_dropout_by_every_call():
    """All functions drop the same elements for the same seed, and different ones for another; without dropout the generator is not used."""
    leaves = q, k, v = inputs(40, 40, 2, 2, 64, torch.bfloat16, grad=True)
    right = seeded(flashbook.flash_attn_func, q, k, v, 0.25, causal=True)
    torch.manual_seed(11)
    state = torch.get_rng_state()
    for again in (seeded(flashbook.flash_attn_func, q, k, v, 0.25, causal=True),
                  seeded(flashbook.flash_attn_qkvpacked_func, torch.stack([q, k, v], 2), 0.25, causal=True),
                  seeded(flashbook.flash_attn_kvpacked_func, q, torch.stack([k, v], 2), 0.25, causal=True),
                  seeded(flashbook.scaled_dot_product_attention, *(tensor.transpose(1, 2) for tensor in (q, k, v)), dropout_p=0.25,
                         is_causal=True).transpose(1, 2)):
        assert torch.equal(again, right)
    assert not torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(flashbook.flash_attn_func(q, k, v, 0.25, causal=True), right)  # the next seed
    torch.manual_seed(11)
    flashbook.flash_attn_func(q, k, v, 0.0, causal=True)
    assert torch.equal(torch.get_rng_state(), state)

    d_o = torch.randn_like(right)
    wanted = torch.autograd.grad(right, leaves, d_o)
    straight = seeded(flashbook.flash_attn_func, q, k, v, 0.25, causal=True, deterministic=True)
    recomputed = seeded(torch.utils.checkpoint.checkpoint, lambda *tensors: flashbook.flash_attn_func(*tensors, 0.25, causal=True, deterministic=True),
                        *leaves, use_reentrant=False)
    for one, other, rounded in zip(torch.autograd.grad(recomputed, leaves, d_o), torch.autograd.grad(straight, leaves, d_o), wanted):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, rounded, atol=2e-2, rtol=2e-2)


@pytest.mark.kernels
def test_dropout_of_packed_sequences():
    q, k, v = (tensor[0].detach() for tensor in inputs(50, 60, 4, 2, 64, torch.bfloat16))
    leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
    first_query, first_key = (torch.tensor(of, device=DEVICE, dtype=torch.int32) for of in ([0, 15, 15, 50], [0, 20, 23, 60]))

    def packed(q, k, v, dropout_p):
        return flashbook.flash_attn_varlen_func(q[0], k[0], v[0], first_query, first_key, 35, 37, dropout_p)[None]

    kept = kept_by(packed, q[None], k[None], v[None], 0.3)
    o = seeded(packed, q[None], k[None], v[None], 0.3)
    for begin, end, begin_key, end_key in ((0, 15, 0, 20), (15, 50, 23, 60)):
        parts = [q[None, begin:end], k[None, begin_key:end_key], v[None, begin_key:end_key]]
        exact, plain = (attention(*(part.detach().to(kind) for part in parts), kept=kept[..., begin:end, begin_key:end_key])[0]
                        for kind in (torch.float64, q.dtype))
        assert_as_good_as_plain(o[:, begin:end].detach(), exact, plain)
    d_o = torch.randn_like(o)
    got = torch.autograd.grad(o, leaves, d_o)
    own = [leaf.detach().double().requires_grad_() for leaf in leaves]
    whole = torch.cat([attention(own[0][None, a:b], own[1][None, c:d], own[2][None, c:d], kept=kept[..., a:b, c:d])[0]
                       for a, b, c, d in ((0, 15, 0, 20), (15, 50, 23, 60))], 1)
    for one, exact in zip(got, torch.autograd.grad(whole, own, d_o.double())):
        torch.testing.assert_close(one.double(), exact, atol=4e-2, rtol=3e-2)
    assert not got[1][20:23].any() and not got[2][20:23].any()  # keys that no query sees


# ---- a bias by distance ------------------------------------------------------------------------------------------------------------


def biased(q, k, v, bias, **options):
    """Calls flashbook.attention on tensors [batch, seqlen, heads, head_dim]."""
    o, lse = flashbook.attention(*(tensor.transpose(1, 2) for tensor in (q, k, v)), bias=bias, return_lse=True, **options)
    return o.transpose(1, 2), lse


def written_out_with_bias(kind, leaves, d_o, **options):
    """Returns the gradients of q, k, v and the bias, by PyTorch."""
    *own, bias = (leaf.detach().to(kind).requires_grad_() for leaf in leaves)
    return torch.autograd.grad(attention(*own, bias=bias, **options)[0], (*own, bias), d_o.to(kind))


@pytest.mark.kernels
@pytest.mark.parametrize("reach", [0, 7, 300])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_bias(dtype, head_dim, reach):
    for causal in (False, True):
        lengths = (800, 1000) if GPU else (130, 150)
        leaves = [*inputs(*lengths, 4, 2, head_dim, dtype, grad=True), torch.randn(4, 2 * reach + 1, device=DEVICE, requires_grad=True)]
        o, lse = biased(*leaves, causal=causal)
        held((o, lse), *leaves[:3], causal=causal, bias=leaves[3].detach())
        d_o = torch.randn_like(o)
        got = torch.autograd.grad(o, leaves, d_o)
        exact = written_out_with_bias(torch.float64, leaves, d_o, causal=causal)
        for ours, right, plain in zip(got[:3], exact, written_out_with_bias(dtype, leaves, d_o, causal=causal)):
            assert_as_good_as_plain(ours, right, plain, factor=3, floor=2e-3)
        # Summed over all distances the gradient is 0, except for the rounding of O. With few separate distances, plain attention's error is
        # therefore a random sum, and no yardstick.
        assert (got[3] - exact[3]).norm() <= 0.01 * exact[3].norm() + 2e-3 * math.sqrt(BATCH * lengths[0] * head_dim), reach


@pytest.mark.kernels
def test_a_bias_has_its_gradient_where_it_wants_one():
    q, k, v, bias = *inputs(70, 90, 4, 2, 64, torch.bfloat16), torch.randn(4, 31, device=DEVICE)
    leaves = [q, k, v, bias]
    o, _ = biased(*(leaf.detach().requires_grad_() for leaf in leaves))
    d_o = torch.randn_like(o)
    all_leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    wanted = torch.autograd.grad(biased(*all_leaves)[0], all_leaves, d_o)
    alone = bias.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(biased(q, k, v, alone)[0], alone, d_o)
    torch.testing.assert_close(gradient, wanted[3], atol=1e-4, rtol=1e-4)
    others = [leaf.detach().requires_grad_() for leaf in (q, k, v)]
    for one, other in zip(torch.autograd.grad(biased(*others, bias)[0], others, d_o), wanted):
        torch.testing.assert_close(one, other, atol=1e-2, rtol=1e-2)
    # in 16 bits, and from a lookup table of buckets, as in T5
    half = bias.to(torch.bfloat16).requires_grad_()
    (gradient,) = torch.autograd.grad(biased(q, k, v, half)[0], half, d_o)
    assert gradient.dtype == torch.bfloat16
    table, bucket = torch.randn(5, 4, device=DEVICE, requires_grad=True), torch.arange(31, device=DEVICE) // 7
    looked_up = table[bucket].T
    (gradient,) = torch.autograd.grad(biased(q, k, v, looked_up)[0], table, d_o)
    spread = looked_up.detach().contiguous().requires_grad_()
    (by_distance,) = torch.autograd.grad(biased(q, k, v, spread)[0], spread, d_o)
    torch.testing.assert_close(gradient, torch.zeros_like(table).index_add(0, bucket, by_distance.T), atol=1e-4, rtol=1e-4)
