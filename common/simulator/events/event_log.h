/// \file
/// Logs the actions of a block, instruction by instruction, for a page that can be stepped through
/// (events/page.py). Internal to the simulator.
///
/// Nothing is logged unless FLASHBOOK_SIM_EVENTS names a file; otherwise every place that would log an event
/// only tests a pointer. An observer (observer.h) sees everything that orders memory accesses, whereas a log
/// records the steps that a reader of the source would count: which warp executes which instruction, on which
/// line, and the state of the barrier or tile afterwards.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/simulator/location.h"

namespace flashbook::sim {

enum class EventKind : uint8_t {
  starts,   ///< lanes begin
  exits,    ///< lanes have finished
  does,     ///< an instruction without an event of its own
  waits,    ///< lanes wait at an object
  passes,   ///< the wait of these lanes has ended
  arrives,  ///< an arrival at an object, or bytes that have landed there
  over,     ///< the phase of an object has completed: lanes that wait there can continue
  copies,   ///< a copy to or from an object (a tile) is in flight
  lands,    ///< the copy has landed
  memory,   ///< loads, stores or atomics in the kernel's own code
  fault,    ///< a report from the simulator
};

/// An event to be logged.
struct Told {
  EventKind kind;
  std::string_view what;  ///< name of the instruction
  Location where;
  std::string object = {};  ///< name of its barrier or tile
  std::string detail = {};  ///< the object's state after the event, or other details
};

/// The accesses that make up one request of a warp (trace/requests.h).
struct ToldAccess {
  std::string_view what;  ///< "load", "store", "atomic", or an instruction
  Location where = {};    ///< location of an instruction; for other accesses, see `code`
  std::uintptr_t code = 0;
  bool shared = false;
  uint32_t bytes = 0;  ///< bytes per lane
  uint32_t lanes = 0;
  uint32_t units = 0, ideal = 0;  ///< sectors or wavefronts, and the minimum possible
};

/// The events of one block, in order. The lanes of a warp reach an instruction one after another; their
/// actions between two points of convergence are aligned and merged into one event.
class EventLog {
 public:
  EventLog(uint64_t block, int threads);

  /// Logs an action of the current thread, with its call stack.
  void add(int thread, const Told& told);
  /// Logs an action of whole warps, or of an asynchronous unit that works for them, without a call stack.
  void add_warps(int first_warp, int warps, const Told& told, bool with_calls = true, uint32_t lanes = ~0u);
  /// Notes that lanes of a warp have converged.
  void converges(int warp);
  void rename(const std::string& object, const std::string& name);
  /// Logs a report about a thread or, if `thread` is -1, about the block. `text` is called at the end. `code`
  /// is the address of the faulty code, or 0 if unknown.
  void fault(int thread, std::uintptr_t code, std::function<std::string()> text);

  /// Returns the number of accesses that a thread has made since its warp last converged. The traced mode
  /// sets this function, and later reports those accesses by their numbers.
  std::function<uint32_t(int thread)> count_accesses;
  /// Logs a request of a warp, with the number of each participating lane's access.
  void access(int warp, const std::array<uint32_t, 32>& numbers, const ToldAccess& access);
  /// Notes that all accesses of these lanes have been logged.
  void forget_accesses(int warp, uint32_t lanes);

  /// Appends the log to a file, as JSON. Calls the `text` functions of all faults.
  void write(std::string& json);

 private:
  struct Event {
    EventKind kind;
    uint8_t warps;  ///< number of warps, starting at `warp`
    int16_t warp;   ///< -1 for an event of the block
    uint32_t lanes;
    uint32_t what, place, object, detail;
  };
  /// An event since the warp's lanes last converged, which other lanes may still join.
  struct Open {
    uint32_t event;
    Location where;
  };
  /// The position of a thread's accesses relative to the events.
  struct Span {
    uint32_t event;
    int thread;
    uint32_t begin, end;
  };
  /// Accesses of the same kind within one span.
  struct Accesses {
    ToldAccess access;  ///< its units are the sum over all of the accesses
    uint32_t times;
  };
  using Place = std::pair<std::pair<std::string, int>, std::vector<std::uintptr_t>>;

  uint32_t number_of(std::string_view text);
  uint32_t place_of(Location where, std::vector<std::uintptr_t> code);
  void note_accesses(int thread);
  bool has_room();

  uint64_t block_;
  std::vector<Event> events_;
  std::vector<std::string> texts_;
  std::map<std::string, uint32_t, std::less<>> text_numbers_;
  std::vector<Place> places_;
  std::map<Place, uint32_t> place_numbers_;
  std::vector<std::vector<Open>> open_;   ///< open events of each warp
  std::vector<uint32_t> cursor_;          ///< per thread: number of its warp's open events that it has passed
  std::vector<int64_t> last_;             ///< last event of each thread, or -1
  std::vector<uint32_t> noted_;           ///< per thread: number of accesses already in a span
  std::vector<std::vector<Span>> spans_;  ///< spans of each warp
  std::map<uint32_t, std::vector<Accesses>> accesses_;  ///< accesses of each event
  std::map<uint32_t, std::function<std::string()>> faults_;
  bool is_full_ = false;
};

struct Launch;

/// The file named by FLASHBOOK_SIM_EVENTS: the events of each kernel's first launch, or of its first launch
/// that fails, in the blocks that FLASHBOOK_SIM_EVENTS_BLOCKS selects ("2", "0-3"; default: "0").
class EventFile {
 public:
  /// Returns null if no file is named. Throws SettingError if a variable has an invalid value.
  static EventFile* asked();

  virtual ~EventFile() = default;
  /// `body` distinguishes launches that have no kernel.
  virtual void grid_begins(const Launch& launch, const char* body) = 0;
  /// Returns the log of a block; null if the block is not logged.
  virtual EventLog* log_of(uint64_t block, int threads) = 0;
  /// `error` is the launch's error; empty if none.
  virtual void grid_ends(const std::string& error) = 0;
};

}  // namespace flashbook::sim
