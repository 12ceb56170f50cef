/// \file
/// The descriptor by which a chapter is known to programs, tests and benches.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <span>
#include <string>

#include "common/attention/operation.h"
#include "common/attention/shape.h"
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook {

/// One step of a chapter: a version of the kernel that adds one idea. Steps are counted from 1, or from
/// Chapter::first_step.
struct Step {
  const char* name;       ///< a few words for a table: "one thread per score"
  const char* idea;       ///< one sentence: what this step adds
  bool same_bits = true;  ///< in every launch; false where sums are made in the order in which blocks come
  bool latent = false;    ///< takes latent keys (Shape::is_latent), and no others

  /// Whether the step is for such keys as the shape has. Chapter::why_not says whether it takes the shape.
  bool is_for(const Shape& shape) const { return latent == shape.is_latent(); }
};

/// The shape by which chapters are compared, which fills a GPU: 64 heads of 4096 tokens, head_dim 128.
inline Shape shape_for_gpu(DType dtype = DType::bf16) {
  return {.batch = 4,
          .heads = 16,
          .kv_heads = 16,
          .seqlen_q = 4096,
          .seqlen_k = 4096,
          .head_dim = 128,
          .dtype = dtype,
          .scale = default_scale(128)};
}

/// A shape that the simulator is done with in seconds.
inline Shape shape_for_simulator(DType dtype = DType::bf16) {
  return {.batch = 1,
          .heads = 2,
          .kv_heads = 2,
          .seqlen_q = 256,
          .seqlen_k = 256,
          .head_dim = 64,
          .dtype = dtype,
          .scale = default_scale(64)};
}

/// The largest score of a chapter that is right for every one: times log2(e) it is still a float.
constexpr float kAnyScore = std::numeric_limits<float>::max() / 1.5f;

/// Everything the rest of the house knows about a chapter.
struct Chapter {
  int number;
  const char* name;       ///< its folder and program: "01_naive_attention"
  const char* title;      ///< "Naive attention"
  device::Place runs_on;  ///< Place::device, or Place::host for a chapter that is CPU code
  std::span<const Step> steps;
  std::span<const DType> dtypes;  ///< the types it takes; the default is that of the default shape
  Shape gpu_shape;                ///< default shape on a GPU: fills the card
  Shape cpu_shape;                ///< default shape in the simulator, or on the host: done in seconds
  Operation operation = Operation::forward;

  /// Why `step` cannot run `shape` (already validated), naming the cure; empty if it can.
  std::string (*why_not)(const Shape& shape, int step);
  /// Device memory that `step` needs beyond inputs and outputs, in bytes.
  int64_t (*workspace_bytes)(const Shape& shape, int step);
  /// The chapter's cost model: bytes that `step` moves between its processor and device memory. 0 if the
  /// chapter runs on the host.
  double (*memory_bytes)(const Shape& shape, int step);
  /// Launches `step`, which computes `operation`, on `stream`. `shape` is valid, why_not is empty, the
  /// workspace has its size. Returns before the work is done.
  void (*attention)(const Shape& shape, const Tensors& tensors, device::Stream stream, int step);
  /// Prints what the chapter shows before its results (chapter 2: a worked example), or null.
  void (*preface)(std::ostream& out);
  /// Bytes that the multiprocessors ask for when `step` runs, counted in sectors, whether a cache has them or
  /// not. Null if the chapter has no model of that.
  double (*requested_bytes)(const Shape& shape, int step) = nullptr;
  /// The first bytes of the workspace, which must be 0 before the first launch with it; every launch leaves
  /// them so. Null: none.
  int64_t (*zeroed_bytes)(const Shape& shape, int step) = nullptr;
  /// Up to which size of scores, scaled or not, the chapter is right. Beyond it, programs refuse the inputs.
  /// The default is for those that take a log-sum-exp, a float, out of an exponent again: there it is known
  /// to half a unit of a probability in bf16.
  float largest_score = 0x1p16;
  /// The number of the first of `steps`.
  int first_step = 1;
  /// The chapter's further steps, which compute something else: chapter 9's gradient. Null: none.
  const Chapter* further = nullptr;

  int last_step() const { return first_step + int(steps.size()) - 1; }
  const Step& step(int number) const { return steps[std::size_t(number - first_step)]; }
  /// The descriptor that has the step of that number, this one or `further`; null if there is none.
  const Chapter* with_step(int number) const {
    if (number >= first_step && number <= last_step()) return this;
    return further == nullptr ? nullptr : further->with_step(number);
  }
};

}  // namespace flashbook
