/// \file
/// What a machine grants, for tests that ask how the chapter takes another one.
#pragma once
#include <cstdint>

namespace flashbook::fa2 {

/// Shared memory in bytes that a block may have: this machine's.
extern int64_t (*granted_shared_bytes)();

}  // namespace flashbook::fa2
