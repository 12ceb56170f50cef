//| # Chapter 1's descriptor
//|
//| Everything outside the kernels asks this file: which steps there are, which shapes each takes and why not the others, how much memory a launch
//| needs, and how the kernels follow one another. It runs on the host.
#include "chapters/01_naive_attention/host/chapter.h"
#include "chapters/01_naive_attention/step1_textbook.cuh"
#include "chapters/01_naive_attention/step2_tiled.cuh"
#include "common/attention/cost.h"
#include "common/device/dispatch.h"
#include "common/device/launch.h"

namespace flashbook {
namespace {

using naive::Problem;

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

constexpr int kMaxGridYZ = 65535;           // the machine's limit on blocks in y and in z
constexpr int64_t kMaxGridX = 2147483647;   // and in x
constexpr int kRowCacheBytes = 160 * 1024;  // shared memory for rows of scores: an A100 grants a block 163 KB
constexpr int kLongestRow = kRowCacheBytes / sizeof(float);

template <int kStep>
Problem problem_of(const Shape& shape) {
  // Step 2 loads rows of S 16 bytes at a time, so each row starts at a multiple of 8 elements.
  const int align = kStep == 1 ? 1 : naive::kScoreAlign;
  const int stride = int(ceil_div(int64_t(shape.seqlen_k), align)) * align;
  return {shape.seqlen_q, shape.seqlen_k, shape.heads / shape.kv_heads, stride, shape.causal(), shape.scale};
}

/// Bytes of S, rounded up so that P behind it starts at a multiple of 256 bytes, as memory from cudaMalloc
/// does.
template <int kStep>
int64_t score_bytes(const Shape& shape) {
  return ceil_div(shape.q_rows() * problem_of<kStep>(shape).score_stride * int64_t(sizeof(float)), 256) * 256;
}

//| ## What cannot run
//|
//| A grid has at most 65535 blocks in y and in z, and step 2 keeps a whole row of scores in shared memory. A shape beyond that is refused, with the cure in
//| the message; no kernel checks it again.
template <int kStep>
std::string why_not(const Shape& shape) {
  if (shape.dtype == DType::e4m3) return "chapter 1 takes f32, f16 and bf16: choose one with --dtype";
  if (int64_t(shape.batch) * shape.heads > kMaxGridYZ)
    return "batch * heads is at most 65535, what a grid has in z: split the batch with --batch";
  const int rows_per_block = kStep == 1 ? naive::kTextbookSide : naive::kTile;
  if (ceil_div(int64_t(shape.seqlen_q), rows_per_block) > kMaxGridYZ)
    return "--seqlen is at most " + std::to_string(kMaxGridYZ * rows_per_block) + " in step " +
           std::to_string(kStep) + ", what a grid has in y";
  if (kStep == 2 && shape.q_rows() > kMaxGridX)
    return "batch * heads * seqlen is at most 2^31 - 1 in step 2, what a grid has in x: split the batch with "
           "--batch";
  if (kStep == 2 && shape.seqlen_k > kLongestRow)
    return "step 2 keeps a row of scores in shared memory, so --seqlen-k is at most " +
           std::to_string(kLongestRow) + ": use --step 1, or a later chapter";
  return why_not_plain(shape);
}

//| ## Bytes
//|
//| The workspace is $S$ in float32 and $P$ in the tensors' type. `memory` is the cost model that the chapter's text derives: the profiler's counts are held against it.
template <int kStep>
int64_t workspace(const Shape& shape) {
  return score_bytes<kStep>(shape) +
         shape.q_rows() * problem_of<kStep>(shape).score_stride * int64_t(size_of(shape.dtype));
}

template <int kStep>
double memory(const Shape& shape) {
  const double pairs = visible_pairs(shape);
  // S is written once, and read once by step 2; step 1 reads it for the maximum, the sum and the quotient. P:
  // written, read.
  const double s_passes = kStep == 1 ? 4 : 2, p_passes = 2;
  return compulsory_bytes(shape) +
         pairs * (s_passes * sizeof(float) + p_passes * double(size_of(shape.dtype)));
}

template <typename T>
void run_textbook(const Shape& shape, const Tensors& t, float* scores, T* probabilities,
                  device::Stream stream) {
  const Problem problem = problem_of<1>(shape);
  const int64_t rows = shape.q_rows();
  const unsigned heads = shape.batch * shape.heads;
  const auto *q = static_cast<const T*>(t.q), *k = static_cast<const T*>(t.k),
             *v = static_cast<const T*>(t.v);
  constexpr int kSide = naive::kTextbookSide;

  const dim3 score_blocks(ceil_div(int64_t(shape.seqlen_k), kSide), ceil_div(shape.seqlen_q, kSide), heads);
  device::launch(naive::textbook_scores<T>, score_blocks, dim3(kSide, kSide), 0, stream, q, k, scores,
                 shape.head_dim, problem);
  device::launch(naive::textbook_softmax<T>, dim3(ceil_div(rows, 256)), dim3(256), 0, stream, scores,
                 probabilities, t.lse, rows, problem);
  device::launch(naive::textbook_output<T>, dim3(shape.seqlen_q, 1, heads), dim3(shape.head_dim), 0, stream,
                 probabilities, v, static_cast<T*>(t.o), problem);
}

template <typename T, int kHeadDim>
void run_tiled(const Shape& shape, const Tensors& t, float* scores, T* probabilities, device::Stream stream) {
  const Problem problem = problem_of<2>(shape);
  const unsigned heads = shape.batch * shape.heads, query_tiles = ceil_div(shape.seqlen_q, naive::kTile);
  const auto *q = static_cast<const T*>(t.q), *k = static_cast<const T*>(t.k),
             *v = static_cast<const T*>(t.v);

  const dim3 score_blocks(ceil_div(int64_t(shape.seqlen_k), naive::kTile), query_tiles, heads);
  device::launch(naive::tiled_scores<T, kHeadDim>, score_blocks, dim3(naive::kThreads), 0, stream, q, k,
                 scores, problem);

  device::launch(naive::warp_softmax<T>, dim3(shape.q_rows()), dim3(32), problem.score_stride * sizeof(float),
                 stream, scores, probabilities, t.lse, problem);

  const dim3 value_blocks(ceil_div(kHeadDim, naive::kTile), query_tiles, heads);
  device::launch(naive::tiled_output<T, kHeadDim>, value_blocks, dim3(naive::kThreads), 0, stream,
                 probabilities, v, static_cast<T*>(t.o), problem);
}

template <int kStep>
void run(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  auto* scores = static_cast<float*>(tensors.workspace);
  device::with_type(shape.dtype, [&]<typename T>() {
    auto* probabilities =
        reinterpret_cast<T*>(static_cast<unsigned char*>(tensors.workspace) + score_bytes<kStep>(shape));
    if constexpr (kStep == 1) return run_textbook<T>(shape, tensors, scores, probabilities, stream);
    // S and P are written only where a query sees a key. Step 2 loads the rest, too, since a branch around a
    // load costs more, and drops it (step2_tiled.cuh).
    device::allow_unwritten(tensors.workspace, std::size_t(workspace<kStep>(shape)));
    device::with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
      run_tiled<T, kHeadDim>(shape, tensors, scores, probabilities, stream);
    });
  });
}

//| ## The steps
//|
//| A step is a row: what it is called, what it adds, what it computes, what it cannot run, what memory it needs, how it runs.
constexpr Step kSteps[] = {
    {"one thread per score", "The three formulas as three kernels, a thread for every number.",
     Operation::forward, why_not<1>, workspace<1>, run<1>, memory<1>},
    {"tiles and warps",
     "Products from tiles in shared memory and registers, a warp for a row of the softmax: what is left is S "
     "and P going "
     "through memory.",
     Operation::forward, why_not<2>, workspace<2>, run<2>, memory<2>},
};

}  // namespace

const Chapter kNaiveAttention = {
    .number = 1,
    .name = "01_naive_attention",
    .title = "Naive attention",
    .steps = kSteps,
    .dtypes = kTypes,
};

}  // namespace flashbook
