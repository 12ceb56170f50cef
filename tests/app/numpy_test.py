"""Arrays written by NumPy come back as NumPy's own float64 attention.

numpy_test.py PROGRAM: runs a chapter's program on arrays from files, ragged, causal and grouped, and compares O and the log-sum-exp
with attention written here, independently of the house's oracle. Exits with 77 if NumPy or the program's GPU is missing.
"""

import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is missing (apt install python3-numpy)")
    sys.exit(77)


def attention(q, k, v, causal):
    """O and log-sum-exp of softmax(q k^T / sqrt(d)) v, [batch, heads, seqlen, head_dim], in float64."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        queries, keys = scores.shape[-2:]
        hidden = np.arange(keys)[None, :] > np.arange(queries)[:, None] + keys - queries
        scores = np.where(hidden, -np.inf, scores)
    row_max = scores.max(axis=-1, keepdims=True)
    seen = np.isfinite(row_max)
    weights = np.where(seen, np.exp(scores - np.where(seen, row_max, 0)), 0)
    row_sum = weights.sum(axis=-1, keepdims=True)
    o = np.where(seen, weights / np.where(seen, row_sum, 1), 0) @ v
    with np.errstate(divide="ignore"):
        return o, (row_max + np.log(row_sum))[..., 0]


CASES = [  # q shape, kv heads, keys, causal
    ((1, 1, 1, 64), 1, 1, False),
    ((2, 4, 100, 64), 2, 131, False),
    ((1, 8, 65, 128), 1, 65, True),
    ((1, 2, 70, 256), 2, 33, True),
]
# By type: what a file holds, and how far O and log-sum-exp may be off for values around 1 (a few units in the last place).
TOLERANCE = {np.float32: (5e-6, 2e-5), np.float16: (4e-3, 2e-5)}
# A chapter of e4m3 gets quarters up to 2, which e4m3 holds. Its probabilities are off by a 16th each at worst; its sums of
# products keep about 14 bits.
E4M3_TOLERANCE = (0.125, 2e-3)


def run(program, folder, q, k, v, causal, *options):
    files = {name: str(folder / f"{name}.npy") for name in ("q", "k", "v", "output", "lse")}
    for name, array in (("q", q), ("k", k), ("v", v)):
        np.save(files[name], array)
    command = [program] + [word for name, file in files.items() for word in ("--" + name, file)]
    done = subprocess.run(command + ["--reps", "1", *options] + ["--causal"] * causal, capture_output=True, text=True)
    if done.returncode == 77:
        print("skipped:", done.stderr.strip())
        sys.exit(77)
    if done.returncode == 2 and "does not compute in" in done.stderr:
        return None
    assert done.returncode == 0, done.stdout + done.stderr
    return np.load(files["output"]), np.load(files["lse"])


def compare(outputs, q, k, v, causal, tolerance, what):
    o, lse = outputs
    want_o, want_lse = attention(q, k, v, causal)
    assert o.dtype == np.float32 and o.shape == want_o.shape, (o.dtype, o.shape)
    assert lse.shape == want_lse.shape, lse.shape
    seen = np.isfinite(want_lse)
    assert np.array_equal(np.isneginf(lse), ~seen)
    error, lse_error = np.abs(o - want_o).max(), np.abs(lse[seen] - want_lse[seen]).max(initial=0)
    print(f"{q.shape} x {k.shape[2]} keys, causal {causal}, {what}: O {error:.1e}, lse {lse_error:.1e}")
    assert error <= tolerance[0] and lse_error <= tolerance[1], "too far from NumPy"


def main(program):
    random = np.random.default_rng(1)
    compared = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for shape, kv_heads, keys, causal in CASES:
            shapes = shape, (shape[0], kv_heads, keys, shape[3]), (shape[0], kv_heads, keys, shape[3])
            before = compared
            for dtype, tolerance in TOLERANCE.items():
                q, k, v = (random.standard_normal(s).astype(dtype) for s in shapes)
                outputs = run(program, folder, q, k, v, causal)
                if outputs is None:
                    continue  # a chapter that has no such type
                compare(outputs, q, k, v, causal, tolerance, dtype.__name__)
                compared += 1
            if compared == before:
                q, k, v = ((random.integers(-8, 9, s) / 4).astype(np.float32) for s in shapes)
                outputs = run(program, folder, q, k, v, causal, "--dtype", "e4m3")
                compare(outputs, q, k, v, causal, E4M3_TOLERANCE, "e4m3")
                compared += 1
    assert compared >= len(CASES), "no type of the files is one of the chapter's"


main(sys.argv[1])
