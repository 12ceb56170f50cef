"""Finds results that are older than their kernel: those whose kernel changed after the commit at which they were measured.

Two commits are compared by the declarations that a step's file reaches by name, through its includes and the functions of host/ that launch it,
without comments, assertions and what only the simulator compiles. Declarations that differ only in names that the other commit lacks are equal.
bench/results/older.txt has refactorings that kept a kernel's SASS, and exceptions. Results that name no step of ours are not compared.
"""
import collections
import fnmatch
import functools
import re
import subprocess
import sys
from collections.abc import Iterable

from bench import results, steps
from bench.results import Entry

EXCUSED = results.RESULTS / "older.txt"
FOLDERS = ("chapters/", "common/device/", "common/features/", "common/hopper/", "common/numeric/", "common/ptx/", "bench/")  # code of kernels
CODE = re.compile(r".*\.(cuh?|h|cpp)")
SHARED = {6: "step1_attention.cuh", 9: "attention.cuh", 10: "attention.cuh"}  # the kernel of most steps of a chapter
WORD = re.compile(r"[A-Za-z_]\w*")
SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|static_assert\([^;]*\);', re.DOTALL)
SIMULATED = re.compile(r"^#ifdef __CUDACC__\s*?\n(.*?)(?:^#else.*?)?^#endif", re.DOTALL | re.MULTILINE)
NOT_DECLARED = re.compile(r"^#(?:[^\n]*\\\n)*[^\n]*|^(?:inline )?namespace [^{;]*\{", re.MULTILINE)
Declaration = tuple[frozenset[str], frozenset[str], str]  # the names that it declares, the words in it, and its text


def git(*words: str, given: str = "") -> bytes:
    """Returns git's output; nothing if it fails."""
    try:
        return subprocess.run(["git", "-C", str(results.ROOT), *words], input=given.encode(), capture_output=True, check=False).stdout
    except FileNotFoundError:
        return b""


@functools.cache
def files(commit: str) -> dict[str, str]:
    """Returns the text of a commit's files in FOLDERS; {} if HEAD's history lacks it."""
    if git("rev-list", "-1", f"HEAD..{commit}"):
        return {}
    listed = [line.split(" ", 2) for line in git("ls-tree", "-r", "--format=%(objectname) %(path)", commit, *FOLDERS).decode().splitlines()]
    found = [(place, path) for place, path in listed if CODE.fullmatch(path)]
    texts, begin, got = {}, 0, git("cat-file", "--batch", given="\n".join(place for place, _ in found))
    for _, path in found:
        head = got.index(b"\n", begin)
        size = int(got[begin:head].split()[2])
        texts[path] = got[head + 1:head + 1 + size].decode(errors="replace")
        begin = head + size + 2
    return texts


@functools.cache
def parsed(text: str) -> tuple[list[str], list[Declaration]]:
    """Returns a file's includes and its declarations outside functions and classes."""
    text = SIMULATED.sub(r"\1", SKIPPED.sub("", text))
    includes = re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
    text, depth, begin, found = NOT_DECLARED.sub("", text), 0, 0, []
    for mark in re.finditer(r"[{}();]", text):
        depth = max(0, depth + (mark[0] in "({") - (mark[0] in ")}"))
        if depth == 0 and mark[0] in ";}":
            whole, begin = text[begin:mark.end()].strip(), mark.end()
            head, reduced = whole.partition("{")[0].rstrip(";"), ""
            while head != reduced:
                head, reduced = re.sub(r"\([^()]*\)|<[^<>]*>", "§", head), head
            head = re.sub(r"^template\s*§|\b(__launch_bounds__|alignas|requires)\s*§", "", head)
            names = re.findall(r"\b([A-Za-z_]\w*)\s*(?:§|=|\[|:(?!:)|$)", head)
            found.append((frozenset(names), frozenset(WORD.findall(re.sub(r'"(?:[^"\\\n]|\\.)*"', "", whole))), whole))
    return includes, found


def reached(commit: str, roots: Iterable[str]) -> list[str]:
    """Returns the declarations that the kernels of these files reach, and those of host/ that launch them."""
    tree = files(commit)
    left = [path for path in roots if path in tree]
    folders = tuple(f"{path.rpartition('/')[0]}/host/" for path in left)
    host = [path for path in tree if path.startswith(folders)]
    todo = [declared for path in left for declared in parsed(tree[path])[1]]
    seen: set[str] = set()
    while left:
        if (path := left.pop()) not in seen and path in tree:
            seen.add(path)
            left += parsed(tree[path])[0]
            if path in host:  # with what a header of host/ declares
                left += [source for source in host if re.fullmatch(rf"{path.removesuffix('.h')}(_d\d+)?\.(cu|cpp)", source)]
    by_name: dict[str, list[Declaration]] = collections.defaultdict(list)
    for path in seen:
        for declared in parsed(tree[path])[1]:
            for name in declared[0]:
                by_name[name].append(declared)
    found: dict[str, Declaration] = {}
    used: set[str] = set()

    def follow(todo: list[Declaration]) -> None:
        while todo:
            declared = todo.pop()
            found[declared[2]] = declared
            todo += [one for word in declared[1] - used for one in by_name[word]]
            used.update(declared[1])

    follow(todo)
    if not any("__global__" in text for text in found):  # parts of a kernel in another file
        follow([declared for path in seen for declared in parsed(tree[path])[1] if "__global__" in declared[2]])
    kernels = {name for names, _, text in found.values() if "__global__" in text for name in names}
    follow([declared for path in host for declared in parsed(tree[path])[1] if declared[1] & kernels])
    return list(found)


@functools.cache
def renamed(commit: str) -> dict[str, str]:
    """Returns the former names of the files that were renamed since a commit."""
    lines = git("diff", "--name-status", "-M30", "--diff-filter=R", commit, "HEAD", "--", "chapters", "bench/*.cu*").decode().splitlines()
    return {new: old for _, old, new in (line.split("\t") for line in lines)}


@functools.cache
def changed(commit: str, roots: tuple[str, ...]) -> bool:
    """Returns whether what these files of HEAD reach has changed since a commit."""
    old, new = reached(commit, [renamed(commit).get(path, path) for path in roots]), reached("HEAD", roots)
    old_words, new_words = ({word for text in texts for word in WORD.findall(text)} for texts in (old, new))
    same = old_words & new_words
    old_texts, new_texts = ({re.sub(r"\s", "", WORD.sub(lambda found: found[0] if found[0] in same else "_", text)) for text in texts}
                            for texts in (old, new))
    return old_texts != new_texts


@functools.cache
def code(kind: str, who: str) -> tuple[str, tuple[str, ...]] | None:
    """Returns what was measured, such as ch05/persistent or ablation/ch05, and its files; None if it is no kernel of ours."""
    tree, named = files("HEAD"), re.fullmatch(r"ch(\d\d)/(\w+)", who)
    if kind == "machine" and not who.startswith("hop/"):
        return "machine", ("chapters/00_the_machine/host/measure.cu",)
    if not named:
        return None
    chapter, variant = int(named[1]), named[2]
    if kind == "ablation":
        return f"ablation/ch{chapter:02}", tuple(path for path in tree if path.startswith(f"bench/ablation_{chapter:02}"))
    by_number = collections.defaultdict(list)
    for path in tree:
        if found := re.fullmatch(rf"chapters/{chapter:02}_\w+/step(\d+)_\w+\.\w+", path):
            by_number[int(found[1])].append(path)
    found_steps = [step for step in steps.of(chapter) if f"{variant}_".startswith(f"{step.slug}_")]
    if not found_steps:  # a variant of any step
        return f"ch{chapter:02}/*", tuple(path for paths in by_number.values() for path in paths)
    step = max(found_steps, key=lambda step: len(step.slug))
    last = max(number for number in by_number if number <= step.number)
    folder = by_number[last][0].rpartition("/")[0]
    return step.name, (*by_number[last], *([f"{folder}/{SHARED[chapter]}"] if chapter in SHARED else []))


@functools.cache
def excuses() -> tuple[tuple[str, str, str], ...]:
    """Returns the commits, later commits and steps of EXCUSED."""
    lines = [line.split() for line in EXCUSED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return tuple((*commits.partition("=")[::2], step) for commits, which, *_ in lines for step in which.split(","))


def excuse(what: str, commit: str) -> str | None:
    """Returns the later commit as of which a commit's results count, "" if they are excused altogether, and None without an excuse."""
    return next((later for one, later, step in excuses() if one == commit and fnmatch.fnmatchcase(what, step)), None)


def older(entries: Iterable[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """Returns the entries that are older than their kernel, by what they measured and their commit. A copy without history has none."""
    found: dict[tuple[str, str], list[Entry]] = collections.defaultdict(list)
    if git("rev-parse", "--is-shallow-repository").strip() != b"false":
        print("results are not compared with the history of their kernels, which this copy lacks", file=sys.stderr)
        return found
    for entry in entries:
        measured, commit = code(entry.cell.kind, entry.cell.who), entry.context["commit"]
        if measured and changed(excuse(measured[0], commit) or commit, measured[1]):
            found[measured[0], commit].append(entry)
    return found


def refused(quoted: Iterable[Entry]) -> list[str]:
    """Returns why results may not be quoted."""
    return [f"{what}: {len({entry.name for entry in entries})} quoted results of commit {commit} are older than its kernel, "
            f"or HEAD's history lacks the commit, such as {entries[0].name}: "
            f"measure them again (bench/release --older), or excuse them in {EXCUSED.relative_to(results.ROOT)}"
            for (what, commit), entries in sorted(older(quoted).items()) if excuse(what, commit) != ""]
