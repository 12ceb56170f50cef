"""flashbook._library without PyTorch and without a library: its structs match library/flashbook.h, and a missing library is explained."""

import ctypes
import importlib.util
import os
import pathlib
import re
import tempfile
import unittest
from typing import Any
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = (ROOT / "library" / "flashbook.h").read_text(encoding="utf-8")
spec = importlib.util.spec_from_file_location("flashbook_library", ROOT / "python" / "flashbook" / "_library.py")
assert spec is not None and spec.loader is not None
library = importlib.util.module_from_spec(spec)
spec.loader.exec_module(library)

TYPES = {"size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "float": ctypes.c_float}


def fields(struct):
    """Returns [(name, type)] of a struct of the header, strides spelled out."""
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", HEADER, re.DOTALL)
    assert body is not None, struct
    found: list[tuple[str, type]] = []
    for line in re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL).split(";"):
        match = re.match(r"\s*(?:const )?(\w+)(\s*\*)?\s+\*?\s*([\w, ]+)$", line.replace("*", " * ").replace("  ", " "))
        if match is None:
            continue
        for name in match[3].split(","):
            if match[1] == "FlashbookStrides":
                found += [(f"{name.strip().removesuffix('_strides')}_{axis}_stride", ctypes.c_int64) for axis in ("batch", "head", "row")]
            else:
                text = "char" in line
                found.append((name.strip(), (ctypes.c_char_p if text else ctypes.c_void_p) if "*" in line else TYPES[match[1]]))
    return found


class Structs(unittest.TestCase):
    def test_each_is_the_headers(self):
        for name in ("Shape", "Tensors", "Cache", "Mask", "Gradients", "Chapter"):
            with self.subTest(name):
                self.assertEqual(fields(f"Flashbook{name}"), getattr(library, name)._fields_)
        self.assertGreater(len(fields("FlashbookMask")), 20)

    def test_each_says_its_size(self):
        self.assertEqual(library.Mask().size, 144)  # same number as in c_interface_test.cpp
        self.assertEqual(library.Tensors(1, 2).k, 2)
        self.assertEqual((library.Mask(window_right=0).window_left, library.Mask(window_right=0).window_right), (-1, 0))

    def test_constants(self):
        for name in ("F32", "F16", "BF16", "E4M3", "OK", "DEVICE_ERROR", "BAD_ARGUMENT", "HARDWARE_MISSING"):
            match = re.search(rf"FLASHBOOK_{name} =\s*(\d+)", HEADER)
            assert match is not None
            self.assertEqual(getattr(library, name), int(match[1]), name)

    def test_every_function_is_in_the_header(self):
        source = (ROOT / "python" / "flashbook" / "_library.py").read_text(encoding="utf-8")
        for name in re.findall(r"flashbook_(\w+)\b\.(?:argtypes|restype)", source):
            self.assertIn(f"flashbook_{name}(", HEADER)


class Loading(unittest.TestCase):
    def test_a_missing_library_has_a_cure(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, FLASHBOOK_LIBRARY=str(pathlib.Path(folder) / "none.so")):
            library.library.cache_clear()
            with self.assertRaisesRegex(RuntimeError, "pip install ./python"):
                library.library()

    def test_statuses_are_exceptions(self):
        said = mock.Mock()
        said.flashbook_last_error.return_value = b"give another"
        with mock.patch.object(library, "library", lambda: said):
            library.check(library.OK)
            for status, kind in ((library.BAD_ARGUMENT, ValueError), (library.DEVICE_ERROR, RuntimeError), (library.HARDWARE_MISSING, RuntimeError)):
                with self.assertRaisesRegex(kind, "give another"):
                    library.check(status)


class Pages(unittest.TestCase):
    """Tests the code in docs/pages/in_pytorch.md."""

    def attention(self, library_name):
        page = (ROOT / "docs" / "pages" / "in_pytorch.md").read_text(encoding="utf-8")
        [code] = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def attention" in code and f"import {library_name}" in code]
        self.assertLessEqual(len(code.partition("def attention")[2].splitlines()), 20)
        scope: dict[str, Any] = {}
        exec(code, scope)
        return scope["attention"]

    def test_numpy(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("NumPy is not installed")
        q, k, v = np.random.default_rng(1).standard_normal((3, 150, 64))
        weights = np.exp(q @ k.T / 8)
        np.testing.assert_allclose(self.attention("numpy")(q, k, v), weights @ v / weights.sum(1, keepdims=True), atol=1e-12)

    def test_pytorch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        q, k, v = torch.randn(3, 2, 2, 150, 64)
        torch.testing.assert_close(self.attention("torch")(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v), atol=1e-5, rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
