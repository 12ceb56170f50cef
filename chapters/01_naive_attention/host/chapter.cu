//| # Chapter 1's descriptor
//|
//| This file tells the rest of the program about the chapter: its steps, the shapes that each of them
//| accepts, the memory that a launch needs, and the order of the kernels. It runs on the host.
#include <array>

#include "chapters/01_naive_attention/host/chapter.h"
#include "chapters/01_naive_attention/softmax.cuh"
#include "chapters/01_naive_attention/step1_textbook.cuh"
#include "chapters/01_naive_attention/step2_coalesced.cuh"
#include "chapters/01_naive_attention/step3_shared_tile.cuh"
#include "chapters/01_naive_attention/step4_register_tile.cuh"
#include "chapters/01_naive_attention/step5_wmma.cuh"
#include "common/attention/cost.h"
#include "common/attention/slices.h"
#include "common/device/dispatch.h"
#include "common/device/launch.h"

namespace flashbook {
namespace {

using naive::Problem;

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

constexpr int kMaxGridYZ = 65535;           // the largest grid in y and in z
constexpr int64_t kMaxGridX = 2147483647;   // and in x
constexpr int kRowCacheBytes = 160 * 1024;  // shared memory for rows of scores: an A100 grants a block 163 KB
constexpr int kLongestRow = kRowCacheBytes / sizeof(float);

/// Queries per block, by step, which determine a grid's y size.
template <int kStep>
constexpr int kQueriesPerBlock = std::array{naive::kTextbookSide, naive::kRowQueries, naive::kSquare,
                                            naive::kTile, naive::kWmmaTile}[kStep - 1];

/// From step 2 on, one warp computes a softmax row, which it keeps in shared memory.
template <int kStep>
constexpr bool kHasWarpSoftmax = kStep >= 2;

template <int kStep>
Problem problem_of(const Spec& spec) {
  // A warp loads rows of S 16 bytes at a time, so each row starts at a multiple of 8 elements.
  const int align = kHasWarpSoftmax<kStep> ? naive::kScoreAlign : 1;
  const int stride = int(ceil_div(int64_t(spec.seqlen_k), align)) * align;
  return {spec.seqlen_q, spec.seqlen_k, spec.heads / spec.kv_heads, stride, spec.causal(), spec.scale};
}

/// Rounds up to a multiple of 256 bytes, the alignment of memory from cudaMalloc.
int64_t aligned(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

template <int kStep>
int64_t score_bytes(const Spec& spec) {
  return aligned(spec.q_rows() * problem_of<kStep>(spec).score_stride * int64_t(sizeof(float)));
}

template <int kStep>
int64_t probability_bytes(const Spec& spec) {
  return spec.q_rows() * problem_of<kStep>(spec).score_stride * int64_t(size_of(spec.dtype));
}

//| ## What cannot run
//|
//| A grid has at most 65535 blocks in y and in z, and from step 2 on, a whole row of scores is in shared
//| memory. Larger shapes are rejected with a message that names the remedy, and no kernel checks them again.
//| The table of steps has the rest: tensor cores take 16-bit types, so step 5 does not accept float32.
template <int kStep>
std::string limits(const Spec& spec) {
  if (spec.heads > kMaxGridYZ)
    return "--heads is at most 65535, the largest grid in z, and it is " + std::to_string(spec.heads);
  constexpr int kQueries = kQueriesPerBlock<kStep>;
  if (ceil_div(int64_t(spec.seqlen_q), kQueries) > kMaxGridYZ)
    return "--seqlen is at most " + std::to_string(kMaxGridYZ * kQueries) +
           " in this step, the largest grid in y";
  if (kHasWarpSoftmax<kStep> && spec.q_rows() > kMaxGridX)
    return "batch * heads * seqlen is at most 2^31 - 1 in this step, the largest grid in x: give a smaller "
           "--batch";
  if (kHasWarpSoftmax<kStep> && spec.seqlen_k > kLongestRow)
    return "this step keeps a row of scores in shared memory, so --seqlen-k is at most " +
           std::to_string(kLongestRow) + ": use --step textbook, or a later chapter";
  return "";
}

//| ## Bytes
//|
//| The workspace holds $S$ in float32 and $P$ in the tensors' type; in step 2, $K^\top$ comes after them.
//| `memory` is the cost model that the chapter derives, and the profiler's counts are compared with it.
template <int kStep>
int64_t workspace(const Spec& spec) {
  const int64_t s_and_p = score_bytes<kStep>(spec) + probability_bytes<kStep>(spec);
  return kStep == 2 ? aligned(s_and_p) + spec.k_elements() * int64_t(size_of(spec.dtype)) : s_and_p;
}

template <int kStep>
double memory(const Spec& spec) {
  const double element = double(size_of(spec.dtype));
  // S is written once, and read once by a warp; step 1 reads it for the maximum, the sum and the quotient. P:
  // written, read. K^T: written, read.
  const double s_passes = kHasWarpSoftmax<kStep> ? 2 : 4, p_passes = 2, k_passes = kStep == 2 ? 2 : 0;
  return compulsory_bytes(spec) + k_passes * double(spec.k_elements()) * element +
         visible_pairs(spec) * (s_passes * sizeof(float) + p_passes * element);
}

//| ## The order of the kernels
//|
//| A step makes three launches, and one more where K is transposed. `Call` holds their common arguments.
template <typename T>
struct Call {
  const Spec& spec;
  const Tensors& tensors;
  device::Stream stream;
  Problem problem;
  float* scores;
  T* probabilities;
  T* k_transposed;  // for step 2
  const T *q = static_cast<const T*>(tensors.q), *k = static_cast<const T*>(tensors.k),
          *v = static_cast<const T*>(tensors.v);
  T* o = static_cast<T*>(tensors.o);
  unsigned heads = unsigned(spec.batch * spec.heads);

  /// Returns a grid whose blocks make tiles of `rows` queries by `columns` of `all`, for every head.
  dim3 grid(int all, int columns, int rows) const {
    return dim3(ceil_div(all, columns), ceil_div(spec.seqlen_q, rows), heads);
  }
};

template <typename T>
void run_textbook(const Call<T>& c) {
  constexpr int kSide = naive::kTextbookSide;
  const int64_t rows = c.spec.q_rows();
  device::launch(naive::textbook_scores<T>, c.grid(c.spec.seqlen_k, kSide, kSide), dim3(kSide, kSide), 0,
                 c.stream, c.q, c.k, c.scores, c.spec.head_dim, c.problem);
  device::launch(naive::textbook_softmax<T>, dim3(ceil_div(rows, 256)), dim3(256), 0, c.stream, c.scores,
                 c.probabilities, c.tensors.lse, rows, c.problem);
  device::launch(naive::textbook_output<T>, dim3(c.spec.seqlen_q, 1, c.heads), dim3(c.spec.head_dim), 0,
                 c.stream, c.probabilities, c.v, c.o, c.problem);
}

/// Runs the softmax of steps 2 to 5.
template <typename T>
void run_softmax(const Call<T>& c) {
  device::launch(naive::warp_softmax<T>, dim3(c.spec.q_rows()), dim3(32),
                 c.problem.score_stride * sizeof(float), c.stream, c.scores, c.probabilities, c.tensors.lse,
                 c.problem);
}

template <typename T>
void run_coalesced(const Call<T>& c) {
  constexpr int kKeys = naive::kRowKeys, kQueries = naive::kRowQueries;
  const dim3 key_blocks(ceil_div(c.spec.seqlen_k, kKeys), c.spec.head_dim / kQueries,
                        c.spec.batch * c.spec.kv_heads);
  device::launch(naive::transpose_keys<T>, key_blocks, dim3(kKeys, kQueries), 0, c.stream, c.k,
                 c.k_transposed, c.spec.head_dim, c.spec.seqlen_k);
  device::launch(naive::coalesced_scores<T>, c.grid(c.spec.seqlen_k, kKeys, kQueries), dim3(kKeys, kQueries),
                 0, c.stream, c.q, static_cast<const T*>(c.k_transposed), c.scores, c.spec.head_dim,
                 c.problem);
  run_softmax(c);
  device::launch(naive::textbook_output<T>, dim3(c.spec.seqlen_q, 1, c.heads), dim3(c.spec.head_dim), 0,
                 c.stream, c.probabilities, c.v, c.o, c.problem);
}

template <typename T>
void run_shared(const Call<T>& c) {
  constexpr int kSide = naive::kSquare;
  device::launch(naive::shared_scores<T>, c.grid(c.spec.seqlen_k, kSide, kSide), dim3(kSide, kSide), 0,
                 c.stream, c.q, c.k, c.scores, c.spec.head_dim, c.problem);
  run_softmax(c);
  device::launch(naive::shared_output<T>, c.grid(c.spec.head_dim, kSide, kSide), dim3(kSide, kSide), 0,
                 c.stream, c.probabilities, c.v, c.o, c.spec.head_dim, c.problem);
}

template <typename T, int kHeadDim>
void run_tiled(const Call<T>& c) {
  constexpr int kTile = naive::kTile;
  device::launch(naive::tiled_scores<T, kHeadDim>, c.grid(c.spec.seqlen_k, kTile, kTile),
                 dim3(naive::kThreads), 0, c.stream, c.q, c.k, c.scores, c.problem);
  run_softmax(c);
  device::launch(naive::tiled_output<T, kHeadDim>, c.grid(kHeadDim, kTile, kTile), dim3(naive::kThreads), 0,
                 c.stream, c.probabilities, c.v, c.o, c.problem);
}

template <typename T, int kHeadDim>
void run_wmma(const Call<T>& c) {
  constexpr int kTile = naive::kWmmaTile;
  device::launch(naive::wmma_scores<T, kHeadDim>, c.grid(c.spec.seqlen_k, kTile, kTile),
                 dim3(naive::kWmmaThreads), 0, c.stream, c.q, c.k, c.scores, c.problem);
  run_softmax(c);
  device::launch(naive::wmma_output<T, kHeadDim>, c.grid(kHeadDim, kTile, kTile), dim3(naive::kWmmaThreads),
                 0, c.stream, c.probabilities, c.v, c.o, c.problem);
}

template <int kStep, typename T>
void run_as(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  auto* bytes = static_cast<unsigned char*>(tensors.workspace);
  const int64_t s = score_bytes<kStep>(spec), p = probability_bytes<kStep>(spec);
  const Call<T> call{spec,
                     tensors,
                     stream,
                     problem_of<kStep>(spec),
                     reinterpret_cast<float*>(bytes),
                     reinterpret_cast<T*>(bytes + s),
                     reinterpret_cast<T*>(bytes + aligned(s + p))};
  // S and P are written only where a query sees a key. A warp loads the rest of S, and tiles the rest of P,
  // since a branch around a load costs more, and then ignores it (softmax.cuh, step4_register_tile.cuh).
  if (kHasWarpSoftmax<kStep>) device::allow_unwritten(bytes, std::size_t(s + p));
  if constexpr (kStep == 1) run_textbook(call);
  if constexpr (kStep == 2) run_coalesced(call);
  if constexpr (kStep == 3) run_shared(call);
  if constexpr (kStep >= 4)
    device::with_head_dim(spec.head_dim, [&]<int kHeadDim>() {
      if constexpr (kStep == 4) run_tiled<T, kHeadDim>(call);
      if constexpr (kStep == 5) run_wmma<T, kHeadDim>(call);
    });
}

template <int kStep>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  const auto body = [&]<typename T>() {
    run_in_slices(spec, tensors, kMaxGridYZ,
                  [&](const Spec& part, const Tensors& t) { run_as<kStep, T>(part, t, stream); });
  };
  if constexpr (kStep == 5)
    device::with_16_bit_type(spec.dtype, body);
  else
    device::with_type(spec.dtype, body);
}

//| ## The steps
//|
//| Each step is a row: its name, what it adds, what it computes, what it accepts, how it runs, its limits,
//| and the memory it needs.
template <int kStep>
constexpr Step row(const char* slug, const char* name, const char* idea) {
  constexpr Features kAccepts = Feature::causal;
  return {.slug = slug,
          .name = name,
          .idea = idea,
          .operation = Operation::forward,
          .accepts = kStep < 5 ? kAccepts | Feature::float32 : kAccepts,
          .run = run<kStep>,
          .limits = limits<kStep>,
          .workspace = workspace<kStep>,
          .memory = memory<kStep>};
}

constexpr Step kSteps[] = {
    row<1>("textbook", "one thread per score",
           "The three formulas as three kernels, with one thread per number."),
    row<2>(
        "coalesced", "neighbours read neighbours",
        "K is transposed once, and each row of the softmax gets a warp, so that all lanes read neighbours."),
    row<3>("shared_tile", "a tile in shared memory",
           "A block loads 32 columns of 64 rows once, and 32 threads use each number from shared memory."),
    row<4>("register_tile", "a tile of registers",
           "Each thread keeps 8 by 8 results in registers: 16 numbers read from shared memory feed 64 "
           "multiply-adds."),
    row<5>("wmma", "tensor cores",
           "Tensor cores multiply 16 by 16 fragments. Moving S and P through memory is what remains."),
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
