"""Captures one call, forward and backward, as the process's first CUDA graph, after one call on a side stream. Run by
test_graphs.py.

python graph_worker.py NAME [after_default]

With `after_default`, two calls on the default stream come first, and two on the side stream.
"""

import sys

import torch
from conftest import DEVICE
from test_derivatives import CALLS, HEADS, ROWS

import flashbook
from flashbook import flash_attn_3

SKIPPED = ("dropout", "checkpoint", "context_parallel")  # the first two draw random numbers; NCCL is tested elsewhere
GRADIENTS = [name for name in CALLS if name not in SKIPPED]


def make(*sizes, dtype=torch.float16):
    return torch.randn(*sizes, device=DEVICE).to(dtype)


def numbers(*values):
    return torch.tensor(values, device=DEVICE, dtype=torch.int32)


TABLE = torch.arange(40, device=DEVICE, dtype=torch.int32).view(2, 20)


def dense(queries, function=flashbook.flash_attn_func, dtype=torch.float16, **options):
    q, k, v = (make(1, rows, HEADS, 64, dtype=dtype) for rows in (queries, 300, 300))
    return lambda: function(q, k, v, **options)


def by_step(chapter):
    q, k, v = (make(1, HEADS, 300, 64) for _ in range(3))
    return lambda: flashbook.attention(q, k, v, chapter)


def packed():
    q, k, v = (make(203, HEADS, 64) for _ in range(3))
    first = numbers(0, 3, 203)
    return lambda: flashbook.flash_attn_varlen_func(q, k, v, first, first, 200, 200, causal=True)


def cache(module=flashbook, queries=1, dtype=torch.float16, **options):
    """Returns a call of flash_attn_with_kvcache. New keys and values in `options` are written to the cache first.
    Options that are functions are called."""
    q, k, v = make(2, queries, HEADS, 64), make(2, 320, HEADS, 64, dtype=dtype), make(2, 320, HEADS, 64, dtype=dtype)
    options = {"cache_seqlens": numbers(300, 77), "causal": True} | {name: of() if callable(of) else of for name, of in options.items()}
    return lambda: module.flash_attn_with_kvcache(q, k, v, **options)


def pages(name, module=flashbook, queries=3, **options):
    q, k, v, lengths = make(2, queries, HEADS, 64), make(40, 16, HEADS, 64), make(40, 16, HEADS, 64), numbers(300, 77)
    options = {name: of() if callable(of) else of for name, of in options.items()}
    return lambda: module.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, causal=True, **{name: TABLE}, **options)


def packed_pages(max_queries):
    q, k, v = make(max_queries + 3, HEADS, 64), make(40, 16, HEADS, 64), make(40, 16, HEADS, 64)
    lengths, first = numbers(77, 300), numbers(0, 3, max_queries + 3)
    return lambda: flash_attn_3.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=TABLE, cu_seqlens_q=first, max_seqlen_q=max_queries)


def packed_block_table():
    q, k, v, first = make(203, HEADS, 64), make(40, 16, HEADS, 64), make(40, 16, HEADS, 64), numbers(0, 3, 203)
    keys = numbers(0, 77, 377)
    return lambda: flashbook.flash_attn_varlen_func(q, k, v, first, keys, 200, 300, causal=True, block_table=TABLE)


def latents():
    tokens, queries, first, lengths = make(40, 64, 1, 576), make(5, 16, 576), numbers(0, 3, 5), numbers(300, 77)
    return lambda: flash_attn_3.flash_attn_with_kvcache(queries[..., 512:], tokens[..., 512:], tokens[..., :512], qv=queries[..., :512], cu_seqlens_q=first,
                                                        cache_seqlens=lengths, page_table=TABLE, max_seqlen_q=3, causal=True)


def combine():
    parts, lse = make(3, 2, 9, HEADS, 64, dtype=torch.float32), make(3, 2, 9, HEADS, dtype=torch.float32)
    return lambda: flash_attn_3.flash_attn_combine(parts, lse, out_dtype=torch.float16)


NEW = {"k": lambda: make(2, 3, HEADS, 64), "v": lambda: make(2, 3, HEADS, 64), "rotary_cos": lambda: make(320, 16), "rotary_sin": lambda: make(320, 16)}
FORWARDS = {
    "forward": lambda: dense(300), "one_query": lambda: dense(1), "fp8": lambda: dense(300, flash_attn_3.flash_attn_func, torch.float8_e4m3fn),
    "forward_lse": lambda: dense(300, causal=True, return_attn_probs=True), "window": lambda: dense(300, window_size=(9, 0)),
    "chapter_1": lambda: by_step(1), "chapter_3": lambda: by_step(3), "chapter_4": lambda: by_step(4), "packed": packed,
    "cache": cache, "cache_3": lambda: cache(flash_attn_3), "unsplit": lambda: cache(num_splits=1), "cache_16": lambda: cache(queries=16),
    "prompt": lambda: cache(queries=300, cache_seqlens=lambda: numbers(300, 320)), "length": lambda: cache(cache_seqlens=77),
    "softcap": lambda: cache(softcap=5.0), "sinks": lambda: cache(s_aux=lambda: make(HEADS)), "left_padding": lambda: cache(cache_leftpad=lambda: numbers(5, 0)),
    "entries": lambda: cache(cache_batch_idx=lambda: numbers(1, 0)), "e4m3": lambda: cache(flash_attn_3, dtype=torch.float8_e4m3fn),
    "new_keys": lambda: cache(queries=3, **NEW), "new_keys_in_pages": lambda: pages("block_table", **NEW),
    "pages": lambda: pages("block_table"), "pages_3": lambda: pages("page_table", flash_attn_3),
    "padded_pages": lambda: pages("block_table", cache_leftpad=lambda: numbers(5, 0)), "latents": latents, "combine": combine,
    "fp8_window": lambda: dense(300, flash_attn_3.flash_attn_func, torch.float8_e4m3fn, window_size=(9, 0)),
    "e4m3_window": lambda: cache(flash_attn_3, dtype=torch.float8_e4m3fn, window_size=(9, 0)),
    "packed_pages": lambda: packed_pages(10), "packed_prompts": lambda: packed_pages(200), "packed_block_table": packed_block_table,
}


def gradients_of_forward(name):
    """Returns the call and its gradients, which are compared with a tolerance, since they are not summed in a fixed
    order."""
    leaves = [make(1, ROWS, HEADS, 64).requires_grad_() for _ in range(3)]
    d_o = None

    def run():
        nonlocal d_o
        o = CALLS[name](*leaves)
        d_o = torch.ones_like(o) if d_o is None else d_o
        return (o.detach(), *torch.autograd.grad(o, leaves, d_o, allow_unused=True))

    return run


def call_of(name):
    return FORWARDS[name]() if name in FORWARDS else gradients_of_forward(name)


def main():
    name, *after_default = sys.argv[1:]
    torch.manual_seed(0)
    run = call_of(name)
    for _ in range(2 * len(after_default)):
        run()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(1 + len(after_default)):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    right = run()
    for got, want in zip(*((of,) if isinstance(of, torch.Tensor) else of for of in (captured, right))):
        if want is not None:
            torch.testing.assert_close(got.float(), want.float(), atol=2e-2, rtol=2e-2)
    print("captured")


if __name__ == "__main__":
    main()
