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
        query_cuts.append(every_query)  # the remaining queries, without keys; the remaining keys follow
        key_cuts.append(keys)
    return _absolute(first_query, query_cuts), _absolute(first_key, key_cuts)


def _absolute(first: Tensor, cuts: list[Tensor]) -> Tensor:
    return torch.cat([(first[:-1, None] + torch.cat(cuts, 1)).flatten(), first[-1:]])


def attend_packed(q: Tensor, k: Tensor, v: Tensor, first_query: Tensor, first_key: Tensor, max_keys: int, chunk: int, seqused_q: Tensor | None,
                  seqused_k: Tensor | None, *options: Any) -> tuple[Tensor, Tensor]:
    """Calls interface.attend_packed for parts of the sequences; `options` are its arguments from softmax_scale on."""
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
    """Does the same for chunks of tensors [batch, seqlen, heads, head_dim]."""
    heads_first = ops.as_padded(q.transpose(1, 2), k.transpose(1, 2), v[..., :ops.MAX_HEAD_DIM].transpose(1, 2))
    ops.check_tensors(heads_first[0], heads_first[1], heads_first[2], any_value_dim=True)
    first_query, first_key = (torch.arange(len(q) + 1, dtype=torch.int32, device=q.device) * tensor.shape[1] for tensor in (q, k))
    o, lse = attend_packed(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), first_query, first_key, k.shape[1], chunk, None, None,
                           *options)
    return o.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1).contiguous()


def cached(q: Tensor, k_cache: Tensor, v_cache: Tensor, new: list[Tensor], first_query: Tensor, max_queries: int, first_new: Tensor | None,
           lengths: Tensor, pages: Tensor, paddings: Tensor | None, chunk: int, scale: float | None, left: int, right: int, softcap: float,
           sinks: Tensor | None, rotary: interface.Rotary | None, unsplit: bool) -> tuple[Tensor, Tensor]:
    """Computes attention for packed queries against a cache, after appending the packed keys and values `new`. Every
    chunk becomes a sequence that has some of the pages, or begins at a row of its only page. All checks run before
    anything is written.

    Args:
        first_query, first_new: [sequences + 1], int32: where each sequence's queries and new keys begin
        lengths: [sequences], int32: number of keys in the cache, padding included
        pages: [sequences, max pages per sequence], int32
        paddings: [sequences], int32: rows before a sequence's first key
        others: as in interface.cached_packed
    """
    arguments.tensors(2, "[batch, max pages per sequence]", page_table=pages)
    for name, array, sizes in (("page_table", pages, (len(pages), pages.shape[1])), ("cache_seqlens", lengths, (len(pages),)),
                               ("cache_leftpad", paddings, (len(pages),)), ("cu_seqlens_q", first_query, (len(pages) + 1,)),
                               ("cu_seqlens_k_new", first_new, (len(pages) + 1,))):
        if array is not None:
            ops.check_array(name, array, q, torch.int32)
            if tuple(array.shape) != sizes:
                raise ValueError(f"{name} is {tuple(array.shape)}: pass {sizes}")
    max_queries = min(max_queries, max(len(q), 1))
    sequences, rows, whole, table = first_query, k_cache.shape[1], pages.shape[1] * k_cache.shape[1], pages
    keys = lengths if first_new is None else lengths + first_new.diff()
    keys = keys if paddings is None else keys - paddings
    chunk = min(chunk, whole)
    k_read, v_read = k_cache, v_cache
    if interface.are_read_by_row(pages, rows, paddings) or (pages.shape[1] > 1 and chunk % rows):
        k_read, v_read, table = interface.rows_as_pages(k_cache, v_cache, pages, paddings)
        paddings = None
    if chunk:
        page_rows = k_read.shape[1]
        first_query, begin, keys = _chunks(first_query, keys, chunk, max_queries)
        count = begin.shape[1]
        table, begin, keys = table.repeat_interleave(count, 0), begin.flatten(), keys.flatten()
        if table.shape[1] > 1:
            places = (begin // page_rows)[:, None] + torch.arange(chunk // page_rows, device=q.device)
            table = table.gather(1, places.clamp(max=table.shape[1] - 1))
        else:
            paddings = begin if paddings is None else paddings.repeat_interleave(count) + begin
    if first_new is not None:
        views = interface.packed_views(q, k_read, v_read)
        ops.check_decode(*ops.as_padded(*views), keys, table, interface._scale(scale, q.shape[-1]), left, right, softcap, None, sinks, paddings,
                         first_query, max_queries, None, None, unsplit)
        sequence, row = _rows(first_new, len(new[0]))
        places = lengths[sequence] + row
        if rotary is not None:
            begin = lengths if rotary[3] is None else rotary[3]
            of_query, query = _rows(sequences, len(q))
            by_row = chunk > 0 or left >= 0 or right >= 0
            q = interface.rotated(q, (begin[of_query] + query * int(by_row)).clamp(max=len(rotary[0]) - 1), rotary)
            new = [interface.rotated(new[0], begin[sequence] + row, rotary), new[1]]
        where = pages[sequence, places // rows], places % rows
        k_cache[where], v_cache[where] = new
    return interface.cached_packed(q, k_read, v_read, first_query, max_queries, keys, table, scale, left, right, softcap, None, sinks, paddings,
                                   unsplit)


def _rows(first: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the sequence of each packed row, and its place there. Rows after the last sequence count as part of it."""
    row, first = torch.arange(count, device=first.device), first.long()
    sequence = torch.bucketize(row, first[1:], right=True).clamp(max=len(first) - 2)
    return sequence, row - first[sequence]


def _chunks(first_query: Tensor, keys: Tensor, chunk: int, max_queries: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns where the queries of each chunk begin, [chunks + 1], and each chunk's first key and number of keys, [sequences, chunks per sequence],
    for those chunks that a sequence's last queries reach. The first chunk of a sequence has the queries that see no key."""
    queries = first_query.diff()[:, None]
    begin, keys = torch.zeros_like(queries), keys[:, None]
    first = keys - queries  # the first query's position
    reached = -(-(max_queries - 1) // chunk) + 1
    limits = (first.clamp(min=0) // chunk + torch.arange(reached + 1, dtype=torch.int32, device=keys.device)) * chunk
    key_limits = torch.minimum(limits, keys)
    cuts = [begin, (limits[:, :-1] - first).clamp(begin, queries)]
    return _absolute(first_query, cuts), torch.cat([begin, key_limits[:, :-1]], 1), torch.cat([begin, key_limits.diff()], 1)
