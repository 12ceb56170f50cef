"""One process of test_graphs.py: captures a call, forward and backward, as its first CUDA graph, after one call on a side stream.

python graph_worker.py NAME
"""

import sys

import torch
from test_derivatives import CALLS, HEADS, ROWS

import flashbook
from flashbook import flash_attn_3

SKIPPED = ("dropout", "checkpoint", "context_parallel")  # the first two draw random numbers; NCCL is tested elsewhere
GRADIENTS = [name for name in CALLS if name not in SKIPPED]


def make(*sizes, dtype=torch.float16):
    return torch.randn(*sizes, device="cuda").to(dtype)


def cache(module, **options):
    q, k, v = make(2, 1, HEADS, 64), make(2, 300, HEADS, 64), make(2, 300, HEADS, 64)
    lengths = torch.tensor([300, 77], device="cuda", dtype=torch.int32)
    return lambda: module.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, **options)


def pages(module, name):
    q, k, v = make(2, 3, HEADS, 64), make(40, 16, HEADS, 64), make(40, 16, HEADS, 64)
    lengths = torch.tensor([300, 77], device="cuda", dtype=torch.int32)
    table = torch.arange(40, device="cuda", dtype=torch.int32).view(2, 20)
    return lambda: module.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, causal=True, **{name: table})


def packed_pages():
    k, v = make(40, 16, HEADS, 64), make(40, 16, HEADS, 64)
    q, first = make(203, HEADS, 64), torch.tensor([0, 3, 203], device="cuda", dtype=torch.int32)
    lengths = torch.tensor([77, 300], device="cuda", dtype=torch.int32)
    table = torch.arange(40, device="cuda", dtype=torch.int32).view(2, 20)
    return lambda: flash_attn_3.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=table, cu_seqlens_q=first, max_seqlen_q=200)


def fp8():
    q, k, v = (make(1, 300, HEADS, 64, dtype=torch.float8_e4m3fn) for _ in range(3))
    return lambda: flash_attn_3.flash_attn_func(q, k, v)


def forward_alone(rows):
    q, k, v = make(1, rows, HEADS, 64), make(1, 300, HEADS, 64), make(1, 300, HEADS, 64)
    return lambda: flashbook.flash_attn_func(q, k, v)


FORWARDS = {"forward": lambda: forward_alone(300), "one_query": lambda: forward_alone(1), "fp8": fp8, "cache": lambda: cache(flashbook),
            "cache_3": lambda: cache(flash_attn_3), "unsplit": lambda: cache(flashbook, num_splits=1), "pages": lambda: pages(flashbook, "block_table"),
            "pages_3": lambda: pages(flash_attn_3, "page_table"), "packed_pages": packed_pages}


def gradients_of_forward(name):
    """The call and its gradients, which are compared with a tolerance, since they are not summed in a fixed order."""
    leaves = [make(1, ROWS, HEADS, 64).requires_grad_() for _ in range(3)]
    d_o = None

    def run():
        nonlocal d_o
        o = CALLS[name](*leaves)
        d_o = torch.ones_like(o) if d_o is None else d_o
        return (o.detach(), *torch.autograd.grad(o, leaves, d_o, allow_unused=True))

    return run


def main():
    name = sys.argv[1]
    torch.manual_seed(0)
    run = FORWARDS[name]() if name in FORWARDS else gradients_of_forward(name)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
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
