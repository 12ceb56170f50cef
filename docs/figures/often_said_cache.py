#!/usr/bin/env python3
"""Writes often_said_cache.svg: the FLOPs of the n-th token that Llama-3-8B generates with a cache, computed from its
published sizes, not measured."""
from svg import Figure

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCABULARY = 32, 4096, 32, 8, 128, 14336, 128256
WEIGHTS = LAYERS * (2 * WIDTH * WIDTH + 2 * WIDTH * KV_HEADS * HEAD_DIM + 3 * WIDTH * INNER) + WIDTH * VOCABULARY
PER_KEY = 4 * LAYERS * HEADS * HEAD_DIM  # FLOPs of attention per cached token
LEFT, BOTTOM, WIDE, HIGH, MOST, GFLOPS = 70, 262, 440, 200, 65536, 50


flat, steep = 2 * WEIGHTS / 1e9, PER_KEY * MOST / 1e9
figure = Figure(540, 328, f"GFLOPs of one token of Llama-3-8B with a cache: {flat:.0f} for the weights at every length, and for attention 0.5 more for each "
                          f"thousand tokens before; from {2 * WEIGHTS / PER_KEY / 1000:.0f} thousand tokens on attention is more than half.")
figure.text(20, 30, "GFLOPs of one token, Llama-3-8B, with a cache", "small soft")
x, y = (lambda tokens: LEFT + tokens / MOST * WIDE), (lambda gflops: BOTTOM - gflops / GFLOPS * HIGH)
for gflops in range(0, GFLOPS + 1, 10):
    figure.line([(LEFT, y(gflops)), (LEFT + WIDE, y(gflops))], dashed=gflops > 0)
    figure.text(LEFT - 8, y(gflops) + 5, str(gflops), "small soft", "end")
for tokens in range(0, MOST + 1, 16384):
    figure.text(x(tokens), BOTTOM + 20, f"{tokens // 1024}k", "small soft", "middle")
figure.text(LEFT + WIDE / 2, BOTTOM + 42, "tokens before it", "small soft", "middle")
figure.line([(x(0), y(flat)), (x(MOST), y(flat))], "blue")
figure.line([(x(0), y(0)), (x(MOST), y(steep))], "amber")
figure.line([(x(0), y(flat)), (x(MOST), y(flat + steep))], "ink")
figure.text(x(2000), y(flat) + 18, "weights", "small blue")
figure.text(x(44000), y(17.6), "attention", "small amber")
figure.text(x(24000), y(36), "together", "small")
figure.write(__file__)
