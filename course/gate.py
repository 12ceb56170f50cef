"""Refuses code that no exercise needs and a cheat would: directives, other languages, the operating system, the test's own machinery, and leaving
the function that contains the region.

The gate must see the same tokens as the compiler, so it refuses any text that the two could read differently: invisible characters, trigraphs,
continued lines. It is the first of three walls. Code that passes is compiled and run in a sandbox (sandbox.py) and judged by a second process
(judge.py); neither relies on the gate."""
import itertools
import re

LARGEST = 64 << 10  # characters in a region
MOST = 10  # objections that are listed
# Refused words, by reason. The system's functions that compute, allocate, print or tell the time remain; the class Gate in
# tests/course/grading_test.py checks this against everything that the compiler sees declared.
REFUSED = {reason: re.compile(pattern, re.VERBOSE) for reason, pattern in {
    "assembly": "asm",
    "linkage": "extern | import | export | module",
    "a host thread": r"jthread | (?:pthread|thrd|mtx|cnd|tss|sem|sched)_\w+ | async | packaged_task",
    "files": r"""(?:f|fre|fd|p|fmem)?open(?:at)?(?:64)? | fopencookie | open_w?memstream | creat(?:64)? | tmpfile(?:64)? | te?mpnam(?:_r)? |
        mk(?:dir|fifo|nod|dtemp|o?stemps?|temp)(?:at|64)* | remove | rmdir | (?:un|sym|read)?link(?:at)? | rename(?:at2?)? |
        p?(?:read|write)(?:64|v2?|v64)* | f(?:read|write)(?:_unlocked)? | [fl]?(?:stat|chmod|chown|truncate|utimes|utimens)(?:at|64|x)* | utime\w* |
        f?(?:chdir|pathconf|accessat) | f(?:data)?sync | e(?:uid)?access | syncfs | chroot | realpath | canonicalize_file_name | getc?wd | getw |
        lockf(?:64)? | get_current_dir_name | lseek(?:64)? | f(?:seek|tell)o?(?:64)? | f[gs]etpos(?:64)? | rewind | dup[23]? | pipe2? |
        [fp]close(?:all)? | copy_file_range | sync_file_range | remap_file_pages | (?:vm)?splice | tee | readahead | fcntl(?:64)? | fallocate(?:64)?
        | (?:name_to|open_by)_handle_at | close_range | closefrom | fileno(?:_unlocked)? | f?getw?s(?:_unlocked)? | getdelim | getline |
        set(?:buf|buffer|linebuf|vbuf) | umask | v?dprintf | clearerr(?:_unlocked)? | ungetw?c | [io]?fstream |
        basic_(?:string\w*|filebuf|[io]?f?stream) | filebuf | filesystem""",
    "the operating system": r"""system | [vw]?fork | clone3? | exec[lv]\w* | fexecve | posix_\w+ | syscall | kill | killpg | tgkill | raise |
        [gs]?ssignal | gsignal | sig(?!n|ma|moid|nificand)\w+ | sysv_signal | ps(?:ignal|iginfo) | dl(?:v?sym|m?open|close|error|info|addr1?) |
        _dl_\w+ | m(?:un)?map(?:64)? | m(?:protect|sync|incore|advise|remap) | m(?:un)?lock(?:2|all)? | pkey_\w+ | ptrace |
        process_(?:vm_\w+|madvise|mrelease) | memfd_\w+ | (?:secure_)?(?:get|put|set|unset|clear)env | _?environ | _?exit | quick_exit | on_exit |
        atexit | at_quick_exit | (?:sig)?(?:long|set)jmp | unshare | setns | socket\w* | daemon | nice | acct | s?brk | profil | vhangup |
        wait(?:3|4|id|pid) | u?alarm | pselect | (?:timer|mq)_\w+ | clock_(?:adj|get|set|nano)\w+ | shm(?:_open|_unlink|at|dt|get|ctl) |
        re_(?:comp|match|search|set_)\w* | (?:adj|gettimeof|settimeof)(?:time|day) | reg(?:comp|exec|error|free) | revoke | c?userid | ctermid |
        (?:get|set)(?:e?[ug]id|res?[ug]id|pg(?:id|rp)|ppid|p?id|s?id|tid|sid|groups|host(?:id|name)|domainname|login(?:_r)?|pass|pt|itimer|timeofday|locale
        | usershell|dtablesize|pagesize|umask|entropy|loadavg|date(?:_r)?|subopt|opt|cpu) | endusershell | group_member | (?:grant|unlock)pt |
        ptsname(?:_r)? | tc[gs]etpgrp | tty\w+ | crypt | confstr | sysconf | (?:new|dup|free|use)locale | localeconv | getpagesize | \w*gettext |
        \w*textdomain\w* | tzset""",
    "an uncounted copy": r"""(?:w?mem|str|stp|wcs|wcp|mbs|wcr|mbr|rawmem)n?[lr]*(?:p?cpy|ccpy|move|set|cat|n?cmp|coll|chr|chrnul|mem|frob|dup|
        dupa|xfrm|tok|to\w+|n?len|c?spn|pbrk|str|sep|fry|n?case\w+|verscmp|ftime(?:_l)?|ptime(?:_l)?|from\w+|wcs|s?width|signal|error\w*)(?:_\w+)? |
        bcmp | bcopy | (?:explicit_)?bzero | swab | copy_n | copy_backward | copy_if | uninitialized_copy | qsort(?:_r)? | bsearch | lfind | lsearch |
        v?a?sw?n?printf | obstack_\w+ | v?s[nw]?w?scanf | q?[efg]cvt(?:_r)? | btowc | mbr?towc | wctob | wcr?tomb | wctomb | wcwidth |
        mb(?:r?len|sinit)""",
    "the reference answer": r"""make_reference | make_gradient_reference | Reference | TensorReference | make_inputs | Visibility | visible_pairs |
        keys_seen | largest_score | compulsory_bytes | parallel_for | Spec | Inputs""",
    "the test's machinery": r"""testing | gtest | observed? | course_seed | course_variant | sim | device | RandomWarpOrder |
        (?:TYPED_)?TEST(?:_F|_P)? | ADD_FAILURE(?:_AT)? | FAIL | SUCCEED | SCOPED_TRACE | RUN_ALL_TESTS |
        (?:GTEST|EXPECT|ASSERT|INSTANTIATE_TEST)_\w+""",
}.items()}
# CUDA's names among those reserved for the compiler.
CUDA = re.compile(r"""__(?:global|device|host|shared|constant|managed|restrict|launch_bounds|forceinline|noinline|grid_constant|cluster_dims|
    maxnreg|align)__
    | __(?:sync(?:threads|warp)\w* | threadfence\w* | shfl\w* | (?:all|any|ballot)(?:_sync)? | activemask | match_\w+ | reduce_\w+ | lanemask_\w+ |
    nanosleep | trap | brkpt | u?(?:brev|clz|ffs|popc|byte_perm|funnelshift|mul24|mul(?:64)?hi|dp[24]a|r?hadd|sad|v\w+[24])\w* |
    (?:cvta|is(?:Global|Shared|Constant|Local))\w* | (?:ld|st)(?:g|c[agsv]|lu|wb|wt)\w* | h[a-z]+\d? | h\w+_r[nzud] | half\w* | nv_\w+ | bfloat\w* |
    (?:lows?|highs?|halves)\w*2\w+ | hiloint2double | half2 | int128 | cluster_\w+ | f(?:add|sub|mul|div|ma|maf|rcp|sqrt|rsqrt)_r[nzud] | frsqrt_rn
    | fdividef | saturatef | fmaf\w* | d(?:add|sub|mul|div|ma|rcp|sqrt)_r[nzud] | (?:exp|exp10|log|log2|log10|pow|sin|cos|tan|sincos|tanh)f |
    (?:u?int|u?short|u?char|u?ll|u?longlong|floats?|double)\w*(?:2|_as_)\w+)""", re.VERBOSE)
# The allowed part of std: numbers, small values, types, and loops over arrays, all of it inlined, so that memory accesses are counted. Strings,
# string views and streams copy inside the library, where accesses are not counted.
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

DIGRAPHS = {"<%": "{ and }", "%>": "{ and }", "<:": "[ and ]", ":>": "[ and ]"}
DIRECTIVE = "preprocessor directives are not allowed, except '#pragma unroll' on a line of its own"
PAIRS = {")": "(", "]": "[", "}": "{"}
ATTRIBUTES = ("maybe_unused", "likely", "unlikely", "fallthrough", "nodiscard")  # others, like gnu::section, put text into the assembly
TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
# Numbers may contain ' between digits; words may not: u'a' is a character.
TOKEN = re.compile(r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<open_comment>/\*)|(?P<raw>(?:u8|[uUL])?R")|"""
                   r"""(?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.])*)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|"""
                   r"""(?P<text>"(?:[^"\\\n]|\\[^\n])*")|(?P<char>'(?:[^'\\\n]|\\[^\n])+')|(?P<space>[ \t\n]+)|"""
                   r"""(?P<digraph>%:|<%|%>|<:(?!:)|:>)|(?P<other>.)""", re.DOTALL)
ATTRIBUTE = re.compile(rf"\[\[({'|'.join(ATTRIBUTES)})\]\]")
UNROLL = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+unroll(?:[ \t]+\d+|[ \t]*\(\d+\))?[ \t]*(?://.*)?", re.ASCII)

Objection = tuple[int, str]


def unreadable(lines: list[str], first_line: int) -> list[Objection]:
    """Finds text that a compiler might read differently."""
    found = []
    for number, line in enumerate(lines, first_line):
        if line.rstrip().endswith("\\"):
            found.append((number, "a line may not end with a backslash"))
        unseen = next((c for c in line if not c.isprintable() and c != "\t"), "")
        if unseen:
            found.append((number, f"an invisible character (U+{ord(unseen):04X}): delete it and retype the text around it"))
        if TRIGRAPH.search(line):
            found.append((number, "trigraphs are not allowed: write the character itself"))
        if len(found) >= MOST:
            break
    return found


def standard_name(text: str, begin: int) -> str:
    """Returns the name that follows `std::`, where `std` ends at `begin`; empty if none does, as in `namespace s =
    std`."""
    words = [token for token in itertools.islice(TOKEN.finditer(text, begin), MOST) if token.lastgroup not in ("space", "comment")]
    return words[2][0] if [token[0] for token in words[:2]] == [":", ":"] and len(words) > 2 else ""


def refused(word: str) -> str:
    """Returns why a word is refused; empty if it is allowed."""
    if word.startswith("__") or re.match("_[A-Z]", word):
        return "" if CUDA.fullmatch(word) else "reserved for the compiler and the system"
    return next((reason for reason, pattern in REFUSED.items() if pattern.fullmatch(word)), "")


def objections(lines: list[str], first_line: int = 1) -> list[Objection]:
    """Returns the objections to a region whose first line has the number `first_line`: [(line, text)], in time linear in
    the text."""
    text = "\n".join(lines)
    if len(text) > LARGEST:
        return [(first_line, f"{len(text)} characters are too many: at most {LARGEST} are allowed")]
    found = unreadable(lines, first_line)
    if found:
        return found
    ends, begins = text.split("\n"), 0  # begins: where the token's line begins
    line, open_brackets, before = first_line, [], None
    for token in TOKEN.finditer(text):
        kind, value = token.lastgroup, token[0]
        if kind in ("raw", "open_comment"):
            found.append((line, "raw strings are not allowed" if kind == "raw" else "this comment does not end: close it with */"))
            break
        if kind == "word" and value == "extern" and re.match(r"\s+__shared__\b", text[token.end():token.end() + 80]):
            found.append((line, "'extern __shared__' is not available here: dynamic_shared<float>() returns a kernel's dynamic shared memory"))
        elif kind == "word" and (reason := refused(value)):
            found.append((line, f"'{value}' is not allowed ({reason}); if you chose the name, choose another"))
        elif kind == "word" and before and ((value == "thread" and text[before.start() - 1:before.end()] == "::") or
                                            (value == "std" and before[0] == "namespace")):
            found.append((line, "std::thread is not allowed, nor is reopening namespace std"))
        elif kind == "word" and value == "std" and (named := standard_name(text, token.end())) not in STANDARD:
            found.append((line, f"'{f'std::{named}' if named else 'std'}' is not allowed: use std's math, arrays and type traits, or write a loop"))
        elif kind == "number" and text.startswith("'", token.end()):  # 1'é is one number to some compilers
            found.append((line, "a stray ' after a number"))
        elif kind == "digraph":
            found.append((line, DIRECTIVE if value == "%:" else f"write {DIGRAPHS[value]}"))
        elif value == "#":
            is_first = not text[begins:token.start()].strip(" \t")
            if not is_first or not UNROLL.fullmatch(ends[line - first_line]):
                found.append((line, DIRECTIVE))
        elif kind == "other" and value in "([{":
            open_brackets.append((value, line))
            if before and value == before[0] == "[" and not ATTRIBUTE.match(text, before.start()):
                found.append((line, f"attributes are not allowed, except [[{']], [['.join(ATTRIBUTES)}]]"))
        elif value in PAIRS:
            if not open_brackets:
                found.append((line, f"this '{value}' closes nothing that was opened between the markers"))
                break
            bracket, begun = open_brackets.pop()
            if bracket != PAIRS[value]:
                found.append((line, f"this '{value}' comes before the '{bracket}' of line {begun} is closed"))
                break
        elif kind == "other" and value in "\\\"'":
            found.append((line, f"a stray {value} outside a string or character"))
        elif kind == "other" and (not value.isascii() or value in "$@`"):
            found.append((line, f"'{value}' is not a C++ character: only comments and strings may contain it"))
        if len(found) >= MOST:
            break
        if kind not in ("space", "comment"):
            before = token
        if "\n" in value:
            line += value.count("\n")
            begins = token.start() + value.rindex("\n") + 1
    else:
        found += [(line, f"this '{bracket}' is not closed between the markers") for bracket, line in open_brackets[:MOST]]
    return sorted(found)
