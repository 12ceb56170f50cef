#!/usr/bin/env python3
"""Writes peers.svg: the rate of chapter 5's last step, and of chapter 6's steps 7 and 8, over that of the faster of FlashAttention-3 and
cuDNN in the same type, by sequence length."""
from math import log2

from svg import Figure

from bench import results
from bench.names import Name

PANELS = {"ch05/persistent": ("BF16", "chapter 5, step 5"), "ch06/transpose_once": ("FP8", "chapter 6, step 7"),
          "ch06/linear_exp": ("FP8", "step 8, linear exp.")}
LOOKS = {64: "green", 128: "blue", 256: "red"}  # by head_dim
LEFT, WIDTH, GAP, TOP, BOTTOM = 40, 156, 19, 104, 330


measured = results.load(results.RESULTS / results.BOOK_GPU)
cells = {who: results.in_turn(measured, who) for who in PANELS}
rates = [cell.over_better for of_step in cells.values() for cell in of_step.values()]
lengths = sorted({name.seqlen for of_step in cells.values() for name in of_step})
most = max(rates)
least = min(0.98, *rates)


def y(rate):
    return BOTTOM - (BOTTOM - TOP) * (rate - least) / (most - least)


figure = Figure(560, 414, f"Our speed relative to the better of FlashAttention-3 and cuDNN, for 512 to 16384 keys: {min(rates):.2f} to {most:.2f} times as fast.")
for i, (head_dim, look) in enumerate(LOOKS.items()):
    figure.line([(20 + 100 * i, 22), (40 + 100 * i, 22)], look)
    figure.text(46 + 100 * i, 27, f"d = {head_dim}", "small")
figure.line([(320, 22), (340, 22)], "ink")
figure.text(346, 27, "no mask", "small")
figure.line([(424, 22), (444, 22)], "ink", dashed=True)
figure.text(450, 27, "causal", "small")
for i, (who, titles) in enumerate(PANELS.items()):
    left = LEFT + i * (WIDTH + GAP)
    figure.lines(left, 62, titles, "small bold", step=18)
    for tenth in range(10, int(10 * most) + 1):
        figure.line([(left, y(tenth / 10)), (left + WIDTH, y(tenth / 10))], "soft" if tenth == 10 else "", dashed=tenth > 10)
        if i == 0:
            figure.text(left - 8, y(tenth / 10) + 5, f"{tenth / 10:.1f}", "small soft", "end")
    x = {n: left + 8 + (WIDTH - 16) * log2(n / lengths[0]) / log2(lengths[-1] / lengths[0]) for n in lengths}
    for n in lengths:
        figure.text(x[n], BOTTOM + 20, str(n) if n < 1024 else f"{n // 1024}k", "small soft", "middle")
    dtype = next(iter(cells[who])).dtype
    for head_dim, look in LOOKS.items():
        for mask in ("full", "causal"):
            figure.line([(x[n], y(cells[who][Name("forward", who, dtype, head_dim, mask, n)].over_better)) for n in lengths], look, dashed=mask == "causal")
figure.text(LEFT, BOTTOM + 46, "times as fast as the better peer, by sequence length", "small soft")
timed = [entry for name, entry in measured.beside_peers.items() if name.who in PANELS]
figure.text(LEFT, BOTTOM + 70, f"H200, interleaved with both peers: {measured.origin(timed)}", "small soft")
figure.write(__file__)
