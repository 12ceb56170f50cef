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
from refusals import REFUSALS, refusal_of

PAGE = HERE.parents[1] / "docs" / "pages" / "in_pytorch.md"


def test_refusals_are_in_the_tables():
    section = PAGE.read_text().partition("## Every argument of FlashAttention")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE) + re.findall(r"Its .* are not here", section)
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
    "dropout": lambda: flashbook.flash_attn_func(make(), make(), make(), 0.17),
    "a head dimension that is no multiple of 8": lambda: flashbook.flash_attn_func(*(make(head_dim=59) for _ in range(3))),
    "a head dimension that chapter 8 does not pad":
        lambda: flashbook.flash_attn_with_kvcache(*(make(head_dim=80) for _ in range(3)), cache_seqlens=lengths()),
    "keys and values of different head dimensions": lambda: flashbook.flash_attn_func(make(), make(), make(head_dim=128)),
    "slopes by batch entry": lambda: flashbook.flash_attn_func(make(), make(), make(), alibi_slopes=slopes(2, 2)),
    "float8_e4m3fn under a mask, or packed":
        lambda: flash_attn_3.flash_attn_func(*(make(dtype=torch.float8_e4m3fn) for _ in range(3)), window_size=(3, 0)),
    "float8_e4m3fn of a head dimension that chapter 6 does not pad":
        lambda: flash_attn_3.flash_attn_func(*(make(head_dim=96, dtype=torch.float8_e4m3fn) for _ in range(3))),
    "pages of other sizes":
        lambda: flashbook.flash_attn_with_kvcache(make(), *(make(rows=24) for _ in range(2)), cache_seqlens=lengths(),
                                                  block_table=torch.zeros(2, 2, device=DEVICE, dtype=torch.int32)),
    "a second product in the scores": lambda: flash_attn_3.flash_attn_func(make(), make(), make(), qv=make()),
    "chunks": lambda: flash_attn_3.flash_attn_func(make(), make(), make(), attention_chunk=4),
    "sequences that end before their place does":
        lambda: flash_attn_3.flash_attn_varlen_func(*(make()[0] for _ in range(3)), lengths(), lengths(), 20, 20, seqused_q=lengths(1)),
    "packed new keys, or packed queries beside new keys":
        lambda: flash_attn_3.flash_attn_with_kvcache(make(), make(), make(), make(rows=1), make(rows=1), cache_seqlens=lengths(), cu_seqlens_q=lengths(3)),
    "a plan made beforehand":
        lambda: flash_attn_3.flash_attn_with_kvcache(make(), make(), make(), cache_seqlens=lengths(), scheduler_metadata=lengths()),
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
    for error in (ValueError("head_dim is 64: nothing is wrong with that"), RuntimeError("dropout_p is 0.1: has no gradient of that"),
                  AssertionError("a wrong result"), NotImplementedError("")):
        assert refusal_of(error) is None
