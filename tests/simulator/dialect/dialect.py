#!/usr/bin/env python3
"""Tests common CUDA code, snippets.txt, in the simulator's dialect.

    dialect.py source FILE.cu            writes a program that runs the snippets with a value and compares it
    dialect.py refuse COMPILER ARG...    compiles each of the others and expects its message in the compiler's first error

A line of snippets.txt is `name: code -> value` or `name: code !! sentence`; a # may be followed by the remedy, if the
message is the compiler's own. The code is a kernel's body, which leaves its value in `o` and has f[i] = n[i] = i in
global memory; `declarations {{ body }}` if something precedes the kernel. @ stands for the end of a line."""
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SNIPPETS = Path(__file__).with_name("snippets.txt")
LINE = re.compile(r"(\w+): (?:(?P<before>.*?) ?\{\{ (?P<body>.*)\}\}|(?P<code>.*)) (?P<kind>->|!!) (?P<wanted>.*?)(?: # (?P<advice>.*))?")
PRELUDE = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <alloca.h>

#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "common/device/launch.h"
#include "common/device/tensor_map_type.h"
#include "common/ptx/barrier.h"
#include "common/ptx/elect.h"
#include "common/ptx/mbarrier.h"

using namespace flashbook;
"""
PROGRAM = """
struct Snippet {
  const char* name;
  void (*kernel)(double*, float*, int*);
  double value;
};
const Snippet kSnippets[] = {
%s};
int main() {
  int wrong = 0;
  for (const Snippet& snippet : kSnippets) try {
      float floats[256];
      int ints[256];
      double value = 0;
      for (int i = 0; i < 256; ++i) floats[i] = float(ints[i] = i);
      const auto device = device::Place::device;
      device::Buffer f(device, sizeof floats), n(device, sizeof ints), out(device, sizeof value);
      f.upload(std::as_bytes(std::span(floats)));
      n.upload(std::as_bytes(std::span(ints)));
      device::launch(snippet.kernel, 1, 64, 1024, nullptr, static_cast<double*>(out.data()),
                     static_cast<float*>(f.data()), static_cast<int*>(n.data()));
      out.download(std::as_writable_bytes(std::span(&value, 1)));
      if (value == snippet.value) continue;
      std::printf("%%s gives %%.17g and should give %%.17g\\n", snippet.name, value, snippet.value);
      ++wrong;
    } catch (const device::HardwareMissing& error) {
      std::puts(error.what());
      return 77;
    } catch (const std::exception& error) {
      std::printf("%%s: %%s\\n", snippet.name, error.what());
      ++wrong;
    }
  std::printf("%%d of %%zu snippets are wrong\\n", wrong, std::size(kSnippets));
  return wrong > 0;
}
"""


class Snippet(NamedTuple):
    section: str
    name: str
    before: str  # declarations before the kernel
    body: str
    value: str  # empty if it is rejected
    sentence: str  # the expected message; empty if it works
    advice: str

    @property
    def source(self) -> str:
        """The snippet in CUDA, in its own namespace after the includes."""
        lines = [line.strip() for line in self.before.split("@")]
        directives = "".join(line + "\n" for line in lines if line.startswith("#"))
        before = "\n".join(line for line in lines if not line.startswith("#"))
        body = self.body.replace("@", "\n")
        return (f"{directives}namespace in_{self.name} {{\n{before}\n__global__ void kernel([[maybe_unused]] double* out, "
                f"[[maybe_unused]] float* f, [[maybe_unused]] int* n) {{\ndouble o = 0;\n{body}\n"
                f"if (threadIdx.x == 0) *out = o;\n}}\n}}\n")


def snippets() -> list[Snippet]:
    found, section = [], ""
    for number, line in enumerate(SNIPPETS.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("# "):
            section = line[2:]
        elif line:
            match = LINE.fullmatch(line)
            if not match:
                sys.exit(f"{SNIPPETS}:{number}: neither 'name: code -> value' nor 'name: code !! sentence'")
            value, sentence = (match["wanted"], "") if match["kind"] == "->" else ("", match["wanted"])
            body = f"{match['code']};" if match["code"] else match["body"]
            found.append(Snippet(section, match[1], match["before"] or "", body, value, sentence, match["advice"] or ""))
    return found


def source() -> str:
    works = [snippet for snippet in snippets() if snippet.value]
    table = "".join(f'    {{"{s.name}", in_{s.name}::kernel, {s.value}}},\n' for s in works)
    return PRELUDE + "".join(s.source for s in works) + PROGRAM % table


def refuse(compiler: list[str]) -> list[str]:
    """Returns the faults in the messages of rejected snippets."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        prelude, file = Path(folder, "prelude.h"), Path(folder, "snippet.cpp")
        prelude.write_text(PRELUDE, encoding="utf-8")
        subprocess.run([*compiler, "-x", "c++-header", prelude, "-o", f"{prelude}.gch"], check=True)
        for snippet in snippets():
            if not snippet.sentence:
                continue
            file.write_text(snippet.source, encoding="utf-8")
            links = snippet.sentence.startswith("link: ")
            how = ["-o", "/dev/null"] if links else ["-fsyntax-only"]
            result = subprocess.run([*compiler, "-w", "-include", prelude, "-x", "c++", file, *how], capture_output=True, text=True)
            first = result.stderr if links else "".join(result.stderr.split("error: ", 2)[:2])  # including the notes that follow it
            sentence = snippet.sentence.removeprefix("link: ")
            if result.returncode == 0:
                wrong.append(f"{snippet.name} compiles, and should say: {sentence}")
            elif sentence not in first:
                wrong.append(f"{snippet.name} should say: {sentence}\n{result.stderr}")
    return wrong


def main() -> None:
    if sys.argv[1:2] == ["source"] and len(sys.argv) == 3:
        Path(sys.argv[2]).write_text(source(), encoding="utf-8")
    elif sys.argv[1:2] == ["refuse"] and len(sys.argv) > 2:
        sys.exit("\n".join(refuse(sys.argv[2:])) or 0)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
