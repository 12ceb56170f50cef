"""Tests the program `memory`: what it prints and what it rejects."""
import subprocess
import sys

PROGRAM = sys.argv[1]


def memory(*options: str, code: int = 0) -> str:
    done = subprocess.run([PROGRAM, *options], capture_output=True, text=True, check=False)
    assert done.returncode == code, (options, done)
    return done.stderr if code else done.stdout


def row(text: str, begins: str) -> list[str]:
    """Returns the words of the first line that starts with `begins`."""
    return next(line for line in text.splitlines() if line.startswith(begins)).split()


issue = memory("--layers", "32", "--kv-heads", "8", "--heads", "32", "--head-dim", "128", "--dtype", "bf16", "--seqlen", "8k", "--batch", "16")
assert row(issue, "of a token, in one layer")[-3:] == ["4096", "4", "KiB"], issue
assert row(issue, "of a token, in all layers")[-3:] == ["131072", "128", "KiB"], issue
assert row(issue, "of a sequence of 8192")[-2:] == ["1", "GiB"], issue
assert row(issue, "of the batch of 16")[-2:] == ["16", "GiB"], issue
assert row(issue, "if each query head")[-2:] == ["64", "GiB"], issue
assert row(issue, "beside it")[-2:] == ["192", "GiB"], issue  # 16 * 32 * 8192^2 * (4 + 2)

assert "320 KiB" in memory("--model", "llama-2-70b")
assert "70272" in memory("--model", "deepseek-v3")
table = memory("--seqlen", "32k", "--batch", "4")
assert row(table, "llama-3-8b")[5:9] == ["128", "KiB", "16", "GiB"], table

for wrong, cure in [
    (["--model", "llama-4"], "prints it"),
    (["--layers", "32"], "give all three"),
    (["--model", "gpt-3", "--layers", "3"], "leave them out"),
    (["--layers", "1", "--kv-heads", "3", "--head-dim", "64", "--heads", "4"], "multiple of --kv-heads"),
    (["--seqlen", "0"], "at least 1"),
    (["--dtype", "int8"], "f32, f16, bf16 or e4m3"),
    (["--tokens", "3"], "--help"),
]:
    message = memory(*wrong, code=2)
    assert cure in message and message.count("\n") == 1, (wrong, message)
