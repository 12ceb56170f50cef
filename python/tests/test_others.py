"""What others' tests may be refused for stands in the page's tables, and is what the package says."""

import pathlib
import re
import sys

import pytest
import torch
from conftest import DEVICE

import flashbook
from flashbook import flash_attn_3

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "others"))
import of_flashinfer as theirs
from refusals import OF_FLASHINFER, REFUSALS, refusal_of

PAGE = HERE.parents[1] / "docs" / "pages" / "in_pytorch.md"


def test_refusals_of_flashinfers_tests_are_in_their_table():
    section = PAGE.read_text().partition("## FlashInfer's tests")[2].partition("\n## ")[0]
    named = {name for cell in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}
    for refusal in OF_FLASHINFER:
        assert refusal.arguments and named.issuperset(refusal.arguments), refusal
    assert set(theirs.WANTED) <= named
    assert len({refusal.name for refusal in OF_FLASHINFER}) == len(OF_FLASHINFER)


def test_refusals_are_in_the_tables():
    section = PAGE.read_text().partition("## Every argument of FlashAttention")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE) + re.findall(r"Its .* (?:is|are) not here", section)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    for refusal in REFUSALS:
        assert refusal.arguments and named.issuperset(refusal.arguments), refusal
    assert len({refusal.name for refusal in REFUSALS}) == len(REFUSALS)


def make(heads=2, rows=40, head_dim=64, dtype=torch.bfloat16, grad=False):
    return torch.randn(2, rows, heads, head_dim, device=DEVICE).to(dtype).requires_grad_(grad)


def slopes(*sizes):
    return torch.ones(*sizes, device=DEVICE)


def lengths(count=2):
    return torch.full((count,), 20, device=DEVICE, dtype=torch.int32)


CALLS = {
    "the probabilities that dropout left": lambda: flashbook.flash_attn_func(make(), make(), make(), 0.17, return_attn_probs=True),
    "dropout beside a function on scores": lambda: flashbook.flash_attn_func(make(), make(), make(), 0.17, softcap=3.0),
    "a cache in float8_e4m3fn of a head dimension that chapter 8 does not pad":
        lambda: flash_attn_3.flash_attn_with_kvcache(make(head_dim=80), *(make(head_dim=80, dtype=torch.float8_e4m3fn) for _ in range(2)), cache_seqlens=lengths()),
    "new keys beside a cache in float8_e4m3fn":
        lambda: flash_attn_3.flash_attn_with_kvcache(make(), *(make(dtype=torch.float8_e4m3fn) for _ in range(2)), make(rows=1), make(rows=1), cache_seqlens=lengths()),
    "keys and values of different head dimensions": lambda: flashbook.flash_attn_func(make(), make(), make(head_dim=128)),
    "float8_e4m3fn under a mask, or packed":
        lambda: flash_attn_3.flash_attn_func(*(make(dtype=torch.float8_e4m3fn) for _ in range(3)), window_size=(3, 0)),
    "float8_e4m3fn of a head dimension that chapter 6 does not pad":
        lambda: flash_attn_3.flash_attn_func(*(make(head_dim=96, dtype=torch.float8_e4m3fn) for _ in range(3))),
    "pages of other sizes":
        lambda: flashbook.flash_attn_with_kvcache(make(), *(make(rows=24) for _ in range(2)), cache_seqlens=lengths(),
                                                  block_table=torch.zeros(2, 2, device=DEVICE, dtype=torch.int32)),
    "a gradient through pages": lambda: flashbook.flash_attn_with_kvcache(make(grad=True), make(), make(), cache_seqlens=lengths()),
    "a second product in the scores": lambda: flash_attn_3.flash_attn_func(make(), make(), make(), qv=make()),
    "chunks": lambda: flash_attn_3.flash_attn_func(make(), make(), make(), attention_chunk=4),
    "sequences that end before their place does":
        lambda: flash_attn_3.flash_attn_varlen_func(*(make()[0] for _ in range(3)), lengths(), lengths(), 20, 20, seqused_q=lengths(1)),
    "packed new keys, or packed queries beside new keys":
        lambda: flash_attn_3.flash_attn_with_kvcache(make(), make(), make(), make(rows=1), make(rows=1), cache_seqlens=lengths(), cu_seqlens_q=lengths(3)),
    "paddings beside pages":
        lambda: flash_attn_3.flash_attn_with_kvcache(make(), *(make(rows=16) for _ in range(2)), cache_seqlens=lengths(), cache_leftpad=lengths(),
                                                     page_table=torch.zeros(2, 2, device=DEVICE, dtype=torch.int32)),
    "packed queries against a cache without pages":
        lambda: flash_attn_3.flash_attn_with_kvcache(make()[0], make(), make(), cache_seqlens=lengths(), cu_seqlens_q=lengths(3), max_seqlen_q=20),
    "queries in float8_e4m3fn against a cache":
        lambda: flash_attn_3.flash_attn_with_kvcache(*(make(dtype=torch.float8_e4m3fn) for _ in range(3)), cache_seqlens=lengths()),
    "multiprocessors left free": lambda: flash_attn_3.flash_attn_func(make(), make(), make(), sm_margin=3),
    "scales of packed sequences and caches":
        lambda: flash_attn_3.flash_attn_with_kvcache(make(), make(), make(), cache_seqlens=lengths(), q_descale=slopes(2, 2)),
}


@pytest.mark.kernels
@pytest.mark.parametrize("refusal", [of for of in REFUSALS if of.name != "functions that are not here"], ids=lambda refusal: refusal.name)
def test_refusals_say_so(refusal):
    with pytest.raises(refusal.kind) as caught:
        CALLS[refusal.name]()
    assert refusal_of(caught.value) is refusal, caught.value


def test_other_errors_are_no_refusals():
    for error in (ValueError("head_dim is 64: nothing is wrong with that"), RuntimeError("dropout_p is 0.1 beside softcap"),
                  AssertionError("a wrong result"), NotImplementedError("")):
        assert refusal_of(error) is None


# ---- FlashInfer's names ------------------------------------------------------------------------------------------------------------


def indices(*values):
    return torch.tensor(values, device=DEVICE, dtype=torch.int32)


def prompts(**options):
    wrapper = theirs.BatchPrefillWithRaggedKVCacheWrapper(torch.empty(1, device=DEVICE), **options.pop("wrapper", {}))
    given = {"head_dim_qk": 64, **options.pop("plan", {})}
    wrapper.plan(indices(0, 3, 40), indices(0, 30, 40), 2, 2, **given)
    return wrapper.run(*(make()[0] for _ in range(3)), **options)


def decoding(page_size=8, dtype=torch.bfloat16, cache=torch.bfloat16):
    wrapper = theirs.BatchDecodeWithPagedKVCacheWrapper(torch.empty(1, device=DEVICE))
    wrapper.plan(indices(0, 2), indices(1, 0), indices(3), 2, 2, 64, page_size)
    return wrapper.run(make(dtype=dtype)[0, :1], torch.zeros(2, 2, page_size, 2, 64, device=DEVICE).to(cache))


CALLS_OF_FLASHINFER = {
    "rotary embedding beside attention": lambda: prompts(plan={"pos_encoding_mode": "ROPE_LLAMA"}),
    "ALiBi without a causal mask, or its log-sum-exp": lambda: prompts(plan={"pos_encoding_mode": "ALIBI"}),
    "a mask by pairs": lambda: prompts(plan={"custom_mask": torch.ones(3, device=DEVICE, dtype=torch.bool)}),
    "a plan within a CUDA graph": lambda: prompts(wrapper={"use_cuda_graph": True}),
    "how keys are split": lambda: prompts(plan={"fixed_split_size": 2048}),
    "several items in a sequence": lambda: prompts(plan={"token_pos_in_items_len": 3}),
    "variants compiled at run time": lambda: prompts(wrapper={"jit_args": ["x"]}),
    "other backends": lambda: prompts(wrapper={"backend": "trtllm-gen"}),
    "keys of other types": lambda: decoding(cache=torch.float8_e5m2),
    "values of another head dimension": lambda: prompts(plan={"head_dim_vo": 128}),
    "head dimensions above 256": lambda: theirs.single_prefill_with_kv_cache(*(make(head_dim=512)[0] for _ in range(3))),
    "pages of other sizes": lambda: decoding(page_size=5),
    "scales in a tensor": lambda: prompts(k_scale=slopes(2)),
    "FlashInfer's other arguments": lambda: prompts(plan={"v_indptr": indices(0, 30, 40)}),
    "functions that are not here": lambda: theirs.NotHere("flashinfer.merge_state")(1),
}


@pytest.mark.kernels
@pytest.mark.parametrize("refusal", OF_FLASHINFER, ids=lambda refusal: refusal.name)
def test_refusals_of_flashinfers_calls_say_so(refusal):
    with pytest.raises(refusal.kind) as caught:
        CALLS_OF_FLASHINFER[refusal.name]()
    assert refusal_of(caught.value, OF_FLASHINFER) is refusal, caught.value


@pytest.mark.kernels
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("options", [{}, {"window_left": 9}, {"logits_soft_cap": 2.0, "sm_scale": 0.3}, {"pos_encoding_mode": "ALIBI"}], ids=str)
def test_wrappers_are_attention(layout, options):
    """Of every sequence by itself, whatever pages it has: decoding, prompts against pages, packed prompts, and single sequences."""
    from reference import attention

    heads, d, rows, lengths = 4, 64, 8, [19, 8, 1]
    pages = [-(-length // rows) for length in lengths]
    cache = torch.randn(sum(pages) + 2, 2, rows, 2, d, device=DEVICE, dtype=torch.bfloat16)
    order = torch.randperm(sum(pages) + 2, device=DEVICE)[:sum(pages)].int()
    first = [0, *(sum(pages[:i + 1]) for i in range(3))]
    k, v = ([cache[order[first[i]:first[i + 1]].long(), which].flatten(0, 1)[:length] for i, length in enumerate(lengths)] for which in (0, 1))
    given = cache.transpose(2, 3).contiguous() if layout == "HND" else cache
    last = indices(*((length - 1) % rows + 1 for length in lengths))
    slopes_ = torch.tensor([2.0 ** -(2 * (head + 1)) for head in range(heads)], device=DEVICE) if "pos_encoding_mode" in options else None
    with_lse = slopes_ is None
    exact = {"scale": options.get("sm_scale"), "softcap": options.get("logits_soft_cap", 0.0), "window": (options.get("window_left", -1), -1), "slopes": slopes_}

    def held(found, q, k, v, causal):
        o, lse = found if with_lse else (found, None)
        right, of_lse = attention(*(tensor[None].double() for tensor in (q, k, v)), causal=causal, **exact)
        torch.testing.assert_close(o.double(), right[0], atol=2e-2, rtol=2e-2)
        if lse is not None:
            torch.testing.assert_close(lse.double(), of_lse[0].T / torch.log(torch.tensor(2.0)).item(), atol=2e-2, rtol=1e-3)

    workspace = torch.empty(1, device=DEVICE)
    decode, prefill, ragged = (kind(workspace, layout) for kind in (theirs.BatchDecodeWithPagedKVCacheWrapper, theirs.BatchPrefillWithPagedKVCacheWrapper,
                                                                    theirs.BatchPrefillWithRaggedKVCacheWrapper))
    sizes, first_q = (heads, 2, d, rows), indices(0, 3, 4, 5)
    decode.plan(indices(*first), order, last, *sizes, **options)
    prefill.plan(first_q, indices(*first), order, last, *sizes, causal=True, **options)
    ragged.plan(first_q, indices(0, 19, 27, 28), *sizes[:3], causal=True, **options)
    q = torch.randn(5, heads, d, device=DEVICE, dtype=torch.bfloat16)
    packed = [torch.cat(tensors) for tensors in (k, v)]
    packed = [tensor.transpose(0, 1).contiguous() if layout == "HND" else tensor for tensor in packed]
    cut = lambda found, rows_: tuple(tensor[rows_] for tensor in found) if with_lse else found[rows_]
    one, by_pages, by_rows = decode.run(q[:3], given, return_lse=with_lse), prefill.run(q, given, return_lse=with_lse), ragged.run(q, *packed, return_lse=with_lse)
    for i, at in enumerate((slice(0, 3), slice(3, 4), slice(4, 5))):
        held(cut(one, slice(i, i + 1)), q[i:i + 1], k[i], v[i], False)
        held(cut(by_pages, at), q[at], k[i], v[i], True)
        held(cut(by_rows, at), q[at], k[i], v[i], True)
        held(theirs.single_prefill_with_kv_cache(q[at], k[i], v[i], causal=True, return_lse=with_lse, **options), q[at], k[i], v[i], True)
    single = theirs.single_decode_with_kv_cache(q[0], k[0], v[0], return_lse=with_lse, **options)
    held(tuple(of[None] for of in single) if with_lse else single[None], q[:1], k[0], v[0], False)
    out, lse = torch.empty_like(q), torch.empty(5, heads, device=DEVICE)
    prefill.run(q, given, out=out, lse=lse, v_scale=2.0)
    torch.testing.assert_close(out, 2 * (by_pages[0] if with_lse else by_pages))
