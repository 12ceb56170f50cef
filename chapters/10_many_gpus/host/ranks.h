//| # From whole tensors to shares and back
//|
//| A chapter's program has whole tensors, on one device. Here they are dealt out to the ranks, each on its device, a step runs on
//| all of them, and what it leaves is put together again. Who trains a model has tensors that are dealt out from the start.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "chapters/10_many_gpus/share.h"
#include "chapters/10_many_gpus/step6_backward.h"
#include "common/app/chapter.h"
#include "common/attention/tensors.h"

namespace flashbook::many_gpus {

//| ## Switches
//|
//| What the chapter's steps fix, and a bench or a test may set otherwise.
/// How a step is run.
struct Settings {
  std::optional<Order> order = {};  ///< how tokens are dealt out; empty: as the step does
  int margin = 0;                    ///< multiprocessors that attention leaves free: NCCL's kernels need some
};

/// The ranks of a step: their shares and programs. One process has them all.
class Ranks final : public DealtOut {
 public:
  /// Gives every rank its rows of the inputs.
  Ranks(const Shape& shape, const Tensors& tensors, int step, const Settings& settings = {});

  void run() override;
  void collect() override;

 private:
  /// A tensor of the call, and a rank's tokens of it.
  struct Piece {
    Role role;
    void *whole, *part;
    int64_t heads;
    int seqlen;  ///< of `whole`
    Tokens tokens;
    int64_t row_bytes;
  };
  /// What a rank has of every tensor.
  void add_pieces(const Share& share, const GradientShare* gradients, const Tensors& tensors);
  void copy(Role role) const;

  std::vector<std::unique_ptr<Share>> shares_;
  std::vector<std::unique_ptr<GradientShare>> gradients_;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace flashbook::many_gpus
