/// \file
/// Included before everything else in kernel files that clang++ compiles for the traced mode.
///
/// clang++ copies a struct of 16 bytes by a memcpy that nothing announces. In these files, memcpy is ours.
#pragma once

asm(".set memcpy, __tsan_memcpy\n"
    ".set memmove, __tsan_memmove\n"
    ".set memset, __tsan_memset\n");
