#!/usr/bin/env python3
"""Runs the cells of docs/colab.ipynb in order, in this tree instead of a clone, and checks their output."""
import json
import os
import sys
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Colab(unittest.TestCase):
    def test_cells_run(self):
        shown: list[str] = []
        display = types.ModuleType("IPython.display")
        display.HTML, display.display = str, shown.append
        sys.modules.update({"IPython": types.ModuleType("IPython"), "IPython.display": display})
        os.chdir(ROOT)
        self.addCleanup(Path("trace.html").unlink, missing_ok=True)
        printed: list[str] = []
        names = {"print": printed.append}
        for cell in json.loads((ROOT / "docs/colab.ipynb").read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code" and cell["id"] != "clone":
                exec("import os, subprocess\n" + "".join(cell["source"]), names)
        self.assertEqual([text.count(" right ") + text.count(" right\n") for text in printed], [5, 5])
        self.assertIn("wgmma", shown[0])


if __name__ == "__main__":
    unittest.main()
