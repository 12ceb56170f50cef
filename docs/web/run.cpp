/// \file
/// What a page runs: one step of a chapter, once, in the simulator, held against the oracle. It prints one
/// line of JSON.
///
/// Arguments are words like step=4. FLASHBOOK_SIM_ASYNC and FLASHBOOK_SIM_SEED say how, FLASHBOOK_FAULT with
/// which fault, as of any program.
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include FLASHBOOK_CHAPTER_HEADER
#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/attention/error.h"
#include "common/simulator/trap.h"

namespace flashbook {
namespace {

constexpr uint64_t kInputSeed = 1;
constexpr int kMostRows = 512;  // the page's memory is small, and its reader waits

std::string in_quotes(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", unsigned(c));
      json += escaped;
    } else {
      json += c;
    }
  }
  return json + "\"";
}

/// A number; as a text, if JSON has none for it.
std::string number(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.6g", value);
  return std::isfinite(value) ? digits : in_quotes(digits);
}

/// The objects of an array, or the members of an object.
class List {
 public:
  void add(const std::string& item) { text_ += (text_.empty() ? "" : ", ") + item; }
  void add(const char* name, const std::string& value) { add(in_quotes(name) + ": " + value); }
  std::string array() const { return "[" + text_ + "]"; }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

using Words = std::map<std::string, std::string, std::less<>>;

int whole_number(const Words& words, const char* name, int otherwise) {
  const auto word = words.find(name);
  if (word == words.end()) return otherwise;
  int value = 0;
  const char *begin = word->second.data(), *end = begin + word->second.size();
  const auto [parsed, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || parsed != end) throw InputError(name, " is no whole number: ", word->second);
  return value;
}

/// The chapter's default shape, with what was asked for.
Shape shape_of(const Chapter& chapter, const Words& words) {
  Shape shape = chapter.cpu_shape;
  const bool is_square = shape.seqlen_q == shape.seqlen_k;
  shape.seqlen_k = whole_number(words, "n", shape.seqlen_k);
  if (is_square) shape.seqlen_q = shape.seqlen_k;
  shape.seqlen_q = whole_number(words, "nq", shape.seqlen_q);
  shape.head_dim = whole_number(words, "d", shape.head_dim);
  shape.scale = default_scale(shape.head_dim);
  if (const auto mask = words.find("mask"); mask != words.end() && mask->second == "causal")
    shape.visibility = Visibility::causal();
  if (shape.seqlen_q > kMostRows || shape.seqlen_k > kMostRows)
    throw InputError("N is at most ", kMostRows, " in a page: ./flashbook run has no such limit");
  validate(shape);
  return shape;
}

void run(const Chapter& chapter, const Words& words, List& answer) {
  const Shape shape = shape_of(chapter, words);
  const int number_of_step = whole_number(words, "step", chapter.last_step());
  if (number_of_step < 1 || number_of_step > chapter.last_step())
    throw InputError("chapter ", chapter.number, " has steps 1 to ", chapter.last_step());
  const Step& step = chapter.step(number_of_step);
  if (const std::string reason = step.why_not(shape); !reason.empty()) throw InputError(reason);
  answer.add("shape", in_quotes(describe(shape)));
  answer.add("name", in_quotes(step.name));
  answer.add("flops", number(flops(shape, step.operation)));
  answer.add("bytes", number(step.memory_bytes(shape)));

  const Inputs inputs = make_inputs(step.operation, shape, InputKind::drifting, kInputSeed);
  const UploadedInputs uploaded(step.operation, shape, inputs, chapter.runs_on);
  const Call call(chapter, shape, uploaded, number_of_step);
  const auto begin = std::chrono::steady_clock::now();
  const sim::Counts before = sim::counts();
  call.run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const sim::Counts after = sim::counts();
  answer.add("seconds", number(seconds.count()));
  answer.add("launches", number(double(after.launches - before.launches)));
  answer.add("blocks", number(double(after.blocks - before.blocks)));
  answer.add("threads", number(double(after.threads - before.threads)));
  answer.add("turns", number(double(after.turns - before.turns)));

  List tensors;
  const Expected expected(step.operation, shape, inputs, all_rows(shape));
  for (const auto& [tensor, verdict] : expected.judge(call.download())) {
    List one;
    one.add("name", in_quotes(title_of(tensor)));
    one.add("ok", verdict.ok ? "true" : "false");
    one.add("error", number(verdict.max_error));
    one.add("bound", number(verdict.bound));
    one.add("worst", in_quotes(verdict.worst));
    tensors.add(one.object());
  }
  answer.add("tensors", tensors.array());
}

std::string description_of(const Chapter& chapter) {
  List steps;
  for (int number = 1; number <= chapter.last_step(); ++number)
    steps.add(in_quotes(chapter.step(number).name));
  List answer;
  answer.add("chapter", number(chapter.number));
  answer.add("steps", steps.array());
  return answer.object();
}

}  // namespace
}  // namespace flashbook

int main(int count, char** arguments) {
  using namespace flashbook;
  const Chapter& chapter = FLASHBOOK_CHAPTER;
  Words words;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const std::size_t equals = word.find('=');
    words[word.substr(0, equals)] = equals == word.npos ? "" : word.substr(equals + 1);
  }
  if (words.contains("describe")) {
    std::printf("%s\n", description_of(chapter).c_str());
    return 0;
  }
  List answer;
  try {
    run(chapter, words, answer);
  } catch (const device::DeviceError& error) {
    answer.add("report", in_quotes(error.what()));
  } catch (const std::exception& error) {
    answer.add("refused", in_quotes(error.what()));
  }
  std::printf("%s\n", answer.object().c_str());
  return 0;
}

/// The engine has stopped a call, and the memory is as it was: what is to be said of it. JavaScript calls
/// this.
extern "C" const char* flashbook_trap(int crash) {
  static std::string report;
  report = flashbook::sim::describe_trap(flashbook::sim::Trap(crash));
  return report.c_str();
}
