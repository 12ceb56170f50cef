#include "docs/web/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/app/options.h"
#include "common/attention/error.h"
#include "common/simulator/trap.h"

namespace flashbook {
namespace {

constexpr uint64_t kInputSeed = 1;
// The page has little memory, and its reader is waiting.
constexpr int kMaxRows = 512, kMaxHeads = 32;

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

/// A number, or a string if JSON cannot represent it.
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

/// Masks and biases per pair for any shape, which the command line can only read from files.
void set_made_mask(std::string_view name, Spec& spec) {
  Visibility& visible = spec.visibility;
  if (name == "pairs") {
    for (int64_t pair = 0; pair < int64_t(spec.batch) * spec.seqlen_q * spec.seqlen_k; ++pair)
      visible.dense.visible.push_back(pair % 7 != 3);
  } else if (name == "intervals") {
    // Causal; in the second half of the queries, only the last query sees the first half of the keys.
    const int half = spec.seqlen_q / 2, last = std::max(half, spec.seqlen_q - 1);
    visible.window.right = 0;
    visible.columns.bounds = 2;
    for (int key = 0; key < spec.batch * spec.seqlen_k; ++key) {
      const bool first = key % spec.seqlen_k < half;
      visible.columns.queries.insert(visible.columns.queries.end(),
                                     {first ? half : spec.seqlen_q, first ? last : spec.seqlen_q});
    }
  } else if (name == "blocks") {  // a chessboard
    Blocks& blocks = visible.blocks = {.queries = 64, .keys = 64, .first = {0}};
    for (int row = 0; row * blocks.queries < spec.seqlen_q; ++row) {
      for (int block = row % 2; block * blocks.keys < spec.seqlen_k; block += 2)
        blocks.key_blocks.push_back(block);
      blocks.first.push_back(int(blocks.key_blocks.size()));
    }
  } else {
    throw InputError("no mask is called ", name);
  }
}

/// Reports why the module cannot run a shape: it is not compiled in, or too large for a page.
void refuse_too_much(const Spec& spec) {
  if (spec.dtype == DType::f16)
    throw InputError("a page supports only bf16: ./flashbook run has the other types");
  if (spec.head_dim > 128 && !spec.is_latent())
    throw InputError("a page supports head dimensions up to 128: ./flashbook run has no such limit");
  if (std::max(spec.seqlen_q, spec.seqlen_k) > kMaxRows)
    throw InputError("N is at most ", kMaxRows, " in a page: ./flashbook run has no such limit");
  if (spec.batch * spec.heads > kMaxHeads)
    throw InputError("batch times heads is at most ", kMaxHeads,
                     " in a page: ./flashbook run has no such limit");
}

/// The options of the chapter's program; and --made NAME.
void run(const Chapter& chapter, std::vector<const char*> words, List& answer) {
  const auto made = std::ranges::find(words, std::string_view("--made"));
  const std::string_view mask = words.end() - made > 1 ? made[1] : "";
  if (!mask.empty()) words.erase(made, made + 2);
  CommandLine line = parse_command_line(int(words.size()), words.data(), chapter);
  if (!line.options || line.options->list || line.options->inspected)
    throw InputError("a page only runs steps");
  Spec& spec = line.options->spec;
  refuse_too_much(spec);
  if (!mask.empty()) set_made_mask(mask, spec);
  validate(spec);
  const int number_of_step = line.options->steps.back();
  const Step& step = chapter.step(number_of_step);
  if (const std::string reason = chapter.refusal(number_of_step, spec); !reason.empty())
    throw InputError(reason);
  answer.add("shape", in_quotes(describe(spec)));
  answer.add("name", in_quotes(step.name));
  answer.add("flops", number(flops(spec, step.operation)));
  answer.add("bytes", number(step.memory_bytes(spec)));

  const Inputs inputs = make_inputs(step.operation, spec, InputKind::drifting, kInputSeed);
  const UploadedInputs uploaded(step.operation, spec, inputs, chapter.runs_on);
  const Call call(chapter, spec, uploaded, number_of_step);
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
  const Expected expected(step.operation, spec, inputs, all_rows(spec));
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

int run_in_page(const Chapter& chapter, int count, char** words) {
  if (count > 1 && std::string_view(words[1]) == "describe") {
    std::printf("%s\n", description_of(chapter).c_str());
    return 0;
  }
  List answer;
  try {
    run(chapter, {words, words + count}, answer);
  } catch (const device::DeviceError& error) {
    answer.add("report", in_quotes(error.what()));
  } catch (const std::exception& error) {
    answer.add("refused", in_quotes(error.what()));
  }
  std::printf("%s\n", answer.object().c_str());
  return 0;
}

}  // namespace flashbook

/// Returns the message after the engine stopped a call, when the memory is still intact. JavaScript calls
/// this.
extern "C" const char* flashbook_trap(int crash) {
  static std::string report;
  report = flashbook::sim::describe_trap(flashbook::sim::Trap(crash));
  return report.c_str();
}
