#include "common/simulator/events/event_log.h"

#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>

#include "common/simulator/describe.h"
#include "common/simulator/launch.h"
#include "common/simulator/observer.h"
#include "common/simulator/source_lines.h"

namespace flashbook::sim {
namespace {

/// The maximum number per block: a page with more events opens slowly.
constexpr std::size_t kMaxEvents = 200'000;
constexpr std::size_t kMaxCalls = 24;

/// Returns the call stack, innermost first, as offsets in the program's file.
std::vector<std::uintptr_t> calls() {
  std::vector<std::uintptr_t> code;
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* result) {
        auto& code = *static_cast<std::vector<std::uintptr_t>*>(result);
        int before = 0;
        const std::uintptr_t address = _Unwind_GetIPInfo(context, &before);
        if (!address) return _URC_END_OF_STACK;
        // A return address points to the instruction after the call, which may belong to the next line.
        code.push_back(offset_in_program(reinterpret_cast<const void*>(address - (before ? 0 : 1))));
        return code.size() < kMaxCalls ? _URC_NO_REASON : _URC_END_OF_STACK;
      },
      &code);
  // Removes the entries of this function and its caller.
  code.erase(code.begin(), code.begin() + std::ptrdiff_t(std::min<std::size_t>(code.size(), 2)));
  return code;
}

void append_text(std::string& json, std::string_view text) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    if (c == '\n')
      json += "\\n";
    else if (static_cast<unsigned char>(c) >= ' ')
      json += c;
  }
  json += '"';
}

template <typename... Numbers>
void append_row(std::string& json, Numbers... numbers) {
  json += json.back() == '[' ? "[" : ",\n[";
  const char* comma = "";
  ((json += comma + std::to_string(numbers), comma = ","), ...);
  json += ']';
}

/// Returns a text such as "12 loads of 4 bytes per lane, shared memory: 24 wavefronts, 12 would do".
std::string describe(const ToldAccess& access, uint32_t times) {
  const std::string what(access.what);
  const char* unit = access.shared ? "wavefront" : "sector";
  std::string text = std::to_string(times) + (times == 1 ? " request of " : " requests of ") +
                     std::to_string(access.bytes) + " bytes per lane, " +
                     (access.shared ? "shared" : "device") + " memory: " + std::to_string(access.units) +
                     " " + unit + (access.units == 1 ? "" : "s");
  if (access.units > access.ideal) text += ", where " + std::to_string(access.ideal) + " would do";
  return text;
}

}  // namespace

EventLog::EventLog(uint64_t block, int threads)
    : block_(block),
      open_(std::size_t(threads + 31) / 32),
      cursor_(std::size_t(threads)),
      last_(std::size_t(threads), -1),
      noted_(std::size_t(threads)),
      spans_(open_.size()) {
  number_of("");
}

uint32_t EventLog::number_of(std::string_view text) {
  const auto known = text_numbers_.find(text);
  if (known != text_numbers_.end()) return known->second;
  texts_.emplace_back(text);
  return text_numbers_[texts_.back()] = uint32_t(texts_.size() - 1);
}

uint32_t EventLog::place_of(Location where, std::vector<std::uintptr_t> code) {
  Place place{std::pair{where.file, where.line}, std::move(code)};
  const auto [known, is_new] = place_numbers_.try_emplace(std::move(place), uint32_t(places_.size()));
  if (is_new) places_.push_back(known->first);
  return known->second;
}

/// Returns whether there is room for another event. Faults are always kept.
bool EventLog::has_room() {
  is_full_ = is_full_ || events_.size() >= kMaxEvents;
  return !is_full_;
}

void EventLog::add(int thread, const Told& told) {
  if (!has_room()) return;
  const auto warp = std::size_t(thread / 32), self = std::size_t(thread);
  const uint32_t own = 1u << thread % 32, what = number_of(told.what), object = number_of(told.object);
  const auto is_told = [&](const Event& event) {
    return event.kind == told.kind && event.what == what && event.object == object;
  };
  // A loop that polls is logged as a wait.
  if (told.what == "mbarrier_try_wait" && told.kind == EventKind::waits && last_[self] >= 0 &&
      is_told(events_[std::size_t(last_[self])]))
    return;
  std::vector<Open>& open = open_[warp];
  for (uint32_t i = cursor_[self]; i < open.size(); ++i) {
    Event& event = events_[open[i].event];
    if (!is_told(event) || (event.lanes & own) || !same_place(open[i].where, told.where)) continue;
    event.lanes |= own;
    event.detail = number_of(told.detail);
    cursor_[self] = i + 1;
    last_[self] = open[i].event;
    return;
  }
  note_accesses(thread);
  open.push_back({uint32_t(events_.size()), told.where});
  cursor_[self] = uint32_t(open.size());
  last_[self] = int64_t(events_.size());
  events_.push_back({told.kind, 1, int16_t(warp), own, what, place_of(told.where, calls()), object,
                     number_of(told.detail)});
}

void EventLog::add_warps(int first_warp, int warps, const Told& told, bool with_calls, uint32_t lanes) {
  if (!has_room()) return;
  if (with_calls)
    for (int warp = first_warp; warp < first_warp + warps; ++warp) note_accesses(warp * 32);
  events_.push_back({told.kind, uint8_t(warps), int16_t(first_warp), lanes, number_of(told.what),
                     place_of(told.where, with_calls ? calls() : std::vector<std::uintptr_t>()),
                     number_of(told.object), number_of(told.detail)});
}

void EventLog::converges(int warp) {
  open_[std::size_t(warp)].clear();
  const auto first = std::size_t(warp) * 32;
  std::fill(cursor_.begin() + std::ptrdiff_t(first),
            cursor_.begin() + std::ptrdiff_t(std::min(first + 32, cursor_.size())), 0);
}

void EventLog::rename(const std::string& object, const std::string& name) {
  const uint32_t number = number_of(object);
  text_numbers_.erase(object);
  texts_[number] = name;
  text_numbers_[name] = number;
}

void EventLog::fault(int thread, std::uintptr_t code, std::function<std::string()> text) {
  const auto event = uint32_t(events_.size());
  faults_[event] = std::move(text);
  events_.push_back({EventKind::fault, 1, int16_t(thread < 0 ? -1 : thread / 32),
                     thread < 0 ? 0 : 1u << thread % 32, number_of("fault"),
                     place_of({}, code ? std::vector{code} : std::vector<std::uintptr_t>()), 0, 0});
}

/// Logs the accesses that a thread has made since its last event, before its next event.
void EventLog::note_accesses(int thread) {
  if (!count_accesses || std::size_t(thread) >= noted_.size()) return;
  uint32_t& noted = noted_[std::size_t(thread)];
  const uint32_t count = count_accesses(thread);
  if (count <= noted) return;
  const auto warp = std::size_t(thread / 32);
  spans_[warp].push_back({uint32_t(events_.size()), thread, noted, count});
  events_.push_back({EventKind::memory, 1, int16_t(warp), 0, 0, 0, 0, 0});
  noted = count;
}

void EventLog::access(int warp, const std::array<uint32_t, 32>& numbers, const ToldAccess& access) {
  std::vector<Span>& spans = spans_[std::size_t(warp)];
  const auto holds = [&](const Span& span) {
    const int lane = span.thread % 32;
    const uint32_t number = numbers[std::size_t(lane)];
    return (access.lanes >> lane & 1) != 0 && span.begin <= number && number < span.end;
  };
  auto span = std::find_if(spans.begin(), spans.end(), holds);
  if (span == spans.end()) {
    if (!has_room()) return;
    note_accesses(warp * 32 + __builtin_ctz(access.lanes));
    span = std::find_if(spans.begin(), spans.end(), holds);
    if (span == spans.end()) return;
  }
  std::vector<Accesses>& known = accesses_[span->event];
  for (Accesses& other : known) {
    ToldAccess& sum = other.access;
    if (sum.what != access.what || sum.code != access.code || sum.where.line != access.where.line ||
        sum.shared != access.shared || sum.bytes != access.bytes)
      continue;
    sum.lanes |= access.lanes;
    sum.units += access.units;
    sum.ideal += access.ideal;
    ++other.times;
    return;
  }
  known.push_back({access, 1});
}

void EventLog::forget_accesses(int warp, uint32_t lanes) {
  std::erase_if(spans_[std::size_t(warp)],
                [&](const Span& span) { return (lanes >> span.thread % 32 & 1) != 0; });
  for (; lanes; lanes &= lanes - 1)
    if (const auto thread = std::size_t(warp * 32 + __builtin_ctz(lanes)); thread < noted_.size())
      noted_[thread] = 0;
}

void EventLog::write(std::string& json) {
  json += "{\"block\":" + std::to_string(block_) + ",\"warps\":" + std::to_string(open_.size()) +
          ",\"full\":" + (is_full_ ? std::to_string(kMaxEvents) : "0") + ",\"events\":[";
  for (uint32_t i = 0; i < events_.size(); ++i) {
    Event event = events_[i];
    const auto row = [&] {
      append_row(json, int(event.kind), int(event.warp), int(event.warps), event.lanes, event.what,
                 event.place, event.object, event.detail);
    };
    if (event.kind == EventKind::memory) {
      const auto found = accesses_.find(i);
      if (found == accesses_.end()) continue;
      for (const auto& [access, times] : found->second) {
        event.lanes = access.lanes;
        event.what = number_of(access.what);
        event.place =
            place_of(access.where, access.code ? std::vector{access.code} : std::vector<std::uintptr_t>());
        event.detail = number_of(describe(access, times));
        row();
      }
      continue;
    }
    if (event.kind == EventKind::fault) event.detail = number_of(faults_.at(i)());
    row();
  }
  json += "],\n\"texts\":[";
  for (const std::string& text : texts_) {
    if (json.back() != '[') json += ',';
    append_text(json, text);
  }
  json += "],\n\"places\":[";
  for (const auto& [where, code] : places_) {
    json += json.back() == '[' ? "[" : ",[";
    append_text(json, where.first);
    json += "," + std::to_string(where.second) + ",[";
    for (const std::uintptr_t offset : code) {
      if (json.back() != '[') json += ',';
      json += std::to_string(offset);
    }
    json += "]]";
  }
  json += "]}";
}

namespace {

class File final : public EventFile {
 public:
  explicit File(const char* path) : path_(path) {
    if (!std::ofstream(path_))
      throw SettingError("FLASHBOOK_SIM_EVENTS=" + path_ +
                         ": that file cannot be written: name one in a directory that exists");
    const char* blocks = std::getenv("FLASHBOOK_SIM_EVENTS_BLOCKS");
    if (!blocks) return;
    const char* end = blocks + std::strlen(blocks);
    auto parsed = std::from_chars(blocks, end, first_);
    last_ = first_;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-')
      parsed = std::from_chars(parsed.ptr + 1, end, last_);
    if (parsed.ec != std::errc() || parsed.ptr != end || last_ < first_ || last_ - first_ >= kMaxBlocks)
      throw SettingError(std::string("FLASHBOOK_SIM_EVENTS_BLOCKS=") + blocks +
                         ": give a block, or a range of at most " + std::to_string(kMaxBlocks) +
                         ", as in 0-1");
  }

  void grid_begins(const Launch& launch, const char* body) override {
    logs_.clear();
    now_ = {launch.kernel ? offset_in_program(launch.kernel) : 0, launch.kernel ? "" : body, launch.grid,
            launch.block, launch.dynamic_shared_bytes};
  }

  EventLog* log_of(uint64_t block, int threads) override {
    if (block < first_ || block > last_) return nullptr;
    const std::lock_guard lock(mutex_);
    return &logs_.try_emplace(block, block, threads).first->second;
  }

  void grid_ends(const std::string& error) override {
    auto& known = kernels_[{now_.kernel, now_.body}];
    ++known.launches;
    if (known.launches > 1 && (error.empty() || known.is_wrong)) return;
    known.is_wrong = !error.empty();
    known.number = known.launches;
    std::string& json = known.json;
    json = "{\"kernel\":" + std::to_string(now_.kernel) + ",\"launch\":" + std::to_string(known.launches);
    for (const auto& [name, size] : {std::pair("grid", now_.grid), std::pair("block", now_.block)})
      json += std::string(",\"") + name + "\":[" + std::to_string(size.x) + "," + std::to_string(size.y) +
              "," + std::to_string(size.z) + "]";
    json += ",\"shared\":" + std::to_string(now_.shared) + ",\"error\":";
    append_text(json, error);
    json += ",\"blocks\":[";
    for (auto& [block, log] : logs_) {
      if (json.back() != '[') json += ",\n";
      log.write(json);
    }
    json += "]}";
    write();  // writes now, since a program may end without notice
  }

 private:
  static constexpr uint64_t kMaxBlocks = 64;
  struct Now {
    std::uintptr_t kernel = 0;
    std::string body;
    dim3 grid, block;
    std::size_t shared = 0;
  };
  struct Kernel {
    uint64_t launches = 0, number = 0;
    bool is_wrong = false;
    std::string json;
  };

  void write() const {
    char program[4096] = "";
    const auto length = readlink("/proc/self/exe", program, sizeof program - 1);
    std::string json = "{\"version\":1,\"program\":";
    append_text(json, {program, std::size_t(std::max<ssize_t>(0, length))});
    json += ",\"launches\":[";
    for (const auto& [key, kernel] : kernels_) {
      if (json.back() != '[') json += ",\n";
      json += kernel.json;
    }
    std::ofstream(path_) << json << "]}\n";
  }

  std::string path_;
  uint64_t first_ = 0, last_ = 0;
  std::mutex mutex_;  ///< this mutex protects the logs
  std::map<uint64_t, EventLog> logs_;
  Now now_;
  std::map<std::pair<std::uintptr_t, std::string>, Kernel> kernels_;
};

}  // namespace

EventFile* EventFile::asked() {
  static EventFile* const file = [] {
    const char* path = std::getenv("FLASHBOOK_SIM_EVENTS");
    return path ? new File(path) : nullptr;
  }();
  return file;
}

}  // namespace flashbook::sim
