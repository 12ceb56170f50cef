"""Adding a mask takes five files. A dilated window is added to a copy of the tree (new_parts_test.py) and to one step of chapter 2. The program
is built and compared with attention in Python, and the oracle's property tests run with the new mask."""
import math
import random
import struct
import subprocess
import unittest
from pathlib import Path

TARGETS = ["02_online_softmax", "attention"]
SEQLEN, HEAD_DIM, DILATION, STEP = 40, 64, 3, 3

DEFINITION = """\
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
};

}  // namespace flashbook::features
"""

# Replacements in the tree, by file.
CHANGES = {
    "common/features/list.h": [
        ("  ROW(blocks) ", "  ROW(dilation) ROW(blocks) "),
        ("  Blocks blocks = {};", "  int dilation = 1;\n  Blocks blocks = {};"),
        ("documents, columns, blocks, dense]", "documents, columns, dilation, blocks, dense]"),
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


def add_mask(tree):
    (tree / "common/features/dilation").mkdir()
    (tree / "common/features/dilation/dilation.cpp").write_text(DEFINITION)
    for name, replacements in CHANGES.items():
        text = (tree / name).read_text()
        for old, new in replacements:
            assert text.count(old) == 1, f"{name} has '{old}' {text.count(old)} times"
            text = text.replace(old, new)
        (tree / name).write_text(text)


def write_npy(path, values):
    """Writes [1, 1, SEQLEN, HEAD_DIM] in float32."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, {SEQLEN}, {HEAD_DIM}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    data = struct.pack(f"<{len(values)}f", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def read_npy(path):
    data = path.read_bytes()
    return struct.unpack(f"<{SEQLEN * HEAD_DIM}f", data[10 + struct.unpack("<H", data[8:10])[0]:])


def attention(q, k, v, sees):
    """O in double precision, [SEQLEN * HEAD_DIM]."""
    row = lambda tensor, i: tensor[i * HEAD_DIM:(i + 1) * HEAD_DIM]
    result = []
    for i in range(SEQLEN):
        keys = [j for j in range(SEQLEN) if sees(i, j)]
        weights = [math.exp(sum(a * b for a, b in zip(row(q, i), row(k, j), strict=True)) / math.sqrt(HEAD_DIM)) for j in keys]
        result += [sum(w * row(v, j)[c] for w, j in zip(weights, keys, strict=True)) / sum(weights) for c in range(HEAD_DIM)]
    return result


class NewMask(unittest.TestCase):
    tree = bin = Path()  # folders, set by new_parts_test.py

    def run_program(self, *options):
        command = [str(self.bin / "02_online_softmax"), "--seqlen", str(SEQLEN), *map(str, options)]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def test_takes_five_files(self):
        self.assertLessEqual(len(CHANGES) + 1, 5)

    def test_has_an_option_that_the_help_shows(self):
        self.assertIn("--dilation", self.run_program("--help").stdout)

    def test_is_right_in_the_step_that_accepts_it(self):
        draw = random.Random(1)
        q, k, v = ([draw.gauss(0, 1) for _ in range(SEQLEN * HEAD_DIM)] for _ in range(3))
        files = []
        for name, values in (("q", q), ("k", k), ("v", v)):
            write_npy(self.tree / f"{name}.npy", values)
            files += [f"--{name}", self.tree / f"{name}.npy"]
        masks = ((("--dilation", DILATION), lambda i, j: (i - j) % DILATION == 0),
                 (("--dilation", DILATION, "--causal"), lambda i, j: (i - j) % DILATION == 0 and j <= i))
        for options, sees in masks:
            done = self.run_program("--step", STEP, "--check", "full", *options, *files, "--output", self.tree / "o.npy")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(f"dilation {DILATION}", done.stdout)
            for got, wanted in zip(read_npy(self.tree / "o.npy"), attention(q, k, v, sees), strict=True):
                self.assertAlmostEqual(got, wanted, places=4)

    def test_is_refused_by_every_other_step(self):
        for step in (1, 2, 4, 5):
            done = self.run_program("--step", step, "--dilation", DILATION)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(f"step {step} does not support dilated windows: leave them out, or use step {STEP}", done.stdout)

    def test_is_covered_by_the_property_tests(self):
        done = subprocess.run([self.bin / "attention", "--gtest_filter=Features.*:Visibility.*:OracleMasks.*:Gradient.*RandomMasks*"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
