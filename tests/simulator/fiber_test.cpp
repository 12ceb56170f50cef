#include "common/simulator/block/fiber.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace flashbook::sim {
namespace {

constexpr std::size_t kStackBytes = 64 * 1024;

/// A fiber that adds its letter to `trace` whenever it runs, and then switches to the next one.
struct Player {
  Fiber fiber;
  std::vector<char> stack = std::vector<char>(kStackBytes);
  Fiber* next = nullptr;
  std::string* trace = nullptr;
  char letter = 0;

  void start() { fiber.start(stack.data(), stack.size(), &run, this); }

  static void run(void* argument) {
    auto* self = static_cast<Player*>(argument);
    const double half = 0.5;  // a callee-saved register, or a slot on the stack, that must survive the switch
    for (int round = 0;; ++round) {
      *self->trace += char(self->letter + int(round * half * 2));
      Fiber::switch_to(self->fiber, *self->next);
    }
  }
};

TEST(Fiber, TakesTurnsAndKeepsItsLocals) {
  Fiber main;
  Player a, b;
  std::string trace;
  a.trace = b.trace = &trace;
  a.letter = 'a';
  b.letter = 'x';
  a.next = &b.fiber;
  b.next = &main;
  a.start();
  b.start();
  for (int round = 0; round < 3; ++round) Fiber::switch_to(main, a.fiber);
  EXPECT_EQ(trace, "axbycz");
}

TEST(Fiber, CanBeStartedAgainWithItsFramesDropped) {
  Fiber main;
  Player a;
  std::string trace;
  a.trace = &trace;
  a.letter = 'a';
  a.next = &main;
  for (int again = 0; again < 3; ++again) {
    a.start();
    Fiber::switch_to(main, a.fiber);
    Fiber::switch_to(main, a.fiber);
  }
  EXPECT_EQ(trace, "ababab");
}

TEST(Fiber, StacksAreAlignedForTheProcessorsVectors) {
  struct Probe {
    Fiber fiber, main;
    bool aligned = false;
    static void run(void* argument) {
      auto* self = static_cast<Probe*>(argument);
      alignas(16) volatile char local[16] = {};
      self->aligned = reinterpret_cast<std::uintptr_t>(&local) % 16 == 0;
      Fiber::leave(self->fiber, self->main);
    }
  } probe;
  std::vector<char> stack(kStackBytes + 7);
  probe.fiber.start(stack.data() + 7, kStackBytes, &Probe::run, &probe);
  Fiber::switch_to(probe.main, probe.fiber);
  EXPECT_TRUE(probe.aligned);
}

TEST(Fiber, ExceptionsAreCaughtOnItsStack) {
  struct Thrower {
    Fiber fiber, main;
    std::string caught;
    static void run(void* argument) {
      auto* self = static_cast<Thrower*>(argument);
      try {
        throw std::runtime_error("thrown on a fiber");
      } catch (const std::exception& exception) {
        self->caught = exception.what();
      }
      Fiber::leave(self->fiber, self->main);
    }
  } thrower;
  std::vector<char> stack(kStackBytes);
  thrower.fiber.start(stack.data(), stack.size(), &Thrower::run, &thrower);
  Fiber::switch_to(thrower.main, thrower.fiber);
  EXPECT_EQ(thrower.caught, "thrown on a fiber");
}

}  // namespace
}  // namespace flashbook::sim
