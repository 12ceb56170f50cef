#include "chapters/08_decoding/serving/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "chapters/08_decoding/host/chapter.h"
#include "common/attention/oracle.h"
#include "tests/require_gpu.h"

namespace flashbook::decoding {
namespace {

constexpr int kRows = 4;  // per page

/// Computes plain attention on the host, over a paged cache. The loop calls it in place of a chapter's
/// kernels.
void plain_attention(const Spec& spec, const Tensors& tensors, device::Stream) {
  const auto values = [&](TensorId id, const void* from) {
    const auto* bytes = static_cast<const std::byte*>(from);
    return decode(spec.dtype, {bytes, elements_of(spec, id) * size_of(spec.dtype)});
  };
  const Inputs inputs = {.q = values(TensorId::q, tensors.q),
                         .k = values(TensorId::k, tensors.k),
                         .v = values(TensorId::v, tensors.v)};
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  const std::vector<std::byte> o = encode(spec.dtype, reference.plain_o);
  std::copy(o.begin(), o.end(), static_cast<std::byte*>(tensors.o));
}

constexpr Step kPlainStep = {.slug = "plain",
                             .name = "plain",
                             .idea = "Plain attention.",
                             .operation = Operation::decode,
                             .accepts = Features::every(),
                             .run = plain_attention};

const Chapter kPlain = {.number = 0,
                        .name = "plain",
                        .title = "plain attention",
                        .runs_on = device::Place::host,
                        .steps = std::span(&kPlainStep, 1),
                        .dtypes = {},
                        .gpu_spec = {},
                        .cpu_spec = {}};

Generated written(bool with_cache, int tokens, uint64_t seed) {
  PagePool pool(ceil_div(tokens, kRows), kRows);
  const Generated generated = generate(kPlain, 1, Decoder(seed), pool, 0, tokens, with_cache);
  EXPECT_EQ(pool.free_pages(), pool.pages()) << "the sequence is gone, and its pages are free";
  return generated;
}

TEST(Generate, TheCacheChangesTheCountAndNotTheTokens) {
  const Generated with = written(true, 100, 1), without = written(false, 100, 1);
  EXPECT_EQ(with.tokens, without.tokens);
  EXPECT_EQ(with.keys, 100);
  EXPECT_EQ(without.keys, 5050);
}

TEST(Generate, ACacheThatIsTooSmallSaysSo) {
  PagePool pool(2, kRows);
  EXPECT_THROW(generate(kPlain, 1, Decoder(1), pool, 0, 9, true), OutOfPages);
  EXPECT_EQ(pool.free_pages(), 2);
}

class GenerateOnTheMachine : public MachineTest {};

TEST_F(GenerateOnTheMachine, TheKernelsWriteWhatPlainAttentionWrites) {
  // With this seed, random errors of 2 % in O, far more than any kernel makes, change no token.
  constexpr int kTokens = 24, kPageRows = 16, kSeed = 15;
  const Decoder decoder(kSeed);
  PagePool pool(2, kPageRows);
  const std::vector<int> want = generate(kPlain, 1, decoder, pool, 0, kTokens, true).tokens;
  int steps = 0;
  for (int step = 1; step <= int(kDecoding.steps.size()); ++step) {
    Sequence sequence(pool);
    ASSERT_FALSE(sequence.append(1));
    if (!kDecoding.refusal(step, spec_of(pool, sequence)).empty()) continue;
    sequence.reset();
    ++steps;
    EXPECT_EQ(generate(kDecoding, step, decoder, pool, 0, kTokens, true).tokens, want) << "step " << step;
  }
  EXPECT_GE(steps, 2);
}

TEST(Generate, AForkAttendsToWhatItsOwnTokensAre) {
  const Decoder decoder(3);
  PagePool pool(8, kRows);
  CacheMemory memory(pool, device::Place::host);
  const auto write = [&](Sequence& sequence, std::vector<int> tokens) {
    for (int token : tokens) {
      if (const std::optional<PageCopy> copy = sequence.append(1)) memory.copy(*copy);
      const int place = sequence.length() - 1;
      const std::vector<float> x = decoder.embed(token, place);
      memory.write(sequence, place, decoder.key(x), decoder.value(x));
    }
  };
  const auto seen = [&](const Sequence& sequence) {
    return attend(kPlain, 1, pool, memory, sequence, decoder.query(decoder.embed(9, 9)));
  };
  Sequence first(pool), alone(pool);
  write(first, {1, 2, 3, 4, 5, 6});
  Sequence second = first.fork();
  write(second, {7});
  write(first, {8});
  write(alone, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(seen(second), seen(alone));
  alone.reset(6);
  write(alone, {8});
  EXPECT_EQ(seen(first), seen(alone));
}

}  // namespace
}  // namespace flashbook::decoding
