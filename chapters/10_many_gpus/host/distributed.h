//| # From whole tensors to shares and back
//|
//| A chapter's program has whole tensors, on one device. Here they are dealt out to the ranks, each on its device, a step runs on
//| all of them, and what it leaves is put together again. Who trains a model has tensors that are dealt out from the start.
#pragma once
#include <memory>
#include <vector>

#include "chapters/10_many_gpus/share.h"
#include "common/attention/tensors.h"

namespace flashbook::many_gpus {

/// The ranks of a step: their shares and programs. One process has them all.
class Distributed {
 public:
  Distributed(const Shape& shape, int step);
  ~Distributed();

  /// Gives every rank its rows of Q, K and V.
  void deal_out(const Tensors& tensors);
  /// Runs the step on all ranks. Returns when it is done.
  void run();
  /// Brings all rows of O and of the log-sum-exp to where the whole tensors are.
  void collect(const Tensors& tensors) const;

 private:
  std::vector<std::unique_ptr<Share>> shares_;
  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace flashbook::many_gpus
