/// \file
/// Shared by the programs that record the simulator's events while it runs a kernel.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "common/simulator/observer.h"

namespace flashbook::testing {

/// An observer that ignores everything: override the events to record.
class QuietObserver : public sim::Observer {
 public:
  void block_begins(const sim::Block&) override {}
  void block_ends() override {}
  void touches(int, const sim::Touched&) override {}
  void reads_for_warp(int, const sim::Touched&) override {}
  void lands(int, const sim::Touched&) override {}
  void converges(int, uint32_t) override {}
  void joins(int, uint32_t) override {}
  void releases(int, const void*) override {}
  void completes(const void*) override {}
  void acquires(int, const void*) override {}
  void waits_for_launch_before(int) override {}
  void lets_dependents_launch(int) override {}
  void fences(int) override {}
  void fences_proxy(int, sim::Proxied) override {}
  uint32_t begins_async(const void*) override { return 0; }
  void touches_async(int, const void*, uint32_t, const sim::Touched&) override {}
  void knows_async_done(int, const void*, uint32_t) override {}
  void arrives_async(const void*, uint32_t) override {}
  void takes_registers(int, const void*, std::size_t, const char*, sim::Location) override {}
  void gives_back_registers(int, const void*) override {}
  void streams(int, const void*, uint32_t, const sim::Touched&) override {}
};

/// Gives every OS thread a Recorder.
template <typename Recorder>
struct RecordingWatcher : sim::Watcher {
  std::unique_ptr<sim::Observer> make_observer() override { return std::make_unique<Recorder>(); }
  void grid_begins(const sim::Launch&) override {}
  std::string grid_ends() override { return ""; }
};

}  // namespace flashbook::testing
