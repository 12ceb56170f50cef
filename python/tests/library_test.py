"""flashbook._library without PyTorch and without a library: it reads the C headers as a compiler does, and a missing library is explained."""

import ctypes
import importlib.util
import os
import pathlib
import re
import subprocess
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


class Structs(unittest.TestCase):
    def test_are_those_of_the_compiler(self):
        """The sizes, offsets and constants that a C compiler finds, for every struct of the headers."""
        names = re.findall(r"typedef struct Flashbook(\w+)", library._headers())
        self.assertEqual(sorted(library.STRUCTS), sorted(names))
        lines = [f'printf("{name} %zu\\n", sizeof(Flashbook{name}));' for name in names]
        lines += [f'printf("{name}.{field} %zu\\n", offsetof(Flashbook{name}, {field}));' for name in names for field, _ in library.STRUCTS[name]._fields_]
        lines += [f'printf("{name} %d\\n", FLASHBOOK_{name});' for name in library.CONSTANTS]
        wanted = [f"{name} {ctypes.sizeof(library.STRUCTS[name])}" for name in names]
        wanted += [f"{name}.{field} {getattr(library.STRUCTS[name], field).offset}" for name in names for field, _ in library.STRUCTS[name]._fields_]
        wanted += [f"{name} {value}" for name, value in library.CONSTANTS.items()]
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "structs.c"
            source.write_text('#include <stdio.h>\n#include "library/flashbook.h"\nint main(void) {\n' + "\n".join(lines) + "\n}\n")
            subprocess.run(["cc", "-std=c99", "-pedantic-errors", "-Wall", "-Werror", f"-I{ROOT}", source, "-o", f"{folder}/structs"], check=True)
            found = subprocess.run([f"{folder}/structs"], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(found.splitlines(), wanted)

    def test_of_features_have_a_kind_of_their_own_and_no_gaps(self):
        features = {name: struct for name, struct in library.STRUCTS.items() if struct.kind_}
        self.assertEqual(len({struct.kind_ for struct in features.values()}), len(features))
        for name, struct in features.items():
            self.assertEqual(struct._fields_[0], ("kind", ctypes.c_int32), name)
            self.assertEqual(ctypes.sizeof(struct), sum(ctypes.sizeof(type_) for _, type_ in struct._fields_), name)

    def test_say_their_sizes_and_kinds(self):
        window = library.feature("Window", left=-1)
        self.assertEqual((window.kind, window.left, window.right), (1, -1, 0))
        self.assertEqual(library.Problem(batch=2).size, 48)  # same number as in c_interface_test.cpp

    def test_a_description_has_all_of_them_with_the_values_of_the_call(self):
        documents, sinks = library.feature("Documents", documents=3), library.feature("Sinks")
        for varying in ((), ("sink_logits",), ("first_query", "first_key"), ("first_query", "first_key", "sink_logits")):
            description = library.Description(library.Problem(batch=2), documents, sinks, varying=varying)
            self.assertEqual(description.varying, list(varying))
            got = description.with_values(*range(1, len(varying) + 1))
            wanted = library.Problem(batch=2, features=2), library.feature("Documents", documents=3), library.feature("Sinks")
            for value, name in enumerate(varying, 1):
                setattr(next(struct for struct in wanted if hasattr(struct, name)), name, value)
            self.assertEqual(got, b"".join(wanted))
            self.assertEqual(ctypes.string_at(description.address, len(got)), b"".join((library.Problem(batch=2, features=2), documents, sinks)))

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
