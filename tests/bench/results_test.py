"""Tests the scripts of bench/: what they accept, reject and quote."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH.parent))
from bench import older, peers, race, results
from bench.names import Name
from bench.results import Refused
from bench.structs import Shape
from docs.tools import accepted, pages, quote

STEP1, STEP4 = (f"forward/ch01/{step}/bf16/d128/full/n4096" for step in ("textbook", "register_tile"))
ACCURACY = "accuracy/outliers/ch06/block_scales_block/e4m3/d128/full/n4096"
CUDNN = "forward/cudnn/bf16/d128/full/n4096"


def run_of(name, milliseconds=10.0, **values):
    return {"name": name, "run_name": name, "run_type": "iteration", "real_time": milliseconds, "time_unit": "ms", "FLOPS": 5e12 / milliseconds,
            "bytes_per_second": 1e12, "tensor_bytes": 2.5e8, "workspace_bytes": 6.4e9, "error": 1.5e-3, "label": "a step", **values}


def skipped(name, reason="needs 9 GB of GPU memory and 1 GB are free"):
    return {"name": name, "run_type": "iteration", "error_occurred": True, "error_message": reason, "real_time": 0.0, "time_unit": "ms",
            "label": "skipped"}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.files = 0

    def write(self, *runs, **context):
        """Writes a result file; the first is the oldest."""
        self.files += 1
        context = {"date": f"2026-01-{self.files:02}T12:00:00+00:00", "machine": "gpu", "gpu": "NVIDIA H200", "cpu": "some CPU", "num_cpus": 2,
                   "commit": f"abc{self.files}", "ch01": "Naive attention", **context}
        path = self.folder / f"{99 - self.files}.json"  # sorted by name, the newest comes first
        path.write_text(json.dumps({"context": context, "benchmarks": list(runs)}))
        return path

    def refused(self, because):
        return self.assertRaisesRegex(Refused, because)


class Malformed(Case):
    def test_times_that_nobody_measured(self):
        for time in (float("nan"), float("inf"), 0, -5, None, "5"):
            with self.refused("a time must be a positive number"):
                results.read(self.write({**run_of(STEP1), "real_time": time}))
        with self.refused("must be a finite number"):
            results.read(self.write(run_of(STEP1, FLOPS=float("inf"))))


class Limits(Case):
    """Tests chapter 0's measurements of a machine, and a file added to those of the book."""

    def machine(self, *more, per_clock=4096.0, copy=4e12, **context):
        rate = {"name": "machine/rate/warpgroup_product", "run_type": "iteration", "real_time": 0.0, "time_unit": "ms", "per_clock": per_clock}
        copied = {"name": "machine/bandwidth/device_copy", "run_type": "iteration", "real_time": 0.0, "time_unit": "ms", "bytes_per_second": copy}
        return results.Results([self.write(rate, copied, *more, multiprocessors="100", clocks="SM up to 2000 MHz, memory 3201 MHz", memory="1024 MiB", **context)])

    def test_a_file_beside_the_book(self):
        name = "forward/ch05/persistent/bf16/d128/full/n4096"
        book = self.machine(run_of(name, 2.0, FLOPS=4e14, bytes_per_second=1e9))
        half = self.machine(run_of(name, 4.0, FLOPS=2e14, bytes_per_second=5e8), run_of(STEP4), per_clock=2048.0, gpu="NVIDIA H100")
        said = "\n".join(results.compared(half, book))
        self.assertIn("4.0000     2.0000  0.50, by the limits 0.50 (products)", said)
        self.assertIn("here: NVIDIA H100; the book: NVIDIA H200", said)
        self.assertIn("wgmma products: 409.60 here, 819.20 TFLOP/s there", said)
        self.assertNotIn(STEP4, said)
        unknown = "\n".join(results.compared(results.Results([self.write(run_of(name, 4.0), gpu="NVIDIA H100")]), book))
        self.assertIn("the limits of this machine were not measured: run ./flashbook bench", unknown)
        self.assertNotIn("by the limits", unknown)
        self.assertIn("the book has none of these cells", "".join(results.compared(results.Results([self.write(run_of(STEP4))]), book)))


class Names(unittest.TestCase):
    def test_a_name_is_its_parts_and_back(self):
        parts = Name("accuracy/outliers", "ch06/block_scales_block", "e4m3", 128, "full", 4096)
        self.assertEqual((str(parts), Name.parse(ACCURACY)), (ACCURACY, parts))
        self.assertEqual((parts.inputs, parts.chapter, parts.variant, parts.step), ("outliers", 6, "block_scales_block", None))
        for text in (STEP1, CUDNN, "backward/ch07/two_passes/bf16/d64/causal/n512", "decode/ch08/pack_gqa/f16/d128/full/n131072",
                     "masked/ch09/varlen/bf16/d128/window1024/n8192", "ablation/ch05/one_loop/bf16/d64/full/n512",
                     "ablation/ch08/two_stages/bf16/d128/b16h32k8/n8192", "blocks/ch03/b64/bf16/d64/full/n32"):
            self.assertEqual(str(Name.parse(text)), text)

    def test_what_is_no_name(self):
        for text in ("", "forward", STEP1 + "/", STEP1 + "\n", STEP1.replace("forward", "sideways"), STEP1.replace("ch01", "ch1"),
                     STEP1.replace("bf16", "fp8"), STEP1.replace("d128", "d0"), STEP1.replace("full", "window"), STEP1.replace("n4096", "n4k"),
                     STEP1.replace("n4096", "n٤"), ACCURACY.replace("outliers", "wild")):
            self.assertIsNone(Name.parse(text), text)


class Reading(Case):
    def test_the_newest_measurement_of_a_name_wins(self):
        self.write(run_of(STEP1, 30.0), run_of(STEP4, 3.0))
        self.write(run_of(STEP1, 20.0))
        measured = results.load(self.folder)
        self.assertEqual(measured.measured(STEP1).milliseconds, 20.0)
        self.assertEqual(measured.measured(STEP4).milliseconds, 3.0)

    def test_refuses_the_simulator(self):
        path = self.write(run_of(STEP1), machine="simulator")
        with self.refused("simulator"):
            results.read(path)

    def test_refuses_to_mix_machines(self):
        self.write(run_of(STEP1))
        self.write(run_of(STEP1), gpu="NVIDIA H100 80GB HBM3")
        with self.refused("h100-80gb-hbm3, h200"):
            results.load(self.folder)

    def test_refuses_wrong_results_unknown_commits_odd_names_and_other_files(self):
        with self.refused("was wrong"):
            results.read(self.write(skipped(STEP1) | {"label": "wrong"}))
        with self.refused("has no commit"):
            results.read(self.write(run_of(STEP1), commit="unknown"))
        with self.refused("has no gpu"):
            results.read(self.write(run_of(STEP1), gpu=""))
        for name in ("forward/ch1/textbook/bf16/d128/full/n4096", STEP1 + "/iterations:1/manual_time", STEP1 + "_median", ""):
            with self.refused("use names such as"):
                results.read(self.write(run_of(name)))
        other = self.folder / "other.json"
        for text in ("", "[]", "{}", '{"context": {}, "benchmarks": []}'):
            other.write_text(text)
            with self.refused("not a result file"):
                results.read(other)


class Quoting(Case):
    def setUp(self):
        super().setUp()
        self.write(run_of(STEP1, 50.0), run_of(STEP4, 12.345), skipped("forward/ch01/register_tile/bf16/d64/full/n4096"),
                   run_of("forward/ch02/safe_softmax/f32/d64/full/n4096", 900.0) | {"bytes_per_second": None})
        self.measured = results.load(self.folder)

    def quoted(self, text):
        return quote.quoted(text, self.measured)

    def span(self, words, text="?"):
        return f"<!-- num {words} -->{text}<!-- /num -->"

    def test_numbers_are_put_in_and_then_right(self):
        for words, want in ((f"{STEP4} ms .1f", "12.3"), (f"{STEP4} tflops .2f", "0.41"), (f"{STEP4} gbps .0f", "1000"),
                            (f"{STEP4} gbytes .2f", "12.35"), (f"{STEP4} workspace .1f", "6.4"), (f"{STEP4} error .1e", "1.5e-03"),
                            (f"{STEP4} tensor_bytes .1e", "2.5e+08"), (f"{STEP1} ms / {STEP4} ms .2f", "4.05"),
                            (f"1e4 * 132 * 1.7e9 / {STEP4} FLOPS 3", "5540"), (f"{STEP4} ms 3", "12.3"), (f"{STEP4} ms / 100 3", "0.12"),
                            (f"mean {STEP4} [ms,ms] .1f", "12.3"), ("least forward/ch01/[textbook,register_tile]/bf16/d128/full/n4096 ms .0f", "12"),
                            ("most 2 * forward/ch01/[textbook,register_tile]/bf16/d128/full/n4096 ms .0f", "100"),
                            ("count forward/ch01/[textbook,register_tile]/bf16/d128/full/n4096 ms .0f", "2")):
            mended, wrong = self.quoted(f"It takes {self.span(words)} ms.")
            self.assertEqual(mended, f"It takes {self.span(words, want)} ms.")
            self.assertEqual(len(wrong), 1)
            self.assertEqual(self.quoted(mended), (mended, []))

    def test_a_tampered_number_is_found_with_its_line(self):
        _, wrong = self.quoted("one\n\ntwo " + self.span(f"{STEP4} ms .1f", "11.9"))
        self.assertEqual(wrong, [(3, "says '11.9', and should say '12.3'")])

    def test_what_was_not_measured_stays_and_is_reported(self):
        for words, because in ((f"{STEP4[:-4]}512 ms .1f", "never measured"), ("forward/ch01/register_tile/bf16/d64/full/n4096 ms .1f", "skipped"),
                               (f"{STEP4} speed .1f", "has no speed"), (f"{STEP4} ms", "NAME FIELD"), (f"{STEP4} ms .q", "format"), (f"{STEP4} ms {STEP1} ms .1f", "NAME FIELD"),
                               ("much / 2 .1f", "neither a number"),
                               ("forward/ch02/safe_softmax/f32/d64/full/n4096 gbps .1f", "bytes_per_second")):
            text = self.span(words, "1")
            mended, wrong = self.quoted(text)
            self.assertEqual(mended, text)
            self.assertIn(because, wrong[0][1])

    def test_code_is_left_alone(self):
        for text in ("```\n" + self.span("x y z") + "\n```\n", "Write `" + self.span("x y z") + "`."):
            self.assertEqual(self.quoted(text), (text, []))

    def table(self, template):
        """Returns a page with that template's table, updated."""
        file = self.folder / "tables.txt"
        file.write_text(f"# A comment.\n[a table]\n{template}\n\n[another]\n| 1 |\n", encoding="utf-8")
        quote.templates.cache_clear()
        self.addCleanup(quote.templates.cache_clear)
        with mock.patch.object(quote, "TEMPLATES", file):
            mended, wrong = self.quoted("<!-- table a table -->\nold\n<!-- /table -->\n")
            self.assertEqual(self.quoted(mended), (mended, []) if not wrong or "and should say" in wrong[0][1] else (mended, wrong))
            return mended, [message for _, message in wrong]

    def test_tables_are_filled_in(self):
        step = "forward/ch01/{}/bf16/d128/full/n4096"
        mended, _ = self.table(f"| Step | ms | GB |\n| --- | --: | --: |\n| one | {{{step.format('[textbook,register_tile]')} ms .0f}} |\n\nMedians; {{origin}}.")
        self.assertEqual(mended, "<!-- table a table -->\n| Step | ms | GB |\n| --- | --: | --: |\n| one | 50 | 12 |\n\nMedians; 2026-01-01, commit abc1.\n<!-- /table -->\n")
        mended, _ = self.table(f"@ n textbook=one; register_tile=4\n@ x a; b\n| <n.> | <x> | {{{step.format('<n>')} ms .0f}} |\n@\n| [see](a,b) |\n\nleast {{least {step.format('[textbook,register_tile]')} ms .0f}}")
        self.assertIn("\n| one | a | 50 |\n| one | b | 50 |\n| 4 | a | 12 |\n| 4 | b | 12 |\n| [see](a,b) |\n\nleast 12\n", mended)
        mended, _ = self.table("@ s ch03\n| <s.> | step {ch01/wmma} |")
        self.assertIn("\n| 1: keys outside, queries inside | step 5 |\n| 2: queries outside, keys inside | step 5 |\n", mended)
        mended, _ = self.table(f"| {{{step.format('[textbook,register_tile]')} ms .0f}} of {{{step.format('[textbook,register_tile]')} workspace .1f}} |")
        self.assertIn("| 50 of 6.4 | 12 of 6.4 |", mended)

    def test_the_templates_of_the_book_are_used_and_name_results(self):
        used = {" ".join(place.words) for page in quote.book_pages() for place in pages.marked(page.read_text(encoding="utf-8"), ["table"])}
        self.assertEqual(set(quote.templates(quote.TEMPLATES)) - used, set())
        names = quote.quoted_names([])
        self.assertIn("forward/ch05/persistent/bf16/d256/causal/n16384", names)
        self.assertGreater(len(names), 500)

    def test_numbers_typed_by_hand_are_found(self):
        found = [(line, message.partition(" was typed")[0]) for line, message in quote.typed_by_hand(
            "# 12 ms\n\nIt takes 12 ms. It\nhas 3.5\u00a0TB/s and 40 %.\n\n> **Result.** $7\\,\\%$ more.\n")]
        self.assertEqual(found, [(3, "12 ms"), (4, "3.5 TB/s"), (4, "40 %"), (6, "7\\,\\%")])
        for text in (self.span(f"{STEP4} ms .1f", "12.3") + " ms", "`12 ms`", "    12 ms", "| 12 ms |", "```\n12 ms\n```", "[12 ms](other.md)",
                     "$6/2$ = 3 ms", "12 ms, a guess", "12 ms in [their paper](https://arxiv.org/abs/1) on 8 GPUs. 13 ms.", "> **Prediction.** 12 ms.",
                     "12 warps", "at 1.7 GHz", "## What was tried\n\n### This\n\n12 ms."):
            self.assertEqual(list(quote.typed_by_hand(text + "\n")), [], text)
        self.assertEqual(len(list(quote.typed_by_hand("## What was tried\n\n12 ms.\n\n## Else\n\n13 ms.\n"))), 1)

    def test_the_program_checks_and_mends(self):
        page = self.folder / "page.md"
        page.write_text(self.span(f"{STEP4} ms .1f", "99"))
        command = [sys.executable, str(BENCH.parent / "docs/tools/quote.py"), "--results", str(self.folder), str(page)]
        self.assertEqual(subprocess.run([*command, "--check"], capture_output=True).returncode, 1)
        self.assertIn("99", page.read_text())
        self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
        self.assertEqual(page.read_text(), self.span(f"{STEP4} ms .1f", "12.3"))
        self.assertEqual(subprocess.run([*command, "--check"], capture_output=True).returncode, 0)


KERNEL = "chapters/01_naive_attention/step1_textbook.cuh"
LAUNCH = "chapters/01_naive_attention/host/chapter.cu"
OLD = {KERNEL: '#include "common/ptx/math.h"\nnamespace fb {\n__global__ void textbook(int rows) {\n  // The rows.\n  half(rows);\n}\n}\n',
       LAUNCH: "void run() {\n  textbook(64);\n}\nint unused() { return 1; }\n",
       "common/ptx/math.h": "#ifdef __CUDACC__  // both\nint half(int x) { return x / 2; }\n#else\nint half(int x) { return sim(x); }\n#endif\n"
                            "constexpr int kOther = 3;\n"}


class Older(Case):
    """Tests which results are older than their kernel."""

    def excuses(self, before, now, *lines):
        """Returns why a result of `before` may not be quoted once the files are `now`."""
        file = self.folder / "older.txt"
        file.write_text("\n".join(lines))
        for cached in (older.changed, older.renamed, older.code, older.excuses):
            cached.cache_clear()
        commits = {"HEAD": now, "abc1": before}
        with mock.patch.object(older, "files", commits.get), mock.patch.object(older, "EXCUSED", file), \
                mock.patch.object(older, "git", lambda *words, given="": b"false" if words[0] == "rev-parse" else b""), \
                mock.patch.object(older.results, "ROOT", self.folder):
            return older.refused(results.Results([self.write(run_of(STEP1), run_of(CUDNN), commit="abc1")]).history)

    def test_a_result_is_as_old_as_what_its_kernel_needs(self):
        def replaced(path, old, new):
            return OLD | {path: OLD[path].replace(old, new)}

        for now in (OLD, replaced(KERNEL, "// The rows.", ""), replaced(KERNEL, "rows", "queries"), replaced(LAUNCH, "return 1", "return 2"),
                    replaced("common/ptx/math.h", "sim(x)", "sim(-x)"), replaced("common/ptx/math.h", "= 3", "= 4")):
            self.assertEqual(self.excuses(OLD, now), [])
        for now in (replaced(KERNEL, "half(rows)", "half(2 * rows)"), replaced("common/ptx/math.h", "x / 2", "x / 3"), replaced(LAUNCH, "64", "32")):
            self.assertRegex(self.excuses(OLD, now)[0], "^ch01/textbook: 1 quoted results of commit abc1 are older than its kernel")
            self.assertEqual(self.excuses(OLD, now, "# a reason", "abc1 ch0[12]/*,ch03/* the same SASS"), [])
            self.assertEqual(len(self.excuses(OLD, now, "abc2 * another commit")), 1)
            self.assertEqual(self.excuses(OLD, now, "abc1=HEAD *"), [])
            self.assertEqual(len(self.excuses(OLD, now, "abc1=abc1 *")), 1)
        self.assertEqual(len(self.excuses({}, OLD)), 1)


class Condensed(Case):
    """Tests tables, which bench/release files instead of Google Benchmark's JSON."""

    TIMELINE = "timeline/ch05/persistent/bf16/d64/full/n512"

    def condensed(self, *runs, **context):
        path = self.folder / "filed" / "forward.tsv"
        results.condense(json.loads(self.write(*runs, **context).read_text()), path)
        return path

    def test_a_table_says_what_the_file_said(self):
        runs = [run_of(STEP1, 10 / 3, spread=0.0123, vs_cudnn=1.25, kernel1_registers=168, rounds=3, launches=5, cell="a"),
                run_of(STEP4, 5.0, time_unit="us", rounds=9, launches=5, label="two\twords"), skipped(CUDNN),
                run_of(self.TIMELINE, slowdown=2811.5, stamps=["warpgroup 1 tile 30 turn 5", "warpgroup 2 tile 30"])]
        path = self.condensed(*runs, clocks="1980 MHz", packages={"triton": "3.6"})
        json_entries = results.read(self.folder / "98.json")
        entries = results.read(path)
        self.assertEqual([entry.cell for entry in entries], [entry.cell for entry in json_entries])
        first, second, third, fourth = entries
        self.assertEqual(first.milliseconds, 3.333333)
        self.assertEqual(first.values, {"FLOPS": 1.5e12, "bytes_per_second": 1000000000000, "tensor_bytes": 250000000, "workspace_bytes": 6400000000,
                                        "real_time": 3.333333, "spread": 0.012, "vs_cudnn": 1.25, "kernel1_registers": 168})
        self.assertEqual((second.milliseconds, second.label), (0.005, "two words"))
        self.assertEqual(third.skipped, "needs 9 GB of GPU memory and 1 GB are free")
        self.assertEqual((fourth.values["slowdown"], fourth.stamps), (2811.5, json_entries[3].stamps))
        known = {"gpu": "NVIDIA H200", "commit": "abc1", "date": "2026-01-01T12:00:00+00:00", "clocks": "1980 MHz", "packages": {"triton": "3.6"},
                 "rounds": "3-9", "launches": "5"}
        self.assertEqual({key: first.context[key] for key in known}, known)

    def test_the_mean_spans_of_a_timeline_add_up_to_a_tile(self):
        stamps = [f"warpgroup 0 tile {tile} keys_sent {100 * (9 - tile)}" for tile in range(8)]
        stamps += [f"warpgroup {one} tile {tile} landed {1000 * (9 - tile) + 10 * one} end {1000 * (9 - tile) + 100 * one}" for one in (1, 2) for tile in range(8)]
        entry = results.read(self.condensed(run_of(self.TIMELINE, stamps=stamps)))[0]
        self.assertEqual([entry.mean_span(moment) for moment in ("landed", "end", "tile")], [865, 135, 1000])

    def test_a_table_that_is_broken_is_refused(self):
        path = self.condensed(run_of(STEP1), run_of(self.TIMELINE, stamps=["warpgroup 1"]))
        good = path.read_text()
        head, first, *rest = good.splitlines()
        for text in ("", good.replace("spread", "range", 1), f"{head}\n{first}\tmore\n", f"{head}\nword\n", good.replace("FLOPS=", "FLOPS"),
                     f"{head}\n{rest[-1]}\n", good.replace("\t0\t", "\t7\t"), good.replace(STEP1 + "\t10", STEP1 + "\tnever")):
            self.assertNotEqual(text, good)
            path.write_text(text)
            with self.refused("is not a result file"):
                results.read(path)
        path.write_text(good)
        (path.parent / results.CONTEXT).unlink()
        with self.refused("is not a result file"):
            results.read(path)


class Racing(Case):
    def test_a_round_is_compared_with_itself(self):
        shape = Shape(4, 16, 16, 4096, 4096, 128, 0, peers.DTYPES["bf16"], 0.1)
        problem = peers.Problem(shape, "bf16", None, None, None)
        ours = race.Contestant("ch01/register_tile", "a tile of registers", None, values={"bytes": 2e9, "workspace_bytes": 6e9, "error": 1e-3})
        cudnn = race.Contestant("cudnn", "CUDNN_ATTENTION", None)
        flash = race.Contestant("flash", "FLASH_ATTENTION", None, skipped="No available kernel")
        ours.milliseconds, cudnn.milliseconds = [10.0, 20.0, 40.0], [9.0, 4.0, 10.0]
        runs = [race.entry(problem, who, [ours, cudnn, flash], 4e12) for who in (ours, cudnn, flash)]
        measured = results.Results([self.write(*runs)])
        entry = measured.measured(STEP4)
        self.assertEqual((entry.milliseconds, entry.values["FLOPS"], entry.values["bytes_per_second"]), (20.0, 2e14, 1e11))
        self.assertEqual(entry.values["vs_cudnn"], 0.25)  # the median of 0.9, 0.2, 0.25, not 9 / 20
        self.assertNotIn("vs_flash", entry.values)
        product = race.Contestant("product", "matrix product", None, flops=8e12, milliseconds=[10.0, 10.0, 10.0])
        reached = race.entry(problem, ours, [ours, cudnn, product], 4e12)
        self.assertEqual((reached["of_product"], "vs_product" in reached), (0.25, False))  # the median of 0.5, 0.25, 0.125
        self.assertEqual(race.entry(problem, product, [ours, product], 4e12)["FLOPS"], 8e14)
        self.assertEqual(measured.newest["forward/flash/bf16/d128/full/n4096"].skipped, "No available kernel")

    def test_fp8_stands_beside_fp8(self):
        """In e4m3, a peer that reads e4m3 has its own name and ratio; a peer in BF16 is labelled as such."""
        problem = peers.Problem(Shape(4, 16, 16, 4096, 4096, 128, 0, 3, 0.1), "e4m3", None, None, None, encoded=(1,))
        ours = race.Contestant("ch06/transpose_once", "", None, milliseconds=[1.0] * 3)
        in_fp8 = race.Contestant("cudnn_frontend", "", None, milliseconds=[1.2] * 3, encoded=True)
        in_bf16 = race.Contestant("cudnn", "", None, milliseconds=[2.0] * 3)
        found = race.entry(problem, ours, [ours, in_fp8, in_bf16], 1e12)
        self.assertEqual({key: round(value, 3) for key, value in found.items() if key.startswith("vs_")}, {"vs_cudnn_frontend": 1.2, "vs_cudnn_bf16": 2.0})
        self.assertEqual([problem.name(who).split("/")[1] for who in (in_fp8, in_bf16)], ["cudnn_frontend", "cudnn_bf16"])


class ArgumentsOfThePackage(Case):
    def test_every_argument_has_one_row(self):
        for change, because in ((("causal", "casual"), "no row for causal of flash_attn_func"), (("num_splits", "num_splits causal"), "two rows for causal"),
                                (("num_splits", "num_splits tiles"), "there is no tiles of any function")):
            for name in ("interface.py", "accepted.py"):
                text = (accepted.PACKAGE / name).read_text(encoding="utf-8")
                (self.folder / name).write_text(text.replace(f'("{change[0]}"', f'("{change[1]}"') if name == "accepted.py" else text, encoding="utf-8")
            with self.assertRaisesRegex(results.Refused, because):
                accepted.accepted("2", self.folder)


unittest.main()
