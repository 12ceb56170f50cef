/// \file
/// The products that a warpgroup has issued: when each product is complete, and what must not be accessed
/// before. Internal to the simulator.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/simulator/block/shared_matrix.h"
#include "common/simulator/events/event_log.h"
#include "common/simulator/location.h"
#include "common/simulator/wgmma.h"

namespace flashbook::sim {

/// One thread's operands.
struct WgmmaCall {
  WgmmaKind kind;
  float* d;
  const uint32_t* a_registers;  ///< null if a is in shared memory
  uint64_t a, b;                ///< the descriptors
  bool accumulate;
};

/// The products of one warpgroup, in order. The scheduler decides when they are computed, at the latest when
/// the kernel waits for them.
///
/// From the issue of the first product on an accumulator until the last one completes, the accumulator's
/// values are kept here, and the threads' registers hold a signalling NaN. Copying keeps the NaN's bits and
/// arithmetic sets the quiet bit, so both are detected at the end. Registers of a are copied and compared.
class WgmmaQueue {
 public:
  /// Starts a new block and discards all state. `first_thread` is the warpgroup's first thread.
  void begin_block(int first_thread, SharedBytes shared);

  /// Issues a product with the operands of 128 threads. Throws Error if they disagree, if a descriptor
  /// reaches beyond shared memory, or if registers were modified without a fence.
  void issue(void* const* calls, Location where);
  void fence(Location where);
  void commit(Location where);
  /// Computes all groups except for the latest `groups_in_flight`. After that, threads may access the
  /// registers and overwrite the tiles of the computed groups.
  void wait(int groups_in_flight, Location where);

  /// Returns the number of products that have not been computed yet.
  int pending() const { return int(pending_.size()); }
  /// Computes the oldest `count` products.
  void compute(int count);

  /// Throws Error if a product has not been waited for.
  void require_all_waited_for() const;

 private:
  static EventLog* scheduler_log();
  void log(const char* what, Location where, const std::string& detail) const;
  static constexpr int kThreads = 128;

  /// The 64xN floats in the registers of 128 threads.
  struct Accumulator {
    std::array<float*, kThreads> registers{};
    int n = 0, inner = 0;       ///< sizes of its products; n is 0 if it was discarded
    std::vector<float> values;  ///< [64][n]: in progress, or as of the last fence or product
    bool is_new = true;
    int in_flight = 0;        ///< number of products not computed yet
    int last_group = 0;       ///< group of the last product
    int fences_at_wait = -1;  ///< number of fences when that product was waited for
  };
  /// A matrix a in the registers of 128 threads, as of the last fence or product.
  struct Fragment {
    std::array<const uint32_t*, kThreads> registers;
    std::array<uint32_t, 4 * kThreads> values;
    int in_flight;
  };
  struct Product {
    WgmmaCall call;                     ///< call of the first thread
    std::size_t accumulator, fragment;  ///< indices; the second is valid only if a is in registers
    int group;                          ///< number of its group, committed or not
    Location where;
  };

  void require_operand(const char* which, const SharedMatrix& matrix, const WgmmaKind& kind,
                       Location where) const;
  std::size_t take_accumulator(void* const* calls, Location where);
  std::size_t find_accumulator(const std::array<float*, kThreads>& registers, const WgmmaKind& kind,
                               Location where);
  void require_fenced(Accumulator& accumulator, const WgmmaKind& kind, Location where);
  std::size_t take_fragment(void* const* calls, Location where);
  static void copy_registers(Fragment& fragment);
  /// Reads the tiles and computes the product. Only this function reads shared memory for a product.
  void compute(const Product& product);
  void tell_of_reads(const WgmmaCall& call, Location where);
  void tell_of_wait();
  void require_untouched(const Accumulator& accumulator, const Product& product) const;
  void require_unchanged(const Fragment& fragment, const Product& product) const;

  int first_thread_ = 0;
  SharedBytes shared_;
  std::vector<Accumulator> accumulators_;
  std::vector<Fragment> fragments_;
  std::vector<Product> pending_;
  int fences_ = 0, commits_ = 0;
  int waited_for_ = 0;     ///< number of groups that have been waited for
  int last_group_ = -1;    ///< group of the product issued last
  Location last_product_;  ///< location of that product
  /// The observer's last ticket for each group that has not been waited for.
  std::map<int, uint32_t> tickets_;
};

}  // namespace flashbook::sim
