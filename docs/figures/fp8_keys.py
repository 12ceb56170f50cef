#!/usr/bin/env python3
"""Writes fp8_keys.svg: which thread of a quad holds which scores of a row, which elements of P it must hold, and the
resulting order of the keys. The layout is read from common/ptx/wgmma_layout.h, the order from transpose.cuh."""
import re
from pathlib import Path

from svg import Figure

ROOT = Path(__file__).resolve().parents[2]
LAYOUT = ROOT / "common" / "ptx" / "wgmma_layout.h"
TRANSPOSE = ROOT / "chapters" / "06_fp8" / "transpose.cuh"
CELL, KEYS = 27, 16
LOOKS = ("blue", "amber", "green", "")  # one per thread of a quad


def formula(path, pattern):
    """Returns a C++ expression as Python, with integer division."""
    found = re.search(pattern, path.read_text(encoding="utf-8"))
    assert found, f"{path} has a different formula"
    return found[1].replace("/", "//")


def holders(matrix, elements):
    """Returns {column: thread} of row 0, for threads 0 to 3. Elements of the row 8 below are left out."""
    column = formula(LAYOUT, rf"MatrixPlace {matrix}\(int thread, int i\) {{\s*return {{row\(.*?\), (.*?)}};")
    below = 2 if matrix == "d" else 4  # elements of a row that precede those of the row below
    return {eval(column, {"thread": thread, "i": i}): thread for thread in range(4) for i in range(elements) if i // below % 2 == 0}


def line(figure, y, title, labels, threads):
    figure.text(20, y - 9, title, "small soft")
    for i, (label, thread) in enumerate(zip(labels, threads)):
        figure.box(20 + i * CELL, y, CELL, CELL, LOOKS[thread], str(label))


of_score, of_place = holders("d", 8), holders("a8", 8)
key_at = formula(TRANSPOSE, r"int key_at\(int i\) { return (.*?); }")
keys = [eval(key_at, {"i": i}) for i in range(KEYS)]
assert [of_score[key] for key in keys] == [of_place[i] for i in range(KEYS)]
figure = Figure(472, 300, "Thread t of a quad holds scores 2t, 2t+1, 2t+8 and 2t+9 of every 16 in a row, but must hold four neighbours of P. It packs "
                          "what it has, so P has its keys in a different order, and V is transposed with its keys in that order.")
figure.text(20, 28, "one row, 16 keys; colours are the threads of a quad", "bold")
line(figure, 66, "scores, as the first product leaves them: keys", range(KEYS), [of_score[key] for key in range(KEYS)])
line(figure, 136, "P, as the second product reads it: the keys that the threads have", keys, [of_place[i] for i in range(KEYS)])
figure.text(20, 197, "a column of V, transposed: its keys in the same order", "small soft")
for i, key in enumerate(keys):
    figure.text(20 + i * CELL + CELL / 2, 224, str(key), "small", "middle")
for look, thread, x in zip(LOOKS, range(4), range(20, 420, 108)):
    figure.box(x, 256, 18, 18, look)
    figure.text(x + 26, 270, f"thread {thread}", "small soft")
figure.write(__file__)
