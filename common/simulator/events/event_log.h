/// \file
/// What a block does, instruction by instruction, for a page that one steps through (events/page.py).
/// Internal to the simulator.
///
/// Nothing is written down unless FLASHBOOK_SIM_EVENTS names a file; else each place that would tell of an
/// event tests a pointer. An observer (observer.h) learns what orders memory; a log learns what a reader of
/// the source would call a step: which warp executes which instruction, in which line, and how the barrier or
/// the tile stands then.
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

/// What an event does to how things stand.
enum class EventKind : uint8_t {
  starts,   ///< lanes begin
  exits,    ///< lanes are through
  does,     ///< an instruction that nobody else notices
  waits,    ///< lanes wait at an object
  passes,   ///< lanes have found over what they waited for
  arrives,  ///< an arrival, or bytes, at an object
  over,     ///< the phase of an object is over: who waits there can go on
  copies,   ///< a copy to or from an object, a tile, is on its way
  lands,    ///< it has arrived
  memory,   ///< loads, stores or atomics of the kernel's own text
  fault,    ///< what the simulator reports
};

/// Something to write down.
struct Told {
  EventKind kind;
  std::string_view what;  ///< the instruction
  Location where;
  std::string object = {};  ///< its barrier or tile, by name
  std::string detail = {};  ///< how that stands now, or what else is to be said
};

/// The accesses of one request of a warp (trace/requests.h).
struct ToldAccess {
  std::string_view what;  ///< "load", "store", "atomic", or an instruction
  Location where = {};    ///< of an instruction; else `code` says it
  std::uintptr_t code = 0;
  bool shared = false;
  uint32_t bytes = 0;  ///< a lane
  uint32_t lanes = 0;
  uint32_t units = 0, ideal = 0;  ///< sectors or wavefronts, and how few it could be
};

/// The events of one block, in the order in which they happen. The lanes of a warp come to an instruction one
/// after another; what they do between two meetings is lined up, and is one event.
class EventLog {
 public:
  EventLog(uint64_t block, int threads);

  /// A thread, which runs, does something. The calls that led there are kept.
  void add(int thread, const Told& told);
  /// Whole warps do, or something does that works for them beside the threads: no calls are kept then.
  void add_warps(int first_warp, int warps, const Told& told, bool with_calls = true, uint32_t lanes = ~0u);
  /// Lanes of a warp have met.
  void converges(int warp);
  /// An object gets a name.
  void rename(const std::string& object, const std::string& name);
  /// The simulator reports something about a thread, or, if that is -1, about the block. `text` is asked for
  /// at the end. `code` is where it happened, unless it is 0.
  void fault(int thread, std::uintptr_t code, std::function<std::string()> text);

  /// How many accesses a thread has made since its warp last met: the traced mode says so, and later, by
  /// their numbers, what they were.
  std::function<uint32_t(int thread)> count_accesses;
  /// A request of a warp: of each lane that takes part, which of its accesses it is.
  void access(int warp, const std::array<uint32_t, 32>& numbers, const ToldAccess& access);
  /// All accesses of these lanes have been told.
  void forget_accesses(int warp, uint32_t lanes);

  /// Appends the log to a file, as JSON. Texts of faults are asked for here.
  void write(std::string& json);

 private:
  struct Event {
    EventKind kind;
    uint8_t warps;  ///< how many, from `warp` on
    int16_t warp;   ///< -1: the block
    uint32_t lanes;
    uint32_t what, place, object, detail;
  };
  /// An event since the last meeting of its warp's lanes, which other lanes may come to.
  struct Open {
    uint32_t event;
    Location where;
  };
  /// Where, in the order of events, accesses of a thread belong.
  struct Span {
    uint32_t event;
    int thread;
    uint32_t begin, end;
  };
  /// What is alike in one span.
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
  std::vector<std::vector<Open>> open_;   ///< of each warp
  std::vector<uint32_t> cursor_;          ///< of each thread: so many of its warp's it has come by
  std::vector<int64_t> last_;             ///< of each thread: its last event, or -1
  std::vector<uint32_t> noted_;           ///< of each thread: accesses that a span has
  std::vector<std::vector<Span>> spans_;  ///< of each warp
  std::map<uint32_t, std::vector<Accesses>> accesses_;  ///< of an event
  std::map<uint32_t, std::function<std::string()>> faults_;
  bool is_full_ = false;
};

struct Launch;

/// What FLASHBOOK_SIM_EVENTS asks for: a file with the events of every kernel's first launch, or of its first
/// that goes wrong; of blocks FLASHBOOK_SIM_EVENTS_BLOCKS ("2", "0-3"; default: "0").
class EventFile {
 public:
  /// Null if nobody asks. Throws SettingError if a variable holds nothing that makes sense.
  static EventFile* asked();

  virtual ~EventFile() = default;
  /// `body` tells launches of no kernel apart.
  virtual void grid_begins(const Launch& launch, const char* body) = 0;
  /// The log of a block; null if it is not to be watched.
  virtual EventLog* log_of(uint64_t block, int threads) = 0;
  /// `error` is what the launch throws, or empty.
  virtual void grid_ends(const std::string& error) = 0;
};

}  // namespace flashbook::sim
