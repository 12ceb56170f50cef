#!/usr/bin/env python3
"""Runs FlashAttention's own tests on this package, or FlashInfer's, and counts what passed, what was refused and what failed.

    python3 python/tests/others/run.py --flash-attention DIR [--flash-attention-3] [--longest N] [--sample N] [--seconds N] [--report FILE] [PYTEST ARGUMENTS]
    python3 python/tests/others/run.py --flashinfer DIR [...]

DIR is a checkout. Nothing of it is built, changed or copied; the tests want pytest and einops. The package is the one that Python finds, on a GPU or in the simulator,
where `--longest 128 --sample 10` keeps to what it does in minutes. The tests are many: name some with `-k`, or give `--seconds`, and `-n 4` where pytest-xdist is.
"""

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
OF_FLASHINFER = ("test_alibi", "test_batch_decode_kernels", "test_batch_prefill", "test_batch_prefill_kernels", "test_decode_prefill_lse", "test_logits_cap",
                 "test_non_contiguous_decode", "test_non_contiguous_prefill", "test_shared_prefix_kernels", "test_single_prefill", "test_sliding_window",
                 "test_tensor_cores_decode")  # prompts and decoding; the others are of kernels and backends that the package does not have


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--flash-attention", type=pathlib.Path, metavar="DIR")
    whose.add_argument("--flashinfer", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--flash-attention-3", action="store_true", help="the tests of FlashAttention's hopper folder")
    given, others = parser.parse_known_args()
    source = (given.flashinfer or given.flash_attention).resolve()
    if given.flashinfer:
        tests = [source / "tests" / "attention" / f"{name}.py" for name in OF_FLASHINFER]
        own = ["--flashinfer", "--noconftest"]  # its conftest.py compiles kernels
    else:
        folder = source / ("hopper" if given.flash_attention_3 else "tests")
        tests, own = [folder / "test_flash_attn.py"], []
    for missing in (path for path in tests if not path.is_file()):
        print(f"{missing} is missing: give a checkout of {'FlashInfer' if given.flashinfer else 'FlashAttention'}", file=sys.stderr)
        return 2
    # FlashAttention-3's tests import what lies beside them.
    found = [str(HERE), *([str(source / "hopper")] if given.flash_attention_3 else []), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "-p", "adapter", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(source), "-q", "-rfE",
               "--tb=short", f"--source={source}", *own, *others, *map(str, tests)]
    print(" ".join(command), file=sys.stderr)
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(found)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
