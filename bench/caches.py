"""Shared by the benches of caches: pages in random order, peers that read a cache, and the check against float64.

A cache is two tensors [batch or pages, kv_heads, rows, head_dim], views of either memory layout.
"""

import functools
import importlib
import math
from typing import Any

from bench import packages, peers

torch: Any = None


def in_pages(tensor: Any, order: Any, rows: int) -> Any:
    """Copies [batch, heads, keys, head_dim] to [pages, heads, rows, head_dim] in the same memory layout. The sequences'
    i-th page in total becomes page `order[i]`."""
    if tensor.dtype == torch.float8_e4m3fn:  # PyTorch cannot index this type
        return in_pages(tensor.view(torch.uint8), order, rows).view(tensor.dtype)
    batch, heads, keys, head_dim = tensor.shape
    if tensor.stride(1) < tensor.stride(2):
        pages = tensor.transpose(1, 2).reshape(-1, rows, heads, head_dim)
        return torch.empty_like(pages).index_copy_(0, order, pages).transpose(1, 2)
    pages = (
        tensor.view(batch, heads, keys // rows, rows, head_dim)
        .transpose(1, 2)
        .reshape(-1, heads, rows, head_dim)
        .contiguous()
    )
    return torch.empty_like(pages).index_copy_(0, order, pages)


# ---- peers -----------------------------------------------------------------------------------------------------------


def cudnn(
    q: Any,
    k: Any,
    v: Any,
    scale: float,
    causal: bool,
    table: Any = None,
    lengths: Any = None,
    queries: Any = None,
    first_query: Any = None,
    most_queries: int = 0,
) -> Any:
    """Returns a launch of cuDNN's graph through its frontend, with bottom-right aligned causal masks. `lengths` and
    `queries` are the numbers of keys and queries of each sequence. With `first_query`, q is packed, [1, heads, all
    queries, head_dim], and a query's heads are contiguous in memory."""
    graph = packages.Graph(q.dtype)
    batch, o = len(k) if lengths is None else len(lengths), torch.empty_like(q)
    column = lambda tensor: graph.takes(tensor.view(batch, 1, -1, 1))
    options: dict[str, Any] = {}
    if lengths is not None:
        options = {"use_padding_mask": True, "seq_len_q": column(queries), "seq_len_kv": column(lengths)}
    if table is not None:
        table_column = column(table)
        options |= {
            "paged_attention_k_table": table_column,
            "paged_attention_v_table": table_column,
            "paged_attention_max_seq_len_kv": table.numel() // batch * k.shape[2],
        }
    dim, stride = list(q.shape), list(q.stride())
    if first_query is not None:  # describes every sequence with the maximum number of queries, plus element offsets
        row = q.shape[1] * q.shape[3]
        dim, stride = [batch, q.shape[1], most_queries, q.shape[3]], [most_queries * row, q.shape[3], row, 1]
        begins = graph.takes((first_query * row).view(-1, 1, 1, 1))
    q_in = graph.graph.tensor(dim=dim, stride=stride, data_type=graph.kinds[q.dtype])
    result, _ = graph.graph.sdpa(
        q=q_in,
        k=graph.takes(k),
        v=graph.takes(v),
        is_inference=True,
        attn_scale=scale,
        use_causal_mask_bottom_right=causal,
        **options,
    )
    result.set_output(True).set_dim(dim).set_stride(stride)
    graph.pack |= {q_in: q, result: o}
    if first_query is not None:
        for node in (q_in, result):
            node.set_ragged_offset(begins)
    launch = graph.built()

    def run() -> Any:
        launch()
        return o

    return run


def used_pages(page_rows: int, table: Any, lengths: Any) -> tuple[Any, Any]:
    """Returns (where each sequence's pages begin, [batch + 1]; all pages in use), in FlashInfer's format."""
    pages = (lengths + page_rows - 1) // page_rows
    first = torch.nn.functional.pad(pages.cumsum(0), (1, 0)).to(torch.int32)
    rows = table.view(len(lengths), -1)
    return first, torch.cat([row[:count] for row, count in zip(rows, pages.tolist(), strict=True)])


def flashinfer(
    who: str,
    q: Any,
    o: Any,
    cache: tuple[Any, Any],
    order: str,
    table: Any,
    lengths: Any,
    scale: float,
    first_query: Any = None,
    window: int = 0,
    softcap: float = 0.0,
) -> Any:
    """Returns a launch of FlashInfer's decoding or, with `first_query`, of its batch prefill, planned beforehand. q and
    o are [queries, heads, head_dim]; pages are [pages, rows, kv_heads, head_dim] if `order` is NHD, and [pages,
    kv_heads, rows, head_dim] if it is HND."""
    package, (_, heads, head_dim) = importlib.import_module("flashinfer"), q.shape
    _, *sizes, _ = cache[0].shape
    page_rows, kv_heads = sizes if order == "NHD" else sizes[::-1]
    first, used = used_pages(page_rows, table, lengths)
    workspace = torch.zeros(1 << 28, device="cuda", dtype=torch.uint8)  # FlashInfer requires zeros
    if first_query is not None:
        wrapper = package.BatchPrefillWithPagedKVCacheWrapper(workspace, order, backend=who.removeprefix("flashinfer_"))
        plan = functools.partial(wrapper.plan, first_query, causal=True)
    else:
        wrapper = package.BatchDecodeWithPagedKVCacheWrapper(workspace, order, use_tensor_cores=who == "flashinfer_tc")
        plan = wrapper.plan
    plan(
        first,
        used,
        (lengths - 1) % page_rows + 1,
        heads,
        kv_heads,
        head_dim,
        page_rows,
        q_data_type=q.dtype,
        kv_data_type=q.dtype,
        sm_scale=scale,
        window_left=window - 1,
        logits_soft_cap=softcap,
    )
    return lambda: wrapper.run(q, cache, out=o)


# ---- checks ----------------------------------------------------------------------------------------------------------


def capped(softcap: float, sink: Any, q: Any, k: Any, v: Any, visible: Any, scale: float) -> Any:
    """Computes peers.plain with a softcap and a sink."""
    scores = (softcap * torch.tanh((q @ k.mT) * scale / softcap)).masked_fill(~visible, float("-inf"))
    return torch.softmax(torch.cat([scores, sink.to(q.dtype).expand(len(q), 1)], -1), -1)[:, :-1] @ v


def largest_error(problem: Any, o: Any) -> tuple[float, float]:
    """Returns the largest error of the first, a middle and the last head against float64, and the book's bound. Queries
    are the last tokens of their sequence, with a causal mask."""
    shape, error, plain_error, largest = problem.shape, 0.0, 0.0, 0.0
    for b, h in ((0, 0), (shape.batch // 3, shape.heads // 2), (shape.batch - 1, shape.heads - 1)):
        keys = shape.seqlen_k if problem.lengths is None else int(problem.lengths[b])
        of = h // (shape.heads // shape.kv_heads)
        q, k, v = problem.rows(problem.q, b, h), problem.k[b, of, :keys], problem.v[b, of, :keys]
        visible = torch.ones(len(q), keys, device="cuda", dtype=torch.bool).tril(keys - len(q))
        if problem.window:
            visible[:, : -problem.window] = False
        plain = (
            functools.partial(capped, problem.softcap, problem.sinks[h]) if problem.sinks is not None else peers.plain
        )
        exact = plain(q.double(), k.double(), v.double(), visible, shape.scale)
        far = lambda result, exact=exact: (result.double() - exact).abs().max().item()
        plain_error = max(plain_error, far(plain(q, k, v, visible, shape.scale)))
        largest = max(largest, exact.abs().max().item())
        this = far(problem.rows(o, b, h))
        error = this if math.isnan(this) else max(error, this)
    return error, 2 * plain_error + torch.finfo(torch.bfloat16).eps * 2 ** math.floor(math.log2(largest))
