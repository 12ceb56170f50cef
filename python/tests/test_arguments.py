"""Tests every argument of FlashAttention-2's and -3's functions: order, support, errors, and the page's tables."""

import contextlib
import importlib.metadata
import inspect
import itertools
import math
import pathlib
import re

import pytest
import torch
from conftest import DEVICE, GPU
from reference import attention

import flashbook
from flashbook import _library, accepted, flash_attn_3, interface, ops

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pages" / "in_pytorch.md"
OPTIONS = ("dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, "
           "return_attn_probs=False")
DESCALES = "q_descale=None, k_descale=None, v_descale=None"
TUNING = "window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False"
SIGNATURES = {
    flashbook: {  # FlashAttention 2.7 and 2.8
        "flash_attn_func": f"q, k, v, {OPTIONS}", "flash_attn_qkvpacked_func": f"qkv, {OPTIONS}", "flash_attn_kvpacked_func": f"q, kv, {OPTIONS}",
        "flash_attn_varlen_func": f"q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, {OPTIONS}, block_table=None",
        "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {OPTIONS}",
        "flash_attn_varlen_kvpacked_func": f"q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, {OPTIONS}",
        "flash_attn_with_kvcache": "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None, "
                                   "cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
                                   "rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False, s_aux=None"},  # the last is ours
    flash_attn_3: {  # hopper/flash_attn_interface.py at 0251105a2fb1, 15 August 2026
        "flash_attn_func": f"q, k, v, softmax_scale=None, causal=False, qv=None, {DESCALES}, {TUNING}",
        "flash_attn_combine": "out_partial, lse_partial, out=None, out_dtype=None",
        "flash_attn_qkvpacked_func": f"qkv, softmax_scale=None, causal=False, {DESCALES}, window_size=(-1, -1), attention_chunk=0, softcap=0.0, "
                                     "deterministic=False, num_heads_q=None, sm_margin=0, return_attn_probs=False",
        "flash_attn_varlen_func": "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, seqused_k=None, softmax_scale=None, "
                                  f"causal=False, qv=None, {DESCALES}, {TUNING}",
        "flash_attn_with_kvcache": "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
                                   "cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, "
                                   f"rotary_seqlens=None, {DESCALES}, softmax_scale=None, causal=False, window_size=(-1, -1), attention_chunk=0, softcap=0.0, "
                                   "rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0, return_softmax_lse=False, s_aux=None"}}  # vLLM's
FUNCTIONS = [(module, name) for module, functions in SIGNATURES.items() for name in functions]
NAMES = [f"{module.__name__.rpartition('.')[2]}-{name}" for module, name in FUNCTIONS]
BATCH, ROWS, HEADS, KV_HEADS = 2, 24, 2, 1


def make(*size, dtype=torch.bfloat16):
    return torch.randn(*size, 64, device=DEVICE).to(dtype)


def call(module, name, **changed):
    """Calls the function with small tensors and the given changes."""
    first = torch.tensor([0, 9, ROWS], device=DEVICE, dtype=torch.int32)
    generator_state = torch.get_rng_state()
    torch.manual_seed(5)
    q, k, v, qkv = make(BATCH, ROWS, HEADS), make(BATCH, ROWS, KV_HEADS), make(BATCH, ROWS, KV_HEADS), make(BATCH, ROWS, 3, HEADS)
    torch.set_rng_state(generator_state)
    k, v = k * 4, v * 2  # large enough for a softcap to have an effect
    packed = "varlen" in name
    if packed:
        q, k, v, qkv = q[0], k[0], v[0], qkv[0]
    given = {"q": q, "k": k, "v": v, "qkv": qkv, "kv": torch.stack([k, v], -3), "cu_seqlens": first, "cu_seqlens_q": first, "cu_seqlens_k": first,
             "max_seqlen": ROWS, "max_seqlen_q": ROWS, "max_seqlen_k": ROWS, "out_partial": q.float()[None], "lse_partial": q.float()[None, ..., 0]}
    if name == "flash_attn_with_kvcache":
        given = {"q": q, "k_cache": k, "v_cache": v}
    wanted = inspect.signature(getattr(module, name)).parameters
    return getattr(module, name)(**{key: value for key, value in given.items() if key in wanted} | changed)


def verdicts(module):
    """Returns {(function, argument): verdict} of the page's table. docs/tools/accepted.py checks that it is complete."""
    known = {name: inspect.signature(getattr(module, name)).parameters for name in SIGNATURES[module]}
    rows = accepted.FLASH_ATTENTION_2 if module is flashbook else accepted.FLASH_ATTENTION_3
    return {(name, argument): verdict for arguments, functions, verdict, _ in rows for argument in arguments.split()
            for name in functions.split() or known if argument in known[name]}


# A value other than the default for each argument.
OTHERS = {"dropout_p": 0.1, "softmax_scale": 0.3, "causal": True, "window_size": (3, 1), "softcap": 0.5, "deterministic": True,
          "return_attn_probs": True, "return_softmax_lse": True, "max_seqlen": 3, "max_seqlen_q": 3, "max_seqlen_k": 3, "rotary_interleaved": False,
          "num_splits": 3, "pack_gqa": True, "sm_margin": 2, "attention_chunk": 8, "num_heads_q": 1, "cache_seqlens": 9}


def other(argument):
    if argument == "alibi_slopes":
        return torch.tensor([0.5, 0.25], device=DEVICE)
    if argument.endswith("descale"):
        return torch.ones(BATCH, KV_HEADS, device=DEVICE)
    return OTHERS.get(argument, torch.zeros(2, 3, device=DEVICE))


@pytest.mark.parametrize("module, name", FUNCTIONS, ids=NAMES)
def test_signatures(module, name):
    parameters = inspect.signature(getattr(module, name)).parameters.values()
    assert ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters) == SIGNATURES[module][name]


@pytest.mark.kernels
@pytest.mark.parametrize("module, name", FUNCTIONS, ids=NAMES)
def test_the_page_is_right(module, name):
    """Hints and ignored arguments change no bit; masks and scales do."""
    plain = call(module, name)
    for (function, argument), verdict in verdicts(module).items():
        if function != name:
            continue
        if verdict in ("hint", "ignored"):
            assert torch.equal(call(module, name, **{argument: other(argument)}), plain), argument
        elif argument in ("dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes", "cache_seqlens", "attention_chunk"):
            changed = call(module, name, **{argument: other(argument)})
            assert changed.shape == plain.shape and not torch.equal(changed, plain), argument
        elif argument.startswith("return_"):
            o, lse, *rest = call(module, name, **{argument: True})
            assert torch.equal(o, plain) and lse.dtype == torch.float32
            assert rest == ([None] if module is flashbook and argument == "return_attn_probs" else [])
        else:  # tensors have tests of their own: these have the wrong shape, but the argument itself is supported
            with contextlib.suppress(ValueError, TypeError):
                call(module, name, **{argument: other(argument)})


@pytest.mark.parametrize("module, name", FUNCTIONS, ids=NAMES)
@pytest.mark.parametrize("argument, wrong", [
    ("softmax_scale", True), ("softmax_scale", torch.tensor(0.5)), ("softmax_scale", "1"), ("causal", 1), ("causal", None), ("causal", 0.5),
    ("window_size", None), ("window_size", 3), ("window_size", (1, 2, 3)), ("window_size", (True, 0)), ("window_size", (1.5, 0)),
    ("window_size", (torch.tensor(1), 0)), ("softcap", None), ("softcap", False), ("softcap", torch.tensor(1.0)), ("dropout_p", None), ("dropout_p", False),
    ("deterministic", 1), ("return_attn_probs", None), ("return_softmax_lse", 1), ("num_splits", True), ("num_splits", 1.5), ("num_splits", None),
    ("rotary_interleaved", 3), ("q", None), ("qkv", [[1.0]]), ("k_cache", 3.0), ("cache_seqlens", True), ("cache_seqlens", 2.0),
    ("cu_seqlens_q", [0, 3]), ("sm_margin", None), ("attention_chunk", True), ("pack_gqa", 2)])


def test_values_of_another_type(module, name, argument, wrong):
    if argument in inspect.signature(getattr(module, name)).parameters and not (name == "flash_attn_with_kvcache" and argument == "cu_seqlens_q"):
        with pytest.raises(TypeError, match=argument):
            call(module, name, **{argument: wrong})


def test_numbers_of_numpy():
    np = pytest.importorskip("numpy")
    q, k, v = (torch.randn(1, 10, 2, 64) for _ in range(3))
    right = flashbook.flash_attn_func(q, k, v, softmax_scale=0.25, causal=True)
    for scale, causal in ((np.float32(0.25), np.True_), (np.float64(0.25), True)):
        assert torch.equal(flashbook.flash_attn_func(q, k, v, 0, scale, causal, (np.int64(-1), np.int32(-1)), np.float32(0)), right)
        assert torch.equal(flashbook.flash_attn_func(q, k, v, 0, scale, causal, [-1, -1]), right)
    with pytest.raises(TypeError, match="softmax_scale"):
        flashbook.flash_attn_func(q, k, v, softmax_scale=np.array([0.25]))
    with pytest.raises(TypeError, match="causal"):
        flashbook.flash_attn_func(q, k, v, causal=np.int64(1))
    with pytest.raises(TypeError, match=r"q is a numpy\.ndarray"):
        flashbook.flash_attn_func(q.numpy(), k, v)


def test_the_order_of_the_other_interface():
    """A wrong type raises in a first call, and also after a remembered call whose options are equal by ==, where True is 1."""
    q, k, v = (torch.randn(1, 10, 2, 64) for _ in range(3))
    flashbook.flash_attn_func(q, k, v, 0.0, 1.0, False)
    for positional in ((None, True), (None,), (0.125, True), (0.0, True), (False, 1.0)):
        with pytest.raises((TypeError, NotImplementedError), match="flash_attn_3"):
            flashbook.flash_attn_func(q, k, v, *positional)
    flash_attn_3.flash_attn_func(q, k, v, 1.0, False)
    for positional in ((0.5, None, True), (0.5, 1.0), (None, None), (True, False)):
        with pytest.raises(TypeError, match="FlashAttention-2's functions are in flashbook"):
            flash_attn_3.flash_attn_func(q, k, v, *positional)
    with pytest.raises(ValueError, match="softmax_scale"):
        flash_attn_3.flash_attn_func(q, k, v, 0.0, None, True)  # dropout_p, softmax_scale, causal
    first = torch.tensor([0, 10], dtype=torch.int32)
    with pytest.raises(TypeError, match="flash_attn_3"):
        flashbook.flash_attn_varlen_func(q[0], k[0], v[0], first, first, 10, 10, None, None, 0.125, True)
    with pytest.raises(ValueError, match=r"cache_batch_idx is given.*flash_attn_3"):  # FlashAttention-3's cache_seqlens
        flashbook.flash_attn_with_kvcache(q, k, v, None, None, None, None, None, first[:1])


def test_values_that_make_no_sense():
    q, k, v = (torch.randn(1, 10, 2, 64) for _ in range(3))
    for options, because in (({"softmax_scale": math.nan}, "finite"), ({"softmax_scale": math.inf}, "finite"), ({"softmax_scale": -1.0}, "above 0"),
                             ({"softcap": math.nan}, "finite"), ({"softcap": math.inf}, "finite")):
        for function in (flashbook.flash_attn_func, flash_attn_3.flash_attn_func):
            with pytest.raises(ValueError, match=because):
                function(q, k, v, **options)
    with pytest.raises(ValueError, match="num_splits is -1"):
        flashbook.flash_attn_with_kvcache(q, k, v, num_splits=-1)
    with pytest.raises(ValueError, match="sm_margin is -1"):
        flash_attn_3.flash_attn_func(q, k, v, sm_margin=-1)
    for length in (-1, 11):
        with pytest.raises(ValueError, match="pass a number from 0 to 10"):
            flashbook.flash_attn_with_kvcache(q, k, v, cache_seqlens=length)
    with pytest.raises(ValueError, match="num_heads_q"):
        flash_attn_3.flash_attn_qkvpacked_func(torch.randn(1, 10, 5, 64), num_heads_q=2)


@pytest.mark.kernels
@pytest.mark.parametrize("rows, keys, options", [(20, 8, {"causal": True}), (20, 8, {"causal": True, "window_size": (3, 0)}), (5, 0, {})])
def test_the_log_sum_exp_of_rows_that_see_nothing(rows, keys, options):
    """FlashAttention-2 returns +inf, FlashAttention-3 -inf; a repeated call returns the same."""
    q, k, v = make(1, rows, 2), make(1, keys, 2), make(1, keys, 2)
    exact = attention(*(tensor.double() for tensor in (q, k, v)), causal="causal" in options, window=options.get("window_size", (-1, -1)))[1]
    assert exact.isneginf().any()
    for _ in range(2):
        _, lse, _ = flashbook.flash_attn_func(q, k, v, return_attn_probs=True, **options)
        assert torch.equal(lse.isposinf(), exact.isneginf()) and not lse.isneginf().any()
        _, lse = flash_attn_3.flash_attn_func(q, k, v, return_attn_probs=True, **options)
        assert torch.equal(lse.isneginf(), exact.isneginf()) and not lse.isposinf().any()
    first, first_key = (torch.tensor([0, count], device=DEVICE, dtype=torch.int32) for count in (rows, keys))
    assert flashbook.flash_attn_varlen_func(q[0], k[0], v[0], first, first_key, rows, keys, return_attn_probs=True, **options)[1].isposinf().any()
    assert flash_attn_3.flash_attn_varlen_func(q[0], k[0], v[0], first, first_key, rows, keys, return_attn_probs=True, **options)[1].isneginf().any()


@pytest.mark.kernels
def test_the_log_sum_exp_of_empty_caches():
    q, k, v = make(2, 1, 2), make(2, 20, 2), make(2, 20, 2)
    lengths = torch.tensor([0, 9], device=DEVICE, dtype=torch.int32)
    for function, sign in ((flashbook.flash_attn_with_kvcache, 1), (flash_attn_3.flash_attn_with_kvcache, -1)):
        o, lse = function(q, k, v, cache_seqlens=lengths, return_softmax_lse=True)
        assert (lse[0] == sign * math.inf).all() and lse[1].isfinite().all() and not o[0].any()


@pytest.mark.kernels
def test_packed_tensors_of_packed_sequences():
    first = torch.tensor([0, 13, 30], device=DEVICE, dtype=torch.int32)
    qkv = make(30, 3, 2).requires_grad_()
    o = flashbook.flash_attn_varlen_qkvpacked_func(qkv, first, 17, causal=True)
    parts = [tensor.detach().requires_grad_() for tensor in qkv.unbind(1)]
    apart = flashbook.flash_attn_varlen_func(*parts, first, first, 17, 17, causal=True)
    assert torch.equal(o, apart)
    (gradient,) = torch.autograd.grad(o.float().square().sum(), qkv)
    torch.testing.assert_close(gradient, torch.stack(torch.autograd.grad(apart.float().square().sum(), parts), 1), atol=2e-2, rtol=1e-2)
    q, kv = qkv.detach()[:, 0], qkv.detach()[:, 1:]
    assert torch.equal(flashbook.flash_attn_varlen_kvpacked_func(q, kv, first, first, 17, 17, causal=True), o)
    for wrong in (qkv.detach()[:, :2], qkv.detach()[0]):
        with pytest.raises(ValueError, match="qkv"):
            flashbook.flash_attn_varlen_qkvpacked_func(wrong, first, 17)
    with pytest.raises(ValueError, match="kv is"):
        flashbook.flash_attn_varlen_kvpacked_func(q, qkv.detach(), first, first, 17, 17)


# ---- FlashAttention-3 --------------------------------------------------------------------------------------------------------------


@pytest.mark.kernels
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window_size": (7, 2)}, {"softcap": 5.0, "softmax_scale": 0.2}])
def test_both_interfaces_are_one(options):
    leaves = [make(2, 30, heads).requires_grad_() for heads in (4, 2, 2)]
    first = torch.tensor([0, 12, 30], device=DEVICE, dtype=torch.int32)
    there = flash_attn_3.flash_attn_func(*leaves, return_attn_probs=True, deterministic=True, **options)
    here = flashbook.flash_attn_func(*leaves, return_attn_probs=True, **options)
    assert len(there) == 2 and torch.equal(there[0], here[0]) and torch.equal(there[1], here[1])
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(there[0].float().sum(), leaves))
    q, k, v = (leaf.detach() for leaf in leaves)
    assert torch.equal(flash_attn_3.flash_attn_func(q, k, v, **options), here[0])
    packed = torch.cat([q, k, v], 2)
    assert torch.equal(flash_attn_3.flash_attn_qkvpacked_func(packed, num_heads_q=4, **options), here[0])
    assert torch.equal(flash_attn_3.flash_attn_varlen_func(q[0], k[0], v[0], first, first, 18, 18, **options),
                       flashbook.flash_attn_varlen_func(q[0], k[0], v[0], first, first, 18, 18, **options))
    if "causal" in options:
        lengths = torch.tensor([5, 20], device=DEVICE, dtype=torch.int32)
        by_2, by_3 = ([tensor.clone() for tensor in (k, v)] for _ in range(2))
        new = make(2, 2, 2), make(2, 2, 2)
        assert torch.equal(flash_attn_3.flash_attn_with_kvcache(q[:, :2], *by_3, *new, cache_seqlens=lengths, causal=True),
                           flashbook.flash_attn_with_kvcache(q[:, :2], *by_2, *new, cache_seqlens=lengths, causal=True))
        assert all(torch.equal(*pair) for pair in zip(by_2, by_3)) and not torch.equal(by_2[0], k)


@pytest.mark.skipif(not GPU, reason="the tensor cores of the simulator add exactly, unless FLASHBOOK_SIM_EXACT is set")
@pytest.mark.parametrize("keys", [4096, 16384, 131072])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_long_sums_in_fp8(keys, head_dim):
    q, k, v = (torch.randn(1, rows, 1, head_dim, device=DEVICE).to(torch.float8_e4m3fn) for rows in (64, keys, keys))
    for values, bound in ((torch.ones_like(v, dtype=torch.float32), 0.01), (v.float() + 0.5, 0.02)):
        values = values.to(torch.float8_e4m3fn)
        for causal in (False, True):
            exact = attention(q.double(), k.double(), values.double(), causal=causal)[0]
            o = flash_attn_3.flash_attn_func(q, k, values, causal=causal)
            assert (o - exact).norm() / exact.norm() < bound


@pytest.mark.kernels
def test_fp8_and_its_scales():
    q, k, v = make(2, 40, 4, dtype=torch.float32), make(2, 40, 2, dtype=torch.float32), make(2, 40, 2, dtype=torch.float32)
    scales = [torch.rand(2, 2, device=DEVICE) + 0.5 for _ in range(3)]
    by_head = lambda tensor, scale: tensor.double() * scale.repeat_interleave(tensor.shape[2] // 2, 1)[:, None, :, None].double()
    fp8 = [tensor.to(torch.float8_e4m3fn) for tensor in (q, k, v)]
    exact, exact_lse = attention(*(by_head(tensor, scale) for tensor, scale in zip(fp8, scales)), causal=True)
    o, lse = flash_attn_3.flash_attn_func(*fp8, None, True, None, *scales, return_attn_probs=True)
    assert o.dtype == torch.bfloat16 and (o.double() - exact).abs().max() < 0.2
    torch.testing.assert_close(lse.double(), exact_lse, atol=5e-2, rtol=1e-2)  # it sums rounded probabilities
    assert not torch.equal(o, flash_attn_3.flash_attn_func(*fp8, None, True))
    expanded = [torch.full((1, 1), 2.0, device=DEVICE).expand(2, 2)] * 3
    assert torch.equal(flash_attn_3.flash_attn_func(*fp8, None, True, None, *expanded),
                       flash_attn_3.flash_attn_func(*fp8, None, True, None, *(scale.contiguous() for scale in expanded)))
    # per block, and per tensor
    heads_first = [tensor.transpose(1, 2) for tensor in fp8]
    for sizes in (((2, 4, 1), (2, 2, 1), (2, 2, 1)), ((1,), (1,), (1,))):
        twice = [torch.full(size, 2.0, device=DEVICE) for size in sizes]
        o = flashbook.attention(*heads_first, causal=True, q_scale=twice[0], k_scale=twice[1], v_scale=twice[2])
        exact = attention(*(tensor.double() * 2 for tensor in fp8), causal=True)[0]
        assert (o.transpose(1, 2).double() - exact).abs().max() < 0.4
    for wrong in (torch.ones(2, 4, device=DEVICE), torch.ones(2, device=DEVICE), torch.ones(2, 2, device=DEVICE).double()):
        with pytest.raises(ValueError, match="q_scale"):
            flash_attn_3.flash_attn_func(*fp8, q_descale=wrong)
    with pytest.raises(ValueError, match="float8_e4m3fn"):
        flash_attn_3.flash_attn_func(q.bfloat16(), k.bfloat16(), v.bfloat16(), q_descale=scales[0])
    for _ in range(2):  # also in a remembered call
        with pytest.raises(TypeError, match="which has no gradient"):
            flash_attn_3.flash_attn_func(fp8[0].requires_grad_(), *fp8[1:]).sum().backward()


# ---- errors precede any computation or write ----------------------------------------------------------------------------


@pytest.mark.kernels
def test_a_gradient_is_refused_in_the_forward_pass():
    wide = [torch.randn(1, 20, 2, 64, requires_grad=True) for _ in range(3)]
    by_operator = lambda: torch.ops.flashbook.forward(*(leaf.transpose(1, 2) for leaf in wide), 0.125, -1, -1, 0.0, None, None, None, False, 2, 5)
    for refused in (lambda: flashbook.attention(*wide, chapter=2), by_operator):
        with pytest.raises(TypeError, match="requires a gradient"):
            refused()
    with torch.no_grad():
        flashbook.attention(*wide, chapter=2)


@pytest.mark.kernels
@pytest.mark.parametrize("of", range(5))
def test_no_gradient_goes_through_a_cache(of):
    tensors = [make(1, 1, 2), make(1, 20, 2), make(1, 20, 2), make(1, 1, 2), make(1, 1, 2)]
    tensors[of].requires_grad_()
    for function in (flashbook.flash_attn_with_kvcache, flash_attn_3.flash_attn_with_kvcache):
        with pytest.raises(NotImplementedError, match="a cache has no gradient"):
            function(*tensors, cache_seqlens=5)
        with torch.no_grad():
            assert function(*tensors, cache_seqlens=5).isfinite().all()


@pytest.mark.kernels
@pytest.mark.parametrize("change, kind", [
    ({"softmax_scale": -1.0}, ValueError), ({"softcap": 2000.0}, ValueError), ({"s_aux": torch.zeros(3, device=DEVICE)}, ValueError),
    ({"rotary_cos": torch.zeros(2)}, ValueError), ({"cache_leftpad": torch.zeros(3, dtype=torch.int32, device=DEVICE)}, ValueError), ({"cache_seqlens": torch.zeros(3, dtype=torch.int32, device=DEVICE)}, ValueError),
    ({"cache_seqlens": torch.zeros(2, dtype=torch.int64, device=DEVICE)}, ValueError), ({"cache_seqlens": 64}, ValueError),
    ({"q": torch.zeros(2, 1, 3, 64, dtype=torch.bfloat16, device=DEVICE)}, ValueError), ({"q": torch.zeros(2, 1, 4, 64, device=DEVICE)}, ValueError),
    ({"v": torch.zeros(2, 1, 1, 64, dtype=torch.bfloat16, device=DEVICE)}, ValueError), ({"k": torch.zeros(2, 1, 2, 64, device=DEVICE)}, ValueError),
    ({"v": None}, ValueError),
    ({"block_table": torch.zeros(1, 4, dtype=torch.int32, device=DEVICE)}, ValueError), ({"rows_apart": True}, None)])


def test_a_refused_call_has_appended_nothing(change, kind):
    given = {"q": make(2, 1, 4), "k_cache": make(2, 64, 2), "v_cache": make(2, 64, 2), "k": make(2, 1, 2), "v": make(2, 1, 2),
             "cache_seqlens": torch.tensor([3, 9], dtype=torch.int32, device=DEVICE)}
    before = given["k_cache"].clone(), given["v_cache"].clone()
    if kind is None:  # the same call without the change does write
        flashbook.flash_attn_with_kvcache(**given)
        assert not torch.equal(given["k_cache"], before[0]) and not torch.equal(given["v_cache"], before[1])
        return
    with pytest.raises(kind):
        flashbook.flash_attn_with_kvcache(**given | change)
    assert torch.equal(given["k_cache"], before[0]) and torch.equal(given["v_cache"], before[1])


# ---- PyTorch's function ------------------------------------------------------------------------------------------------------------


@pytest.mark.kernels
@pytest.mark.parametrize("rows, keys", [(20, 20), (12, 30), (30, 12)])
def test_scaled_dot_product_attention(rows, keys):
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    leaves = [torch.randn(2, heads, count, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for heads, count in ((4, rows), (2, keys), (2, keys))]
    masks = [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": causal_upper_left(rows, keys)}]
    for options in masks + ([{"attn_mask": causal_lower_right(rows, keys)}] if rows <= keys else []):
        got = flashbook.scaled_dot_product_attention(*leaves, enable_gqa=True, **options)
        double = [leaf.detach().double().repeat_interleave(4 // leaf.shape[1], 1).requires_grad_() for leaf in leaves]
        plain = dict(options)
        if "attn_mask" in plain:
            plain["attn_mask"] = plain["attn_mask"]._materialize(DEVICE)
        right = torch.nn.functional.scaled_dot_product_attention(*double, **plain)
        torch.testing.assert_close(got.double(), right, atol=2e-2, rtol=2e-2)
        for one, other_ in zip(torch.autograd.grad(got.float().sum(), leaves), torch.autograd.grad(right.sum(), double)):
            summed = other_.unflatten(1, (one.shape[1], -1)).sum(2)
            torch.testing.assert_close(one.double(), summed, atol=6e-2, rtol=3e-2)
    q, k, v = (leaf.detach() for leaf in leaves)
    for kind, options, because in ((ValueError, {}, "enable_gqa"), (NotImplementedError, {"attn_mask": torch.ones(rows, keys), "enable_gqa": True}, "attn_mask"),
                                   (ValueError, {"dropout_p": 1.5, "enable_gqa": True}, "dropout_p"), (TypeError, {"is_causal": 1}, "is_causal"),
                                   (ValueError, {"attn_mask": causal_lower_right(3, 4)}, "3 queries and 4 keys"),
                                   (ValueError, {"attn_mask": causal_upper_left(rows, keys), "is_causal": True}, "both set")):
        with pytest.raises(kind, match=because):
            flashbook.scaled_dot_product_attention(q, k, v, **options)


# ---- which kernel ------------------------------------------------------------------------------------------------------------------


@pytest.mark.kernels
def test_explain():
    """explain reports the choice and runs nothing: outputs are not computed, caches are not written, and no call is remembered."""
    q, k, v = (make(2, 20, heads) for heads in (4, 2, 2))
    first = torch.tensor([0, 20], device=DEVICE, dtype=torch.int32)
    choice = lambda *arguments, **options: (lambda found: (found.operation, found.chapter, found.step))(flashbook.explain(*arguments, **options))
    assert choice(flashbook.flash_attn_func, q, k, v) == choice(flash_attn_3.flash_attn_func, q, k, v) == ("forward", 5, "persistent")
    assert choice(flashbook.flash_attn_func, q, k, v, window_size=(3, 0)) == ("forward", 9, "ranges")
    assert choice(flashbook.flash_attn_func, q, k, v, softcap=3.0) == choice(flashbook.flash_attn_func, q, k, v, 0.1) == ("forward", 9, "mask_functions")
    assert choice(flashbook.flash_attn_varlen_func, q[0], k[0], v[0], first, first, 20, 20) == ("forward", 9, "varlen")
    assert choice(flashbook.attention, *(tensor.transpose(1, 2) for tensor in (q, k, v)), chapter=5, step="specialised") == ("forward", 5, "specialised")
    fp8 = [tensor.to(torch.float8_e4m3fn) for tensor in (q, k, v)]
    assert choice(flash_attn_3.flash_attn_func, *fp8) == ("forward", 6, "promoted_sums")
    scale = torch.ones(2, 2, 1, device=DEVICE)
    assert choice(flashbook.attention, *(tensor.transpose(1, 2) for tensor in fp8), k_scale=scale, v_scale=scale) == ("forward", 6, "promoted_sums")

    before, new = k.clone(), make(2, 1, 2)
    found = flashbook.explain(flashbook.flash_attn_with_kvcache, q[:, :1], k, v, new, new, cache_seqlens=7)
    assert (found.operation, found.chapter, found.step, found.copied, found.backward) == ("decode", 8, "boxes", (), None) and torch.equal(k, before)
    table_ = torch.arange(2, device=DEVICE, dtype=torch.int32)[:, None]
    flashbook.explain(flashbook.flash_attn_with_kvcache, q[:, :1], make(2, 32, 2), make(2, 32, 2), new, new, cache_seqlens=7, block_table=table_)
    assert choice(flashbook.flash_attn_with_kvcache, make(2, 40, 4), k, v, cache_seqlens=7, causal=True) == ("decode", 8, "warpgroup")  # 80 rows
    heads_first = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (k, v)]
    assert choice(flashbook.flash_attn_with_kvcache, q[:, :8], *heads_first, cache_seqlens=9) == ("decode", 8, "equal_work")
    assert choice(flashbook.flash_attn_with_kvcache, q[:, :9], *heads_first, cache_seqlens=9) == ("decode", 8, "warpgroup")
    one_query = [choice(flashbook.flash_attn_func, q[:, :1], *keys) for keys in ((k, v), heads_first)]
    assert one_query == [("forward", 8, "boxes"), ("forward", 8, "equal_work")]
    long = make(2, 400, 4)
    assert choice(flashbook.flash_attn_with_kvcache, long, k, v, cache_seqlens=7, causal=True) == ("decode", 9, "prompts")
    assert choice(flashbook.flash_attn_with_kvcache, long, k, v, cache_seqlens=7, softcap=3.0) == ("decode", 8, "warpgroup")
    for rows, chapter in ((4, 8), (8, 9)):  # rows per page
        pages = torch.arange(2 * 5, device=DEVICE, dtype=torch.int32).view(2, 5)
        found = flashbook.explain(flashbook.flash_attn_with_kvcache, long, make(10, rows, 2), make(10, rows, 2), cache_seqlens=7, block_table=pages)
        assert found.chapter == chapter

    for options, backward in (({}, (7, "persistent")), ({"deterministic": True}, (7, "deterministic")), ({"window_size": (3, 0)}, (9, "backward")),
                              ({"window_size": (3, 0), "deterministic": True}, (9, "deterministic")), ({"dropout_p": 0.1}, (9, "backward"))):
        found = flashbook.explain(flashbook.flash_attn_func, q.clone().requires_grad_(), k, v, **options)
        assert found.backward is not None and (found.backward.chapter, found.backward.step) == backward
        assert found.backward.workspace > 0 and str(found).count("\n") == 1
    odd = torch.cat([k, k[..., :1]], 3)[..., :64]
    found = flashbook.explain(flashbook.flash_attn_func, q, odd, v)
    assert found.copied == ("k",) and "copies of k" in str(found) and found.machine in str(found) and found.reason in str(found)
    with pytest.raises(ValueError, match="head_dim"):
        flashbook.explain(flashbook.flash_attn_func, *(tensor.repeat(1, 1, 1, 5) for tensor in (q, k, v)))
    with pytest.raises(ValueError, match="calls no kernel"):
        flashbook.explain(torch.add, q, q)
    size = len(interface._cached_calls)
    flashbook.explain(flashbook.flash_attn_func, q, k, v, softmax_scale=0.77)
    assert len(interface._cached_calls) == size


def test_explain_on_the_host():
    q = torch.randn(1, 10, 2, 64)
    found = flashbook.explain(flashbook.flash_attn_func, q, q, q)
    assert (found.chapter, found.machine, found.copied) == (2, "CPU", ("q", "k", "v"))


def test_the_choice_without_a_machine():
    """Before and after Hopper, calls use chapter 4, and whatever needs the Hopper chapters raises an error."""
    half = torch.bfloat16
    kind = lambda **changed: ops.choose(**{"on_cpu": False, "hopper": True, "dtype": half, "queries": 9, "masked": False, "functions": False,
                                           "packed": False, "padded": False} | changed)[:2]
    assert kind() == (5, "persistent") and kind(queries=1) == (8, "equal_work")
    assert kind(hopper=False) == kind(hopper=False, queries=1) == (4, "late_maximum")
    assert kind(masked=True) == (9, "ranges") and kind(masked=True, packed=True) == (9, "varlen") and kind(masked=True, functions=True) == (9, "mask_functions")
    assert kind(dtype=torch.float8_e4m3fn) == (6, "promoted_sums")
    assert kind(padded=True, queries=1) == kind(padded=True, hopper=False) == (5, "persistent") and kind(padded=True, masked=True) == (9, "ranges")
    page = PAGE.read_text(encoding="utf-8").partition("A call takes the first row that fits:")[2].partition("\n\nIn FP8")[0]
    rows = [(int(chapter), step) for chapter, step in re.findall(r"\| (\d), `(\w+)`", page)]
    chosen = [kind(masked=True, functions=True), kind(masked=True, packed=True), kind(masked=True), kind(dtype=torch.float8_e4m3fn), kind(padded=True),
              (2, "register_blocks"), kind(hopper=False), kind(queries=1), kind()]
    assert rows == chosen


def test_the_choice_against_a_cache():
    kind = lambda rows, contiguous=False, page_rows=0, **of: ops.choose_decode(rows, contiguous, page_rows, of.get("e4m3", False), of.get("prompt", False))[:2]
    assert kind(16) == kind(1, page_rows=16) == (8, "boxes") and kind(16, True) == kind(4, True, 4) == (8, "equal_work")
    assert kind(17) == kind(17, True) == kind(64, page_rows=8) == (8, "warpgroup") and kind(17, page_rows=4) == kind(17, True, 4) == (8, "boxes")
    assert kind(512, prompt=True) == (9, "prompts") and kind(4, e4m3=True) == (8, "e4m3_cache")


def test_what_only_hopper_has(monkeypatch):
    monkeypatch.setattr(ops, "is_hopper", lambda device: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    ampere = torch.device("cuda:0")
    for chapter in (5, 6, 7, 8, 9):
        with pytest.raises(NotImplementedError, match=r"needs Hopper, and cuda:0 has compute capability 8\.0"):
            ops.check_machine(ampere, chapter)


def test_the_version_says_for_which_machine():
    version = pytest.importorskip("flashbook._version", reason="a checkout, not a wheel").__version__
    assert version == flashbook.__version__ == importlib.metadata.version("flashbook")
    assert re.fullmatch(r"[\d.]+\+sim" if _library.is_simulated() else r"[\d.]+\+cu\d+", version)


def test_every_public_name_is_documented():
    for name, module in itertools.chain(((name, flashbook) for name in flashbook.__all__), ((name, flash_attn_3) for name in SIGNATURES[flash_attn_3])):
        assert getattr(module, name).__doc__, name
