/// \file
/// The values that a test takes from the code under test.
///
/// A process that runs a student's code cannot be trusted: that code could print anything or change the test.
/// So grading uses two processes. The first runs the student's code and records every value that the test
/// observes (in the file FLASHBOOK_OBSERVED_WRITE). The second contains only the book's code; it runs the
/// same test on the same inputs, but takes its values from that record (FLASHBOOK_OBSERVED_READ). Its result
/// is the verdict. With neither variable set, values pass through.
#pragma once
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace flashbook::testing {

/// On entry, bytes that the code under test produced; on return, the bytes to judge. Throws
/// std::runtime_error if the record has ended, or its next value has another size.
void observe(void* bytes, std::size_t count);

/// Returns a text of at most 64 KB.
std::string observed(const std::string& text);

/// Numbers and structures of numbers.
template <typename T>
requires std::is_trivially_copyable_v<T> T observed(T value) {
  observe(&value, sizeof value);
  return value;
}
inline std::vector<float> observed(std::vector<float> values) {
  observe(values.data(), values.size() * sizeof(float));
  return values;
}

/// Returns whether values come from a record, so that the code under test need not compute anything.
bool is_judging();

/// Returns the seed of the inputs: FLASHBOOK_COURSE_SEED, or 0. Grading uses unpublished seeds.
unsigned course_seed();

/// Returns the student's variant, for exercises that have several: FLASHBOOK_COURSE_VARIANT, or 0.
unsigned course_variant();

}  // namespace flashbook::testing
