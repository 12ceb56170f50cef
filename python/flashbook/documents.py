"""Chunks and unused rows of sequences, by the kernels for packed sequences.

A chunk is a document of its own: its last query has the position of its last key, as in the whole sequence, so causal masks and windows mean the
same within it. Queries that see no key become documents without keys, and unused keys become documents without queries, which gives them an output
and gradients of 0.
"""

from typing import Any

import torch
from torch import Tensor

from flashbook import arguments, interface, ops


def split(first_query: Tensor, first_key: Tensor, chunk: int, max_keys: int, seqused_q: Tensor | None = None,
          seqused_k: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns where the documents' queries and keys begin. No value is read, since that would wait for the device.

    Args:
        first_query, first_key: [sequences + 1], int32: where each sequence begins
        chunk: number of positions per chunk; 0: no chunks. Key i of a sequence has position i, query i has position i + keys - queries
        max_keys: with chunks, at least the number of keys of the longest sequence
        seqused_q, seqused_k: [sequences], int32: the numbers of leading queries and keys that are used; default: all
    """
    every_query, every_key = first_query.diff()[:, None], first_key.diff()[:, None]
    begin = torch.zeros_like(every_query)
    queries = every_query if seqused_q is None else seqused_q[:, None].clamp(begin, every_query)
    keys = every_key if seqused_k is None else seqused_k[:, None].clamp(begin, every_key)
    query_cuts, key_cuts = [begin, queries], [begin, keys]
    if chunk:
        chunk = min(chunk, max(max_keys, 1))  # so that multiples fit into 32 bits
        multiples = torch.arange(0, max_keys + chunk, chunk, dtype=torch.int32, device=first_key.device)
        query_cuts[1:] = [(multiples - (keys - queries)).clamp(begin, queries)]
        key_cuts[1:] = [torch.minimum(multiples, keys)]
    if seqused_q is not None or seqused_k is not None:
        query_cuts.append(every_query)  # the rest of the queries, without keys; the rest of the keys comes after it
        key_cuts.append(keys)
    return _absolute(first_query, query_cuts), _absolute(first_key, key_cuts)


def _absolute(first: Tensor, cuts: list[Tensor]) -> Tensor:
    return torch.cat([(first[:-1, None] + torch.cat(cuts, 1)).flatten(), first[-1:]])


def attend_packed(q: Tensor, k: Tensor, v: Tensor, first_query: Tensor, first_key: Tensor, max_keys: int, chunk: int, seqused_q: Tensor | None,
                  seqused_k: Tensor | None, *options: Any) -> tuple[Tensor, Tensor]:
    """interface.attend_packed for parts of the sequences; `options` are its arguments from softmax_scale on."""
    arguments.tensors(1, "[sequences + 1]", cu_seqlens_q=first_query, cu_seqlens_k=first_key)
    ops.check_arrays(q, None, first_query, first_key)
    for name, used in (("seqused_q", seqused_q), ("seqused_k", seqused_k)):
        if used is not None:
            ops.check_array(name, used, q, torch.int32)
            if tuple(used.shape) != (len(first_query) - 1,):
                raise ValueError(f"{name} is {tuple(used.shape)}: pass {(len(first_query) - 1,)}, one per sequence")
    max_keys = min(arguments.whole_number("max_seqlen_k", max_keys), k.shape[0]) if chunk else 0
    return interface.attend_packed(q, k, v, *split(first_query, first_key, chunk, max_keys, seqused_q, seqused_k), *options)


def attend(q: Tensor, k: Tensor, v: Tensor, chunk: int, *options: Any) -> tuple[Tensor, Tensor]:
    """The same for chunks of tensors [batch, seqlen, heads, head_dim]."""
    ops.check_tensors(*ops.as_padded(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)))
    first_query, first_key = (torch.arange(len(q) + 1, dtype=torch.int32, device=q.device) * tensor.shape[1] for tensor in (q, k))
    o, lse = attend_packed(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), first_query, first_key, k.shape[1], chunk, None, None,
                           *options)
    return o.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1).contiguous()
