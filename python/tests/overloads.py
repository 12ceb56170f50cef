"""The overloads as type checkers see them: mypy checks this file, which is never run."""

import torch
from torch import Tensor
from typing_extensions import assert_type

import flashbook
from flashbook import flash_attn_3

q = k = v = qkv = kv = first = torch.empty(0)
flag = bool(input())

assert_type(flashbook.attention(q, k, v), Tensor)
assert_type(flashbook.attention(q, k, v, 5, 3, return_lse=True), tuple[Tensor, Tensor])
assert_type(flashbook.attention(q, k, v, return_lse=flag), Tensor | tuple[Tensor, Tensor])
assert_type(flashbook.attention(q, k, v, bias=first), Tensor)
assert_type(flashbook.flash_attn_func(q, k, v, 0.0, None, True), Tensor)
assert_type(flashbook.flash_attn_func(q, k, v, return_attn_probs=True), tuple[Tensor, Tensor, None])
assert_type(flashbook.flash_attn_func(q, k, v, return_attn_probs=flag), Tensor | tuple[Tensor, Tensor, None])
assert_type(flashbook.flash_attn_qkvpacked_func(qkv, return_attn_probs=True), tuple[Tensor, Tensor, None])
assert_type(flashbook.flash_attn_kvpacked_func(q, kv, return_attn_probs=True), tuple[Tensor, Tensor, None])
assert_type(flashbook.flash_attn_varlen_func(q, k, v, first, first, 1, 1), Tensor)
assert_type(flashbook.flash_attn_varlen_func(q, k, v, first, first, 1, 1, return_attn_probs=True), tuple[Tensor, Tensor, None])
assert_type(flashbook.flash_attn_varlen_qkvpacked_func(qkv, first, 1, return_attn_probs=True), tuple[Tensor, Tensor, None])
assert_type(flashbook.flash_attn_varlen_kvpacked_func(q, kv, first, first, 1, 1, return_attn_probs=True), tuple[Tensor, Tensor, None])
assert_type(flashbook.flash_attn_with_kvcache(q, k, v, cache_seqlens=3), Tensor)
assert_type(flashbook.flash_attn_with_kvcache(q, k, v, return_softmax_lse=True), tuple[Tensor, Tensor])
assert_type(flashbook.scaled_dot_product_attention(q, k, v, is_causal=True), Tensor)
assert_type(flashbook.explain(flashbook.flash_attn_func, q, k, v).backward, flashbook.Explanation | None)
assert_type(flash_attn_3.flash_attn_func(q, k, v, None, True), Tensor)
assert_type(flash_attn_3.flash_attn_func(q, k, v, return_attn_probs=True), tuple[Tensor, Tensor])
assert_type(flash_attn_3.flash_attn_qkvpacked_func(qkv, return_attn_probs=True), tuple[Tensor, Tensor])
assert_type(flash_attn_3.flash_attn_varlen_func(q, k, v, first, first, 1, 1, return_attn_probs=flag), Tensor | tuple[Tensor, Tensor])
assert_type(flash_attn_3.flash_attn_with_kvcache(q, k, v, return_softmax_lse=True), tuple[Tensor, Tensor])
flashbook.flash_attn_func(q, k, v, 0.0, None, "yes")  # type: ignore[call-overload]
flash_attn_3.flash_attn_func(q, k, v, causal=None)  # type: ignore[call-overload]
