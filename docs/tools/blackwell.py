"""Arithmetic about Blackwell: the tables of blackwell.md. Nothing here is measured or needs a GPU.

    clocks_table    clocks of a tile on an H200 and on a B200, from published rates
    cubic_table     2^x by a polynomial: its error before and after rounding to BF16
"""
import math
import struct
from dataclasses import dataclass

from docs.tools.pages import row

QUERIES = KEYS = 128  # size of a tile
EXPONENTIALS, SHARED_BYTES = 16, 128  # per clock and multiprocessor, on both cards


@dataclass(frozen=True)
class Card:
    multiprocessors: int
    clock: float  # GHz at which its rate is published
    flops: int  # per clock and multiprocessor, for operands of 2 bytes; twice as many for 1, four times for 1/2
    rows: int  # rows of one product's left operand


H200, B200 = Card(132, 1.83e9, 4096, 64), Card(148, 1.85e9, 8192, 128)
VARIANTS: tuple[tuple[str, Card, float, float, int], ...] = (  # title, card, bytes of Q and K, of V, blocks that share a product
    ("H200, BF16", H200, 2, 2, 1), ("H200, FP8", H200, 1, 1, 1), ("B200, BF16", B200, 2, 2, 1), ("B200, BF16, two blocks", B200, 2, 2, 2),
    ("B200, FP8", B200, 1, 1, 1), ("B200, scores in NVFP4, values in FP8", B200, 0.5, 1, 1))


def clocks(card: Card, head_dim: int, qk_bytes: float, v_bytes: float, blocks: int) -> tuple[float, float, float]:
    """Returns the clocks for the products, the exponentials, and reading the products' operands from shared memory; P
    is in registers or tensor memory."""
    pairs = QUERIES * KEYS
    products = sum(2 * pairs * head_dim / (card.flops * 2 / size) for size in (qk_bytes, v_bytes))
    times = QUERIES // card.rows  # how often K and V are read
    read = QUERIES * head_dim * qk_bytes + times * KEYS * head_dim * (qk_bytes + v_bytes) / blocks
    return products, pairs / EXPONENTIALS, read / SHARED_BYTES


def clocks_table() -> str:
    """Returns the clocks per tile and the peak TFLOP/s if all units overlap, and the same with a quarter of the
    exponentials on other units."""
    text = row("a tile of 128 × 128", "$d$", "products", "exponentials", "operands", "at most, TFLOP/s", "a quarter of $2^x$ elsewhere")
    text += row("---", *["--:"] * 6)
    for head_dim in (64, 128):
        for title, card, qk_bytes, v_bytes, blocks in VARIANTS:
            products, exponentials, read = clocks(card, head_dim, qk_bytes, v_bytes, blocks)
            rate = 4 * QUERIES * KEYS * head_dim * card.multiprocessors * card.clock / 1e12
            most = [rate / max(products, exponentials * part, read) for part in (1, 0.75)]
            text += row(title, str(head_dim), f"{products:.0f}", f"{exponentials:.0f}", f"{read:.0f}", *(f"{of:.0f}" for of in most))
    return text


def float32(x: float) -> float:
    return float(struct.unpack("f", struct.pack("f", x))[0])


def rounded(x: float, bits: int) -> float:
    """Rounds a positive number to this many bits of fraction, ties to even."""
    unit = 2.0 ** (math.frexp(x)[1] - 1 - bits)
    return round(x / unit) * unit


def solved(matrix: list[list[float]]) -> list[float]:
    """Returns the solution of a linear system; the last column is the right-hand side."""
    size = len(matrix)
    for i in range(size):
        pivot = max(range(i, size), key=lambda at: abs(matrix[at][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        matrix[i] = [value / matrix[i][i] for value in matrix[i]]
        for other in range(size):
            if other != i:
                matrix[other] = [a - matrix[other][i] * b for a, b in zip(matrix[other], matrix[i])]
    return [line[-1] for line in matrix]


def polynomial(degree: int) -> list[float]:
    """Returns coefficients p, with p[0] = 1, that minimise the largest relative error of 2^x on [0, 1], found by Remez'
    exchange and rounded to floats."""
    places = [(1 - math.cos(math.pi * (i + 0.5) / (degree + 1))) / 2 for i in range(degree + 1)]
    grid = [i / 4096 for i in range(4097)]
    found: list[float] = []
    for _ in range(8):
        found = [1.0, *solved([[*(x ** power / 2 ** x for power in range(1, degree + 1)), (-1.0) ** i, 1 - 1 / 2 ** x]
                               for i, x in enumerate(places)])[:degree]]
        errors = [sum(c * x ** power for power, c in enumerate(found)) / 2 ** x - 1 for x in grid]
        runs: list[list[int]] = []  # runs of errors with the same sign
        for i, error in enumerate(errors[1:], 1):
            if runs and errors[runs[-1][-1]] * error > 0:
                runs[-1].append(i)
            else:
                runs.append([i])
        peaks = [max(run, key=lambda at: abs(errors[at])) for run in runs]
        peaks = sorted(sorted(peaks, key=lambda at: -abs(errors[at]))[:degree + 1])
        if len(peaks) == degree + 1:
            places = [grid[peak] for peak in peaks]
    return [float32(c) for c in found]


def cubic_table() -> str:
    """Returns the largest relative error of 2^x on [0, 1), as float and after rounding to BF16, and how often the BF16
    bits differ from those of the exact result."""
    text = row("$2^x$ by", "multiply-adds", "float32", "as BF16", "other BF16 than exact") + row("---", *["--:"] * 4)
    points = [(i + 0.5) / 16384 for i in range(16384)]
    exact = [2 ** x for x in points]

    def by_polynomial(degree: int) -> list[float]:
        coefficients, values = polynomial(degree), []
        for x in points:
            value = coefficients[-1]
            for c in coefficients[-2::-1]:
                value = float32(value * x + c)  # rounded once, like a fused multiply-add
            values.append(value)
        return values

    for title, cost, values in (("exact", "-", exact), *((f"degree {degree}", str(degree), by_polynomial(degree)) for degree in (2, 3, 4))):
        largest = max(abs(value / true - 1) for value, true in zip(values, exact))
        as_bf16 = [rounded(value, 7) for value in values]
        in_bf16 = max(abs(value / true - 1) for value, true in zip(as_bf16, exact))
        others = sum(value != rounded(true, 7) for value, true in zip(as_bf16, exact)) / len(exact)
        text += row(title, cost, "-" if title == "exact" else f"{largest:.1e}", f"{in_bf16:.1e}", f"{100 * others:.1f} %")
    return text
