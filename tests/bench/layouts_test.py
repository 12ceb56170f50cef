"""Every bench program that races attention must cover both layouts, [batch, heads, seqlen, d] and
[batch, seqlen, heads, d]: for each cell that a program races by default, the other layout's must be there as well."""

import ast
import importlib
import pathlib
import re
import sys
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from bench import cells, operators, race, steps

# in_triton's kernel belongs to a lesson and stores the rows of all heads contiguously; as_called has FlashAttention's functions, and so their layout.
ONE_LAYOUT = {"as_called", "in_triton"}
MODES = {
    "decode": ("--one-query", "--prefill", "--ablation"),
    "peers": ("--ablation",),
    "backward": ("--ablation",),
}


def racing():
    """Returns {module: the functions of race that it calls}, for all programs in bench/."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "bench").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.func if isinstance(node, ast.Call) else None
            if (
                isinstance(call, ast.Attribute)
                and isinstance(call.value, ast.Name)
                and call.value.id == "race"
                and call.attr in ("run", "race")
            ):
                found.setdefault(path.stem, set()).add(call.attr)
    return found


def parsed(program, *words):
    with mock.patch.object(sys, "argv", [program, *words]):
        return importlib.import_module(f"bench.{program}").parse()


def names_of(program, *words):
    """Returns the names of the cells that a program passes to race.run."""
    library = types.SimpleNamespace(
        chapters=lambda: [types.SimpleNamespace(number=number, steps=5, on_device=1) for number in (5, 7, 8)],
        slugs=lambda chapter, asked=None: asked or [step.slug for step in steps.of(chapter)],
    )
    options = parsed(program, *words)
    options.library, options.out = pathlib.Path("libflashbook.so"), pathlib.Path("not there")
    with (
        mock.patch.object(race, "run", mock.Mock()) as run,
        mock.patch.dict("os.environ"),
        mock.patch.object(sys, "path", list(sys.path)),
    ):
        importlib.import_module(f"bench.{program}").run(options, library)
    return list(run.call_args.args[3])


def layout_of(name):
    """Returns (layout, name without the layout)"""
    found = re.search(rf"_({'|'.join(race.LAYOUTS)})(?=/|_p\d|$)", name)
    return (found[1], name[: found.start()] + name[found.end() :]) if found else (race.LAYOUTS[0], name)


class Layouts(unittest.TestCase):
    def covers_both(self, names):
        layouts: dict[str, set[str]] = {}
        for name in names:
            layout, rest = layout_of(name)
            layouts.setdefault(rest, set()).add(layout)
        self.assertGreater(len(layouts), 5)
        self.assertEqual([rest for rest, of in layouts.items() if of != set(race.LAYOUTS)], [])

    def test_every_program_that_races_has_each_cell_in_both(self):
        programs = racing()
        self.assertEqual(set(programs) - {"cells"}, {"as_called", "backward", "decode", "in_triton", "masks", "operators", "peers"})
        for program in sorted(set(programs) - ONE_LAYOUT - {"cells"}):  # decode runs the cells of cells.py
            with self.subTest(program):
                if program == "operators":
                    self.assertEqual(programs[program], {"race"})
                    self.covers_both(operators.cells_of(parsed(program)))
                else:
                    self.assertIn("run", programs[program])
                    self.covers_both(names_of(program))

    def test_modes_of_a_chapter_stay_in_its_own(self):
        """Steps of a chapter and their switches need not support both layouts."""
        for program, modes in MODES.items():
            for mode in modes:
                self.assertEqual({layout_of(name)[0] for name in names_of(program, mode)}, {race.LAYOUTS[0]},
                                 (program, mode))

    def test_caches_as_users_have_them(self):
        for layout in race.LAYOUTS:
            of_table = [
                cell
                for cell in cells.CELLS
                if cell.layout == layout and (cell.head_dim, cell.ragged) == (128, False) and cell.kv_heads > 4
            ]
            self.assertEqual(len(of_table), 66)
            self.assertEqual({cell.tokens for cell in of_table}, {1, 2, 4, 8, 16})
            self.assertEqual({cell.page_rows for cell in of_table}, {0, 16, 64, 256})
        self.assertEqual({cell.heads // cell.kv_heads for cell in cells.CELLS}, {1, 4, 8, 16})
        self.assertEqual({cell.head_dim for cell in cells.CELLS}, {64, 128, 256})
        self.assertEqual(len({str(cell) for cell in cells.CELLS}), len(cells.CELLS))


if __name__ == "__main__":
    unittest.main()
