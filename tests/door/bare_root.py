#!/usr/bin/env python3
"""Runs the README's two commands in a bare Debian: bare_root.py [root|user|offline ...] [-- COMMAND ...] (default: all
three cases; `run`, then `test`). debootstrap makes the system from the mirror that apt uses here; it has neither a
compiler nor Python, and gets a fresh copy of this tree's files. There is no terminal, and GitHub is unreachable. Cases:
as root; as an unprivileged user; without a network, where ./flashbook must fail within two seconds. The commands must
print something every few seconds. Needs root, apt and debootstrap; without them it prints why it skips."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/bare"
SECONDS = 2.0  # allowed for a refusal without a network
SILENCE = 6.0  # seconds; a sign of life is due every four
INSIDE = (
    'mount -t proc proc "$0/proc" && exec chroot --userspec="$1" "$0" /usr/bin/env -i PATH="$PATH" HOME="$2" "${@:3}"'
)


def mirror() -> tuple[str, str]:
    """Returns (URI, suite) of the first entry in apt's sources."""
    wanted = subprocess.run(["apt-get", "--print-uris", "update"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"^'(http\S+?)/dists/(\w+)/(?:In)?Release'", wanted, re.MULTILINE)
    if not found:
        sys.exit("***Skipped: apt's sources name no mirror")
    return found[1], found[2]


def make_base() -> Path:
    base = FOLDER / "base"
    if not base.exists():
        uri, suite = mirror()
        FOLDER.mkdir(parents=True, exist_ok=True)
        unfinished = FOLDER / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", suite, unfinished, uri], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["chroot", unfinished, "useradd", "-m", "ada"], check=True)
        for name in ("/etc/resolv.conf", *map(str, Path("/etc/apt/apt.conf.d").glob("*.conf"))):
            shutil.copy(name, f"{unfinished}{name}")
        (unfinished / "etc/hosts").write_text(
            Path("/etc/hosts").read_text(encoding="utf-8") + "\n127.0.0.1 github.com\n", encoding="utf-8"
        )
        unfinished.rename(base)
    return base


def call(root: Path, user: str, *words: str, offline: bool = False) -> tuple[int, str, float, tuple[float, str]]:
    """Returns (exit code, output, seconds, (longest silence in seconds, the line that ended it)) of ./flashbook, run in
    its tree in the bare system."""
    home = "/root" if user == "root" else f"/home/{user}"
    name = ["unshare", "--mount", "--pid", "--fork", *(["--net"] if offline else []), "bash", "-c", INSIDE, str(root),
            f"{user}:{user}", home, "sh", "-c", 'cd ~/flashbook && exec ./flashbook "$@"', "sh", *words]
    log = FOLDER / f"{root.name}-{words[0]}.log"
    began = heard = time.monotonic()
    said, silence = [], (0.0, "")
    with log.open("w", encoding="utf-8") as file, subprocess.Popen(
        name,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    ) as child:
        assert child.stdout
        for line in child.stdout:
            now = time.monotonic()
            silence, heard = max(silence, (now - heard, line)), now
            said.append(line)
            file.write(f"{now - began:6.1f}  {line}")
            file.flush()
    silence = max(silence, (time.monotonic() - heard, "the end"))
    return child.returncode, "".join(said), time.monotonic() - began, silence


def fresh(base: Path, case: str, user: str) -> Path:
    """Returns a copy of the bare system with a copy of this tree's files, owned by the user."""
    root = FOLDER / case
    subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)
    subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
    tree = root / ("root" if user == "root" else f"home/{user}") / "flashbook"
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                           capture_output=True, check=True).stdout
    tree.mkdir()
    packed = subprocess.run(["tar", "-C", ROOT, "--null", "--ignore-failed-read", "-T", "-", "-c"], input=names,
                            capture_output=True, check=True).stdout
    subprocess.run(["tar", "-C", tree, "-x", "--no-same-owner"], input=packed, check=True)
    subprocess.run(["chroot", root, "chown", "-R", f"{user}:{user}", f"/{tree.relative_to(root)}"], check=True)
    return root


def refuses_offline(base: Path) -> list[str]:
    faults = []
    for user in ("ada", "root"):
        code, said, seconds, _ = call(fresh(base, "offline", user), user, "run", offline=True)
        told = f"offline, as {user}: exit code {code} after {seconds:.1f} s"
        print(told, flush=True)
        if code != 2 or seconds > SECONDS or "apt-get install -y python3 g++ cmake" not in said:
            faults.append(f"{told}:\n{said}")
    return faults


def works(base: Path, case: str, commands: list[list[str]]) -> list[str]:
    user = "root" if case == "root" else "ada"
    root, faults = fresh(base, case, user), []
    for words in commands:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code, said, seconds, silence = call(root, user, *words)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        print(f"as {case}: ./flashbook {' '.join(words)}: exit code {code} after {seconds:.0f} s, {cpu:.0f} s of CPU, "
              f"silent for at most {silence[0]:.1f} s, before: {silence[1].rstrip()}",
              flush=True)
        if silence[0] > SILENCE:
            faults.append(f"as {case}: ./flashbook {' '.join(words)} printed nothing for {silence[0]:.1f} s")
        if code:
            faults.append(
                f"as {case}: ./flashbook {' '.join(words)}: exit code {code}:\n" + "\n".join(said.splitlines()[-30:])
            )
    return faults


def main() -> int:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    cases, commands = (words[:cut] or ["offline", "root", "user"],
                       [words[cut + 1 :]] if words[cut + 1 :] else [["run"], ["test"]])
    if os.geteuid() != 0 or not all(map(shutil.which, ("debootstrap", "apt-get", "unshare"))):
        print("***Skipped: a bare root takes root, apt and debootstrap (apt-get install debootstrap)")
        return 0
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "true"], check=False).returncode:
        print("***Skipped: this container may not make namespaces")
        return 0
    base = make_base()
    faults = [
        fault
        for case in cases
        for fault in (refuses_offline(base) if case == "offline" else works(base, case, commands))
    ]
    print("\n".join(faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
