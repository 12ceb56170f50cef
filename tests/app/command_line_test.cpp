#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>

#include "chapters/01_naive_attention/host/chapter.h"
#include "common/app/options.h"
#include "common/app/whole_file.h"
#include "common/attention/error.h"
#include "common/attention/npy.h"
#include "tests/support/input_error.h"

namespace flashbook::testing {
namespace {

CommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "01_naive_attention");
  return parse_command_line(int(words.size()), words.data(), kNaiveAttention);
}

Options options(std::vector<const char*> words) { return *parse(std::move(words)).options; }

/// Returns the error message for these arguments; fails if it has several lines.
std::string error_of(std::vector<const char*> words) {
  try {
    parse(std::move(words));
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  return "no error";
}

/// A temporary folder for the files of one test.
class CommandLineFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("flashbook_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Writes a float32 array of one value; the path lives as long as the test.
  const char* all(float value, const char* name, const std::vector<int64_t>& spec) {
    int64_t count = 1;
    for (int64_t dim : spec) count *= dim;
    paths_.push_back((folder_ / name).string());
    write_whole_file(paths_.back(), npy_bytes(spec, std::vector<float>(count, value)));
    return paths_.back().c_str();
  }
  const char* ones(const char* name, const std::vector<int64_t>& spec) { return all(1, name, spec); }

  std::filesystem::path folder_;
  std::list<std::string> paths_;
};

TEST(CommandLine, ReadsEveryOption) {
  const Options o =
      options({"--batch", "2",          "--heads", "8",          "--kv-heads", "2",        "--seqlen",
               "4k",      "--seqlen-k", "1000",    "--head-dim", "256",        "--causal", "--dtype",
               "f16",     "--scale",    "0.5",     "--step",     "coalesced",  "--check",  "sample",
               "--reps",  "7",          "--seed",  "42",         "--device",   "auto"});
  EXPECT_EQ(o.spec, (Spec{{.batch = 2,
                           .heads = 8,
                           .kv_heads = 2,
                           .seqlen_q = 4096,
                           .seqlen_k = 1000,
                           .head_dim = 256,
                           .dtype = DType::f16,
                           .scale = 0.5f},
                          Visibility::causal()}));
  EXPECT_EQ(o.steps, std::vector<int>{2});
  EXPECT_FALSE(o.every_step);
  EXPECT_EQ(o.check, CheckMode::sample);
  EXPECT_EQ(o.reps, 7);
  EXPECT_EQ(o.seed, 42u);
}

TEST(CommandLine, SaysWhatIsVisible) {
  EXPECT_EQ(options({"--window", "8"}).spec.visibility, (Visibility{.window = {.left = 8, .right = 8}}));
  EXPECT_EQ(options({"--window", "0", "--causal", "--prefix", "2"}).spec.visibility,
            (Visibility{.window = {.left = 0, .right = 0}, .prefix = 2}));
  EXPECT_EQ(options({"--documents", "3", "--seqlen", "10", "--seqlen-k", "9"}).spec.visibility,
            (Visibility{.documents = {{0, 3, 6, 10}, {0, 3, 6, 9}}}));
  EXPECT_NE(error_of({"--documents", "11", "--seqlen", "10", "--seqlen-k", "9"}).find("give at most 10"),
            std::string::npos);
  const Spec packed = options({"--lengths", "3,0,1k", "--causal"}).spec;
  EXPECT_EQ(packed.batch, 1);
  EXPECT_EQ(packed.seqlen_q, 1027);
  EXPECT_EQ(packed.seqlen_k, 1027);
  EXPECT_EQ(packed.visibility,
            (Visibility{.window = {.right = 0}, .documents = {{0, 3, 3, 1027}, {0, 3, 3, 1027}}}));
  EXPECT_EQ(options({"--softcap", "30"}).spec.score, ScoreFunction{.softcap = 30});
  EXPECT_EQ(options({"--alibi", "--heads", "2"}).spec.score, (ScoreFunction{.alibi = {0x1p-4f, 0x1p-8f}}));
  EXPECT_EQ(options({"--dropout", "0.25", "--seed", "9"}).spec.score,
            (ScoreFunction{.dropout = 0.25f, .seed = 9}));
  EXPECT_EQ(options({"--dropout", "0", "--seed", "9"}).spec.score, ScoreFunction{});
}

TEST_F(CommandLineFiles, ABiasHasANumberForEachHeadAndDistance) {
  const std::string file = (folder_ / "bias.npy").string();
  const float values[] = {1, 2, 3, 4, 5, 6};
  write_whole_file(file, npy_bytes(std::vector<int64_t>{2, 3}, values));
  EXPECT_EQ(options({"--heads", "2", "--bias", file.c_str()}).spec.score,
            (ScoreFunction{.bias = {1, {1, 2, 3, 4, 5, 6}}}));
  EXPECT_NE(error_of({"--heads", "3", "--bias", file.c_str()}).find("it must be [3, an odd number]"),
            std::string::npos);
  write_whole_file(file, npy_bytes(std::vector<int64_t>{3, 2}, values));
  EXPECT_NE(error_of({"--heads", "3", "--bias", file.c_str()}).find("it must be [3, an odd number]"),
            std::string::npos);
}

TEST_F(CommandLineFiles, AMaskIsPairsOrIntervals) {
  const std::string file = (folder_ / "mask.npy").string();
  const auto save = [&](const std::string& descr, const std::string& spec, const std::string& bytes) {
    const std::string header =
        "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + spec + ", }\n";
    std::ofstream(file, std::ios::binary)
        << "\x93NUMPY" << '\x01' << '\x00' << char(header.size()) << '\x00' << header << bytes;
  };
  // Set the batch, too: the default on a GPU differs from that in the simulator.
  const std::vector<const char*> words{"--batch", "1",       "--seqlen", "2",      "--seqlen-k",
                                       "3",       "--heads", "2",        "--mask", file.c_str()};
  const auto given = [&] { return options(words).spec.visibility; };
  const auto refused = [&] { return error_of(words); };
  const std::string pairs("\x01\x00\x01\x01\x01\x00", 6);
  save("|b1", "(2, 3)", pairs);
  EXPECT_EQ(given(), (Visibility{.dense = {.visible = {1, 0, 1, 1, 1, 0}}}));
  save("|b1", "(1, 2, 2, 3)", pairs + pairs);
  EXPECT_EQ(given().dense.heads, 2);
  save("|b1", "(3, 2)", pairs);
  EXPECT_NE(refused().find("it must be [2, 3] or [1, 1 or 2, 2, 3]"), std::string::npos) << refused();
  save("<i4", "(1, 1, 3, 1)", std::string("\x01\0\0\0\x02\0\0\0\x02\0\0\0", 12));
  EXPECT_EQ(given(), (Visibility{.columns = {.heads = 1, .bounds = 1, .queries = {1, 2, 2}}}));
  save("<i4", "(1, 3, 1)", std::string(12, '\0'));
  EXPECT_NE(refused().find("it must be [1, 1 or 2, 3, 1, 2 or 4]"), std::string::npos) << refused();
  save("<f4", "(2, 3)", std::string(24, '\0'));
  EXPECT_NE(refused().find("neither bool nor int32"), std::string::npos) << refused();
}

// The parser accepts the rest; steps without support reject it, and name those that have it.
TEST(CommandLine, HelpNamesWhatTheChapterTakes) {
  const CommandLine help = parse({"--help"});
  EXPECT_FALSE(help.options);
  for (const char* option :
       {"--batch", "--heads", "--kv-heads", "--seqlen", "--seqlen-k", "--head-dim", "--causal", "--dtype",
        "--scale", "--step",  "--device",   "--q",      "--k",        "--v",        "--output", "--lse",
        "--check", "--reps",  "--json",     "--seed",   "--list",     "--inspect"})
    EXPECT_NE(help.text.find(option + std::string(" ")), std::string::npos) << option;
  for (const char* option :
       {"--window", "--prefix", "--documents", "--lengths", "--mask", "--softcap", "--alibi", "--bias",
        "--dropout", "--page-rows", "--shared-prefix", "--layout", "--scaling"})
    EXPECT_EQ(help.text.find(option), std::string::npos) << option;
}

TEST(CommandLine, AHeadDimThatNobodyTakesIsAnsweredWithWhatTheStepsTake) {
  Step tiles = kNaiveAttention.step("textbook"), padded = tiles, latent = tiles;
  padded.accepts = tiles.accepts | Feature::any_head_dim;
  latent.needs = Feature::latent;
  const auto refused = [](std::vector<Step> steps, std::vector<const char*> more) {
    Chapter chapter = kNaiveAttention;
    chapter.steps = steps;
    std::vector<const char*> words{chapter.name, "--head-dim", "7"};
    words.insert(words.end(), more.begin(), more.end());
    return input_error_of([&] { parse_command_line(int(words.size()), words.data(), chapter); });
  };
  const std::string begin = "--head-dim 7 is not supported: give ";
  EXPECT_EQ(refused({tiles}, {}), begin + "64, 128 or 256");
  EXPECT_EQ(refused({tiles, padded}, {}), begin + "a multiple of 8 up to 256");
  EXPECT_EQ(refused({tiles, padded}, {"--step", "1"}), begin + "64, 128 or 256");
  EXPECT_EQ(refused({tiles, latent}, {}),
            begin + "64, 128 or 256, or 576 for latent keys, which have a separate step");
  EXPECT_EQ(refused({tiles, latent}, {"--step", "2"}), begin + "576");
}

/// Invalid arguments, and what the message must contain: the option and what is allowed.
struct BadWords {
  std::vector<const char*> words;
  std::vector<const char*> message;
};

class BadCommandLine : public ::testing::TestWithParam<BadWords> {};

TEST_P(BadCommandLine, IsRefusedInOneLineThatNamesTheCure) {
  const std::string message = error_of(GetParam().words);
  for (const char* part : GetParam().message) EXPECT_NE(message.find(part), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Words, BadCommandLine,
    ::testing::Values(
        BadWords{{"--seqlen", "0"}, {"--seqlen is 0", "at least 1"}},
        BadWords{{"--seqlen", "-5"}, {"--seqlen is -5", "at least 1"}},
        BadWords{{"--seqlen=-5"}, {"--seqlen is -5", "at least 1"}},
        BadWords{{"--seqlen", "abc"}, {"--seqlen is 'abc'", "4096 or 4k"}},
        BadWords{{"--seqlen", ""}, {"--seqlen is empty"}},
        BadWords{{"--seqlen", "12k3"}, {"--seqlen is '12k3'"}},
        BadWords{{"--seqlen", "4.5"}, {"--seqlen is '4.5'"}},
        BadWords{{"--seqlen", "99999999999999999999"}, {"--seqlen"}},
        BadWords{{"--seqlen", "9999999999k"}, {"--seqlen", "at most 2147483647"}},
        BadWords{{"--seqlen", "1", "--seqlen", "2"}, {"--seqlen"}},
        BadWords{{"--head-dim", "100"}, {"--head-dim 100 is not supported: give 64, 128 or 256"}},
        BadWords{{"--heads", "8", "--kv-heads", "3"}, {"--kv-heads 3", "--heads 8"}},
        BadWords{{"--dtype", "e4m3"}, {"--dtype is 'e4m3'", "f32, f16, bf16"}},
        BadWords{{"--scaling", "block"}, {"--scaling", "e4m3"}},
        BadWords{{"--smooth", "on"}, {"--smooth is for e4m3", "leave it out"}},
        BadWords{{"--smooth", "away"}, {"--smooth is 'away'", "on or off"}},
        BadWords{{"--dtype", "float"}, {"--dtype is 'float'", "f32, f16, bf16"}},
        BadWords{{"--scale", "0"}, {"--scale"}}, BadWords{{"--scale", "-1"}, {"--scale"}},
        BadWords{{"--scale", "nan"}, {"--scale"}}, BadWords{{"--scale", "inf"}, {"--scale"}},
        BadWords{{"--scale", "x"}, {"--scale is 'x'", "0.125"}}, BadWords{{"--scale", "1e99"}, {"--scale"}},
        BadWords{
            {"--step", "6"},
            {"--step is '6'", "give textbook, coalesced, ", " or wmma, or a number from 1 to 5, or all"}},
        BadWords{{"--step", "0"}, {"--step is '0'"}}, BadWords{{"--step", "two"}, {"--step is 'two'"}},
        BadWords{{"--step", "1-3"}, {"--step is '1-3'", "a number from 1 to 5, or all"}},
        BadWords{{"--layout", "sbhd"}, {"--layout is 'sbhd'", "bhsd, bshd or qkv"}},
        BadWords{{"--layout", "qkv", "--seqlen", "8", "--seqlen-k", "9"}, {"--layout qkv", "--seqlen-k"}},
        BadWords{{"--check", "some"}, {"--check", "full, sample, off"}},
        BadWords{{"--device", "tpu"}, {"--device", "auto, gpu or sim"}},
        BadWords{{"--window", "-1"}, {"--window is -1", "at least 1"}},
        BadWords{{"--prefix", "4"}, {"--prefix", "--causal or --window"}},
        BadWords{{"--lengths", "3,,4"}, {"--lengths is ''", "whole number"}},
        BadWords{{"--lengths", "0"}, {"--lengths", "above 0"}},
        BadWords{{"--page-rows", "16"}, {"--page-rows", "need a cache"}},
        BadWords{{"--lengths", "3", "--seqlen", "4"}, {"--seqlen contradicts --lengths"}},
        BadWords{{"--lengths", "3", "--batch", "2"}, {"--batch is 2", "leave it out"}},
        BadWords{{"--lengths", "2000000000,2000000000"}, {"--lengths", "2^31"}},
        BadWords{{"--softcap", "x"}, {"--softcap is 'x'"}}, BadWords{{"--softcap", "-1"}, {"softcap"}},
        BadWords{{"--dropout", "1"}, {"dropout", "below 1"}}, BadWords{{"--bias", "none.npy"}, {"none.npy"}},
        BadWords{{"--mask", "none.npy"}, {"none.npy"}}, BadWords{{"--reps", "0"}, {"--reps is 0"}},
        BadWords{{"--seed", "-1"}, {"--seed is -1"}},
        BadWords{{"--output", "/no/such/folder/o.npy"}, {"--output", "/no/such/folder"}},
        BadWords{{"--output", "/"}, {"--output", "folder"}},
        BadWords{{"--json", "/no/such/folder/x.json"}, {"--json", "/no/such/folder"}},
        BadWords{{"--batch", "2147483647", "--seqlen", "2147483647"}, {"--batch"}},
        BadWords{{"--q", "q.npy"}, {"--q, --k and --v go together"}},
        BadWords{{"--q", "none.npy", "--k", "none.npy", "--v", "none.npy"}, {"none.npy"}},
        BadWords{{"--wat"}, {"--wat", "--help"}}, BadWords{{"wat"}, {"wat", "--help"}}));

TEST(CommandLine, AnUnknownOptionIsAnsweredWithTheOneThatWasMeant) {
  EXPECT_NE(error_of({"--headdim", "64"}).find("; did you mean --head-dim? (--help"), std::string::npos);
  EXPECT_NE(error_of({"--causal", "--seqlne=4"}).find("; did you mean --seqlen? (--help"), std::string::npos);
  EXPECT_EQ(error_of({"--quadratic"}).find("did you mean"), std::string::npos);
  EXPECT_EQ(error_of({"--heads"}).find("did you mean"), std::string::npos);  // known, but has no value
}

TEST(CommandLine, TheOtherMachineIsRefused) {
  if (device::machine() == device::Machine::gpu)
    EXPECT_NE(error_of({"--device", "sim"}).find("cmake --preset sim"), std::string::npos);
  else
    EXPECT_THROW(parse({"--device", "gpu"}), device::HardwareMissing);
}

TEST_F(CommandLineFiles, GiveTheShape) {
  const Options o = options({"--q", ones("q.npy", {2, 8, 10, 64}), "--k", ones("k.npy", {2, 2, 30, 64}),
                             "--v", ones("v.npy", {2, 2, 30, 64})});
  EXPECT_EQ(o.spec, (Spec{{.batch = 2,
                           .heads = 8,
                           .kv_heads = 2,
                           .seqlen_q = 10,
                           .seqlen_k = 30,
                           .head_dim = 64,
                           .dtype = DType::f32,
                           .scale = 0.125f}}));
  ASSERT_TRUE(o.inputs);
  EXPECT_EQ(o.inputs->q, std::vector<float>(2 * 8 * 10 * 64, 1.0f));
}

TEST_F(CommandLineFiles, AndFlagsThatSayTheSameAreTaken) {
  const char* file = ones("x.npy", {1, 2, 10, 64});
  const Options o =
      options({"--q", file, "--k", file, "--v", file, "--seqlen", "10", "--heads", "2", "--dtype", "bf16"});
  EXPECT_EQ(o.spec.seqlen_k, 10);
  EXPECT_EQ(o.spec.dtype, DType::bf16);
}

TEST_F(CommandLineFiles, ThatContradictFlagsOrEachOtherAreRefused) {
  const char* q = ones("q.npy", {1, 2, 10, 64});
  const char* k = ones("k.npy", {1, 2, 30, 64});
  const char* other_dim = ones("d.npy", {1, 2, 30, 128});
  const char* flat = ones("flat.npy", {10, 64});
  const auto expect = [&](std::vector<const char*> words, std::vector<const char*> parts) {
    const std::string message = error_of(words);
    for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect({"--q", q, "--k", k, "--v", k, "--seqlen", "11"}, {"--seqlen 11 contradicts", "gives 10"});
  expect({"--q", q, "--k", k, "--v", k, "--seqlen-k", "10"}, {"--seqlen-k 10 contradicts", "gives 30"});
  expect({"--q", q, "--k", k, "--v", k, "--head-dim", "128"}, {"--head-dim 128 contradicts"});
  expect({"--q", q, "--k", k, "--v", q}, {"--v", "it must be [1, 2, 30, 64]"});
  expect({"--q", q, "--k", other_dim, "--v", other_dim}, {"--k", "it must be [1, 2, 30, 64]"});
  expect({"--q", flat, "--k", k, "--v", k}, {"[batch, heads, seqlen, head_dim]"});
}

TEST_F(CommandLineFiles, WithValuesThatCannotBeComputedWithAreRefused) {
  const char* nan = all(NAN, "nan.npy", {1, 1, 1, 64});
  EXPECT_NE(error_of({"--q", nan, "--k", nan, "--v", nan}).find("NaN or infinity"), std::string::npos);
  const char* large = all(1e6f, "large.npy", {1, 1, 1, 64});
  EXPECT_EQ(options({"--q", large, "--k", large, "--v", large}).spec.dtype, DType::f32);
  EXPECT_NE(
      error_of({"--q", large, "--k", large, "--v", large, "--dtype", "f16"}).find("beyond the range of f16"),
      std::string::npos);
}

TEST(CommandLine, MeansTheSameInAnyOrder) {
  std::vector<std::vector<const char*>> options_of_features = {
      {"--causal"},       {"--window", "8"}, {"--prefix", "3"}, {"--alibi"},
      {"--softcap", "5"}, {"--heads", "4"},  {"--sinks", "1"},  {"--documents", "2"}};
  const auto spec_of = [&] {
    std::vector<const char*> words;
    for (const auto& option : options_of_features) words.insert(words.end(), option.begin(), option.end());
    return options(std::move(words)).spec;
  };
  const Spec spec = spec_of();
  EXPECT_EQ(spec.visibility.window, (Window{.left = 8, .right = 0}));
  EXPECT_EQ(spec.score.sinks.size(), 4);
  std::mt19937 random(1);
  for (int order = 0; order < 20; ++order) {
    std::ranges::shuffle(options_of_features, random);
    EXPECT_EQ(spec_of(), spec) << describe(spec);
  }
}

}  // namespace
}  // namespace flashbook::testing
