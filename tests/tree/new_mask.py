"""Adding a mask takes five files, and two more for C and Python. A dilated window is added to a copy of the tree (new_parts_test.py) and to one step
of chapter 2. The program checks the step against the oracle, whose property tests run with the new mask."""
import importlib.util
import subprocess
import unittest
from pathlib import Path

TARGETS = ["02_online_softmax_quick", "attention"]
SEQLEN, DILATION, STEP = 40, 3, 3

DEFINITION = """\
#include "common/features/dilation/dilation_c.h"
#include "common/features/helpers.h"

namespace flashbook::features {

constexpr Mask kDilated = {.hides = [](const Spec& spec, int, int, int query, int key) {
  return (query - key) % spec.visibility.dilation != 0;
}};

const Definition dilation = {
    .plural = "dilated windows",
    .is_in = [](const Spec& spec) { return spec.visibility.dilation != 1; },
    .give = [](Spec& spec, std::mt19937& random) { spec.visibility.dilation = between(random, 2, 5); },
    .validate = [](const Spec& spec) { require(spec.visibility.dilation > 0, "dilation is 0: give 1 or more"); },
    .describe = [](const Spec& spec) { return concat("dilation ", spec.visibility.dilation); },
    .options = {{.name = "--dilation",
                 .type = "N",
                 .help = "A query sees every N-th key, counted from its own",
                 .read = [](const Value& value, Request& to) { to.spec.visibility.dilation = value.count(); }}},
    .mask = &kDilated,
    .in_c = c_struct<FlashbookDilation, FLASHBOOK_DILATION>([](const auto& from, Spec& to) { to.visibility.dilation = from.dilation; }),
};

}  // namespace flashbook::features
"""

C_STRUCT = """\
#pragma once
#include <stdint.h>

enum { FLASHBOOK_DILATION = 60 };
typedef struct FlashbookDilation {
  int32_t kind;
  int32_t dilation;
} FlashbookDilation;
"""

# Replacements in the tree, by file.
CHANGES = {
    "common/features/list.h": [
        ("  ROW(blocks) ", "  ROW(dilation) ROW(blocks) "),
        ("  Blocks blocks = {};", "  int dilation = 1;\n  Blocks blocks = {};"),
        ("documents, columns, blocks, dense, indices]", "documents, columns, dilation, blocks, dense, indices]"),
    ],
    "chapters/02_online_softmax/host/chapter.cpp": [
        ("Feature::float32 | Feature::causal,", "Feature::float32 | Feature::causal | (kStep == 3 ? Feature::dilation : Features{}),"),
    ],
    "chapters/02_online_softmax/rows.h": [
        ("      const Row row = {", """\
      const int stride = spec.visibility.dilation;
      std::vector<float> seen_k, seen_v;
      int seen = 0;
      for (int key = query % stride; key < keys_seen(spec, 0, 0, query, 1).end; key += stride, ++seen) {
        const auto first = int64_t(key) * spec.head_dim;
        seen_k.insert(seen_k.end(), head_k.begin() + first, head_k.begin() + first + spec.head_dim);
        seen_v.insert(seen_v.end(), head_v.begin() + first, head_v.begin() + first + spec.head_dim);
      }
      const Row row = {"""),
        (".k = head_k.data()", ".k = seen_k.data()"),
        (".v = head_v.data()", ".v = seen_v.data()"),
        (".keys = spec.visible_keys(query)", ".keys = seen"),
    ],
    "common/app/supported.h": [
        ("{2, forward, float32 | causal}", "{2, forward, float32 | causal | dilation}"),
    ],
}


IN_C = {"library/flashbook.h": [('#include "common/features/dropout', '#include "common/features/dilation/dilation_c.h"\n#include "common/features/dropout')]}


def add_mask(tree):
    (tree / "common/features/dilation").mkdir()
    (tree / "common/features/dilation/dilation.cpp").write_text(DEFINITION)
    (tree / "common/features/dilation/dilation_c.h").write_text(C_STRUCT)
    for name, replacements in (CHANGES | IN_C).items():
        text = (tree / name).read_text()
        for old, new in replacements:
            assert text.count(old) == 1, f"{name} has '{old}' {text.count(old)} times"
            text = text.replace(old, new)
        (tree / name).write_text(text)


class NewMask(unittest.TestCase):
    tree = bin = Path()  # folders, set by new_parts_test.py

    def run_program(self, *options):
        command = [str(self.bin / "02_online_softmax_quick"), "--seqlen", str(SEQLEN), *map(str, options)]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def test_takes_five_files_and_two_for_c_and_python(self):
        self.assertLessEqual(len(CHANGES) + 1, 5)
        self.assertLessEqual(len(IN_C) + 1, 2)

    def test_can_be_described_in_c_and_python(self):
        (self.tree / "dilated.c").write_text('#include "library/flashbook.h"\n#include <stdio.h>\n'
                                             "int main(void) { FlashbookDilation of = {FLASHBOOK_DILATION, 3};"
                                             " return fwrite(&of, sizeof of, 1, stdout) != 1; }\n")
        subprocess.run(["cc", f"-I{self.tree}", self.tree / "dilated.c", "-o", self.tree / "dilated"], check=True)
        in_c = subprocess.run([self.tree / "dilated"], stdout=subprocess.PIPE, check=True).stdout
        spec = importlib.util.spec_from_file_location("flashbook_library", self.tree / "python/flashbook/_library.py")
        assert spec is not None and spec.loader is not None
        library = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(library)
        self.assertEqual(bytes(library.feature("Dilation", dilation=3)), in_c)

    def test_has_an_option_that_the_help_shows(self):
        self.assertIn("--dilation", self.run_program("--help").stdout)

    def test_is_right_in_the_step_that_accepts_it(self):
        for options in ((), ("--causal",)):
            done = self.run_program("--step", STEP, "--check", "full", "--dilation", DILATION, *options)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(f"dilation {DILATION}", done.stdout)
            self.assertIn("every row against the FP64 oracle", done.stdout)

    def test_is_refused_by_every_other_step(self):
        for step in (1, 2, 4, 5):
            done = self.run_program("--step", step, "--dilation", DILATION)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(f"step {step} does not support dilated windows: leave them out, or use step {STEP}", done.stdout)

    def test_is_covered_by_the_property_tests(self):
        done = subprocess.run([self.bin / "attention", "--gtest_filter=Features.*:Visibility.*:OracleMasks.*:Gradient.*RandomMasks*"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
