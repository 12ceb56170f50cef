"""Runs bench/decode.py's cells up to the result file and its table without a GPU: PyTorch is the stand-in of
decode_test.py, and the library, the Python package, FlashAttention-3 and FlashInfer compute from the strides, tables
and lengths that they are given. Exits 77 without NumPy."""

import contextlib
import ctypes
import io
import json
import os
import pathlib
import sys
import tempfile
import types
import unittest
from typing import Any
from unittest import mock

try:
    import numpy as np
except ImportError:
    print("NumPy is not here")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from bench import cells, decode, packages, race, results
from tests.bench import decode_test, masks_test
from tests.bench.decode_test import Packed, attend
from tests.bench.masks_test import array, strided

CELLS = [
    cells.Cell(3, 4, 2, 256, tokens, rows, layout, 8, ragged)
    for layout in race.LAYOUTS
    for tokens in (1, 3)
    for rows in (0, 16)
    for ragged in (False, True)
]


def key_rows(cache, table, lengths, b):
    """[keys, kv_heads, head_dim] of a sequence, from [.., rows, kv_heads, head_dim]."""
    rows = cache[b] if table is None else np.concatenate([cache[page] for page in table[b]])
    return rows if lengths is None else rows[: lengths[b]]


def cached(q, k, v, lengths, table):
    """[batch, tokens, heads, head_dim]"""
    scale = q.shape[-1] ** -0.5
    outputs = [
        attend(q[b], key_rows(k, table, lengths, b), key_rows(v, table, lengths, b), scale) for b in range(len(q))
    ]
    return np.stack(outputs).astype(np.float32).view(Packed)


class C:
    """flashbook.h, for its users' caches."""

    wrong = 0  # keys that it does not see

    def __init__(self):
        self.steps: list[tuple[int, int]] = []

    def flashbook_decode_workspace_bytes(self, chapter, step, shape, cache):
        return -1 if step == 10 and cache._obj.page_rows else 64

    def flashbook_decode(self, chapter, step, shape, cache, tensors, stream):
        s, c, t = shape._obj, cache._obj, tensors._obj
        self.steps.append((chapter, step))
        assert (s.causal, s.scale) == (1, ctypes.c_float(s.head_dim**-0.5).value)
        sizes = (
            (c.pages, s.kv_heads, c.page_rows, s.head_dim)
            if c.page_table
            else (s.batch, s.kv_heads, s.seqlen_k, s.head_dim)
        )
        k, v = (strided(s, name, getattr(t, name), sizes).swapaxes(1, 2) for name in "kv")
        q, o = (strided(s, name, getattr(t, name), (s.batch, s.heads, s.seqlen_q, s.head_dim)) for name in "qo")
        table = array(c.page_table, (s.batch, s.seqlen_k // c.page_rows), "int32") if c.page_table else None
        lengths = array(c.lengths, (s.batch,), "int32") if c.lengths else np.full(s.batch, s.seqlen_k)
        o[:] = cached(q.swapaxes(1, 2), k, v, lengths - self.wrong, table).swapaxes(1, 2)
        return 0


class Library(masks_test.Library):
    def __init__(self):
        self.c: Any = C()

    def error(self):
        return "pages are not supported by this step"


class Wrapper:
    """FlashInfer's, for decoding and for several queries."""

    def __init__(self, workspace, order, backend=None, use_tensor_cores=False):
        self.order = order

    def plan(self, *of, causal=False, sm_scale, **_):
        self.tokens = int(of[0][1]) if causal else 1
        first, self.used, last = (np.asarray(one) for one in of[causal:][:3])
        page_rows = of[causal:][6]
        self.tables, self.lengths = np.split(self.used, first[1:-1]), (np.diff(first) - 1) * page_rows + last

    def run(self, queries, cache, out):
        k, v = cache if self.order == "NHD" else (tensor.swapaxes(1, 2) for tensor in cache)
        q = np.asarray(queries).reshape(len(self.lengths), self.tokens, *queries.shape[1:])
        out[:] = cached(q, k, v, self.lengths, self.tables).reshape(out.shape)


def fwd(q, k, v, softmax_scale, is_causal, seqused_k, page_table, num_splits):
    """torch.ops.flash_attn_3.fwd"""
    assert (is_causal, num_splits) == (True, 0)
    return cached(q, k, v, seqused_k, page_table), None


def with_kvcache(q, k, v, cache_seqlens, block_table, causal):
    """The Python package's function."""
    assert causal
    return cached(q, k, v, cache_seqlens, block_table)


class Cells(unittest.TestCase):
    def run_script(self, *words, library=None):
        """Exit code, the benchmarks of the result file by name, what was printed."""
        torch = decode_test.pytorch()
        there = {"fa3": None, "flashinfer": None}
        package = types.SimpleNamespace(
            explain=lambda *of, **options: types.SimpleNamespace(chapter=8, step=9, name="boxes of rows"),
            flash_attn_with_kvcache=with_kvcache,
        )
        flashinfer = types.SimpleNamespace(
            BatchDecodeWithPagedKVCacheWrapper=Wrapper, BatchPrefillWithPagedKVCacheWrapper=Wrapper
        )
        absent = lambda who: (
            None
            if who in there
            else race.Contestant(who, "", None, skipped="its package is not installed", install="pip install it")
        )
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            out = pathlib.Path(folder) / "out.json"
            for where, name, value in (
                (cells, "CELLS", CELLS),
                (cells, "NAP", 0),
                (race, "Library", lambda path: library or Library()),
                (race, "pytorch", lambda program: torch),
                (race, "torch", torch),
                (race, "Replayed", lambda launch: launch),
                (packages, "absent", absent),
                (results, "commit", lambda: "abc"),
                (cells.flash_attention_3, "library", lambda: types.SimpleNamespace(fwd=fwd)),
                (race.subprocess, "run", lambda *a, **k: types.SimpleNamespace(returncode=1)),
                (cells.caches.importlib, "import_module", {"flashinfer": flashinfer}.get),
                (sys, "path", list(sys.path)),
                (sys, "argv", ["decode.py", "--library", __file__, "--out", str(out), "--rounds", "1", *words]),
            ):
                stack.enter_context(mock.patch.object(where, name, value))
            stack.enter_context(mock.patch.dict(sys.modules, {"flashbook": package}))
            stack.enter_context(mock.patch.dict(os.environ))
            said = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(said))
            code = decode.main()
            found = json.loads(out.read_text())["benchmarks"] if out.exists() else []
            if out.exists():
                stack.enter_context(mock.patch.object(sys, "argv", ["decode.py", "--summary", str(out)]))
                self.again = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
                self.assertEqual(decode.main(), 0)
        return code, {entry["name"]: entry for entry in found}, said.getvalue()

    def test_every_cell_in_both_layouts_alone_and_as_called(self):
        code, found, said = self.run_script("--step", "9,10")
        self.assertEqual(code, 0, said)
        for cell in CELLS:
            of_flashinfer = (
                {"flashinfer", "flashinfer_tc"} if cell.tokens == 1 else {"flashinfer_fa2", "flashinfer_fa3"}
            )
            peers = {"fa3"} | (of_flashinfer if cell.page_rows else set())
            steps = {"ch08/step9"} | ({"ch08/step10"} if not cell.page_rows else set())
            for kind, who in (("decode", steps | peers), ("called", {"ch08/step9"} | peers)):
                ran = {
                    name.split("/bf16/")[0].partition("/")[2]
                    for name, entry in found.items()
                    if name.startswith(kind) and name.endswith(f"/bf16/{cell}") and "error_occurred" not in entry
                }
                self.assertEqual(ran, who, (kind, str(cell)))
                ours = found[f"{kind}/ch08/step9/bf16/{cell}"]
                self.assertLessEqual(ours["error"], ours["error_bound"])
                self.assertEqual({key[3:] for key in ours if key.startswith("vs_")}, peers)
                self.assertAlmostEqual(
                    ours["bytes_per_second"] * ours["real_time"] * 1e-3, 2 * 2 * sum(cell.lengths) * 2 * 8
                )
        refused = found["decode/ch08/step10/bf16/d8/b3h4k2t1_bshd_p16/n256"]
        self.assertEqual(refused["error_message"], "pages are not supported by this step")
        self.assertEqual(found["decode/ch08/step9/bf16/d8/b3h4k2t1_bhsd/n256"]["chosen"], 1)
        skipped = found["decode/cudnn/bf16/d8/b3h4k2t1_bhsd/n256"]  # there is no PyTorch
        self.assertIn("torch", skipped["error_message"])

    def test_the_table_counts_what_is_behind(self):
        def elapsed(contestant, cache_filler):
            return 3.0 if contestant.who.startswith("ch") and contestant.called else 2.0

        with mock.patch.object(race, "timed", elapsed):
            code, _, said = self.run_script("--only", "t1")
        self.assertEqual(code, 0, said)
        table = self.again.getvalue()
        self.assertIn(table, said)
        lines = [line.split() for line in table.splitlines()]
        self.assertIn(["GPU", "alone", "both", "all", "8", "1.000", "1.000", "0", "0.00", "0.00"], lines)
        self.assertIn(["as", "called", "both", "all", "8", "0.667", "0.667", "8", "0.00", "0.00"], lines)
        self.assertIn(["as", "called", "bshd", "pages", "of", "16", "2", "0.667", "0.667", "2", "0.00", "0.00"], lines)
        self.assertIn("called/ch08/step9/bf16/d8/b3h4k2t1ragged_bshd_p16/n256: 0.667 of fa3", table)
        self.assertIn("decode/cudnn skipped in 2: ", table)

    def test_a_query_that_misses_a_key_is_not_timed(self):
        library = Library()
        library.c.wrong = 1
        code, found, said = self.run_script("--only", "t3_bshd_p16", library=library)
        self.assertEqual((code, found), (1, {}), said)
        self.assertIn("decode/ch08/step9/bf16/d8/b3h4k2t3_bshd_p16/n256: error", said)

    def test_a_layout_that_the_word_does_not_say_is_wrong(self):
        """The kernel reads by the strides in the struct."""
        with mock.patch.object(race, "set_strides"):
            code, _, said = self.run_script("--only", "t3_bshd/")
        self.assertEqual(code, 1, said)

    def test_options_of_one_mode(self):
        for words, because in (
            (("--only", "b99"), "matches no cell"),
            (("--shape", "2"), "--one-query"),
            (("--peers", "flex"), "give some of fa3"),
            (("--latent", "--only", "b1"), "choose shapes with --shape"),
        ):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                with mock.patch.object(sys, "argv", ["decode.py", *words]):
                    decode.parse()
            self.assertIn(because, said.getvalue())


if __name__ == "__main__":
    unittest.main()
