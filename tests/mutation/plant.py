#!/usr/bin/env python3
"""Plants faults into copies of a kernel: plant.py KERNEL PART PARTS OUTPUT.cu FILE...

The files are the kernel's text, relative to the root of the repository, in the order in which they include each other.

Every mutant of the part gets its own namespace inside that of the kernel, and all share one set of headers, since these
take longer to compile than a kernel. The exit code is 1, with a message, if a fault's text is not in the kernel any
more.
"""
import json
import re
import sys

from fault import HERE, Refused, faults_of, planted

OPENING = re.compile(r"^namespace (flashbook::\w+) {", re.M)


def opening_of(text):
    """Returns the position at which the kernel's namespace opens."""
    found = OPENING.search(text)
    assert found, "a kernel's file opens a namespace of flashbook"
    return found


def body(path, text):
    """Returns a file's text from its namespace on, and the number of that line."""
    start = opening_of(text).start()
    line = text.count("\n", 0, start) + 1
    return f'#line {line} "{path}"\n{text[start:]}'


def includes(files):
    """Returns the files' includes, except those of each other."""
    found = [line for text in files.values() for line in re.findall(r"^#include .*$", text, re.M)]
    return [line for line in dict.fromkeys(found) if line.split('"')[1:2] not in [[path] for path in files]]


def mutant(kernel, fault, text):
    """Returns a mutant's code and its entry in the list of mutants."""
    namespace = OPENING.findall(text)[-1]  # the kernel's own; files of common may precede it
    text = OPENING.sub(f"namespace {namespace}::{fault.name} {{", text)
    expected = ", ".join(f"{{Mode::{mode}, {json.dumps(report)}}}" for mode, report in fault.reports.items())
    return (f"{text}namespace flashbook::mutation {{\n"
            f'const Planted {kernel}_{fault.name}({{"{kernel}", "{fault.name}", {{{expected}}}, '
            f"{fault.head_dim}, &{namespace}::{fault.name}::run<{fault.head_dim}>}});\n}}\n")


def main():
    kernel, part, parts, output, *paths = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
    files = {path: (HERE.parents[1] / path).read_text(encoding="utf-8") for path in paths}
    text = "".join(body(path, file) for path, file in files.items())
    try:
        mutants = [mutant(kernel, fault, planted(kernel, fault, text)) for fault in faults_of(kernel)[part::parts]]
    except Refused as reason:
        sys.exit(f"plant.py: {reason}")
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join([*includes(files), '#include "tests/mutation/subject.h"']) + "\n\n" + "\n".join(mutants))


if __name__ == "__main__":
    main()
