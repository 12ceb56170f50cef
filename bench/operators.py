#!/usr/bin/env python3
"""Times the Python package, interleaved with the C function that it calls, and the host's time per call.

    operators.py [--seqlen 2k,4k,8k,16k] [--head-dim 64,128] [--layout bhsd,bshd] [--rounds 5] [--out FILE] [--library FILE]

bench/race.py documents the method. `vs_c` is the package's speed relative to the C function on the device, where both launch the same kernel.
`host_us` is the host's time per call without gradients, including the allocation of the output, measured while the device is kept busy so that the
host never waits for it. `host_us_gradient` is the same for q, k and v that require gradients, and `host_us_backward` is the following
torch.autograd.grad. `c_us` and `c_us_backward` are the C functions alone, called through ctypes with prepared arguments; names with `sdpa` are
PyTorch's attention. `packed` is flash_attn_varlen_func with the same tokens in two sequences, `cache` and `pages` are flash_attn_with_kvcache with
one token for each of two sequences, and `fa3` is FlashAttention-3's own functions, if installed. Each is the median of 200 calls of a small shape,
in seven rounds in random order, since whatever a process times first can be twice as slow. The package is the
python/flashbook in this checkout.
"""

import argparse
import ctypes
import functools
import json
import os
import pathlib
import random
import statistics
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]  # so that python3 bench/operators.py finds the packages

from bench import flash_attention_3, packages, peers, race
from bench.names import Name
from bench.race import Contestant, whole_numbers
from bench.structs import Gradients, Shape, Tensors, pointers_to

CALLS = 200  # few enough that their kernels fit into the stream's queue and the host does not wait
HOST_ROUNDS = 7
torch: Any = None


def host_microseconds(call):
    """Returns the median of the host's times per call while the device is kept busy."""
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)
    times = []
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    torch.cuda.synchronize()
    return statistics.median(times) / 1e3


def on_the_host(library, shuffle):
    """Returns {name: host's microseconds per call}."""
    from torch.nn.functional import scaled_dot_product_attention

    from flashbook import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

    q, k, v, d_o = (torch.randn(1, 128, 4, 64, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    turned, d_o_turned, d_o_rows = [tensor.transpose(1, 2) for tensor in leaves], d_o.transpose(1, 2), d_o[0]
    o, o_sdpa = flash_attn_func(*leaves), scaled_dot_product_attention(*turned)
    gradient = lambda of, by, d: torch.autograd.grad(of, by, d, retain_graph=True)
    calls = {"host_us": lambda: flash_attn_func(q, k, v), "host_us_gradient": lambda: flash_attn_func(*leaves),
             "host_us_backward": lambda: gradient(o, leaves, d_o),
             "host_us_sdpa": lambda: scaled_dot_product_attention(*(tensor.transpose(1, 2) for tensor in (q, k, v))),
             "host_us_sdpa_gradient": lambda: scaled_dot_product_attention(*(tensor.transpose(1, 2) for tensor in leaves)),
             "host_us_sdpa_backward": lambda: gradient(o_sdpa, turned, d_o_turned)}
    first = torch.tensor([0, 50, 128], device="cuda", dtype=torch.int32)
    packed = lambda q, k, v: flash_attn_varlen_func(q, k, v, first, first, 78, 78)
    rows, row_leaves = [tensor[0] for tensor in (q, k, v)], [tensor.detach()[0].clone().requires_grad_() for tensor in leaves]
    o_packed = packed(*row_leaves)
    calls |= {"host_us_packed": lambda: packed(*rows), "host_us_packed_gradient": lambda: packed(*row_leaves),
              "host_us_packed_backward": lambda: gradient(o_packed, row_leaves, d_o_rows)}
    query, lengths = q[:, :2].transpose(0, 1).contiguous(), torch.tensor([50, 64], device="cuda", dtype=torch.int32)
    (k_cache, v_cache), (k_pages, v_pages) = ((k.view(-1, size, 4, 64), v.view(-1, size, 4, 64)) for size in (64, 16))
    table = torch.arange(8, device="cuda", dtype=torch.int32).view(2, 4)
    calls |= {"host_us_cache": lambda: flash_attn_with_kvcache(query, k_cache, v_cache, cache_seqlens=lengths, causal=True),
              "host_us_pages": lambda: flash_attn_with_kvcache(query, k_pages, v_pages, cache_seqlens=lengths, block_table=table, causal=True)}
    if packages.is_there(packages.PACKAGES["fa3"].module) or flash_attention_3.operators():
        theirs = flash_attention_3.flash_attn_func()
        theirs_packed = functools.partial(theirs, softmax_scale=0.125, cu_seqlens_q=first, cu_seqlens_k=first, max_seqlen_q=78, max_seqlen_k=78)
        o_theirs, o_theirs_packed = theirs(*leaves, 0.125), theirs_packed(*row_leaves)
        calls |= {"host_us_fa3": lambda: theirs(q, k, v, 0.125), "host_us_fa3_gradient": lambda: theirs(*leaves, 0.125),
                  "host_us_fa3_backward": lambda: gradient(o_theirs, leaves, d_o),
                  "host_us_fa3_packed": lambda: theirs_packed(*rows), "host_us_fa3_packed_gradient": lambda: theirs_packed(*row_leaves),
                  "host_us_fa3_packed_backward": lambda: gradient(o_theirs_packed, row_leaves, d_o_rows),
                  "host_us_fa3_cache": lambda: flash_attention_3.with_cache(query, k_cache, v_cache, 0.125, lengths),
                  "host_us_fa3_pages": lambda: flash_attention_3.with_cache(query, k_pages, v_pages, 0.125, lengths, table)}
    problem = Shape(1, 4, 4, 128, 128, 64, 0, peers.DTYPES["bf16"], 0.125).described()
    kept = [tensor.transpose(1, 2).contiguous() for tensor in (q, k, v, d_o)]
    o_c, dq, dk, dv = (torch.empty_like(tensor) for tensor in kept)
    lse = torch.empty(1, 4, 128, device="cuda")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    for word, name, chapter, pointers in (("c_us", "attention", 5, ()), ("c_us_backward", "backward", 7, (kept[3], dq, dk, dv))):
        workspace = torch.zeros(library.workspace_bytes(chapter, 5, problem), device="cuda", dtype=torch.uint8)
        tensors = pointers_to(Tensors, *kept[:3], o_c, lse, workspace)
        more = [ctypes.byref(pointers_to(Gradients, *pointers))] if pointers else []
        arguments = (chapter, 5, problem, ctypes.byref(tensors), *more, stream)
        calls[word] = functools.partial(getattr(library.c, f"flashbook_{name}"), *arguments)
        kept.append(workspace)
        if calls[word]():
            raise race.Wrong(library.error())
    times: dict[str, list[float]] = {word: [] for word in calls}
    words = list(calls)
    for _ in range(HOST_ROUNDS):
        shuffle(words)
        for word in words:
            times[word].append(host_microseconds(calls[word]))
    return {word: statistics.median(found) for word, found in times.items()}


def package(problem):
    """Returns a call of flash_attn_func on views of the same tensors."""
    from flashbook import flash_attn_func

    q, k, v = (tensor.transpose(1, 2) for tensor in (problem.q, problem.k, problem.v))
    causal = bool(problem.shape.causal)
    return Contestant("flash_attn_func", "the package", lambda: flash_attn_func(q, k, v, causal=causal).transpose(1, 2), kind="python")


def cells_of(options):
    """Returns {name: (head_dim, mask, seqlen, layout)} of every cell."""
    return {f"d{head_dim}/{race.in_layout(mask, layout)}/n{seqlen}": (head_dim, mask, seqlen, layout) for head_dim in options.head_dim
            for mask in ("full", "causal") for seqlen in options.seqlen for layout in options.layout}


def run(options, library):
    whole = {"context": race.context(library), "benchmarks": []}
    cache_filler = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)
    shuffle = random.Random(race.SEED).shuffle
    host = on_the_host(library, shuffle)
    print("  ".join(f"{name} {value:.2f}" for name, value in host.items()), flush=True)
    for head_dim, mask, seqlen, layout in cells_of(options).values():
        problem = peers.make_problem("bf16", head_dim, mask == "causal", seqlen, layout)
        direct, ours = peers.ours(library, 5, 5, problem), package(problem)
        peers.check(problem, [direct, ours])
        race.race([direct, ours], options.rounds, shuffle, cache_filler)
        ours.values |= host | {"vs_c": statistics.median(c / o for c, o in zip(direct.milliseconds, ours.milliseconds))}
        found = race.entry(problem, ours, [], library.cost(5, 5, problem.shape)[0])
        found["name"] = found["run_name"] = str(Name("python", ours.who, "bf16", head_dim, race.in_layout(mask, layout), seqlen))
        whole["benchmarks"].append(found)
        print(f"{found['name']:48} {found['real_time']:8.3f} ms {found['FLOPS'] / 1e12:7.1f} TFLOP/s  C x{found['vs_c']:.3f}", flush=True)
        options.out.write_text(json.dumps(whole, indent=1) + "\n")
        del problem, direct, ours


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", type=whole_numbers, default=[2048, 4096, 8192, 16384])
    parser.add_argument("--head-dim", type=whole_numbers, default=[64, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build" / "gpu" / "lib" / "libflashbook.so")
    parser.add_argument("--out", type=pathlib.Path)
    race.add_layout(parser)
    parser.set_defaults(before=None, resume=False)
    return parser.parse_args()


def main():
    global torch  # noqa: PLW0603
    options = parse()
    os.environ["FLASHBOOK_LIBRARY"] = str(options.library)
    torch = peers.torch = race.pytorch("operators.py")
    return 77 if torch is None else race.measure("operators.py", options, run)


if __name__ == "__main__":
    sys.exit(main())
