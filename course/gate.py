"""What a region of a student's code may not hold, since no exercise needs it and a cheat would: directives, other languages, the
operating system, the test's own machinery, and the end of the function that it stands in.

The gate is the first of three walls. It reads text and can be fooled; the sandbox (sandbox.py) and the second process (judge.py) do not
rest on it."""
import re

FORBIDDEN = {
    "assembly": "asm __asm __asm__",
    "the compiler's own": "_Pragma __attribute__ __attribute __extension__ __declspec __COUNTER__",
    "linkage": "extern import export module",
    "the operating system": "system popen fork vfork execl execlp execle execv execvp execve posix_spawn syscall kill raise dlopen dlsym "
                            "mmap mprotect munmap ptrace getenv setenv putenv environ secure_getenv exit _exit _Exit quick_exit atexit "
                            "longjmp setjmp unshare socket",
    "files": "fopen freopen fdopen tmpfile open openat creat remove unlink rename fstream ifstream ofstream filebuf filesystem",
    "the test's machinery": "testing gtest observed observe course_seed sim device RandomWarpOrder",
}
REASONS = {word: reason for reason, words in FORBIDDEN.items() for word in words.split()}
PAIRS = {")": "(", "]": "[", "}": "{"}
# In this order: a raw string, a comment, a text, a character, a name or number (which may have ' between digits), anything else.
TOKEN = re.compile(r"""(?P<raw>(?:u8|[uUL])?R"[^\n]*)|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<open_comment>/\*)|(?P<text>"(?:[^"\\\n]|\\.)*")|"""
                   r"""(?P<char>'(?:[^'\\\n]|\\.)+')|(?P<word>\w(?:'?\w)*)|(?P<space>\s+)|(?P<other>.)""", re.DOTALL)
UNROLL = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+unroll(?:[ \t]+\d+|[ \t]*\(\d+\))?[ \t]*(?://.*)?")


def objections(lines: list[str], first_line: int = 1) -> list[tuple[int, str]]:
    """What is wrong with the lines of a region, the first in line `first_line`: [(line, text)]."""
    found = []
    for number, content in enumerate(lines, first_line):
        if content.rstrip().endswith("\\"):
            found.append((number, "a line may not end with a backslash"))
    text = "\n".join("" if UNROLL.fullmatch(line) else line for line in lines)
    open_brackets = []
    for token in TOKEN.finditer(text):
        line = first_line + text.count("\n", 0, token.start())
        kind, value = token.lastgroup, token[0]
        if kind in ("raw", "open_comment"):
            found.append((line, "a raw string has no place in an exercise" if kind == "raw" else "a comment that does not end"))
            break
        if kind == "word" and value in REASONS:
            found.append((line, f"'{value}' ({REASONS[value]}) has no place in an exercise; if it is a name of yours, choose another"))
        if kind != "other":
            continue
        if value in "([{":
            open_brackets.append((value, line))
        elif value in PAIRS:
            if not open_brackets:
                found.append((line, f"a '{value}' closes nothing that the region opens"))
                break
            bracket, begun = open_brackets.pop()
            if bracket != PAIRS[value]:
                found.append((line, f"a '{value}' comes before the '{bracket}' of line {begun} is closed"))
                break
        elif text.startswith(("<%", "%>"), token.start()):
            found.append((line, "write { and }"))
        elif value == "#" or text.startswith("%:", token.start()):
            found.append((line, "a directive has no place in an exercise, but for '#pragma unroll' on a line of its own"))
        elif value in "\\\"'":
            found.append((line, f"a {value} that belongs to no text"))
        elif not value.isascii() or not value.isprintable():
            found.append((line, "a character that is no C++"))
    else:
        found += [(line, f"a '{bracket}' that the region does not close") for bracket, line in open_brackets]
    return sorted(found)
