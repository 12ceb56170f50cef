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

/// The ranks of a step that this process has, all or one: their shares and programs.
class Ranks final : public DealtOut {
 public:
  /// Gives every rank its rows of Q, K and V. Every process has the whole tensors.
  Ranks(const Shape& shape, const Tensors& tensors, int step, const device::Together& together);

  void run() override;
  std::vector<double> time(int reps) override;
  /// Brings every process all rows.
  void collect() override;

 private:
  /// Runs it once for each rank of this process, on its device: `body(rank, program)`.
  template <typename Body>
  void on_all(const Body& body);
  /// Puts a rank's rows into the whole tensors.
  void put(const Share& share, const Buffer& o, const Buffer& lse) const;

  const device::Together together_;
  const Tensors tensors_;
  std::vector<std::unique_ptr<Share>> shares_;
  std::vector<std::unique_ptr<Program>> programs_;
};

}  // namespace flashbook::many_gpus
