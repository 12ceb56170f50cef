//| # From whole tensors to shares and back
//|
//| A chapter's program has whole tensors, on one device. Here they are dealt out to the ranks, each on its device, a step runs on
//| all of them, and what it leaves is put together again. Who trains a model has tensors that are dealt out from the start.
#pragma once
#include <memory>
#include <vector>

#include "chapters/10_many_gpus/share.h"
#include "common/app/chapter.h"
#include "common/attention/tensors.h"

namespace flashbook::many_gpus {

/// The ranks of a step: their shares and programs. One process has them all.
class Ranks final : public DealtOut {
 public:
  /// Gives every rank its rows of Q, K and V.
  Ranks(const Shape& shape, const Tensors& tensors, int step);

  void run() override;
  void collect() override;

 private:
  const Tensors tensors_;
  std::vector<std::unique_ptr<Share>> shares_;
  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace flashbook::many_gpus
