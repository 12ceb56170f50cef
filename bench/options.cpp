#include "bench/options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>

#include "common/attention/error.h"

namespace flashbook {
namespace {

/// Parses a length, such as 4096 or 4k.
int seqlen_of(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool kilo = rest + 1 == end && (*rest == 'k' || *rest == 'K');
  if (kilo && value < (1 << 20)) value *= 1024;
  if (error != std::errc() || (rest != end && !kilo) || value < 1 || value > std::numeric_limits<int>::max())
    throw InputError("--seqlen has '" + text + "': use positive whole numbers, such as 512,4k");
  return int(value);
}

DType dtype_of(const std::string& text) {
  if (const auto type = dtype_named(text)) return *type;
  throw InputError("--dtype has '" + text + "': use some of f32, f16, bf16, e4m3");
}

bool causal_of(const std::string& text) {
  if (text == "causal" || text == "full") return text == "causal";
  throw InputError("--mask has '" + text + "': use full, causal, or full,causal for both");
}

}  // namespace

BenchOptions parse_bench_options(int argc, char** argv) {
  BenchOptions options;
  std::vector<std::string> dtypes, masks, seqlens;
  CLI::App app("Flashbook's bench: times every step of every chapter, each checked first", "forward");
  app.add_option("--chapter", options.selection.chapters, "Chapters, such as 1,3 (default: all)")
      ->delimiter(',');
  app.add_option("--step", options.selection.steps, "Steps, by name or number (default: all)")
      ->delimiter(',');
  app.add_option("--dtype", dtypes, "f32, f16, bf16, e4m3 (default: all that a chapter supports)")
      ->delimiter(',');
  app.add_option("--head-dim", options.selection.head_dims, "64, 128, 256 (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember({64, 128, 256}));
  app.add_option("--mask", masks, "full, causal (default: both)")->delimiter(',');
  app.add_option("--seqlen", seqlens, "Sequence lengths; 4k means 4096 (default: 512 to 16k)")
      ->delimiter(',');
  app.add_flag("--block-sizes", options.selection.block_sizes,
               "Instead, time chapter 3's queries_outside with tiles of 16 to 128 rows, and its split_k with "
               "chapter 4's");
  app.add_option("--max-seconds", options.max_seconds,
                 "Seconds of timed runs per cell, approximately (default: 2)");
  app.add_option("--out", options.out, "Write the results to this file, which is complete after every cell");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& error) {
    throw InputError(std::string(error.what()) + " (--help lists the options)");
  }
  if (!(options.max_seconds >= 0)) throw InputError("--max-seconds is negative: use seconds, such as 0.5");
  for (const std::string& text : dtypes) options.selection.dtypes.push_back(dtype_of(text));
  for (const std::string& text : masks) options.selection.masks.push_back(causal_of(text));
  for (const std::string& text : seqlens) options.selection.seqlens.push_back(seqlen_of(text));
  return options;
}

}  // namespace flashbook
