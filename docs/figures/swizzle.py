#!/usr/bin/env python3
"""Writes swizzle.svg: the banks of the 16-byte pieces of eight rows, plain and swizzled, according to warp_tile.cuh."""
import re
from pathlib import Path

from svg import Figure

SOURCE = Path(__file__).resolve().parents[2] / "chapters" / "04_flash_attention_2" / "warp_tile.cuh"
CELL, MARKED = 25, 2


def swizzled(row, piece):
    """Applies the kernel's own formula for 128-byte rows: returns the offset of a piece in bytes."""
    found = re.search(r"int swizzled\(int row, int piece\) {\s*return (.*?);", SOURCE.read_text(encoding="utf-8"))
    assert found, f"{SOURCE} has a different formula"
    return eval(found[1], {"row": row, "piece": piece, "kRowBytes": 128})


def tile(figure, x, y, title, place):
    figure.text(x, y - 34, title, "bold")
    for group in range(8):
        figure.text(x + CELL * (group + 0.5), y - 8, str(4 * group), "small soft", "middle")
    for row in range(8):
        for piece in range(8):
            left, top = x + place(row, piece) % 128 // 16 * CELL, y + row * CELL
            figure.box(left, top, CELL, CELL, "blue" if piece == MARKED else "", str(piece), "small" if piece == MARKED else "small soft")


figure = Figure(468, 342, "Unswizzled, the same piece of eight rows is in the same four banks. Swizzled, it is in eight different groups of banks.")
top = 84
figure.text(20, 28, "columns: the first of four banks; rows 0 to 7, downwards", "small soft")
tile(figure, 20, top, "unswizzled", lambda row, piece: row * 128 + piece * 16)
tile(figure, 250, top, "swizzled", swizzled)
y = top + 8 * CELL
figure.text(20, y + 24, "piece 2: eight wavefronts", "small red")
figure.text(250, y + 24, "piece 2: one wavefront", "small green")
figure.text(20, y + 44, "for four of 32 banks", "small soft")
figure.text(250, y + 44, "for all 32 banks", "small soft")
figure.write(__file__)
