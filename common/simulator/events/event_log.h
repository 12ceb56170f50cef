/// \file
/// Logs what a block does, instruction by instruction, for a page that one can step through (events/page.py).
/// Internal to the simulator.
///
/// Nothing is logged unless FLASHBOOK_SIM_EVENTS names a file; otherwise every place that would log an event
/// only tests a pointer. An observer (observer.h) sees what orders memory; a log records what a reader of the
/// source would call a step: which warp executes which instruction, on which line, and the state of the
/// barrier or tile afterwards.
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
  does,     ///< an instruction that has no other event
  waits,    ///< lanes wait at an object
  passes,   ///< the wait of these lanes is over
  arrives,  ///< an arrival, or bytes, at an object
  over,     ///< the phase of an object is over: the lanes waiting there can continue
  copies,   ///< a copy to or from an object, a tile, is in flight
  lands,    ///< it has arrived
  memory,   ///< loads, stores or atomics in the kernel's own code
  fault,    ///< a report by the simulator
};

/// An event to log.
struct Told {
  EventKind kind;
  std::string_view what;  ///< the instruction
  Location where;
  std::string object = {};  ///< name of its barrier or tile
  std::string detail = {};  ///< the object's state after the event, or other details
};

/// The accesses of one request of a warp (trace/requests.h).
struct ToldAccess {
  std::string_view what;  ///< "load", "store", "atomic", or an instruction
  Location where = {};    ///< of an instruction; otherwise see `code`
  std::uintptr_t code = 0;
  bool shared = false;
  uint32_t bytes = 0;  ///< per lane
  uint32_t lanes = 0;
  uint32_t units = 0, ideal = 0;  ///< sectors or wavefronts, and the fewest possible
};

/// The events of one block, in order. The lanes of a warp reach an instruction one after another; what they
/// do between two meetings is lined up and becomes one event.
class EventLog {
 public:
  EventLog(uint64_t block, int threads);

  /// The current thread does something. Its call stack is kept.
  void add(int thread, const Told& told);
  /// Whole warps do something, or a unit works for them asynchronously; then no call stack is kept.
  void add_warps(int first_warp, int warps, const Told& told, bool with_calls = true, uint32_t lanes = ~0u);
  /// Lanes of a warp have met.
  void converges(int warp);
  void rename(const std::string& object, const std::string& name);
  /// A report about a thread or, if that is -1, about the block. `text` is called at the end. `code` is the
  /// place, unless it is 0.
  void fault(int thread, std::uintptr_t code, std::function<std::string()> text);

  /// How many accesses a thread has made since its warp last met. The traced mode provides this, and later
  /// reports these accesses by their numbers.
  std::function<uint32_t(int thread)> count_accesses;
  /// A request of a warp, with the number of each participating lane's access.
  void access(int warp, const std::array<uint32_t, 32>& numbers, const ToldAccess& access);
  /// All accesses of these lanes have been logged.
  void forget_accesses(int warp, uint32_t lanes);

  /// Appends the log to a file, as JSON. Calls the texts of faults.
  void write(std::string& json);

 private:
  struct Event {
    EventKind kind;
    uint8_t warps;  ///< how many, from `warp` on
    int16_t warp;   ///< -1: the block
    uint32_t lanes;
    uint32_t what, place, object, detail;
  };
  /// An event since the warp's lanes last met, which other lanes may join.
  struct Open {
    uint32_t event;
    Location where;
  };
  /// Where in the order of events a thread's accesses belong.
  struct Span {
    uint32_t event;
    int thread;
    uint32_t begin, end;
  };
  /// Accesses of the same kind in one span.
  struct Accesses {
    ToldAccess access;  ///< sums of units
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
  std::vector<std::vector<Open>> open_;   ///< per warp
  std::vector<uint32_t> cursor_;          ///< per thread: how many of its warp's open events it has passed
  std::vector<int64_t> last_;             ///< per thread: its last event, or -1
  std::vector<uint32_t> noted_;           ///< per thread: accesses already in a span
  std::vector<std::vector<Span>> spans_;  ///< per warp
  std::map<uint32_t, std::vector<Accesses>> accesses_;  ///< per event
  std::map<uint32_t, std::function<std::string()>> faults_;
  bool is_full_ = false;
};

struct Launch;

/// The file that FLASHBOOK_SIM_EVENTS asks for: the events of every kernel's first launch, or of its first
/// failing one, in the blocks of FLASHBOOK_SIM_EVENTS_BLOCKS ("2", "0-3"; default: "0").
class EventFile {
 public:
  /// Null if there is no such request. Throws SettingError if a variable has an invalid value.
  static EventFile* asked();

  virtual ~EventFile() = default;
  /// `body` distinguishes launches that have no kernel.
  virtual void grid_begins(const Launch& launch, const char* body) = 0;
  /// The log of a block; null if it is not logged.
  virtual EventLog* log_of(uint64_t block, int threads) = 0;
  /// `error` is the launch's error, or empty.
  virtual void grid_ends(const std::string& error) = 0;
};

}  // namespace flashbook::sim
