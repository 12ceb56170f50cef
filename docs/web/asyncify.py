#!/usr/bin/env python3
"""Turns the linker's output into a module for the site: asyncify.py WASM-OPT NODE PROGRAM.js FAULTS.json TARGET

Writes TARGET.wasm, TARGET.js and TARGET.json, which the page reads before it loads the other two.

Binaryen's pass --asyncify lets a function return in the middle and resume when called again: fibers need that (common/simulator/block/fiber.h).
It changes only functions that can be on the stack between the loop over fibers and a switch: those that reach a switch by direct calls and, since an
indirect call could lead anywhere, those named below. The pass must run before inlining, which would remove the call to the switch.
"""
import json
import subprocess
import sys
from pathlib import Path

# Functions with an indirect call that may wait: to a fiber's entry, to a block's threads, to a thread's kernel.
CALLERS = ["*run_threads*", "*run_fiber*", "*Worker::run_thread*", "*__function::__func*detail::launch*", "*__invoke*detail::launch*"]


def main():
    wasm_opt, node, program, faults, target = sys.argv[1], sys.argv[2], *map(Path, sys.argv[3:])
    raw, module = program.with_suffix(".wasm"), target.with_suffix(".wasm")
    arguments = ["asyncify-ignore-indirect", "asyncify-ignore-imports", f"asyncify-addlist@{','.join(CALLERS)}"]
    options = ["--asyncify", *(f"--pass-arg={argument}" for argument in arguments)]
    subprocess.run([wasm_opt, *options, "-O1", "--strip-debug", str(raw), "-o", str(module)], check=True)
    text = program.read_text(encoding="utf-8").replace(raw.name, module.name)
    target.with_suffix(".js").write_text(text, encoding="utf-8")
    target.with_suffix(".json").unlink(missing_ok=True)
    describe = [node, str(Path(__file__).with_name("run_in_node.js")), str(target)]
    described = subprocess.run(describe, input="[{}]", check=True, capture_output=True, text=True)
    page = json.loads(faults.read_text(encoding="utf-8")) | json.loads(described.stdout)[0]
    target.with_suffix(".json").write_text(json.dumps(page, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
