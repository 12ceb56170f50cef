"""Reference attention in plain PyTorch, in the type of its inputs. Tensors are [batch, seqlen, heads, head_dim], as in FlashAttention."""

import math

import torch


def visible(seqlen_q, seqlen_k, causal=False, window=(-1, -1), device="cpu", chunk=0):
    """Returns [seqlen_q, seqlen_k]: the visible keys of each query, aligned to the bottom right."""
    key, query = torch.arange(seqlen_k, device=device), torch.arange(seqlen_q, device=device)[:, None] + (seqlen_k - seqlen_q)
    distance = key - query
    left, right = window[0], 0 if causal else window[1]
    found = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool, device=device)
    if left >= 0:
        found &= distance >= -left
    if right >= 0:
        found &= distance <= right
    if chunk:
        found &= key // chunk == query // chunk
    return found


def attention(q, k, v, causal=False, window=(-1, -1), softcap=0.0, scale=None, slopes=None, sinks=None, document=None, kept=None, bias=None,
              chunk=0):
    """Returns O and the log-sum-exp, [batch, heads, seqlen_q], which are 0 and -inf for a row that sees no key. A sink is a score without a key.
    `document`, [seqlen], is each token's document; `kept` is dropout's factor for each probability; `bias` is indexed by distance."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)))
    scores = q * (scale or 1 / math.sqrt(q.shape[-1])) @ k.mT
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(k.shape[2], device=q.device) - torch.arange(q.shape[2], device=q.device)[:, None] - (k.shape[2] - q.shape[2])
    if slopes is not None:
        scores = scores - slopes.to(scores.dtype)[:, None, None] * distance.abs()
    if bias is not None:
        reach = bias.shape[1] // 2
        scores = scores + bias.to(scores.dtype)[:, distance.clamp(-reach, reach) + reach]
    seen = visible(q.shape[2], k.shape[2], causal, window, q.device, chunk)
    if document is not None:
        seen &= document[:, None] == document
    empty = ~seen.any(-1)[:, None]
    if sinks is not None:
        column = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
        all_scores = torch.cat([scores.masked_fill(~seen, -math.inf), column], -1)
        return (all_scores.softmax(-1)[..., :-1].nan_to_num(0) @ v).transpose(1, 2), all_scores.logsumexp(-1)
    lse = scores.masked_fill(~seen, -math.inf).logsumexp(-1)
    p = scores.masked_fill(~seen & ~empty, -math.inf).softmax(-1).masked_fill(empty, 0)
    p = p if kept is None else p * kept.to(p.dtype)
    return (p @ v).transpose(1, 2), lse


def assert_as_good_as_plain(got, exact, plain, factor=2, floor=1e-5):
    """Checks FlashAttention's rule: the largest error is at most `factor` times that of plain attention in the same type, plus a small floor."""
    assert got.shape == exact.shape and not got.isnan().any()
    error, allowed = (of.abs().max().item() if exact.numel() else 0.0 for of in (got.double() - exact, plain.double() - exact))
    assert error <= factor * allowed + floor, f"error {error:.2e}, plain attention's {allowed:.2e}"
