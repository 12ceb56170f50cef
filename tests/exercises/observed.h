/// \file
/// What a test learns from the code under test.
///
/// A process that runs a student's code cannot be believed: that code could print what it likes, or change
/// the test. So grading takes two. The first has the student's code; it writes down every value that the test
/// observes (FLASHBOOK_OBSERVED_WRITE names the file). The second has the book's own code; it runs the same
/// test on the same inputs and is given these values in the place of its own (FLASHBOOK_OBSERVED_READ). What
/// the second says is the verdict. With neither variable set, values pass through.
#pragma once
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace flashbook::testing {

/// Bytes that the code under test produced, and after the call those to judge. Throws std::runtime_error if
/// the process that is judged wrote no more, or a value of another size.
void observe(void* bytes, std::size_t count);

/// A text, at most 64 KB of it.
std::string observed(const std::string& text);

/// Numbers, and structures of them.
template <typename T>
requires std::is_trivially_copyable_v<T> T observed(T value) {
  observe(&value, sizeof value);
  return value;
}
inline std::vector<float> observed(std::vector<float> values) {
  observe(values.data(), values.size() * sizeof(float));
  return values;
}

/// Whether what the code under test computes is read from a record: then it need not compute.
bool is_judging();

/// Which inputs: FLASHBOOK_COURSE_SEED, or 0. Grading takes seeds that nobody has seen.
unsigned course_seed();

/// Which variant, where each student has another: FLASHBOOK_COURSE_VARIANT, or 0.
unsigned course_variant();

}  // namespace flashbook::testing
