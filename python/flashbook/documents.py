"""Chunks of sequences, by the kernels for packed sequences.

A chunk is a document of its own: its last query has the position of its last key, as in the whole sequence, so causal masks and windows mean the
same within it. Queries that see no key become documents without keys, which gives them an output and a gradient of 0.
"""

from typing import Any

import torch
from torch import Tensor

from flashbook import arguments, interface, ops


def split(first_query: Tensor, first_key: Tensor, chunk: int, max_keys: int) -> tuple[Tensor, Tensor]:
    """Returns where the documents' queries and keys begin. No value is read, since that would wait for the device.

    Args:
        first_query, first_key: [sequences + 1], int32: where each sequence begins
        chunk: number of positions per chunk. Key i of a sequence has position i, query i has position i + keys - queries
        max_keys: at least the number of keys of the longest sequence
    """
    queries, keys = first_query.diff()[:, None], first_key.diff()[:, None]
    begin = torch.zeros_like(queries)
    chunk = min(chunk, max(max_keys, 1))  # so that multiples fit into 32 bits
    multiples = torch.arange(0, max_keys + chunk, chunk, dtype=torch.int32, device=first_key.device)
    query_cuts = [begin, (multiples - (keys - queries)).clamp(begin, queries)]
    key_cuts = [begin, torch.minimum(multiples, keys)]
    return _absolute(first_query, query_cuts), _absolute(first_key, key_cuts)


def _absolute(first: Tensor, cuts: list[Tensor]) -> Tensor:
    return torch.cat([(first[:-1, None] + torch.cat(cuts, 1)).flatten(), first[-1:]])


def attend_packed(q: Tensor, k: Tensor, v: Tensor, first_query: Tensor, first_key: Tensor, max_keys: int, chunk: int,
                  *options: Any) -> tuple[Tensor, Tensor]:
    """interface.attend_packed for chunks of the sequences; `options` are its arguments from softmax_scale on."""
    arguments.tensors(1, "[sequences + 1]", cu_seqlens_q=first_query, cu_seqlens_k=first_key)
    ops.check_arrays(q, None, first_query, first_key)
    max_keys = min(arguments.whole_number("max_seqlen_k", max_keys), k.shape[0])
    return interface.attend_packed(q, k, v, *split(first_query, first_key, chunk, max_keys), *options)


def attend(q: Tensor, k: Tensor, v: Tensor, chunk: int, *options: Any) -> tuple[Tensor, Tensor]:
    """The same for tensors [batch, seqlen, heads, head_dim]."""
    ops.check_tensors(*ops.as_padded(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)))
    first_query, first_key = (torch.arange(len(q) + 1, dtype=torch.int32, device=q.device) * tensor.shape[1] for tensor in (q, k))
    o, lse = attend_packed(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), first_query, first_key, k.shape[1], chunk, *options)
    return o.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1).contiguous()
