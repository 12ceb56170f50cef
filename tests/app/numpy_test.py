"""Compares a program's results for arrays written by NumPy with float64 attention, or its gradients, computed by NumPy.

numpy_test.py PROGRAM: runs a chapter's program on arrays from files, ragged, causal and grouped, and compares O and the log-sum-exp, or gradients,
with the formulas below, which do not use the project's oracle. Exits with 77 if NumPy or the program's GPU is missing.
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
    """Returns O and the log-sum-exp of softmax(q k^T / sqrt(d)) v, [batch, heads, seqlen, head_dim], in float64."""
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
# For each type: the file's element type, and the tolerances of O and log-sum-exp for values around 1:
# a few units in the last place.
TOLERANCE = {np.float32: (5e-6, 2e-5), np.float16: (4e-3, 2e-5)}
# For e4m3 the inputs are quarters up to 2, which are exact unless a mean is subtracted. Each probability is off by at most a 16th, and sums of
# products keep about 14 bits. The last step approximates exponentials by a line and sums those approximations.
E4M3_TOLERANCE = {"5": (0.125, 2e-3), "all": (0.125, 0.05)}
# Tolerances of gradients by type, relative to the larger of 1 and the largest element. P and dS are rounded to the type.
GRADIENT_TOLERANCE = {np.float32: 1e-5, np.float16: 4e-3}


def gradients(q, k, v, d_o, causal):
    """Returns dQ, dK and dV from the five products of the backward pass; those of a key head are sums over its group."""
    group = q.shape[1] // k.shape[1]
    q, k, v, d_o = (array.astype(np.float64) for array in (q, k, v, d_o))
    o, lse = attention(q, k, v, causal)
    scale = 1 / np.sqrt(q.shape[-1])
    k, v = (np.repeat(array, group, axis=1) for array in (k, v))
    visible = np.ones((q.shape[2], k.shape[2]), bool)
    if causal:
        visible = np.tril(visible, k.shape[2] - q.shape[2])
    seen = np.isfinite(lse)[..., None]
    p = np.where(visible & seen, np.exp(scale * q @ k.swapaxes(-1, -2) - np.where(seen, lse[..., None], 0)), 0)
    d_s = p * (d_o @ v.swapaxes(-1, -2) - (d_o * o).sum(axis=-1, keepdims=True))
    of_group = lambda array: array.reshape(array.shape[0], -1, group, *array.shape[2:]).sum(axis=2)
    return scale * d_s @ k, of_group(scale * d_s.swapaxes(-1, -2) @ q), of_group(p.swapaxes(-1, -2) @ d_o)


def compare_gradients(got, q, k, v, d_o, causal, dtype):
    for name, array, want in zip(("dQ", "dK", "dV"), got, gradients(q, k, v, d_o, causal)):
        assert array.dtype == np.float32 and array.shape == want.shape, (array.dtype, array.shape)
        error = np.abs(array - want).max() / max(1, np.abs(want).max())
        print(f"{q.shape} x {k.shape[2]} keys, causal {causal}, {dtype.__name__}: {name} {error:.1e}")
        assert error <= GRADIENT_TOLERANCE[dtype], "too far from NumPy"


def run(program, folder, inputs, outputs, causal, *options):
    """Returns the arrays that the program writes for `outputs`, given `inputs`; None if it does not support the
    type."""
    files = {name: str(folder / f"{name}.npy") for name in (*inputs, *outputs)}
    for name, array in inputs.items():
        np.save(files[name], array)
    command = [program] + [word for name, file in files.items() for word in ("--" + name, file)]
    done = subprocess.run(command + ["--reps", "1", *options] + ["--causal"] * causal, capture_output=True, text=True)
    if done.returncode == 77:
        print("skipped:", done.stderr.strip())
        sys.exit(77)
    if done.returncode == 2 and "does not support: convert them with --dtype" in done.stderr:
        return None
    assert done.returncode == 0, done.stdout + done.stderr
    return [np.load(files[name]) for name in outputs]


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
    backward = "--output " not in subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    outputs_of = ("dq", "dk", "dv") if backward else ("output", "lse")
    random = np.random.default_rng(1)
    compared = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for shape, kv_heads, keys, causal in CASES:
            shapes = shape, (shape[0], kv_heads, keys, shape[3]), (shape[0], kv_heads, keys, shape[3])
            before = compared
            for dtype, tolerance in TOLERANCE.items():
                q, k, v = (random.standard_normal(s).astype(dtype) for s in shapes)
                inputs = {"q": q, "k": k, "v": v}
                if backward:
                    inputs["do"] = random.standard_normal(shape).astype(dtype)
                outputs = run(program, folder, inputs, outputs_of, causal)
                if outputs is None:
                    continue  # the chapter does not support this type
                if backward:
                    compare_gradients(outputs, q, k, v, inputs["do"], causal, dtype)
                else:
                    compare(outputs, q, k, v, causal, tolerance, dtype.__name__)
                compared += 1
            if compared == before:
                q, k, v = ((random.integers(-8, 9, s) / 4).astype(np.float32) for s in shapes)
                for step, tolerance in E4M3_TOLERANCE.items():
                    outputs = run(program, folder, {"q": q, "k": k, "v": v}, outputs_of, causal, "--dtype", "e4m3", "--smooth", "off", "--step", step)
                    compare(outputs, q, k, v, causal, tolerance, f"e4m3, step {step}")
                compared += 1
    assert compared >= len(CASES), "no type of the files is one of the chapter's"


main(sys.argv[1])
