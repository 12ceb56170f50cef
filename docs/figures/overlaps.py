#!/usr/bin/env python3
"""Writes overlaps.svg and overlaps_recorded.svg: what overlaps in steps 1 to 4 of chapter 5, if the overlap is perfect. Products take the
chapter's clocks. So does the softmax in the first figure; in the second it takes those that were recorded in step 3."""
import sys
from pathlib import Path

from svg import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import results
from bench.names import Name

LEFT, HIGH, HALF, PITCH = 104, 26, 17, 36
CLOCK = 0.053          # pixels
PRODUCT = 512          # a product of 64 queries and 128 keys: 2048 / 4
PAPER = 832            # a consumer's softmax: 1664 / 2
CLOCKS = results.load().measured(Name("timeline", "ch05/pingpong", "bf16", 128, "full", 4096))
RECORDED = round(CLOCKS.mean_span("softmax") + CLOCKS.mean_span("end"))  # the latter to round P and to rescale O
COPY = 1769            # 64 KB at 37.05 bytes per clock
END = 7700
LOOKS = ("blue", "amber")  # one per consumer


def span(row, begin, clocks, look, words="", high=HIGH):
    x, width = round(LEFT + begin * CLOCK), round(clocks * CLOCK)
    figure.box(x, row, width, high, look)
    if words:
        figure.text(round(x + width / 2), row + high / 2 + 5, words, "small", "middle")


def panel(y, title, result, *rows):
    figure.text(16, y - 10, title, "bold")
    figure.text(figure.width - 16, y - 10, result, "small", "end")
    for i, name in enumerate(rows):
        figure.text(16, y + i * PITCH + 18, name, "small soft")
    return [y + i * PITCH for i in range(len(rows))]


def alternate(y, title, result, softmax_clocks, round_clocks, issued, hidden):
    """Draws consumers whose rounds begin half a round apart. `result`: what the panel shows; `issued`: the products of a round and their clocks;
    `hidden`: clocks after which a consumer's softmax begins."""
    tensor, softmax = panel(y, title, result, "tensor cores", "softmax")
    for i, look in enumerate(LOOKS):
        begin = i * round_clocks / 2
        while begin + issued[0][1] <= END:
            at = begin
            for name, clocks in issued:
                if at + clocks <= END:
                    span(tensor, at, clocks, look, name if begin < round_clocks else "")
                at += clocks
            if begin + hidden + softmax_clocks <= END:
                span(softmax + i * HALF, begin + hidden, softmax_clocks, look, "", HALF)
            begin += round_clocks


figure = Figure(528, 468, "On paper. Steps 1 and 2 take 3712 clocks for a tile: products and softmax do not overlap. In step 3 one consumer's softmax runs "
                          "under the other's products: 2048 clocks.")
copies, tensor, softmax = panel(40, "Step 1: one block copies, the other computes", f"{2 * (2 * PRODUCT + PAPER)} clocks", "copies", "tensor cores", "softmax")
for tile in range(4):
    begin, look, first = tile * (2 * PRODUCT + PAPER), LOOKS[tile % 2], tile < 2
    span(copies, begin, COPY, LOOKS[1 - tile % 2], "K, V" if first else "")
    span(tensor, begin, PRODUCT, look, "S" if first else "")
    span(softmax, begin + PRODUCT, PAPER, look)
    span(tensor, begin + PRODUCT + PAPER, PRODUCT, look, "O" if first else "")

copies, tensor, softmax = panel(186, "Step 2: two consumers, if they begin together", f"{4 * PRODUCT + 2 * PAPER} clocks", "copies", "tensor cores", "softmax")
span(copies, 0, END, "", "K, V, K, V, ...")
for tile in range(2):
    for i, look in enumerate(LOOKS):
        begin = tile * (4 * PRODUCT + 2 * PAPER)
        span(tensor + i * HALF, begin, 4 * PRODUCT, look, "" if tile else "O, S", HALF)
        span(softmax + i * HALF, begin + 4 * PRODUCT, 2 * PAPER, look, "", HALF)

BOTH = [("O, S", 2 * PRODUCT)]
alternate(336, "Step 3: pingpong", f"{4 * PRODUCT} clocks", PAPER, 4 * PRODUCT, BOTH, 2 * PRODUCT)
figure.text(16, 436, f"To scale, for 128 queries and 128 keys. A consumer's product: {PRODUCT} clocks;", "small soft")
figure.text(16, 454, f"its softmax: {PAPER}. Step 3: copies as in step 2.", "small soft")
figure.write(__file__)

figure = Figure(528, 286, f"With the softmax as recorded, {RECORDED} clocks. In step 3 gaps appear between the products: {2 * PRODUCT + RECORDED} clocks. "
                          f"In step 4 the product with V runs during the consumer's own softmax, and they disappear: {4 * PRODUCT} clocks.")
alternate(40, "Step 3, with the softmax as recorded", f"{2 * PRODUCT + RECORDED} clocks", RECORDED, 2 * PRODUCT + RECORDED, BOTH, 2 * PRODUCT)
alternate(154, "Step 4, with the softmax as recorded", f"{4 * PRODUCT} clocks", RECORDED, 4 * PRODUCT, [("S", PRODUCT), ("O", PRODUCT)], PRODUCT)
figure.text(16, 254, f"To scale, for 128 queries and 128 keys. A consumer's product: {PRODUCT} clocks;", "small soft")
figure.text(16, 272, f"its softmax: {RECORDED}.", "small soft")
figure.write(str(Path(__file__).with_name("overlaps_recorded.py")))
