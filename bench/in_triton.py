#!/usr/bin/env python3
"""Chapter 5's step 2 written in Triton, and timed interleaved with ours.

    in_triton.py [--seqlen 1k,4k,16k] [--mask full,causal] [--rounds 5] [--out FILE] [--library FILE]

In the kernel `attention`, a program handles one tile of queries of one head and loops over all visible keys. Triton's compiler decides what chapter
5 spells out: pipeline stages and barriers, swizzles, the layout of fragments, and when to wait for a product. Only the tile sizes and the numbers of
warps and stages remain to be chosen; the fastest of CHOICES is used for each shape, and named in the label. Contestants are chapter 5's steps 1, 2
and 5, and cuDNN. docs/pages/reading_sources.md explains the kernel line by line.
"""

import argparse
import functools
import pathlib
import statistics
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that python3 bench/in_triton.py finds the packages

try:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    sys.exit("in_triton.py needs Triton: pip install triton")

from bench import peers, race
from bench.race import Contestant, whole_numbers

CHOICES = [(rows, keys, warps, stages) for rows, keys, warps in ((128, 64, 4), (128, 64, 8), (128, 128, 8)) for stages in (2, 3)]
LOG2_E = 1.4426950408889634
torch: Any = None


@triton.jit
def tiles_of_keys(q, k_map, v_map, output, maximum, total, head_row, first_query, first, last, scale,
                  MASKED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr):
    queries = first_query + tl.arange(0, ROWS)
    for key in tl.range(first, last, KEYS):
        k = k_map.load([head_row + key, 0])
        scores = tl.dot(q, k.T)
        if MASKED:
            scores = tl.where(queries[:, None] >= key + tl.arange(0, KEYS)[None, :], scores, -float("inf"))
        higher = tl.maximum(maximum, tl.max(scores, 1))
        correction = tl.exp2((maximum - higher) * scale)
        p = tl.exp2((scores - higher[:, None]) * scale)
        total = total * correction + tl.sum(p, 1)
        v = v_map.load([head_row + key, 0])
        output = tl.dot(p.to(v.dtype), v, output * correction[:, None])
        maximum = higher
    return output, maximum, total


@triton.jit
def attention(q_map, k_map, v_map, o_map, lse, seqlen, scale,
              CAUSAL: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, HEAD_DIM: tl.constexpr):
    head, first_query = tl.program_id(1), tl.program_id(0) * ROWS
    head_row = head * seqlen  # the head's first row: heads are consecutive in the tensor maps
    q = q_map.load([head_row + first_query, 0])
    output = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    maximum, total = tl.full([ROWS], -float("inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    whole = first_query if CAUSAL else seqlen  # keys that all of these queries see
    output, maximum, total = tiles_of_keys(q, k_map, v_map, output, maximum, total, head_row, first_query, 0, whole, scale, False, ROWS, KEYS)
    if CAUSAL:
        output, maximum, total = tiles_of_keys(q, k_map, v_map, output, maximum, total, head_row, first_query, whole, first_query + ROWS, scale,
                                               True, ROWS, KEYS)
    o_map.store([head_row + first_query, 0], (output / total[:, None]).to(q.dtype))
    tl.store(lse + head_row + first_query + tl.arange(0, ROWS), (maximum * scale + tl.log2(total)) * 0.6931471805599453)


def launcher(q, k, v, causal, scale, choice):
    """Returns a function that launches `attention` and returns O, and the log-sum-exp. Supports only whole tiles."""
    rows, keys, warps, stages = choice
    batch, heads, seqlen, head_dim = q.shape
    if seqlen % rows or rows % keys:
        raise ValueError(f"{seqlen} queries are not a multiple of tiles of {rows}, or {rows} not of tiles of {keys} keys")
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device=q.device, dtype=torch.float32)
    maps = [TensorDescriptor.from_tensor(tensor.view(-1, head_dim), [height, head_dim])
            for tensor, height in ((q, rows), (k, keys), (v, keys), (o, rows))]

    def run():
        attention[seqlen // rows, batch * heads](*maps, lse, seqlen, scale * LOG2_E, CAUSAL=causal, ROWS=rows, KEYS=keys, HEAD_DIM=head_dim,
                                                 num_warps=warps, num_stages=stages)
        return o

    return run, lse


def fastest(problem):
    """Returns the contestant with the choice that was fastest in a few launches."""
    found = []
    for choice in CHOICES:
        try:
            run, _ = launcher(problem.q, problem.k, problem.v, bool(problem.shape.causal), problem.shape.scale, choice)
            run()
            times = []
            for _ in range(5):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                run()
                end.record()
                torch.cuda.synchronize()
                times.append(begin.elapsed_time(end))
            found.append((statistics.median(times), choice, run))
        except triton.runtime.errors.OutOfResources:
            continue
    _, (rows, keys, warps, stages), run = min(found, key=lambda one: one[0])
    return Contestant("triton", f"tiles of {rows} x {keys}, {warps} warps, {stages} stages", run)


def cell(options, mask, seqlen, library):
    problem = peers.make_problem("bf16", 128, mask == "causal", seqlen)
    ours = [peers.ours(library, 5, step, problem, False) for step in ("single_warpgroup", "specialised", "persistent")]
    contestants = [*ours, fastest(problem), peers.peer("cudnn", problem)]
    for contestant in contestants:
        contestant.kind = "triton"  # chapter 5's race has more peers, and keeps its results' names
    return problem, contestants, library.cost(5, library.step(5, "persistent"), problem.shape)[0]


def run(options, library):
    race.run(options, library, peers.check, {f"{mask}/n{seqlen}": functools.partial(cell, options, mask, seqlen)
                                             for mask in options.mask for seqlen in options.seqlen})


def main():
    global torch  # noqa: PLW0603
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", type=whole_numbers, default=[1024, 4096, 16384])
    parser.add_argument("--mask", type=lambda text: text.split(","), default=["full", "causal"])
    race.add_options(parser)
    options = parser.parse_args()
    torch = peers.torch = race.pytorch("in_triton.py")
    return 77 if torch is None else race.measure("in_triton.py", options, run)


if __name__ == "__main__":
    sys.exit(main())
