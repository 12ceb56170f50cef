#!/usr/bin/env python3
"""Runs FlashAttention's or FlashInfer's own tests on this package, and counts what passed, what was refused and what failed.

    python3 python/tests/others/run.py --flash-attention DIR [--flash-attention-3] [--longest N] [--sample N] [--seconds N] [--report FILE] [PYTEST ARGUMENTS]
    python3 python/tests/others/run.py --flashinfer DIR ...

DIR is a checkout, or some of its files and a file COMMIT; it is not built or changed. The tests need pytest and einops. The package is the one that
Python imports, on a GPU or in the simulator, where `--longest 128 --sample 10` selects tests that finish in minutes. To run fewer tests, use `-k` or
`--seconds`; with pytest-xdist, `-n 4` runs them in parallel.
"""

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
OF_FLASHINFER = ("test_single_prefill", "test_batch_prefill_kernels", "test_batch_decode_kernels")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--flash-attention", type=pathlib.Path, metavar="DIR")
    which.add_argument("--flashinfer", type=pathlib.Path, metavar="DIR", help="its tests of prompts and of decoding")
    parser.add_argument("--flash-attention-3", action="store_true", help="the tests of FlashAttention's hopper folder")
    given, others = parser.parse_known_args()
    source = (given.flash_attention or given.flashinfer).resolve()
    tests = [source / ("hopper" if given.flash_attention_3 else "tests") / "test_flash_attn.py"]
    if given.flashinfer:
        tests = [source / "tests" / "attention" / f"{name}.py" for name in OF_FLASHINFER]
    if missing := [str(test) for test in tests if not test.is_file()]:
        print(f"{missing[0]} is missing: pass a checkout of {'FlashInfer' if given.flashinfer else 'FlashAttention'}", file=sys.stderr)
        return 2
    # Tests import modules from their own folder, or FlashInfer's from the root.
    folder = source if given.flashinfer else source / "hopper" if given.flash_attention_3 else None
    found = [str(HERE), *([str(folder)] if folder else []), *filter(None, [os.environ.get("PYTHONPATH")])]
    commit = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    if (source / "COMMIT").is_file():
        commit = (source / "COMMIT").read_text().strip()
    command = [sys.executable, "-m", "pytest", "-p", "adapter", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(source), "--noconftest", "-q", "-rfE",
               "--tb=short", f"--source={source}", f"--commit={commit or 'unknown'}", *others, *map(str, tests)]
    print(" ".join(command), file=sys.stderr)
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(found)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
