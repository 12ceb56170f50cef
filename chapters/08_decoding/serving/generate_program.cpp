/// \file
/// `./flashbook generate`: the same tokens with and without a cache.
#include <cstdio>
#include <iostream>

#include "chapters/08_decoding/host/chapter.h"
#include "chapters/08_decoding/serving/generate.h"
#include "common/app/exit_code.h"
#include "common/app/line.h"
#include "common/app/progress.h"
#include "common/app/table.h"
#include "common/attention/error.h"

namespace flashbook::decoding {
namespace {

constexpr const char* kName = "generate";
constexpr int kPageRows = 16;
constexpr int kFirstToken = 0;

/// Returns the chapter's last step that supports such a cache.
int last_step(PagePool& pool) {
  Sequence sequence(pool);
  (void)sequence.append(1);  // an empty pool has nothing to copy
  const Spec spec = spec_of(pool, sequence);
  const int last = int(kDecoding.steps.size());
  for (int step = last; step > 0; --step)
    if (kDecoding.refusal(step, spec).empty()) return step;
  throw InputError(kDecoding.refusal(last, spec));
}

std::string seconds_text(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

int run(int argc, char** argv) {
  int tokens = 100;
  int64_t seed = 1;
  Line line("A toy decoder writes tokens with and without a cache, by chapter 8's kernels", kName);
  line.count("--tokens", "How many, 100 by default", tokens);
  line.value("--seed", "N", "Seed of the decoder's weights, 1 by default",
             [&](const Value& given) { seed = given.whole(); });
  line.device();
  if (!line.read(argc, argv, std::cout)) return kRight;
  const Decoder decoder(seed);
  PagePool pool(ceil_div(tokens, kPageRows), kPageRows);
  const int step = last_step(pool);
  std::cout << "A decoder of one layer, " << Decoder::kHeads << " query heads, " << Decoder::kKvHeads
            << " key heads of " << Decoder::kHeadDim << ", bf16, pages of " << kPageRows << ", writes "
            << tokens << " tokens.\nAttention by step " << step << ", " << kDecoding.steps[step - 1].name
            << "; all else on the host.\n\n";

  generate(kDecoding, step, decoder, pool, kFirstToken, 1, true);  // a GPU's first launch takes longer
  std::optional<ProgressLine> progress("writing with the cache");
  const Generated with = generate(kDecoding, step, decoder, pool, kFirstToken, tokens, true);
  progress.emplace("writing without a cache");
  const Generated without = generate(kDecoding, step, decoder, pool, kFirstToken, tokens, false);
  progress.reset();

  Table table("lrr", {"", "keys computed", "time"});
  table.add({"without a cache", std::to_string(without.keys), seconds_text(without.seconds)});
  table.add({"with the cache", std::to_string(with.keys), seconds_text(with.seconds)});
  table.print(std::cout);
  if (device::machine() == device::Machine::simulator)
    std::cout << "\nThe simulator ran the kernels: the times are those of the host, not of a GPU.\n";
  if (with.tokens != without.tokens) {
    std::cout << "\nThe tokens differ.\n";
    return kWrongResult;
  }
  std::cout << "\nThe tokens are the same:";
  for (int token : with.tokens) std::cout << " " << token;
  std::cout << "\n";
  return kRight;
}

}  // namespace
}  // namespace flashbook::decoding

int main(int argc, char** argv) {
  using namespace flashbook::decoding;
  return flashbook::exit_code(kName, [&] { return run(argc, argv); });
}
