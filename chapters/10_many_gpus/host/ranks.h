//| # From whole tensors to shares and back
//|
//| A chapter's program has whole tensors on one device. This code distributes them to the ranks, each on its
//| own device, runs a step on all of them, and reassembles the results. A real training program has its
//| tensors distributed from the start.
#pragma once
#include <memory>
#include <vector>

#include "chapters/10_many_gpus/share.h"
#include "chapters/10_many_gpus/step6_backward.h"
#include "chapters/10_many_gpus/step7_decode.h"
#include "common/app/chapter.h"
#include "common/attention/tensors.h"

namespace flashbook::many_gpus {

/// One rank's share of a call's tensors.
struct Dealt {
  /// A tensor of the call, and a rank's tokens of it.
  struct Piece {
    Role role;
    void *whole, *part;
    int64_t heads;
    int seqlen;  ///< tokens in `whole`
    Tokens tokens;
    int64_t row_bytes;
    int stride = 1, offset = 0;  ///< token i is at place(i) * stride + offset

    int64_t bytes() const { return heads * tokens.total() * row_bytes; }
  };

  std::unique_ptr<Share> share;
  std::unique_ptr<GradientShare> gradients;  ///< for step 6
  std::unique_ptr<CacheShare> cache;         ///< for step 7, instead of `share`
  std::vector<Piece> pieces;
};

/// All ranks: their shares and programs.
class Ranks final : public DealtOut {
 public:
  /// Gives every rank its rows of the inputs.
  Ranks(const Spec& spec, const Tensors& tensors, int step, const device::Together& together);

  void run() override;
  std::vector<double> time(int reps) override;
  /// Copies every rank's rows of the outputs into the whole tensors.
  void collect() override;

 private:
  /// Calls `body(rank, program)` once for each rank, on its device.
  template <typename Body>
  void on_all(const Body& body);
  /// Allocates memory for a rank's tokens on the current device.
  Dealt deal(int rank) const;
  Dealt deal_cache(int rank) const;

  const Spec spec_;
  const Tensors tensors_;
  const int step_;
  const Order order_;
  const device::Together together_;
  std::vector<Dealt> dealt_;
  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace flashbook::many_gpus
