"""Tests the program `generate`: its counts, and that all steps generate the same tokens."""
import re
import subprocess
import sys


def generate(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.argv[1], *options], capture_output=True, text=True, check=False)


done = generate("--tokens", "12")
if done.returncode == 77:
    sys.exit(77)  # no GPU
assert done.returncode == 0, done
assert re.search(r"^without a cache +78 +[0-9.]+ s$", done.stdout, re.MULTILINE), done.stdout
assert re.search(r"^with the cache +12 +[0-9.]+ s$", done.stdout, re.MULTILINE), done.stdout
assert re.search(r"^The tokens are the same:( \d+){12}$", done.stdout, re.MULTILINE), done.stdout
other = generate("--tokens", "12", "--seed", "2")
assert other.returncode == 0 and other.stdout.splitlines()[-1] != done.stdout.splitlines()[-1], other
assert generate("--tokens", "0").returncode == 2
