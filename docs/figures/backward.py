#!/usr/bin/env python3
"""Writes the figures of chapter 7: backward_products.svg, the five products of a tile and the memory of their operands;
backward_loops.svg, the two loops; backward_pair.svg, two warps that share keys; backward_orders.svg, one element of dQ
summed in two orders; backward_starts.svg, the order in which blocks process the queries."""
import struct
from pathlib import Path

from svg import Figure

PARTS = (0.7071068, -1.3333334, 0.1234567, 0.5772157)  # what four tiles of keys contribute to one element


def write(figure, name):
    figure.write(str(Path(__file__).with_name(f"backward_{name}.py")))


def products():
    figure = Figure(520, 356, "Five products for a tile of keys and a tile of queries. S and dP transposed come from tiles in shared memory into registers. "
                              "Their results are left operands of dV and dK in place; for dQ, dS goes through shared memory once.")
    rows = (("Sᵀ = K Qᵀ", "K, Q", "Sᵀ: then Pᵀ", "blue"), ("dPᵀ = V dOᵀ", "V, dO", "dPᵀ: then dSᵀ", "blue"),
            ("dV += Pᵀ dO", "dO, down its columns", "Pᵀ, dV", "amber"), ("dK += dSᵀ Q", "Q, down its columns", "dSᵀ, dK", "amber"),
            ("dQ = dS K", "dS; K, down its columns", "dQ of the tile", "green"))
    for x, words in ((16, "product"), (150, "from shared memory"), (362, "in registers")):
        figure.text(x, 28, words, "bold")
    for i, (product, shared, registers, look) in enumerate(rows):
        y = 42 + 46 * i
        figure.box(16, y, 120, 36, look)
        figure.text(26, y + 23, product)
        figure.text(150, y + 23, shared, "small")
        figure.text(362, y + 23, registers, "small")
    figure.lines(16, 294, ("Blue: a warp's keys are rows, the tile's queries are columns.", "Amber: summed over queries, kept until the last tile.",
                           "Green: summed over keys of all warps, so it is passed on at once."), "small soft")
    write(figure, "products")


def loops():
    figure = Figure(520, 268, "Left, two passes: a block of queries walks along the keys for dQ, a block of keys along the queries for dK and dV. Right, one pass: "
                              "the block of keys also adds its part to dQ, in memory.")

    def grid(x, title, row, column):
        figure.text(x, 28, title, "bold")
        figure.text(x, 50, "keys →", "small soft")
        for i in range(4):
            for j in range(4):
                look = "green" if i == row else ""
                look = "amber" if j == column else look
                figure.box(x + 30 * j, 60 + 30 * i, 30, 30, look)

    grid(16, "Pass 1: dQ", 1, None)
    grid(176, "Pass 2: dK, dV", None, 2)
    grid(350, "One pass", None, 2)
    figure.arrow(16, 200, 136, 200, "green")
    figure.arrow(306, 60, 306, 180, "amber")
    figure.arrow(340, 60, 340, 180, "amber")
    figure.text(493, 50, "dQ", "small", "middle")
    for i in range(4):
        figure.box(480, 60 + 30 * i, 26, 30, "green")
        figure.arrow(440, 75 + 30 * i, 478, 75 + 30 * i, "green")
    figure.text(16, 222, "a block of queries", "small green")
    figure.text(176, 204, "a block of keys", "small amber")
    figure.text(350, 204, "a block of keys", "small amber")
    figure.text(350, 222, "adds to every tile of dQ", "small green")
    figure.text(16, 252, "Rows: tiles of queries. Two passes: seven products. One pass: five.", "small soft")
    write(figure, "loops")


def pair():
    figure = Figure(520, 178, "Two warps share 32 keys. For the scores each has half of the queries, for the sums each has half of the columns. In between "
                              "they exchange their halves of P and dS transposed through shared memory.")
    for x, title in ((16, "Sᵀ and dPᵀ: 64 queries"), (304, "dV and dK: 128 columns")):
        figure.text(x, 28, title, "bold")
        for side, look in enumerate(("blue", "amber")):
            figure.box(x + 100 * side, 44, 100, 72, look, f"warp {side}")
    figure.arrow(222, 80, 298, 80, "green")
    figure.text(260, 70, "Pᵀ, dSᵀ", "small green", "middle")
    figure.lines(16, 142, ("Rows: 32 keys, for both warps. Green: the warps exchange their halves", "through shared memory, since a column sums over all queries."), "small soft")
    write(figure, "pair")


def rounded(value):
    """Rounds to float32."""
    return struct.unpack("f", struct.pack("f", value))[0]


def orders():
    figure = Figure(520, 246, "Four tiles of keys give one number each to an element of dQ. Added in a different order, the float sum ends in a different last digit.")
    parts = [rounded(part) for part in PARTS]
    for column, (title, order) in enumerate((("one run: tiles 0, 1, 2, 3", (0, 1, 2, 3)), ("another: tiles 3, 1, 0, 2", (3, 1, 0, 2)))):
        x, total = 16 + 256 * column, 0.0
        figure.text(x, 28, title, "bold")
        for i, tile in enumerate(order):
            total = rounded(total + parts[tile])
            figure.box(x, 42 + 36 * i, 110, 28, "blue" if column == 0 else "amber")
            figure.text(x + 10, 42 + 36 * i + 19, f"{parts[tile]:+.7f}", "code")
            figure.text(x + 122, 42 + 36 * i + 19, f"{total:.9f}", "code red" if i == 3 else "code")
    figure.lines(16, 210, ("After each part: the sum so far, rounded to float32.", "Both are right. They differ in their last bits."), "small soft")
    write(figure, "orders")


def starts():
    figure = Figure(520, 250, "Left, no mask: in each round the four blocks of a head work on four different tiles of queries. Right, a causal mask: the block whose keys are the last that "
                              "a tile of queries sees adds to it first.")
    for x, title, causal in ((16, "No mask, step 5: the round", False), (276, "Causal, step 6: the turn", True)):
        figure.text(x, 28, title, "bold")
        figure.text(x + 64, 52, "keys: a block each", "small soft")
        for query in range(4):
            figure.text(x, 84 + 34 * query, f"queries {query}", "small soft")
            for key in range(4):
                if causal and key > query:
                    continue
                first = query == key
                figure.box(x + 64 + 40 * key, 62 + 34 * query, 37, 31, "amber" if first else "", str((query - key) % 4), "bold" if first else "")
    figure.text(16, 222, "Left: when a block reaches a tile of queries. Right: how many add before it.", "small soft")
    figure.text(16, 240, "Queries and keys are numbered by tile. Amber: where a block begins.", "small soft")
    write(figure, "starts")


if __name__ == "__main__":
    products()
    loops()
    pair()
    orders()
    starts()
