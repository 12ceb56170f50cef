"""bench/decode.py --prefill from its first line to its result file, without a GPU: PyTorch is the stand-in of masks_test.py, and the library and
FlashInfer compute what they are given, pages and packed queries and all. Exits 77 without NumPy."""

import contextlib
import io
import json
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
from bench import decode, peers, race, results
from tests.bench import masks_test
from tests.bench.masks_test import Tensor, array

SIZES = {"chunks": [(40, 64 * i) for i in range(1, 4)], "mixed": [(1, 128), (1, 100), (33, 128)]}  # queries and keys of each sequence
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8


class Packed(Tensor):
    """What this script asks of a tensor besides."""

    def __getitem__(self, place):
        return super().__getitem__(place).view(Packed)

    def transpose(self, a, b):  # type: ignore[override]
        return np.swapaxes(self, a, b).view(Packed)

    def diff(self):
        return np.diff(self).view(Packed)

    def tril(self, diagonal):
        return np.tril(self, diagonal).view(Packed)

    def index_copy_(self, axis, order, pages):
        self[np.asarray(order)] = pages
        return self


def pytorch():
    """The part of PyTorch that the script uses."""
    torch, random = masks_test.pytorch(), np.random.default_rng(2)
    torch.float8_e4m3fn = np.float16  # no tensor here is of that type
    for name in ("randn", "ones", "tensor", "full_like"):
        made = getattr(torch, name)
        setattr(torch, name, lambda *of, made=made, **others: made(*of, **others).view(Packed))
    torch.randperm = lambda n, device: random.permutation(n).view(Packed)
    torch.empty_like = lambda like: np.empty_like(like).view(Packed)  # with the strides of what it is like, as PyTorch's
    torch.softmax = lambda scores, axis: scores.view(Tensor).softmax(axis)
    torch.cat = lambda tensors: np.concatenate(tensors).view(Packed)
    pad = lambda tensor, sizes: np.pad(tensor, sizes).view(Packed)
    torch.nn = types.SimpleNamespace(functional=types.SimpleNamespace(pad=pad))
    return torch


def attend(q, k, v, scale):
    """[queries, heads, head_dim], a sequence's last queries, causal."""
    hidden = np.triu(np.ones((len(q), len(k)), bool), len(k) - len(q) + 1)
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(tensor, group, 1) for tensor in (k, v))
    scores = np.where(hidden[:, None], -np.inf, scale * np.einsum("qhd,khd->qhk", q.astype(float), k))
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("qhk,khd->qhd", p / p.sum(-1, keepdims=True), v)


def gathered(cache, pages, keys):
    """[keys, kv_heads, head_dim] from pages of [kv_heads, rows, head_dim]."""
    return np.concatenate([cache[page].swapaxes(0, 1) for page in pages])[:keys]


class C:
    """flashbook.h: attention by what the structs say."""

    def __init__(self):
        self.flashbook_masked_decode_workspace_bytes = self.flashbook_decode_workspace_bytes = mock.Mock(return_value=64)

    def flashbook_masked_decode(self, chapter, step, shape, cache, mask, tensors, stream):
        s, c, m, t = shape._obj, cache._obj, mask._obj, tensors._obj
        assert (chapter, step) in ((8, 6), (9, 8))
        assert (s.causal, m.window_left, m.window_right, m.softcap) == (0, -1, 0, 0)
        first, lengths = (array(pointer, (s.batch + more,), "int32") for pointer, more in ((c.first_query, 1), (c.lengths, 0)))
        assert (c.queries, s.seqlen_q) == (first[-1], np.diff(first).max())
        table = array(c.page_table, (s.batch, -(-s.seqlen_k // c.page_rows)), "int32")
        k, v = (array(pointer, (c.pages, s.kv_heads, c.page_rows, s.head_dim)) for pointer in (t.k, t.v))
        size = c.queries * s.heads * s.head_dim
        q, o = (np.lib.stride_tricks.as_strided(array(pointer, (size,)), (c.queries, s.heads, s.head_dim), (4 * row, 4 * head, 4))
                for pointer, row, head in ((t.q, s.q_row_stride, s.q_head_stride), (t.o, s.o_row_stride, s.o_head_stride)))
        for b in range(s.batch):
            own = slice(first[b], first[b + 1])
            o[own] = attend(q[own], gathered(k, table[b], lengths[b]), gathered(v, table[b], lengths[b]), s.scale)
        return 0


class Library(masks_test.Library):
    def __init__(self, path):
        self.c: Any = C()

    def chapters(self):
        return [types.SimpleNamespace(number=8, steps=8, title=b"Decoding")]


class Prefill:
    """FlashInfer's wrapper for that."""

    def __init__(self, workspace, layout, backend):
        assert (layout, backend in ("fa2", "fa3")) == ("HND", True)

    def plan(self, first_query, first, used, last_rows, heads, kv_heads, head_dim, page_rows, causal, sm_scale, window_left, logits_soft_cap, **_):
        assert (heads, kv_heads, head_dim, causal, window_left, logits_soft_cap) == (HEADS, KV_HEADS, HEAD_DIM, True, -1, 0)
        keys = (np.diff(first) - 1) * page_rows + last_rows
        self.sequences = [(slice(*first_query[b:b + 2]), used[first[b]:first[b + 1]], keys[b]) for b in range(len(keys))]
        self.scale = sm_scale

    def run(self, queries, cache, out):
        for own, pages, keys in self.sequences:
            k, v = (gathered(of, pages, keys) for of in cache)
            out[own] = attend(queries[own], k, v, self.scale)


class RaggedPrefill(unittest.TestCase):
    def run_script(self, *words, library=None, sizes=SIZES):
        """Exit code, the benchmarks of the result file by name, and what packages were absent."""
        torch = pytorch()
        flashinfer = types.SimpleNamespace(BatchPrefillWithPagedKVCacheWrapper=Prefill)
        shapes = [(len(of), HEADS, KV_HEADS, HEAD_DIM, max(keys for _, keys in of)) for of in sizes.values()]
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            out = pathlib.Path(folder) / "out.json"
            patched = ((decode, "RAGGED", sizes), (decode, "ALL_SHAPES", [*decode.ALL_SHAPES[:-len(sizes)], *shapes]), (decode, "torch", torch),
                       (race, "Library", lambda path: library or Library(path)), (race, "pytorch", lambda program: torch), (peers, "torch", torch),
                       (race, "torch", torch), (race, "NAP", 0), (results, "commit", lambda: "abc"),
                       (race.subprocess, "run", lambda *a, **k: types.SimpleNamespace(returncode=1)),
                       (decode.importlib, "import_module", {"flashinfer": flashinfer}.get),
                       (decode.importlib.util, "find_spec", lambda name: name == "flashinfer" or None),
                       (sys, "argv", ["decode.py", "--prefill", "--library", __file__, "--out", str(out), "--rounds", "1", *words]))
            for where, name, value in patched:
                stack.enter_context(mock.patch.object(where, name, value))
            said = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(said))
            code = decode.main()
            whole = json.loads(out.read_text()) if out.exists() else {"context": {}, "benchmarks": []}
        return code, {entry["name"]: entry for entry in whole["benchmarks"]}, whole["context"].get("absent", {}), said.getvalue()

    def test_ours_and_flashinfer_take_the_same_pages_and_packed_queries(self):
        code, found, absent, said = self.run_script()
        self.assertEqual(code, 0, said)
        names = {f"decode/{who}_p{rows}/bf16/d8/b3h4k2{word}" for who in ("ch09/step8", "flashinfer_fa2", "flashinfer_fa3") for rows in (16, 64)
                 for word in ("chunks/n192", "mixed/n128")}
        names |= {f"decode/ch08/step6_p64/bf16/d8/b3h4k2{word}" for word in ("chunks/n192", "mixed/n128")}
        self.assertEqual(set(found), names)
        for name, entry in found.items():
            self.assertNotIn("error_occurred", entry, entry)
            self.assertLessEqual(entry["error"], entry["error_bound"], name)
        self.assertEqual(set(absent), {"cudnn_paged_p16", "cudnn_paged_p64"})
        ours = found["decode/ch09/step8_p64/bf16/d8/b3h4k2mixed/n128"]
        self.assertEqual({key for key in ours if key.startswith("vs_")}, {f"vs_flashinfer_{which}_p{rows}" for which in ("fa2", "fa3") for rows in (16, 64)})
        pairs = 128 + 100 + sum(range(96, 129))  # of each query, the keys up to its own
        self.assertAlmostEqual(ours["FLOPS"] * ours["real_time"] * 1e-3, 4 * HEAD_DIM * HEADS * pairs)

    def test_a_query_that_sees_a_key_too_many_is_not_timed(self):
        library = Library("")
        right = library.c.flashbook_masked_decode

        def wrong(chapter, step, shape, cache, *others):
            array(cache._obj.lengths, (3,), "int32")[1] += 1
            right(chapter, step, shape, cache, *others)
            array(cache._obj.lengths, (3,), "int32")[1] -= 1

        library.c.flashbook_masked_decode = wrong
        code, found, _, said = self.run_script("--peers", "none", library=library)
        self.assertEqual((code, found), (1, {}), said)


if __name__ == "__main__":
    unittest.main()
