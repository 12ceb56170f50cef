"""Compares sparse latent attention with float64."""

import math

import pytest
import torch
from conftest import DEVICE

import flashbook
from flashbook import flash_mla


def in_e4m3(latents):
    """Returns latents, [rows, 576], as 656 bytes per row, and the values that these represent."""
    groups = latents[:, :512].float().unflatten(1, (4, 128))
    scales = torch.exp2(torch.ceil(torch.log2(groups.abs().amax(2) / 448)))
    encoded = (groups / scales[..., None]).to(torch.float8_e4m3fn)
    parts = encoded.flatten(1), scales, latents[:, 512:].contiguous()
    values = torch.cat([(encoded.float() * scales[..., None]).flatten(1), latents[:, 512:].float()], 1)
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts], 1), values.to(torch.bfloat16)


def expected(q, latents, indices, scale):
    """Returns O, [tokens, heads, 512], and the log-sum-exp, in float64."""
    outputs = []
    for query, row in zip(q.double(), indices.tolist()):
        rows = latents.double()[[key for key in row if 0 <= key < len(latents)]]
        scores = query @ rows.T * scale
        outputs.append((scores.softmax(-1) @ rows[:, :512], scores.logsumexp(-1)))
    return tuple(map(torch.stack, zip(*outputs)))


def make(tokens, heads, rows, count):
    q, latents = (torch.randn(*size, 576, device=DEVICE).to(torch.bfloat16) for size in ((tokens, heads), (rows,)))
    indices = torch.randint(-1, rows + 1, (tokens, count), device=DEVICE, dtype=torch.int32)  # -1 and `rows` are no keys
    indices[0] = -1  # a list without keys
    return q, latents, indices


def check(got, want):
    for one, other, tolerance in zip(got, want, (2e-2, 5e-3)):
        torch.testing.assert_close(one.double(), other, atol=tolerance, rtol=tolerance)


@pytest.mark.kernels
@pytest.mark.parametrize("heads", [8, 64])
def test_prefill_and_decoding(heads):
    q, latents, indices = make(4, heads, 256, 150)
    o, maxima, lse = flash_mla.flash_mla_sparse_fwd(q, latents[:, None], indices[:, None], 0.04)
    assert maxima is None
    check((o, lse), expected(q, latents, indices, 0.04))
    rows, values = in_e4m3(latents)
    pages = torch.zeros(4, 65, 1, 656, dtype=torch.uint8, device=DEVICE)[:, :64]  # as FlashMLA's tests allocate them, with a gap
    pages.copy_(rows.view(4, 64, 1, 656))
    for cache in (pages, pages.contiguous()):
        o, lse = flash_mla.flash_mla_with_kvcache(q.view(2, 2, heads, 576), cache, None, None, 512, None, None, 0.04, is_fp8_kvcache=True,
                                                  indices=indices.view(2, 2, -1))
        check((o.flatten(0, 1), lse.transpose(1, 2).flatten(0, 1)), expected(q, values, indices, 0.04))


def test_says_what_it_would_run_and_what_is_wrong():
    q, latents, indices = make(2, 8, 64, 10)
    explained = flashbook.explain(flashbook.sparse_latent_attention, q, latents, indices)
    assert (explained.chapter, explained.step, explained.copied) == (8, "sparse_prefill", ())
    assert flashbook.explain(flashbook.sparse_latent_attention, q, in_e4m3(latents)[0], indices).step == "sparse_decode"
    with pytest.raises(ValueError, match=r"indices is \(1, 10\): pass \(2, count\)"):
        flashbook.sparse_latent_attention(q, latents, indices[:1])
    with pytest.raises(ValueError, match="pass bfloat16 with 576 columns, or 656 bytes per row"):
        flashbook.sparse_latent_attention(q, latents[:, :512], indices)
    with pytest.raises(NotImplementedError, match="attn_sink is not supported"):
        flash_mla.flash_mla_sparse_fwd(q, latents[:, None], indices[:, None], 1.0, attn_sink=torch.zeros(8))
    with pytest.raises(ValueError, match="sm_scale is inf"):
        flashbook.sparse_latent_attention(q, latents, indices, math.inf)
