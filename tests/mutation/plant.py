#!/usr/bin/env python3
"""Plants faults into copies of a kernel: plant.py KERNEL PART PARTS OUTPUT.cu

Every mutant of the part gets a namespace of its own inside the kernel's, and all share one set of headers, since these take longer to
compile than a kernel. Exit code 1, with a message, if a fault's text is not in the kernel any more.
"""
import json
import re
import sys

from fault import HERE, Refused, faults_of, planted


def mutant(kernel, fault, text):
    """A mutant's code and its entry in the list of mutants."""
    opening = f"namespace flashbook::{kernel} {{"
    start = text.index(opening)
    body = text[start:].replace(opening, f"namespace flashbook::{kernel}::{fault.name} {{")
    line = text.count("\n", 0, start) + 1
    expected = ", ".join(f"{{Mode::{mode}, {json.dumps(report)}}}" for mode, report in fault.reports.items())
    return (f'#line {line} "tests/mutation/{kernel}.cuh"\n{body}'
            f"namespace flashbook::mutation {{\n"
            f'const Planted {kernel}_{fault.name}({{"{kernel}", "{fault.name}", {{{expected}}}, '
            f"{fault.head_dim}, &{kernel}::{fault.name}::run<{fault.head_dim}>}});\n}}\n")


def main():
    kernel, part, parts, output = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    text = (HERE / f"{kernel}.cuh").read_text(encoding="utf-8")
    try:
        mutants = [mutant(kernel, fault, planted(kernel, fault, text)) for fault in faults_of(kernel)[part::parts]]
    except Refused as reason:
        sys.exit(f"plant.py: {reason}")
    includes = [*re.findall(r"^#include .*$", text, re.M), '#include "tests/mutation/subject.h"']
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(includes) + "\n\n" + "\n".join(mutants))


if __name__ == "__main__":
    main()
