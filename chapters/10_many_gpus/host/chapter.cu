//| # Chapter 10's descriptor
//|
//| Which steps there are and what they refuse. It runs on the host; [ranks.cu](ranks.cu) deals tensors out to
//| the ranks.
#include "chapters/10_many_gpus/host/chapter.h"
#include "chapters/10_many_gpus/host/ranks.h"

namespace flashbook {
namespace {

constexpr int64_t kMostHeads = 65535;  // of a grid's y
constexpr int kMostRows = 1 << 30;     // a place in the sequence, and one behind it, are ints

/// Whether a step takes tokens in any order, and packed documents.
template <int kStep>
constexpr bool kTakesAnyOrder = (kStep >= 2 && kStep <= 4) || kStep == 6;
template <int kStep>
constexpr bool kTakesDocuments = kStep == 1 || (kStep >= 4 && kStep <= 6);

//| ## What cannot run
//|
//| Any number of ranks can run any length: some ranks may have no token, and some may see nothing.
template <int kStep>
std::string why_not(const Shape& shape) {
  if (shape.dtype != DType::f16 && shape.dtype != DType::bf16)
    return "chapter 10 takes f16 and bf16: give one of them as --dtype";
  if (int64_t(shape.batch) * shape.heads > kMostHeads)
    return "batch * heads is at most 65535: give a smaller --batch";
  if (shape.seqlen_q > kMostRows || shape.seqlen_k > kMostRows)
    return "chapter 10 takes at most 2^30 queries and keys: give fewer";
  if (shape.order.value_or(TokenOrder::contiguous) != TokenOrder::contiguous && !kTakesAnyOrder<kStep>)
    return "this step divides tokens contiguously: leave --order out, or choose step 2, 3, 4 or 6";
  const std::size_t documents = shape.visibility.documents.first_query.size();
  if (documents > 0 && !kTakesDocuments<kStep>)
    return kStep == 7 ? "a cache holds one sequence an entry, of a length of its own: packed documents are "
                        "for steps 1, 4, 5 and 6"
                      : "parts of packed documents are merged in the kernel: choose step 4, or 1 or 5";
  if (documents > 0 &&
      int64_t(shape.batch) * shape.heads * (shape.seqlen_q / 128 + int64_t(documents)) > kMostRows)
    return "batch * heads * (seqlen / 128 + documents) is at most 2^30: give a smaller --batch";
  if (!shape.visibility.lengths.empty())
    return "sequences with lengths of their own are for chapter 8, on one GPU: give them one length";
  if (shape.paging.rows > 0) return "pages are for chapter 8, on one GPU: give keys of one piece a sequence";
  Shape of_one = shape;
  of_one.ranks = 1;
  of_one.order = {};
  of_one.visibility.documents = {};
  return why_not_plain(of_one);
}

/// Of the gradient and of decoding, which count the rows of all heads.
template <int kStep>
std::string why_not_rows(const Shape& shape) {
  if (int64_t(shape.batch) * shape.heads * (shape.seqlen_q / 128 + 1) > kMostRows / 128)
    return "batch * heads * seqlen is at most 2^30 here: give a smaller --batch";
  return why_not<kStep>(shape);
}

template <int kStep>
std::unique_ptr<DealtOut> deal_out(const Shape& shape, const Tensors& tensors,
                                   const device::Together& together) {
  return std::make_unique<many_gpus::Ranks>(shape, tensors, kStep, together);
}

/// Waits for whatever the device does, and returns when the outputs are there, whichever the stream is.
template <int kStep>
void run(const Shape& shape, const Tensors& tensors, device::Stream) {
  many_gpus::Ranks ranks(shape, tensors, kStep, {.transport = device::default_transport(shape.ranks)});
  ranks.run();
  ranks.collect();
}

/// A step of the table.
template <int kStep, Operation kOperation = Operation::forward>
constexpr Step step(const char* name, const char* idea) {
  return {.name = name,
          .idea = idea,
          .operation = kOperation,
          .why_not = kOperation == Operation::forward ? why_not<kStep> : why_not_rows<kStep>,
          .workspace = nullptr,
          .run = run<kStep>,
          .deal_out = deal_out<kStep>,
          .same_bits = kOperation != Operation::backward};
}

constexpr Step kSteps[] = {
    step<1>("all-gather",
            "Every rank gathers the keys and values of all, and computes attention of its own queries."),
    step<2>(
        "ring",
        "Keys and values travel round a ring while parts are computed, and each part is merged into what a "
        "rank carries in float32."),
    step<3>("zigzag",
            "A rank has an early and a late chunk of tokens, so that a causal mask costs all the same."),
    step<4>("merge in the kernel",
            "The attention kernel takes in what is carried, and no part goes to memory."),
    step<5>("Ulysses",
            "Ranks exchange tokens of all heads for all tokens of some heads, once there and once back."),
    step<6, Operation::backward>(
        "the gradient in a ring",
        "Keys travel, and behind them the sums of their gradients; dQ grows where the queries are."),
    step<7, Operation::decode>(
        "a cache over ranks",
        "Queries travel to all ranks, each computes them on the keys that it has, and the parts are merged."),
};

/// A sequence that is worth several GPUs.
Shape of_two(Shape shape) {
  shape.ranks = 2;
  return shape;
}

}  // namespace

const Chapter kManyGpus = {
    .number = 10,
    .name = "10_many_gpus",
    .title = "Sequences longer than one GPU",
    .steps = kSteps,
    .gpu_shape = of_two(square_shape(1, 16, 65536, 128, DType::bf16)),
    .cpu_shape = of_two(shape_for_simulator()),
};

}  // namespace flashbook
