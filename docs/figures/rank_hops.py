#!/usr/bin/env python3
"""Writes rank_hops.svg: beyond how many GPUs a ring's hop is no longer hidden, for a sequence of 1M tokens under a
causal mask. It is calculated from the rates on chapter 10's page, not measured."""
from math import log2, log10

from svg import Figure

TOKENS = 2**20
FLOPS = 790e12  # rate of one GPU's kernel
NVLINK, NETWORK = 391e9, 50e9  # bytes per second in each direction; the network has 400 Gb/s per GPU
LEAST, MOST = 8, 1024
# name, bytes per second, key heads over heads, tokens of a ring's rank relative to one GPU's, look, where its name ends
CURVES = (("network", NETWORK, 1, 1, "red", (128, (-8, -8))), ("NVLink", NVLINK, 1, 1, "blue", (64, (-8, -8))),
          ("network, 8 heads a key head, Ulysses within hosts of 8", NETWORK, 1 / 8, 8, "green", (1024, (-2, 108))))


def exposed(ranks, bytes_per_second, heads, wider):
    """Returns the ratio of a hop's copy time to the time of its products. Half of a part is visible: 2 n n d H FLOPs, and 4 n d H_kv
    bytes."""
    return 2 * FLOPS / bytes_per_second * heads / (TOKENS / ranks * wider)


figure = Figure(560, 372, "A hop's copy over its products for 8 to 1024 GPUs: between hosts, a ring of 1M tokens is hidden up to some 32 GPUs, and up to 256 if NVLink connected them all; "
                          "with grouped queries and Ulysses within hosts, for any number shown.")
left, right, top, bottom = 62, 536, 22, 306
low, high = 0.001, 100

def x(ranks):
    return left + (right - left) * log2(ranks / LEAST) / log2(MOST / LEAST)

def y(ratio):
    return bottom - (bottom - top) * log10(ratio / low) / log10(high / low)

figure.box(left, y(1), right - left, bottom - y(1))
for ratio in (0.001, 0.01, 0.1, 1, 10, 100):
    figure.line([(left, y(ratio)), (right, y(ratio))], dashed=ratio != 1)
    figure.text(left - 8, y(ratio) + 5, f"{ratio:g}", "small soft", "end")
for step in range(8):
    ranks = LEAST * 2**step
    figure.line([(x(ranks), bottom), (x(ranks), bottom + 5)])
    figure.text(x(ranks), bottom + 21, str(ranks), "small soft", "middle")
figure.text(right, bottom + 44, "GPUs; 1M tokens, causal, zigzag", "small soft", "end")
figure.text(left + 8, top + 20, "copy / products", "small soft")
figure.text(right - 8, bottom - 12, "hidden", "bold", "end")
for name, rate, heads, wider, look, (at, (dx, dy)) in CURVES:
    ends = [(ranks, exposed(ranks, rate, heads, wider)) for ranks in (LEAST, MOST)]
    figure.line([(x(ranks), y(max(ratio, low))) for ranks, ratio in ends], look)
    figure.text(x(at) + dx, y(exposed(at, rate, heads, wider)) + dy, name, f"small {look}", "middle" if dx == 0 else "end" if dx < 0 else "start")
figure.write(__file__)
