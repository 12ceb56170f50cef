#include "tests/mutation/modes.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <exception>
#include <functional>
#include <system_error>

#include "common/simulator/launch.h"
#include "common/simulator/trace/trace.h"
#include "tests/mutation/trial.h"

namespace flashbook::mutation {
namespace {

constexpr uint64_t kSeeds = 4;    // random orders tried; a fault may pass under one of them
constexpr rlim_t kPatience = 20;  // seconds of CPU time; a run takes some milliseconds

/// Returns what `work` returns in its own process.
std::string in_child(const std::function<std::string()>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    const rlimit limit{kPatience, kPatience + 1};
    setrlimit(RLIMIT_CPU, &limit);
    std::string text;
    try {
      text = work();
    } catch (const std::exception& error) {
      text = error.what();
    }
    const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written == ssize_t(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, std::size_t(count));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGXCPU ? "no end after " + std::to_string(kPatience) + " s"
                                       : std::string("crash: ") + strsignal(WTERMSIG(status));
  return text;
}

}  // namespace

std::string_view name_of(Mode mode) {
  switch (mode) {
    case Mode::eager:
      return "eager";
    case Mode::lazy:
      return "lazy";
    case Mode::random:
      return "random";
    case Mode::traced:
      return "traced";
  }
  return "?";
}

namespace {

/// Describes where shared memory served a warp's requests many times more slowly than necessary, in the
/// launches since the last call; empty if nowhere. Since slowness does not affect the result, it is only
/// checked if the result is right.
std::string bank_conflicts() {
  constexpr uint64_t kMany = 4;  // times the minimum: worth padding or a swizzle
  for (const sim::LaunchTrace& launch : sim::take_trace())
    for (const sim::LineCounts& line : launch.lines)
      if (line.shared && line.counts.units >= kMany * line.counts.ideal)
        return "bank conflicts at " + line.place + (line.instruction.empty() ? "" : ", " + line.instruction) +
               ": " + std::to_string(line.counts.units / line.counts.requests) + " wavefronts per request, " +
               std::to_string(line.counts.ideal / line.counts.requests) + " would do";
  return "";
}

/// Returns whether a run computes the same sums, bit by bit, as one that does all work at once and in order.
bool same_sums(const Kernel& kernel, Attention attention, const Spec& spec) {
  const Trial trial(kernel, attention, spec);
  trial.run();
  const std::vector<std::byte> sums = trial.workspace();
  sim::options().seed = 0;
  sim::options().async = sim::Async::eager;
  trial.run();
  return trial.workspace() == sums;
}

/// Like try_once, in the given mode. `seed` is for Mode::random, at least 1; other modes ignore it.
std::string try_in(Mode mode, uint64_t seed, const Kernel& kernel, Attention attention, const Spec& spec) {
  sim::Options& options = sim::options();
  options.os_threads = 1;  // the same report every time
  options.timeout = 1;     // a run takes some milliseconds
  options.seed = mode == Mode::random ? seed : 0;
  options.async = mode == Mode::eager    ? sim::Async::eager
                  : mode == Mode::random ? sim::Async::random
                                         : sim::Async::lazy;
  if (mode != Mode::traced) sim::watcher = nullptr;
  std::string report = try_once(kernel, attention, spec);
  if (mode == Mode::traced && report.empty()) report = bank_conflicts();
  const bool has_same_sums = kernel.same_sums && spec.head_dim == 64;
  if (has_same_sums && mode != Mode::eager && report.empty() && !same_sums(kernel, attention, spec))
    report = "wrong result: the sums have other bits than in the mode eager";
  return report;
}

}  // namespace

std::string first_report(Mode mode, const Kernel& kernel, Attention attention, const Spec& spec) {
  for (uint64_t seed = 1; seed <= (mode == Mode::random ? kSeeds : 1); ++seed) {
    const std::string report = in_child([&] { return try_in(mode, seed, kernel, attention, spec); });
    if (!report.empty()) return report;
  }
  return "";
}

std::string try_in_every_way(const Kernel& kernel, Attention attention, const Spec& spec) {
  for (Mode mode : kModes)
    if (const std::string report = first_report(mode, kernel, attention, spec); !report.empty())
      return "in mode " + std::string(name_of(mode)) + ": " + report;
  return "";
}

}  // namespace flashbook::mutation
