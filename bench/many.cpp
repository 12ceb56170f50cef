/// \file
/// Times chapter 10's steps on several GPUs, and chapters 5, 7, 8 and 9 alone on one, at the request of
/// many.py, which interleaves them with others.
///
/// It reads lines from stdin and answers each with one on stdout:
///
///     cell RANKS HEADS KV_HEADS HEAD_DIM SEQLEN KIND   fills tensors with normal numbers
///     check WHO         error and bound, against one GPU alone on some rows
///     time WHO REPS     milliseconds of each launch after a flush of the L2
///     ring RANKS HOW MESSAGES BYTES REPS   milliseconds per hop: every rank sends to the next
///     drop              frees the contestants' memory
///     context           key=value, separated by tabs
///
/// KIND is `causal`, `full`, `documents` (eight, with 1/36 to 8/36 of the tokens, causal) or `decode` (one
/// query against SEQLEN keys). WHO is `ch05/persistent` or `ch10/zigzag/nccl/8/striped`: chapter, step,
/// transport, reserved multiprocessors, and the order of tokens if it is not the step's own. An answer that
/// begins with `error` gives the reason.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>

#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/07_backward/host/chapter.h"
#include "chapters/08_decoding/host/chapter.h"
#include "chapters/09_masks/host/chapter.h"
#include "chapters/10_many_gpus/host/chapter.h"
#include "common/app/exit_code.h"
#include "common/app/machine_context.h"
#include "common/attention/cost.h"
#include "common/attention/error.h"
#include "common/device/backend.h"

namespace flashbook {
namespace {

using device::Buffer, device::Place;

constexpr int kDocuments = 8;
constexpr int64_t kDrawn = 1 << 22;  // number of random values with which tensors are filled
constexpr int kRows = 96;            // number of rows compared with the reference

/// A sequence of normally distributed 16-bit numbers, repeated.
std::vector<uint16_t> drawn() {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kDrawn);
  for (float& value : values) value = normal(engine);
  const std::vector<std::byte> bytes = encode(DType::bf16, values);
  std::vector<uint16_t> encoded(values.size());
  std::memcpy(encoded.data(), bytes.data(), bytes.size());
  return encoded;
}

device::Transport transport_of(const std::string& word) {
  return word == "nccl" ? device::Transport::nccl : device::Transport::copies;
}

/// A requested step.
struct Who {
  const Chapter* chapter;
  int step;
  device::Together together;
  std::optional<TokenOrder> order;

  explicit Who(const std::string& text) {
    std::istringstream in(text);
    std::string number, step_text, transport, margin, order_text;
    std::getline(in, number, '/'), std::getline(in, step_text, '/');
    std::getline(in, transport, '/'), std::getline(in, margin, '/'), std::getline(in, order_text);
    chapter = &kManyGpus;
    for (const Chapter* alone : {&kFlashAttention3, &kBackward, &kDecoding, &kMasks})
      if (number == "ch0" + std::to_string(alone->number)) chapter = alone;
    for (const TokenOrder known : {TokenOrder::contiguous, TokenOrder::zigzag, TokenOrder::striped})
      if (order_text == name_of(known)) order = known;
    step = chapter->place(step_text);
    together.transport = transport_of(transport);
    together.margin = std::atoi(margin.c_str());
  }

  const Step& row() const { return chapter->step(step); }
  bool is_gradient() const { return row().operation == Operation::backward; }
  bool is_alone() const { return chapter != &kManyGpus; }
};

/// A cell's tensors, on the first device, and the contestants' memory.
class Cell {
 public:
  Cell(Spec spec, const Buffer& random) : spec_(std::move(spec)) {
    for (const TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::d_o}) fill(id, random);
    for (const TensorId id : {TensorId::o, TensorId::lse, TensorId::dq, TensorId::dk, TensorId::dv})
      memory(id);
    for (const FeatureTable& table : tables_of(spec_)) {
      tables_.emplace_back(Place::device, table.bytes.size()).upload(table.bytes);
      tensors_.tables[int(table.id)] = tables_.back().data();
    }
    device::synchronize();
    // The fastest on one GPU: for a cache, for documents, and for long sequences.
    alone(Who(spec_.seqlen_q == 1                               ? "ch08/equal_work"
              : !spec_.visibility.documents.first_query.empty() ? "ch09/varlen"
                                                                : "ch05/persistent"));
    device::synchronize();
    one_gpu_[TensorId::o] = rows(TensorId::o), one_gpu_[TensorId::lse] = rows(TensorId::lse);
  }

  /// Returns the largest relative RMS difference from one GPU's result, and the bound.
  std::pair<double, double> check(const Who& who) {
    const std::vector<TensorId> outputs =
        who.is_gradient() ? std::vector<TensorId>{TensorId::dq, TensorId::dk, TensorId::dv}
                          : std::vector<TensorId>{TensorId::o, TensorId::lse};
    if (who.is_gradient() && !one_gpu_.contains(TensorId::dq)) {
      alone(Who("ch07/persistent"));
      device::synchronize();
      for (const TensorId id : outputs) one_gpu_[id] = rows(id);
    }
    if (!who.is_gradient())
      for (const TensorId id : outputs) memory_.at(id).poison();
    if (who.is_alone()) {
      alone(who);
      device::synchronize();
    } else {
      DealtOut& dealt_out = of(who);
      dealt_out.run();
      dealt_out.collect();
    }
    double worst = 0;
    for (const TensorId id : outputs) {
      const std::vector<float> got = rows(id), &want = one_gpu_.at(id);
      double difference = 0, size = 0;
      for (std::size_t i = 0; i < got.size(); ++i)
        difference += std::pow(double(got[i]) - want[i], 2), size += std::pow(double(want[i]), 2);
      const double error = std::sqrt(difference / size);
      if (!(error <= worst)) worst = error;  // also catches NaN
    }
    return {worst, who.is_gradient() ? 0.02 : 0.01};
  }

  std::vector<double> time(const Who& who, int reps) {
    if (!who.is_alone()) return of(who).time(reps);
    std::vector<double> seconds;
    for (int rep = 0; rep < reps; ++rep) {
      device::flush_l2(nullptr);
      seconds.push_back(device::time_on_device(nullptr, [&] { alone(who); }));
    }
    return seconds;
  }

  void drop() { dealt_out_.clear(), workspaces_.clear(); }

 private:
  Buffer& memory(TensorId id) {
    Buffer& buffer = memory_[id] =
        Buffer(Place::device, std::size_t(elements_of(spec_, id)) * size_of(type_of(spec_, id)));
    tensors_.set(id, buffer.data());
    return buffer;
  }

  /// Each tensor starts at a different place in the random numbers.
  void fill(TensorId id, const Buffer& random) {
    const Buffer& buffer = memory(id);
    auto* const to = static_cast<std::byte*>(buffer.data());
    const auto* const from = static_cast<const std::byte*>(random.data());
    const std::size_t skipped = 16 * std::size_t(1237 * (1 + int(id))), piece = random.bytes() - 2 * skipped;
    for (std::size_t at = 0; at < buffer.bytes(); at += piece)
      device::copy_async(nullptr, to + at, from + skipped, std::min(piece, buffer.bytes() - at));
  }

  void alone(const Who& who) {
    Spec spec = spec_;
    spec.sharding.ranks = 1;
    Buffer& workspace = workspaces_[{who.chapter->number, who.step}];
    if (const auto bytes = std::size_t(who.row().workspace_bytes(spec)); workspace.bytes() < bytes) {
      workspace = Buffer(Place::device, bytes);
      const std::vector<std::byte> zeros(std::size_t(who.row().zeroed_bytes(spec)));
      device::backend::copy(workspace.data(), zeros.data(), zeros.size());
    }
    Tensors tensors = tensors_;
    tensors.workspace = workspace.data();
    who.row().run(spec, tensors, nullptr);
  }

  DealtOut& of(const Who& who) {
    if (const std::string reason = device::why_not(who.together.transport, spec_.sharding.ranks);
        !reason.empty())
      throw InputError(reason);
    Spec spec = spec_;
    spec.sharding.order = who.order;
    if (const std::string reason = who.chapter->refusal(who.step, spec); !reason.empty())
      throw InputError(reason);
    auto& kept = dealt_out_[{who.step, int(who.together.transport), who.together.margin, who.order}];
    if (kept == nullptr) {
      device::use_device(0);
      kept = who.row().deal_out(spec, tensors_, who.together);
      device::use_device(0);
    }
    return *kept;
  }

  /// Returns some rows of a tensor, evenly spread.
  std::vector<float> rows(TensorId id) const {
    const int64_t columns = columns_of(spec_, id), all = elements_of(spec_, id) / columns;
    const DType type = type_of(spec_, id);
    std::vector<float> values;
    for (int row = 0; row < kRows; ++row) {
      std::vector<std::byte> bytes(std::size_t(columns) * size_of(type));
      const int64_t place = (all - 1) * row / (kRows - 1);
      device::backend::copy(bytes.data(),
                            static_cast<std::byte*>(memory_.at(id).data()) + place * int64_t(bytes.size()),
                            bytes.size());
      for (const float value : decode(type, bytes)) values.push_back(value);
    }
    return values;
  }

  const Spec spec_;
  std::map<TensorId, Buffer> memory_;
  std::vector<Buffer> tables_;
  Tensors tensors_;
  std::map<TensorId, std::vector<float>> one_gpu_;  ///< sampled rows of one GPU's results
  std::map<std::pair<int, int>, Buffer> workspaces_;
  std::map<std::tuple<int, int, int, std::optional<TokenOrder>>, std::unique_ptr<DealtOut>> dealt_out_;
};

/// Returns the seconds of hops around a ring, of the slowest rank. In a hop, every rank sends the next one
/// `messages` messages of `bytes` bytes in one exchange.
std::vector<double> ring(int ranks, device::Transport transport, int messages, std::size_t bytes, int reps) {
  std::vector<std::vector<double>> by_rank(static_cast<std::size_t>(ranks));
  device::run_ranks(
      ranks,
      [&](device::Rank& rank) {
        const int next = (rank.number() + 1) % ranks, previous = (rank.number() + ranks - 1) % ranks;
        const Buffer leaving(Place::device, messages * bytes), arriving(Place::device, messages * bytes);
        const auto pieces = [&](int other, const Buffer& buffer) {
          std::vector<device::Message> list;
          for (int i = 0; i < messages; ++i)
            list.push_back({other, static_cast<std::byte*>(buffer.data()) + i * bytes, bytes});
          return list;
        };
        const auto sends = pieces(next, leaving), receives = pieces(previous, arriving);
        device::Queue queue;
        for (int rep = 0; rep < reps; ++rep) {
          rank.exchange(queue, {{next, leaving.data(), 16}},
                        {{previous, arriving.data(), 16}});  // waits for all ranks
          queue.synchronize();
          by_rank[std::size_t(rank.number())].push_back(
              device::time_on_device(queue.stream(), [&] { rank.exchange(queue, sends, receives); }));
        }
      },
      transport);
  std::vector<double> slowest = by_rank.front();
  for (const std::vector<double>& seconds : by_rank)
    for (std::size_t rep = 0; rep < seconds.size(); ++rep)
      slowest[rep] = std::max(slowest[rep], seconds[rep]);
  return slowest;
}

class Session {
 public:
  Session() {
    const std::vector<uint16_t> numbers = drawn();
    random_ = Buffer(Place::device, numbers.size() * sizeof(uint16_t));
    random_.upload(std::as_bytes(std::span(numbers)));
  }

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, who, kind;
    words >> verb;
    std::ostringstream text;
    if (verb == "context") {
      for (const auto& [key, value] : machine_context(true)) text << key << "=" << value << "\t";
      text << "nccl=" << device::backend::nccl_version();
    } else if (verb == "cell") {
      Spec spec = square_spec(1, 1, 1, 64, DType::bf16);
      int head_dim = 0;
      words >> spec.sharding.ranks >> spec.heads >> spec.kv_heads >> head_dim >> spec.seqlen_q >> kind;
      spec.set_head_dim(head_dim);
      spec.seqlen_k = spec.seqlen_q;
      if (kind == "decode") spec.seqlen_q = 1;
      spec.scale = default_scale(spec.head_dim);
      spec.visibility = Visibility::causal_if(kind == "causal" || kind == "documents");
      if (kind == "documents") {
        std::vector<int> first;
        for (int64_t document = 0; document <= kDocuments; ++document)
          first.push_back(int(spec.seqlen_k * document * (document + 1) / (kDocuments * (kDocuments + 1))));
        spec.visibility.documents = {first, first};
      }
      validate(spec);
      cell_.reset();  // frees its memory first
      cell_ = std::make_unique<Cell>(spec, random_);
      text << flops(spec, kind == "decode" ? Operation::decode : Operation::forward) << " "
           << flops(spec, Operation::backward);
    } else if (verb == "ring") {
      int ranks = 0, messages = 0, reps = 0;
      std::size_t bytes = 0;
      words >> ranks >> who >> messages >> bytes >> reps;
      if (const std::string reason = device::why_not(transport_of(who), ranks); !reason.empty())
        throw InputError(reason);
      for (const double seconds : ring(ranks, transport_of(who), messages, bytes, reps))
        text << seconds * 1e3 << " ";
      device::use_device(0);
    } else if (!cell_) {
      throw InputError("no cell has been set");
    } else if (verb == "drop") {
      cell_->drop();
    } else if (verb == "check" && words >> who) {
      const auto [error, bound] = cell_->check(Who(who));
      text << error << " " << bound;
    } else if (int reps = 0; verb == "time" && words >> who >> reps) {
      for (const double seconds : cell_->time(Who(who), reps)) text << seconds * 1e3 << " ";
    } else {
      throw InputError(line, ": unknown request");
    }
    return text.str();
  }

 private:
  Buffer random_;
  std::unique_ptr<Cell> cell_;
};

int run() {
  Session session;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << session.answer(line) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error: " << error.what() << std::endl;
    }
  }
  return kRight;
}

}  // namespace
}  // namespace flashbook

int main() { return flashbook::exit_code("many", flashbook::run); }
