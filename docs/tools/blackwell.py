"""Arithmetic about Blackwell: the tables of blackwell.md. Nothing here is measured or needs a GPU.

    clocks_table    clocks of a tile on an H200 and on a B200, from published rates
    cubic_table     2^x by a polynomial: its error before and after rounding to BF16
    fp4_table       the error of rounding to NVFP4 and its neighbours
"""
import math
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

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


def rounded(x: float, bits: int, least: int = -200) -> float:
    """Rounds to this many bits of fraction, ties to even; 2^least is the smallest normal number."""
    if x == 0:
        return 0.0
    unit = 2.0 ** (max(math.frexp(x)[1] - 1, least) - bits)
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


def e4m3(x: float) -> float:
    return max(-448.0, min(448.0, rounded(x, 3, -6)))


def e2m1(x: float) -> float:
    return max(-6.0, min(6.0, rounded(x, 1, 0)))


def by_blocks(values: Sequence[float], size: int, scale: Callable[[float], float], to: Callable[[float], float]) -> list[float]:
    """Divides each block by its scale, rounds it and multiplies it by the scale again; `scale` is a function of the block's largest magnitude."""
    done: list[float] = []
    for at in range(0, len(values), size):
        block = values[at:at + size]
        unit = scale(max(map(abs, block)))
        done += [to(x / unit) * unit for x in block]
    return done


def largest_power(most: float) -> Callable[[float], float]:
    """Returns the scale of the MX formats: a power of two, from the exponents of a block's largest magnitude and of the
    type's."""
    return lambda largest: 2.0 ** (math.frexp(largest)[1] - math.frexp(most)[1])


def nvfp4(values: Sequence[float]) -> list[float]:
    tensor = max(map(abs, values)) / (6 * 448)  # so that the largest block's scale is the largest e4m3 number
    return by_blocks(values, 16, lambda largest: e4m3(largest / 6 / tensor) * tensor, e2m1)


FORMATS: tuple[tuple[str, str, Callable[[Sequence[float]], list[float]]], ...] = (
    ("NVFP4: blocks of 16, scales in e4m3", "4.5", nvfp4),
    ("MXFP4: blocks of 32, powers of two", "4.25", lambda values: by_blocks(values, 32, largest_power(6), e2m1)),
    ("FP4 with one scale per tensor", "4", lambda values: by_blocks(values, len(values), lambda largest: largest / 6, e2m1)),
    ("MXFP8: blocks of 32, powers of two", "8.25", lambda values: by_blocks(values, 32, largest_power(448), e4m3)),
    ("e4m3 with one scale per tensor", "8", lambda values: by_blocks(values, len(values), lambda largest: largest / 448, e4m3)))


def fp4_table() -> str:
    """Returns the relative RMS errors of the elements of Q and K, and of the products of 256 pairs of rows, on two
    kinds of inputs."""
    text = row("type", "bits an element", "N(0, 1): elements", "products", "outliers: elements", "products") + row("---", *["--:"] * 5)
    draw, normal, dim = random.Random(1), NormalDist(), 128

    def number(outliers: bool) -> float:
        value = normal.inv_cdf(draw.random() or 0.5)
        return value + 10 * normal.inv_cdf(draw.random() or 0.5) if outliers and draw.random() < 0.001 else value

    inputs = [[[number(outliers) for _ in range(256 * dim)] for _ in "qk"] for outliers in (False, True)]

    def products(q: Sequence[float], k: Sequence[float]) -> list[float]:
        return [sum(a * b for a, b in zip(q[at:at + dim], k[at:at + dim])) for at in range(0, len(q), dim)]

    def error(values: Sequence[float], exact: Sequence[float]) -> str:
        return f"{100 * math.sqrt(sum((a - b) ** 2 for a, b in zip(values, exact)) / sum(b * b for b in exact)):.2g} %"

    for title, bits, to in FORMATS:
        cells = []
        for q, k in inputs:
            q_as, k_as = to(q), to(k)
            cells += [error(q_as, q), error(products(q_as, k_as), products(q, k))]
        text += row(title, bits, *cells)
    return text
