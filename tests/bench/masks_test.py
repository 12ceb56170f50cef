"""bench/masks.py from its first line to its result file, without a GPU: PyTorch is a few of its functions on NumPy's arrays, and the library
computes what the struct that it is given says, mask and all. Exits 77 without NumPy."""

import contextlib
import ctypes
import functools
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
from bench import masks, peers, race, results
from bench.structs import Mask, Shape

ENTRIES: dict[str, Any] = {"float32": ctypes.c_float, "int32": ctypes.c_int32, "uint8": ctypes.c_uint8}


class Tensor(np.ndarray):
    """What the script asks of a tensor."""

    mT = property(lambda self: np.swapaxes(self, -1, -2))

    def __getitem__(self, place):
        return np.asarray(super().__getitem__(place)).view(Tensor)

    def zero_(self):
        self.fill(0)

    def data_ptr(self):
        return self.ctypes.data

    def transpose(self, a, b):  # type: ignore[override]
        return np.swapaxes(self, a, b)

    def stride(self, axis=None):
        strides = [stride // self.itemsize for stride in self.strides]
        return strides if axis is None else strides[axis]

    def contiguous(self):
        return np.ascontiguousarray(self).view(Tensor)

    def double(self):
        return self.astype(np.float64)

    def float(self):
        return self.astype(np.float32)

    def to(self, dtype):
        return self.astype(dtype)

    def abs(self):
        return np.abs(self)

    def clamp(self, min=None, max=None):
        return np.clip(self, min, max)

    def view(self, *sizes):  # type: ignore[override]
        return super().view(*sizes) if isinstance(sizes[0], type) else self.reshape(*sizes)

    def masked_fill(self, where, value):
        return np.where(where, value, self).view(Tensor).astype(self.dtype)

    def softmax(self, axis):
        p = np.exp(self - self.max(axis, keepdims=True))
        return p / p.sum(axis, keepdims=True)


class Event:
    def __init__(self, enable_timing):
        self.enable_timing = enable_timing

    def record(self):
        pass

    def elapsed_time(self, other):
        return 2.0


def pytorch():
    """The part of PyTorch that the script uses. bf16 is float32."""
    random = np.random.default_rng(1)

    def made(function):
        def call(*sizes, device=None, dtype=np.float32, **others):
            return np.asarray(function(*sizes, **others)).astype(dtype).view(Tensor)
        return call

    torch = types.SimpleNamespace(bool=bool, int32=np.int32, uint8=np.uint8, float32=np.float32, float64=np.float64, bfloat16=np.float32,
                                  finfo=lambda dtype: types.SimpleNamespace(eps=float(np.finfo(dtype).eps)),  # NumPy 2's is no Python float
                                  __version__="a stand-in")
    torch.manual_seed = lambda seed: None
    torch.randn = made(lambda *sizes: random.standard_normal(sizes))
    torch.ones, torch.zeros = made(lambda *sizes: np.ones(sizes)), made(lambda *sizes: np.zeros(sizes))
    torch.arange = lambda *of, device=None, dtype=np.int64: np.arange(*of).astype(dtype).view(Tensor)
    torch.tensor = lambda values, device=None, dtype=np.int64: np.array(values).astype(dtype).view(Tensor)
    torch.empty = lambda size, device, dtype: np.zeros(min(size, 4096), dtype).view(Tensor)
    torch.full = lambda size, value, device, dtype: np.full(size, value, dtype).view(Tensor)
    torch.full_like = lambda like, value: np.full_like(like, value).view(Tensor)  # with the strides of what it is like, as PyTorch's
    torch.randn_like = lambda like: random.standard_normal(like.shape).astype(like.dtype).view(Tensor)
    torch.stack = lambda tensors: np.stack(tensors).view(Tensor)
    torch.exp2, torch.tanh = np.exp2, np.tanh
    torch.searchsorted = lambda first, values, right: np.searchsorted(first, values, side="right" if right else "left").view(Tensor)
    torch.cuda = types.SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None, Event=Event, get_device_name=lambda: "NVIDIA H200",
                                       current_stream=lambda: types.SimpleNamespace(cuda_stream=0))
    torch.version, torch.backends = types.SimpleNamespace(cuda="0"), types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 0))
    return torch


def array(pointer, shape, dtype="float32"):
    """What lies at an address."""
    return np.ctypeslib.as_array((ENTRIES[dtype] * int(np.prod(shape))).from_address(pointer)).reshape(shape)


def strided(struct, name, pointer, sizes):
    """A tensor by the strides that a struct of flashbook.h has of it; all 0: without gaps."""
    strides = [getattr(struct, f"{name}_{axis}_stride") for axis in ("batch", "head", "row")]
    if not any(strides):
        return array(pointer, sizes)
    extent = 1 + sum((count - 1) * stride for count, stride in zip(sizes, [*strides, 1]))
    return np.lib.stride_tricks.as_strided(array(pointer, (extent,)), sizes, [4 * stride for stride in (*strides, 1)])


class C:
    """flashbook.h: attention by what the structs say."""

    def __init__(self):
        self.calls = []
        self.kept = functools.cache(lambda b, h, n: masks.kept(b, h, np.arange(n), n))
        self.flashbook_masked_workspace_bytes = mock.Mock(side_effect=self.workspace)

    def workspace(self, chapter, step, shape, mask):
        shape, mask = shape._obj, mask._obj
        assert (shape.size, mask.size) == (ctypes.sizeof(Shape), ctypes.sizeof(Mask))
        return -1 if step == masks.PACKED and mask.documents and shape.batch > 1 else 64

    def flashbook_masked(self, chapter, step, shape, mask, tensors, stream):
        s, m, t = shape._obj, mask._obj, tensors._obj
        self.calls.append((step, m.columns is not None))
        size = (s.batch, s.heads, s.seqlen_q, s.head_dim)
        q, k, v, o = (strided(s, name, getattr(t, name), size) for name in "qkvo")
        i, j = np.arange(s.seqlen_q)[:, None], np.arange(s.seqlen_k)[None]
        seen = np.ones((s.seqlen_q, s.seqlen_k), bool)
        if m.window_right >= 0:
            seen &= j <= i + m.window_right
        if m.window_left >= 0:
            seen &= j >= i - m.window_left
        seen |= j < m.prefix
        if m.documents:
            first = array(m.first_query, (m.documents + 1,), "int32")
            seen &= np.searchsorted(first, i, "right") == np.searchsorted(first, j, "right")
        if m.columns:
            seen &= i < array(m.columns, (s.batch, 1, s.seqlen_k, 1), "int32")[-1, 0, :, 0]
        if m.pairs:
            seen &= array(m.pairs, (s.batch, m.pair_heads, s.seqlen_q, s.seqlen_k), "uint8")[-1, 0] != 0
        for b in range(s.batch):
            for h in range(s.heads):
                scores = s.scale * q[b, h].astype(float) @ k[b, h].T
                if m.softcap:
                    scores = m.softcap * np.tanh(scores / m.softcap)
                if m.slopes:
                    scores = scores - array(m.slopes, (s.heads,))[h] * np.abs(i - j)
                if m.bias:
                    bias = array(m.bias, (s.heads, 2 * m.bias_reach + 1))[h]
                    scores = scores + bias[np.clip(j - i, -m.bias_reach, m.bias_reach) + m.bias_reach]
                p = np.exp(np.where(seen, scores, -np.inf))
                p /= p.sum(1, keepdims=True)
                if m.dropout:
                    assert (m.seed, round(m.dropout, 6)) == (masks.SEED, masks.DROPOUT)
                    p = p * self.kept(b, h, s.seqlen_q)
                o[b, h] = p @ v[b, h]
        return 0


    def flashbook_masked_backward(self, chapter, step, shape, mask, tensors, gradients, stream):
        t, g = tensors._obj, gradients._obj
        assert all((t.q, t.k, t.v, t.o, t.lse, t.workspace, g.d_o, g.dq, g.dk, g.dv))
        self.calls.append((step, bool(mask._obj.documents)))
        return 0


class Library:
    def __init__(self, path):
        self.c = C()

    def error(self):
        return "packed sequences are one batch entry: give --batch 1, or take --step 3"

    def step_name(self, chapter, step):
        return f"step {step}"

    def toolkit(self):
        return "none"

    def chapters(self):
        return []

    def workspace_bytes(self, chapter, step, shape):
        return -1


class Masks(unittest.TestCase):
    def run_script(self, *words, wrong=None):
        """Exit code, and the benchmarks of the result file by name."""
        torch = pytorch()
        library: Any = Library("")
        if wrong:
            right = library.c.flashbook_masked
            library.c.flashbook_masked = lambda chapter, step, shape, mask, *others: (wrong(mask._obj), right(chapter, step, shape, mask, *others))[1]
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            out = pathlib.Path(folder) / "out.json"
            small = {"LENGTH": 160, "HEADS": 2, "HEAD_DIM": 8, "WINDOW": 50, "PREFIX": 70, "LENGTHS": (60, 37, 1, 66), "REACH": 5}
            for name, value in small.items():
                stack.enter_context(mock.patch.object(masks, name, value))
            stack.enter_context(mock.patch.object(race, "Library", lambda path: library))
            stack.enter_context(mock.patch.object(race, "pytorch", lambda program: torch))
            stack.enter_context(mock.patch.object(peers, "torch", torch))
            stack.enter_context(mock.patch.object(race, "torch", torch))
            stack.enter_context(mock.patch.object(race, "NAP", 0))
            stack.enter_context(mock.patch.object(race.subprocess, "run", lambda *a, **k: types.SimpleNamespace(returncode=1)))
            stack.enter_context(mock.patch.object(results, "commit", lambda: "abc"))
            stack.enter_context(mock.patch.object(sys, "argv", ["masks.py", "--library", __file__, "--out", str(out), "--rounds", "1", "--layout", "bhsd", *words]))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            code = masks.main()
            whole = json.loads(out.read_text()) if out.exists() else {"context": {}, "benchmarks": []}
            found, self.absent = whole["benchmarks"], whole["context"].get("absent", {})
        return code, {entry["name"]: entry for entry in found}, library.c.calls

    def test_every_mask_is_what_the_struct_says(self):
        code, found, calls = self.run_script()
        self.assertEqual(code, 0)
        ran = {name for name, entry in found.items() if "error_occurred" not in entry}
        n = {word: 164 if word == "lengths" else 160 for word in masks.MASKS}
        ours = lambda step, word: f"masked/ch09/step{step}/bf16/d8/{word}/n{n[word]}"
        for word in masks.WIDTHS:
            self.assertIn(ours(3, word), ran)
            self.assertFalse(ours(5, word) in found)
        for word in set(masks.MASKS) - set(masks.WIDTHS):
            self.assertIn(ours(5, word), ran)
            self.assertLessEqual(found[ours(5, word)]["error"], found[ours(5, word)]["error_bound"])
            self.assertGreater(found[ours(5, word)]["FLOPS"], 0)
            self.assertTrue(0 < found[ours(5, word)]["executed"] <= 1)
        # Pairs where the bench has them, and skipped tiles are multiplied there too.
        self.assertEqual({word for word in masks.MASKS if ours(1, word) in ran}, set(masks.AS_PAIRS))
        self.assertLess(found[ours(1, "window")]["executed"], found[ours(3, "window")]["executed"])
        # Intervals where they say the mask, and packed sequences of one batch entry.
        self.assertEqual({word for word in masks.MASKS if ours(4, word) in ran}, {"window", "documents", "lengths"})
        self.assertIn((4, True), calls)
        self.assertNotIn((3, True), calls)
        self.assertIn(ours(2, "lengths"), ran)
        self.assertIn("--batch 1", found[ours(2, "documents")]["error_message"])
        # PyTorch's own are not here: each is named, and skipped; packages that lack are named once, in the context.
        for who in masks.PEERS:
            self.assertTrue(who in self.absent or any(f"/{who}/" in name and "error_occurred" in entry for name, entry in found.items()), who)
        self.assertIn("python3 setup.py install", self.absent["fa3"])

    def test_heads_side_by_side_have_names_of_their_own(self):
        words = ("full", "causal", "window", "documents", "prefix", "lengths", "bias")
        code, found, _ = self.run_script("--mask", ",".join(words), "--step", "2,3,5", "--peers", "none", "--layout", "bshd")
        self.assertEqual(code, 0)
        for word in words:
            entry = found[f"masked/ch09/step5/bf16/d8/{word}_bshd/n{164 if word == 'lengths' else 160}"]
            self.assertLessEqual(entry["error"], entry["error_bound"])
        self.assertTrue(all("_bshd/" in name for name in found))
        with mock.patch.object(race, "set_strides"):  # kernels are told of the other layout
            self.assertEqual(self.run_script("--mask", "full", "--step", "3", "--peers", "none", "--layout", "bshd")[0], 1)

    def test_gradients_have_names_of_their_own(self):
        with mock.patch.object(masks, "gradient_error", lambda problem, gradients: (0.0, 1.0)):  # there is no autograd here
            code, found, calls = self.run_script("--backward")
        self.assertEqual(code, 0)
        words = [word for word in masks.MASKS if word not in masks.WIDTHS]
        for word in words:
            entry = found[f"masked/ch09/step6/bf16/d8/{word}/n{164 if word == 'lengths' else 160}"]
            self.assertNotIn("error_occurred", entry)
            self.assertTrue(0 < entry["executed"] <= 1)
        self.assertEqual({name.split("/")[1] for name in found}, {"ch09", "flex_backward"})
        self.assertIn((6, True), calls)
        self.assertIn("masked/ch09/step6_bias/bf16/d8/bias/n160", found)

    def test_a_race_goes_on_where_it_was_cut_off(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder) / "kept.json"
            short = ("--mask", "full,causal", "--step", "3", "--peers", "none", "--resume", "--out", str(kept))
            begin, cells = race.File.begin, list[str]()

            def once(file, cell):
                if cells:
                    raise race.Unfinished(cell)
                cells.append(cell)
                return begin(file, cell)

            with mock.patch.object(race.File, "begin", once):
                self.assertEqual(self.run_script(*short)[0], race.UNFINISHED)
            first = json.loads(kept.read_text())["benchmarks"]
            self.assertEqual({entry["cell"] for entry in first}, {"full"})
            self.assertEqual(self.run_script(*short)[0], 0)
            whole = json.loads(kept.read_text())
        self.assertEqual(whole["benchmarks"][:len(first)], first)
        self.assertEqual([(entry["cell"], entry["call"]) for entry in whole["benchmarks"]], [("full", 0), ("full", 0), ("causal", 1), ("causal", 1)])
        self.assertEqual(len(whole["context"]["calls"]), 2)

    def test_what_a_step_or_the_card_cannot_is_skipped_with_its_reason(self):
        for status in (race.BAD_ARGUMENT, race.HARDWARE_MISSING):
            with mock.patch.object(C, "flashbook_masked", lambda self, *_, status=status: status):
                code, found, _ = self.run_script("--mask", "full", "--step", "3", "--peers", "none")
            self.assertEqual(code, 0)
            self.assertIn("--batch 1", found["masked/ch09/step3/bf16/d8/full/n160"]["error_message"])
        with mock.patch.object(C, "flashbook_masked", lambda self, *_: 1):  # the kernel failed
            self.assertEqual(self.run_script("--mask", "full", "--step", "3", "--peers", "none")[0], 1)

    def test_a_wrong_kernel_is_not_timed(self):
        def one_key_more(mask):
            mask.window_left += 1

        code, found, _ = self.run_script("--mask", "window", "--step", "3", "--peers", "none", wrong=one_key_more)
        self.assertEqual((code, found), (1, {}))

    def test_philox_is_the_papers(self):
        known = (0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1)  # Random123's kat_vectors
        self.assertEqual(masks.philox((0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344), (0xa4093822, 0x299f31d0)), known)


if __name__ == "__main__":
    unittest.main()
