"""What a region of a student's code may not hold, since no exercise needs it and a cheat would: directives, other languages, the
operating system, the test's own machinery, and the end of the function that it stands in.

The gate reads the same tokens as a compiler. For that it takes no text in which the two could differ: no character that is not seen, no
trigraph, no line that goes on in the next. It is the first of three walls: what it lets through is compiled and run behind a fence
(sandbox.py) and judged by a second process (judge.py), which do not rest on it."""
import re

LARGEST = 64 << 10  # characters of a region
MOST = 10  # objections; who has more mends these first
FORBIDDEN = {
    "assembly": "asm __asm __asm__",
    "the compiler's own": "_Pragma __pragma __attribute__ __attribute __extension__ __declspec __COUNTER__ __has_include __has_include_next "
                          "__has_embed",
    "linkage": "extern import export module",
    "the operating system": "system popen fork vfork clone clone3 execl execlp execle execv execvp execvpe execve execveat fexecve posix_spawn "
                            "posix_spawnp syscall kill raise dlopen dlsym dlvsym mmap mmap64 mprotect munmap ptrace process_vm_readv "
                            "process_vm_writev memfd_create getenv setenv putenv environ __environ _environ secure_getenv exit _exit _Exit "
                            "quick_exit atexit at_quick_exit longjmp setjmp unshare socket",
    "a thread of the host": "jthread pthread_create thrd_create async packaged_task",
    "files": "fopen fopen64 freopen freopen64 fdopen tmpfile tmpfile64 mkstemp open open64 openat openat64 creat creat64 remove unlink unlinkat "
             "rename renameat fstream ifstream ofstream filebuf basic_fstream basic_ifstream basic_ofstream basic_filebuf filesystem",
    "a copy that nobody counts": "memcpy memmove mempcpy memccpy memset bcopy bzero copy_n copy_backward copy_if uninitialized_copy",
    "the test's machinery": "testing gtest observed observe course_seed course_variant sim device RandomWarpOrder TEST TEST_F TEST_P TYPED_TEST "
                            "ADD_FAILURE ADD_FAILURE_AT FAIL SUCCEED SCOPED_TRACE RUN_ALL_TESTS",
}
MACROS = ("GTEST_", "EXPECT_", "ASSERT_", "INSTANTIATE_TEST_")  # GoogleTest's others

REASONS = {word: reason for reason, words in FORBIDDEN.items() for word in words.split()}
DIGRAPHS = {"<%": "{ and }", "%>": "{ and }", "<:": "[ and ]", ":>": "[ and ]"}
DIRECTIVE = "a directive has no place in an exercise, but for '#pragma unroll' on a line of its own"
PAIRS = {")": "(", "]": "[", "}": "{"}
ATTRIBUTES = ("maybe_unused", "likely", "unlikely", "fallthrough", "nodiscard")  # others, as gnu::section, put text into the assembly
TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
# A number takes ' between its digits, and a word does not: u'a' is a character.
TOKEN = re.compile(r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<open_comment>/\*)|(?P<raw>(?:u8|[uUL])?R")|"""
                   r"""(?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.])*)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|"""
                   r"""(?P<text>"(?:[^"\\\n]|\\[^\n])*")|(?P<char>'(?:[^'\\\n]|\\[^\n])+')|(?P<space>[ \t\n]+)|"""
                   r"""(?P<digraph>%:|<%|%>|<:(?!:)|:>)|(?P<other>.)""", re.DOTALL)
ATTRIBUTE = re.compile(rf"\[\[({'|'.join(ATTRIBUTES)})\]\]")
UNROLL = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+unroll(?:[ \t]+\d+|[ \t]*\(\d+\))?[ \t]*(?://.*)?", re.ASCII)

Objection = tuple[int, str]


def unreadable(lines: list[str], first_line: int) -> list[Objection]:
    """What a compiler might read otherwise than the gate."""
    found = []
    for number, line in enumerate(lines, first_line):
        if line.rstrip().endswith("\\"):
            found.append((number, "a line may not end with a backslash"))
        unseen = next((c for c in line if not c.isprintable() and c != "\t"), "")
        if unseen:
            found.append((number, f"a character that is not seen (U+{ord(unseen):04X}): delete it and write it anew"))
        if TRIGRAPH.search(line):
            found.append((number, "a trigraph: write what it stands for"))
        if len(found) >= MOST:
            break
    return found


def objections(lines: list[str], first_line: int = 1) -> list[Objection]:
    """What is wrong with the lines of a region, the first in line `first_line`: [(line, text)]. Takes time in proportion to the text."""
    text = "\n".join(lines)
    if len(text) > LARGEST:
        return [(first_line, f"{len(text)} characters; a region has {LARGEST} at most")]
    found = unreadable(lines, first_line)
    if found:
        return found
    ends, begins = text.split("\n"), 0  # of the line that the token is in
    line, open_brackets, before = first_line, [], None
    for token in TOKEN.finditer(text):
        kind, value = token.lastgroup, token[0]
        if kind in ("raw", "open_comment"):
            found.append((line, "a raw string has no place in an exercise" if kind == "raw" else "a comment that does not end"))
            break
        if kind == "word" and (value in REASONS or value.startswith(("__builtin", *MACROS))):
            reason = REASONS.get(value, "the compiler's own" if value.startswith("__") else "the test's machinery")
            found.append((line, f"'{value}' ({reason}) has no place in an exercise; if it is a name of yours, choose another"))
        elif kind == "word" and before and ((value == "thread" and text[before.start() - 1:before.end()] == "::") or
                                            (value == "std" and before[0] == "namespace")):
            found.append((line, "std::thread, or what would hide it, has no place in an exercise"))
        elif kind == "number" and text.startswith("'", token.end()):  # 1'é is one number to some compilers
            found.append((line, "a ' that is in no number and belongs to no text"))
        elif kind == "digraph":
            found.append((line, DIRECTIVE if value == "%:" else f"write {DIGRAPHS[value]}"))
        elif value == "#":
            is_first = not text[begins:token.start()].strip(" \t")
            if not is_first or not UNROLL.fullmatch(ends[line - first_line]):
                found.append((line, DIRECTIVE))
        elif kind == "other" and value in "([{":
            open_brackets.append((value, line))
            if before and value == before[0] == "[" and not ATTRIBUTE.match(text, before.start()):
                found.append((line, f"an attribute has no place in an exercise, but for [[{']], [['.join(ATTRIBUTES)}]]"))
        elif value in PAIRS:
            if not open_brackets:
                found.append((line, f"a '{value}' closes nothing that the region opens"))
                break
            bracket, begun = open_brackets.pop()
            if bracket != PAIRS[value]:
                found.append((line, f"a '{value}' comes before the '{bracket}' of line {begun} is closed"))
                break
        elif kind == "other" and value in "\\\"'":
            found.append((line, f"a {value} that belongs to no text"))
        elif kind == "other" and (not value.isascii() or value in "$@`"):
            found.append((line, "a character that is no C++"))
        if len(found) >= MOST:
            break
        if kind not in ("space", "comment"):
            before = token
        if "\n" in value:
            line += value.count("\n")
            begins = token.start() + value.rindex("\n") + 1
    else:
        found += [(line, f"a '{bracket}' that the region does not close") for bracket, line in open_brackets[:MOST]]
    return sorted(found)
