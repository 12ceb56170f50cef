"""What a region of a student's code may not hold, since no exercise needs it and a cheat would: directives, other languages, the
operating system, the test's own machinery, and the end of the function that it stands in.

The gate reads the same tokens as a compiler. For that it takes no text in which the two could differ: no character that is not seen, no
trigraph, no line that goes on in the next. It is the first of three walls: what it lets through is compiled and run behind a fence
(sandbox.py) and judged by a second process (judge.py), which do not rest on it."""
import itertools
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
             "rename renameat read pread write pwrite readv writev fread fwrite fstream ifstream ofstream filebuf basic_fstream basic_ifstream "
             "basic_ofstream basic_filebuf filesystem",
    "a copy that nobody counts": "bcopy bzero swab copy_n copy_backward copy_if uninitialized_copy qsort qsort_r bsearch lfind lsearch sprintf "
                                 "snprintf vsprintf vsnprintf swprintf vswprintf asprintf sscanf swscanf",
    "libraries' own": "__gnu_cxx __gnu_debug __gnu_parallel __cxx11 __cxxabiv1 __detail",
    "the right answer": "make_reference make_gradient_reference Reference TensorReference make_inputs Visibility visible_pairs "
                        "keys_seen largest_score compulsory_bytes parallel_for Shape Inputs",
    "the test's machinery": "testing gtest observed observe course_seed course_variant sim device RandomWarpOrder TEST TEST_F TEST_P TYPED_TEST "
                            "ADD_FAILURE ADD_FAILURE_AT FAIL SUCCEED SCOPED_TRACE RUN_ALL_TESTS",
}
# C's functions on memory and texts, under all the names that its headers have for them: memcpy, __mempcpy, wmemset, stpncpy.
COPY = re.compile(r"_*(?:w?mem|str|stp|wcs|wcp|mbs|wcr|mbr)[nlr]*(?:p?cpy|ccpy|move|set|cat|cmp|coll|chr|mem|frob|dup|dupa|xfrm|tok|to\w+)(?:_\w+)?")
# Of std: numbers, small values, types, and loops over arrays, all of which the compiler sees through, so that accesses are counted. A text, a
# view of one or a stream copies inside the library, where nobody counts.
STANDARD = frozenset("""
    abs fabs ceil floor round trunc lround llround rint nearbyint fmod remainder fma exp exp2 log log2 log10 log1p sqrt cbrt pow hypot sin cos tan
    tanh erf fmin fmax isnan isinf isfinite signbit copysign min max minmax clamp gcd lcm midpoint lerp div numeric_limits numbers
    size_t ptrdiff_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t byte nullptr_t
    array pair tuple tie get make_pair make_tuple optional nullopt vector swap move forward exchange as_const begin end size data
    bit_cast popcount countl_zero countr_zero has_single_bit bit_ceil bit_floor bit_width rotl rotr
    accumulate reduce iota fill sort max_element min_element all_of any_of none_of count count_if find find_if lower_bound upper_bound reverse
    plus multiplies minus less greater less_equal greater_equal
    is_same is_same_v is_integral_v is_floating_point_v is_signed_v is_trivially_copyable_v conditional_t enable_if_t decay_t remove_cv_t
    remove_reference_t remove_cvref_t remove_const_t remove_pointer_t make_unsigned_t make_signed_t underlying_type_t common_type_t declval
    void_t integral_constant bool_constant true_type false_type integer_sequence index_sequence make_index_sequence make_integer_sequence
    integral floating_point same_as convertible_to tuple_size_v tuple_element_t
""".split())
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


def of_standard(text: str, begin: int) -> str:
    """What is named of std, whose name ends at `begin`; empty if nothing is, as where std gets another name."""
    words = [token for token in itertools.islice(TOKEN.finditer(text, begin), MOST) if token.lastgroup not in ("space", "comment")]
    return words[2][0] if [token[0] for token in words[:2]] == [":", ":"] and len(words) > 2 else ""


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
        if kind == "word" and (value in REASONS or value.startswith(("__builtin", *MACROS)) or COPY.fullmatch(value)):
            reason = REASONS.get(value, "a copy that nobody counts" if COPY.fullmatch(value) else "the compiler's own" if value.startswith("__")
                                 else "the test's machinery")
            found.append((line, f"'{value}' ({reason}) has no place in an exercise; if it is a name of yours, choose another"))
        elif kind == "word" and before and ((value == "thread" and text[before.start() - 1:before.end()] == "::") or
                                            (value == "std" and before[0] == "namespace")):
            found.append((line, "std::thread, or what would hide it, has no place in an exercise"))
        elif kind == "word" and value == "std" and (named := of_standard(text, token.end())) not in STANDARD:
            found.append((line, f"'{f'std::{named}' if named else 'std'}': an exercise takes of the standard library numbers, arrays, and what is "
                                "said of types; write a loop"))
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
