/// \file
/// Blocks of clusters that break a rule, and what is said of each: by cluster_reports_test.cpp in all modes,
/// by trace_cluster_test.cu in the traced one.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "common/ptx/bulk_copy.h"
#include "common/ptx/cluster.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "tests/simulator/simulated.h"

namespace flashbook {

/// Device memory for all of them.
struct ClusterMemory {
  float* in;        ///< [1024]
  float* out;       ///< [1024]
  float** pointer;  ///< to shared memory
};

struct ClusterFault {
  const char* name;
  void (*body)(const ClusterMemory&);
  std::vector<const char*>
      untraced;  ///< what is said in every mode; empty if only the traced mode can see it
  std::vector<const char*> traced;
  unsigned blocks = 2;  ///< of the cluster
  unsigned threads = 32;
};

namespace cluster_faults {

inline bool is_first() { return threadIdx.x == 0; }
/// A barrier at the beginning of shared memory, and numbers behind it.
inline uint64_t* barrier() { return dynamic_shared<uint64_t>(); }
inline float* numbers() { return dynamic_shared<float>() + 64; }

/// All blocks make the barrier, and know of each other's.
inline void begin(uint32_t arrivals) {
  if (is_first()) {
    mbarrier_init(barrier(), arrivals);
    name_mbarrier(barrier(), "full");
    fence_mbarrier_init();
  }
  numbers()[threadIdx.x] = float(threadIdx.x);
  fence_proxy_async();
  cluster_sync();
}

inline const std::vector<ClusterFault>& all() {
  static const std::vector<ClusterFault> faults = {
      {"reads a block that may not have begun",
       [](const ClusterMemory& memory) {
         if (cluster_rank() == 0) memory.out[threadIdx.x] = mapa(numbers(), 1)[threadIdx.x];
         cluster_sync();
       },
       {"a thread touches the shared memory of block (1,0,0), rank 1 of the cluster, which has not begun",
        "cluster_sync comes before the first access", "in block (0,0,0), thread (0,0,0)"},
       {"load of 4 bytes at cluster_faults.h:", "rank 1 of the cluster, of which this thread does not know",
        "a cluster_sync comes before the first access to another block"}},
      {"arrives at a block that may not have begun",
       [](const ClusterMemory&) {
         if (cluster_rank() == 0 && is_first()) mbarrier_arrive_at(barrier(), 1);
         begin(1);
       },
       {"mbarrier_arrive_at at cluster_faults.h:",
        "reaches into block (1,0,0), rank 1 of the cluster, of which "
        "this thread does not know whether it has begun"},
       {"of which this thread does not know whether it has begun"}},
      {"sends to a block that may not have begun",
       [](const ClusterMemory&) {
         if (is_first()) {
           mbarrier_init(barrier(), 1);
           fence_mbarrier_init();
           store_async(numbers(), 1.0f, barrier(), 1 - cluster_rank());
         }
         cluster_sync();
       },
       {"store_async at cluster_faults.h:",
        "rank 1 of the cluster, of which this thread does not know whether",
        "a cluster_sync comes before the first access"},
       {"store_async at cluster_faults.h:", "of which this thread does not know whether it has begun"}},
      {"reads a block that has exited",
       [](const ClusterMemory& memory) {
         begin(1);
         if (cluster_rank() == 1) memory.out[threadIdx.x] = mapa(numbers(), 0)[threadIdx.x];
       },
       {},
       {"of a cluster may exit while another block still reaches into its shared memory",
        "read at cluster_faults.h:", "a cluster_sync at the end"}},
      {"reads a block that has surely exited",
       [](const ClusterMemory& memory) {
         begin(1);
         if (cluster_rank() == 0) return;
         cluster_sync();  // with nobody else
         cluster_sync();
         memory.out[threadIdx.x] = mapa(numbers(), 0)[threadIdx.x];
       },
       {"a thread touches the shared memory of block (0,0,0), rank 0 of the cluster, which has exited",
        "at a cluster_sync at the end"},
       {"rank 0 of the cluster, which has exited"}},
      {"arrives at a block that has exited",
       [](const ClusterMemory&) {
         begin(1);
         if (cluster_rank() == 0) return;
         cluster_sync();
         if (is_first()) mbarrier_arrive_at(barrier(), 0);
       },
       {"mbarrier_arrive_at at cluster_faults.h:",
        "reaches into block (0,0,0), rank 0 of the cluster, which has "
        "exited: its threads must wait, at a cluster_sync at the end"},
       {"which has exited"}},
      {"a barrier whose initialisation is not fenced",
       [](const ClusterMemory&) {
         if (is_first()) mbarrier_init(barrier(), 1);
         cluster_sync();
         if (is_first()) mbarrier_arrive_at(barrier(), 1 - cluster_rank());
         cluster_sync();
       },
       {"mbarrier_arrive_at at cluster_faults.h:", "is used before its mbarrier_init at cluster_faults.h:",
        "has been made known to the cluster: one of its threads calls mbarrier_init and then "
        "fence_mbarrier_init, and a cluster_sync comes before"},
       {"has been made known to the cluster"}},
      {"a barrier that is initialised after the meeting",
       [](const ClusterMemory&) {
         cluster_sync();
         if (is_first()) {
           mbarrier_init(barrier(), 1);
           fence_mbarrier_init();
         }
         __syncthreads();
         if (cluster_rank() == 0) cluster_arrive();
         if (cluster_rank() == 1 && is_first()) mbarrier_arrive_at(barrier(), 0);
         if (cluster_rank() == 1) cluster_arrive();
         cluster_wait();
       },
       {"mbarrier_arrive_at at cluster_faults.h:"},
       {"mbarrier_arrive_at at cluster_faults.h:"}},
      {"one arrival too many",
       [](const ClusterMemory&) {
         begin(1);
         if (is_first() && cluster_rank() == 0) mbarrier_arrive_expect_tx_at(barrier(), 1, 64);
         if (is_first() && cluster_rank() == 0) mbarrier_arrive_at(barrier(), 1);
         cluster_sync();
       },
       {"one arrival too many at mbarrier full",
        "the barrier is that of block (1,0,0), rank 1 of the cluster"},
       {"one arrival too many at mbarrier full"}},
      {"arrives twice at the cluster's barrier",
       [](const ClusterMemory&) {
         cluster_arrive();
         cluster_arrive();
         cluster_wait();
       },
       {"cluster_arrive at cluster_faults.h:", "arrives at the cluster's barrier a second time",
        "every cluster_arrive is followed by a cluster_wait"},
       {"a second time"}},
      {"waits at the cluster's barrier without arriving",
       [](const ClusterMemory&) {
         cluster_sync();
         cluster_wait();
       },
       {"cluster_wait at cluster_faults.h:", "has not arrived: cluster_arrive comes before"},
       {"has not arrived"}},
      {"some threads do not come to the cluster's barrier",
       [](const ClusterMemory&) {
         begin(1);
         if (cluster_rank() == 1 && threadIdx.x >= 8) mbarrier_wait(barrier(), 0);
         cluster_sync();
       },
       {"deadlock in block (",
        "the cluster's barrier: 40 of 64 threads arrived; of rank 1 24 are missing, thread "
        "8 the first",
        "of the cluster:", "mbarrier_wait at cluster_faults.h:"},
       {"of rank 1 24 are missing"}},
      {"two blocks write the same word",
       [](const ClusterMemory&) {
         begin(1);
         if (is_first()) *mapa(numbers(), 1) = float(cluster_rank());
         cluster_sync();
       },
       {},
       {"data race between blocks of a cluster on the shared memory of block 1, dynamic shared memory + 256 "
        "of",
        "block 0, thread 0 (warp 0, lane 0), wrote at cluster_faults.h:",
        "blocks of a cluster meet at "
        "cluster_sync"}},
      {"a block overwrites what another one reads",
       [](const ClusterMemory& memory) {
         begin(1);
         memory.out[threadIdx.x] = mapa(numbers(), 1 - cluster_rank())[threadIdx.x];
         numbers()[threadIdx.x] = 3;
         cluster_sync();
       },
       {},
       {"data race between blocks of a cluster", "read at cluster_faults.h:", "wrote at cluster_faults.h:"}},
      {"reads what a block wrote that has arrived relaxed",
       [](const ClusterMemory& memory) {
         begin(1);
         numbers()[threadIdx.x] = 3;
         cluster_arrive_relaxed();
         cluster_wait();
         memory.out[threadIdx.x] = mapa(numbers(), 1 - cluster_rank())[threadIdx.x];
         cluster_sync();
       },
       {},
       {"data race between blocks of a cluster", "cluster_arrive_relaxed hands over nothing"}},
      {"waits as for its own block's threads",
       [](const ClusterMemory& memory) {
         begin(1);
         if (cluster_rank() == 0 && is_first()) {
           *mapa(numbers(), 1) = 5;
           mbarrier_arrive_at(barrier(), 1);
         }
         if (cluster_rank() == 1) {
           mbarrier_wait(barrier(), 0);
           memory.out[threadIdx.x] = numbers()[0];
         }
         cluster_sync();
       },
       {},
       {"data race between blocks of a cluster", "the other waits by mbarrier_wait_cluster"}},
      {"bytes that nobody expects",
       [](const ClusterMemory&) {
         begin(1);
         if (is_first()) store_async(numbers(), 1.0f, barrier(), 1 - cluster_rank());
         cluster_sync();
       },
       {"block (",
        "store_async at cluster_faults.h:"},  // that are left, or on their way, when the block ends
       {"store_async at cluster_faults.h:"}},
      {"bytes that nobody expects, in a phase that ends",
       [](const ClusterMemory&) {
         begin(1);
         if (is_first() && cluster_rank() == 0) store_async(numbers(), 1.0f, barrier(), 1);
         cluster_sync();
         if (is_first() && cluster_rank() == 1) mbarrier_arrive(barrier());
         if (cluster_rank() == 1) mbarrier_wait(barrier(), 0);
         cluster_sync();
       },
       {"mbarrier full"},  // on their way when the block ends, or landed and then in the way of the phase
       {"store_async at cluster_faults.h:", "is in flight to mbarrier full", "issued by thread 0 of rank 0"}},
      {"bytes that are expected twice",
       [](const ClusterMemory&) {
         begin(2);
         if (is_first()) {
           mbarrier_arrive_expect_tx(barrier(), 4);
           mbarrier_arrive_expect_tx_at(barrier(), 1 - cluster_rank(), 4);
           store_async(numbers(), 1.0f, barrier(), 1 - cluster_rank());
         }
         mbarrier_wait_cluster(barrier(), 0);
         cluster_sync();
       },
       {"deadlock", "mbarrier full lacks 4 bytes that were announced and that no load brings"},
       {"lacks 4 bytes"}},
      {"reads a word that has not landed",
       [](const ClusterMemory& memory) {
         begin(1);
         if (is_first()) {
           mbarrier_arrive_expect_tx(barrier(), 4);
           store_async(numbers() + 40, 1.0f, barrier(), 1 - cluster_rank());
         }
         memory.out[threadIdx.x] = numbers()[40];
         mbarrier_wait(barrier(), 0);
         cluster_sync();
       },
       {},
       {"data race between blocks of a cluster", "the async proxy, wrote at store_async at"}},
      {"a multicast that one block does not expect",
       [](const ClusterMemory& memory) {
         begin(1);
         if (is_first() && cluster_rank() == 0) {
           mbarrier_arrive_expect_tx(barrier(), 128);
           bulk_load_multicast(numbers(), memory.in, 128, barrier(), 3);
         }
         if (cluster_rank() == 0) mbarrier_wait(barrier(), 0);
         cluster_sync();
       },
       {"block (1,0,0)", "bulk_load_multicast at cluster_faults.h:"},
       {"bulk_load_multicast at cluster_faults.h:"}},
      {"a multicast to a block that is not there",
       [](const ClusterMemory& memory) {
         begin(1);
         if (is_first()) {
           mbarrier_arrive_expect_tx(barrier(), 128);
           bulk_load_multicast(numbers(), memory.in, 128, barrier(), 5);
         }
         cluster_sync();
       },
       {"bulk_load_multicast at cluster_faults.h:",
        "names blocks 0x00000005, and rank 2 is none of the "
        "cluster's, which has 2 blocks: set bits 0 to 1 only"},
       {"rank 2 is none of the cluster's"}},
      {"a multicast to nobody",
       [](const ClusterMemory& memory) {
         begin(1);
         if (is_first()) bulk_load_multicast(numbers(), memory.in, 128, barrier(), 0);
         cluster_sync();
       },
       {"bulk_load_multicast at cluster_faults.h:", "names no block: bit 1 << rank"},
       {"names no block"}},
      {"a multicast over what another block reads",
       [](const ClusterMemory& memory) {
         begin(1);
         for (unsigned round = 0; round < 2; ++round) {
           if (is_first()) mbarrier_arrive_expect_tx(barrier(), 128);
           if (round == 0) cluster_sync();
           if (is_first() && cluster_rank() == 0)
             bulk_load_multicast(numbers(), memory.in, 128, barrier(), 3);
           mbarrier_wait(barrier(), round);
           memory.out[32 * unsigned(cluster_rank()) + threadIdx.x] = numbers()[threadIdx.x];
           __syncthreads();
         }
         cluster_sync();
       },
       {},
       {"data race between blocks of a cluster", "bulk_load_multicast at cluster_faults.h:"}},
      {"waits at another block's barrier",
       [](const ClusterMemory&) {
         begin(1);
         mbarrier_wait(mapa(barrier(), 1 - cluster_rank()), 0);
         cluster_sync();
       },
       {"mbarrier_wait at cluster_faults.h:", "the shared memory of block (",
        "are not in the block's shared memory", "a block waits at its own mbarriers only"},
       {"a block waits at its own mbarriers only"}},
      {"names a rank that is not there",
       [](const ClusterMemory& memory) {
         begin(1);
         memory.out[threadIdx.x] = *mapa(numbers(), 2);
         cluster_sync();
       },
       {"mapa at cluster_faults.h:", "names rank 2: the cluster has 2 blocks, ranks 0 to 1"},
       {"names rank 2"}},
      {"follows a pointer that another block has left",
       [](const ClusterMemory& memory) {
         begin(1);
         if (cluster_rank() == 1 && is_first()) *memory.pointer = numbers();
         cluster_sync();
         if (cluster_rank() == 0) memory.out[threadIdx.x] = (*memory.pointer)[threadIdx.x];
         cluster_sync();
       },
       {},
       {"load of 4 bytes at cluster_faults.h:", "rank 1 of the cluster, by a pointer that mapa has not made",
        "leads each block to its own shared memory", "or reach it by mapa"}},
      {"copies from a block that exits",
       [](const ClusterMemory&) {
         begin(1);
         if (is_first() && cluster_rank() == 1) mbarrier_arrive_expect_tx(barrier(), 128);
         cluster_sync();
         if (is_first() && cluster_rank() == 0)
           bulk_copy_to_rank(numbers() + 64, numbers(), 128, barrier(), 1);
         if (cluster_rank() == 1) mbarrier_wait(barrier(), 0);
       },
       {},
       {"bulk_copy_to_rank at cluster_faults.h:"}},
      {"copies what is not fenced",
       [](const ClusterMemory&) {
         begin(1);
         if (is_first()) mbarrier_arrive_expect_tx(barrier(), 128);
         numbers()[threadIdx.x] = 1;
         cluster_sync();
         if (is_first()) bulk_copy_to_rank(numbers() + 64, numbers(), 128, barrier(), 1 - cluster_rank());
         mbarrier_wait(barrier(), 0);
         cluster_sync();
       },
       {},
       {"wrote at cluster_faults.h:", "bulk_copy_to_rank at cluster_faults.h:", "calls fence_proxy_async"}},
      {"overwrites what is still copied",
       [](const ClusterMemory&) {
         begin(1);
         if (is_first()) mbarrier_arrive_expect_tx(barrier(), 128);
         cluster_sync();
         if (is_first()) bulk_copy_to_rank(numbers() + 64, numbers(), 128, barrier(), 1 - cluster_rank());
         mbarrier_wait(barrier(), 0);
         numbers()[threadIdx.x] = 1;
         cluster_sync();
       },
       {},
       {"data race between blocks of a cluster",
        "bulk_copy_to_rank at cluster_faults.h:", "nothing says that the read is over"}},
  };
  return faults;
}

/// What the simulator says of a fault, under the options that are set.
inline std::string report_of(const ClusterFault& fault) {
  constexpr std::size_t kBytes = 4096;
  void* memory[3];
  for (void*& one : memory) {
    one = sim::allocate_global(kBytes);
    std::memset(one, 0, kBytes);
    sim::note_written(one, kBytes);
  }
  const ClusterMemory all{static_cast<float*>(memory[0]), static_cast<float*>(memory[1]),
                          static_cast<float**>(memory[2])};
  std::string report;
  try {
    sim::run_grid(
        fault.blocks, fault.threads, 1024, [&] { fault.body(all); }, nullptr,
        sim::watcher_of<sim::kIsTraced>(), false, fault.blocks);
  } catch (const sim::Error& error) {
    report = error.what();
  }
  for (void* one : memory) sim::free_global(one);
  return report;
}

}  // namespace cluster_faults
}  // namespace flashbook
