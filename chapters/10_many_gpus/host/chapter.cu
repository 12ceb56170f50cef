//| # Chapter 10's descriptor
//|
//| The steps, and the inputs that they reject. This code runs on the host; [ranks.cu](ranks.cu) distributes
//| tensors to the ranks.
#include "chapters/10_many_gpus/host/chapter.h"
#include "chapters/10_many_gpus/host/ranks.h"

namespace flashbook {
namespace {

constexpr int64_t kMaxHeads = 65535;  // a grid's maximum y size
constexpr int kMaxRows = 1 << 30;     // positions in the sequence, up to one past the end, are ints

/// The ring steps support every token order. Step 4 merges parts of documents in the kernel; steps 2 and 3,
/// which merge in a separate kernel, do not support documents.
template <int kStep>
constexpr Features accepted() {
  Features accepts = Feature::causal | Feature::ranks;
  if ((kStep >= 2 && kStep <= 4) || kStep == 6) accepts = accepts | Feature::token_order;
  if (kStep == 1 || (kStep >= 4 && kStep <= 6)) accepts = accepts | Feature::documents;
  return accepts;
}

//| ## What cannot run
//|
//| Any number of ranks can run any length: some ranks may have no tokens, and some may see no keys.
std::string limits(const Spec& spec) {
  if (int64_t(spec.batch) * spec.heads > kMaxHeads)
    return "batch * heads is at most 65535: give a smaller --batch";
  if (spec.seqlen_q > kMaxRows || spec.seqlen_k > kMaxRows)
    return "chapter 10 takes at most 2^30 queries and keys: give fewer";
  if (spec.visibility.documents.first_query.is_on_device())
    return "chapter 10 divides documents on the host, and these are in device memory: run its program, or "
           "use chapter 9";
  const std::size_t documents = spec.visibility.documents.first_query.size();
  if (documents > 0 &&
      int64_t(spec.batch) * spec.heads * (spec.seqlen_q / 128 + int64_t(documents)) > kMaxRows)
    return "batch * heads * (seqlen / 128 + documents) is at most 2^30: give a smaller --batch";
  return "";
}

/// Returns the limits of the gradient and of decoding, which count the rows of all heads.
std::string limits_of_rows(const Spec& spec) {
  if (int64_t(spec.batch) * spec.heads * (spec.seqlen_q / 128 + 1) > kMaxRows / 128)
    return "batch * heads * seqlen is at most 2^30 here: give a smaller --batch";
  return limits(spec);
}

template <int kStep>
std::unique_ptr<DealtOut> deal_out(const Spec& spec, const Tensors& tensors,
                                   const device::Together& together) {
  return std::make_unique<many_gpus::Ranks>(spec, tensors, kStep, together);
}

/// Waits for all work on the device, whatever the stream, and returns when the outputs are complete.
template <int kStep>
void run(const Spec& spec, const Tensors& tensors, device::Stream) {
  many_gpus::Ranks ranks(spec, tensors, kStep, {});
  ranks.run();
  ranks.collect();
}

template <int kStep, Operation kOperation = Operation::forward>
constexpr Step step(const char* slug, const char* name, const char* idea) {
  return {.slug = slug,
          .name = name,
          .idea = idea,
          .operation = kOperation,
          .accepts = accepted<kStep>(),
          .run = run<kStep>,
          .limits = kOperation == Operation::forward ? limits : limits_of_rows,
          .deal_out = deal_out<kStep>,
          .same_bits = kOperation != Operation::backward};
}

constexpr Step kSteps[] = {
    step<1>("all_gather", "all-gather",
            "Every rank gathers the keys and values of all, and computes attention for its own queries."),
    step<2>(
        "ring", "ring",
        "Keys and values travel around a ring while parts are computed, and each part is merged into what a "
        "rank carries in float32."),
    step<3>("zigzag", "zigzag",
            "A rank has an early and a late chunk of tokens, so a causal mask costs all ranks the same."),
    step<4>("carried", "merge in the kernel",
            "The attention kernel merges with the carried result, and no part is written to memory."),
    step<5>("ulysses", "Ulysses",
            "Ranks exchange tokens of all heads for all tokens of some heads, and later the outputs."),
    step<6, Operation::backward>(
        "backward", "the gradient in a ring",
        "Keys travel, followed by the sums of their gradients; dQ accumulates on the queries' ranks."),
    step<7, Operation::decode>(
        "decode", "a cache over ranks",
        "Queries travel to all ranks, each attends to the keys that it holds, and the parts are merged."),
};

/// Returns a sequence long enough for several GPUs.
Spec over_two(Spec spec) {
  spec.sharding.ranks = 2;
  return spec;
}

}  // namespace

const Chapter kManyGpus = {
    .number = 10,
    .name = "10_many_gpus",
    .title = "Sequences longer than one GPU",
    .steps = kSteps,
    .gpu_spec = over_two(square_spec(1, 16, 65536, 128, DType::bf16)),
    .cpu_spec = over_two(spec_for_simulator()),
};

}  // namespace flashbook
