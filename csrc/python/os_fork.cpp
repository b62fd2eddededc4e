// Generators' mutexes across fork.
//
// A child of fork has one thread, and a copy of every mutex as it was: one that another thread of
// the parent held at that moment would be held in the child for ever, and the state behind it may
// be half written. So the forking thread takes them first, and both processes give them back.
//
// It takes them inside of fork(), by pthread_atfork: what other libraries run before and after a
// fork in Python (os.register_at_fork) may draw or seed as it likes, because nothing is held then.
// The GIL is not given up in there (since 3.13 CPython holds locks of its own by then), so no
// Python thread begins another draw; and whoever holds a generator's mutex needs no GIL to finish.

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define FS_HAS_FORK 1
#endif

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cpu_generator.h"
#include "module.h"

namespace fastseed {
namespace {

namespace py = pybind11;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::microseconds(50);
constexpr auto kTurn = std::chrono::milliseconds(5);  // as long as CPython's own switch interval

// What a fork() of this thread has to hold.
struct Fork {
  std::vector<at::Generator> generators;  // each once, in the order that pools take them too
  std::vector<bool> held;
  Clock::duration patience;
  int64_t missed = 0;  // mutexes that nobody gave back in time

  std::mutex& mutex(size_t i) const {
    return generators[i].unsafeGetGeneratorImpl()->mutex_;
  }
};

// The forks that this thread is in, the next fork() last: between Python's handlers before and
// after one, those of other libraries may fork as well. Empty otherwise, so that a fork() of other
// code is none of our business.
std::vector<std::unique_ptr<Fork>>& armed() {
  static thread_local std::vector<std::unique_ptr<Fork>> forks;
  return forks;
}

Fork* next_fork() {
  return armed().empty() ? nullptr : armed().back().get();
}

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

bool all_free(const Fork& fork) {
  for (size_t i = 0; i < fork.generators.size(); ++i) {
    if (!fork.mutex(i).try_lock()) {
      return false;
    }
    fork.mutex(i).unlock();
  }
  return true;
}

#ifdef FS_HAS_FORK

void in_front() {
  Fork* fork = next_fork();
  if (fork == nullptr) {
    return;
  }
  const Clock::time_point until = Clock::now() + fork->patience;
  for (size_t i = 0; i < fork->generators.size(); ++i) {
    bool held = fork->mutex(i).try_lock();
    while (!held && Clock::now() < until) {
      std::this_thread::sleep_for(kPause);
      held = fork->mutex(i).try_lock();
    }
    fork->held[i] = held;
    fork->missed += !held;
  }
}

void give_back(Fork& fork) {
  for (size_t i = 0; i < fork.generators.size(); ++i) {
    if (fork.held[i]) {
      fork.mutex(i).unlock();
      fork.held[i] = false;
    }
  }
}

void in_parent() {
  if (Fork* fork = next_fork()) {
    give_back(*fork);
  }
}

// A mutex that we did not get has no owner here: it is made anew, and the words behind it, which
// may be half written, are drawn from no further than their end.
void in_child() {
  Fork* fork = next_fork();
  if (fork == nullptr) {
    return;
  }
  for (size_t i = 0; i < fork->generators.size(); ++i) {
    if (fork->held[i]) {
      continue;
    }
    new (&fork->mutex(i)) std::mutex;
    c10::GeneratorImpl* impl = fork->generators[i].unsafeGetGeneratorImpl();
    if (auto* cpu = dynamic_cast<at::CPUGeneratorImpl*>(impl)) {
      at::mt19937_data_pod& data = engine_data(*cpu);
      data.left_ = 1;
      data.next_ = 0;
    }
  }
  give_back(*fork);
}

void install() {
  static const int failed = pthread_atfork(in_front, in_parent, in_child);
  if (failed != 0) {
    throw std::runtime_error("fastseed: pthread_atfork has no memory");
  }
}

#else

void install() {}

#endif

// Let the next fork() of this thread hold the mutexes of torch's default CPU generator and of
// `generators`, for which it will wait `patience` seconds at most. Now, while other Python threads
// can still run, wait up to `settle` seconds until none is held; false where one always was.
bool before_fork(const std::vector<at::Generator>& generators, double settle, double patience) {
  install();
  auto fork = std::make_unique<Fork>();
  fork->generators = generators;
  fork->generators.push_back(at::detail::getDefaultCPUGenerator());
  const auto address = [](const at::Generator& g) { return g.unsafeGetGeneratorImpl(); };
  std::sort(
      fork->generators.begin(), fork->generators.end(),
      [&](const at::Generator& a, const at::Generator& b) { return address(a) < address(b); });
  fork->generators.erase(std::unique(fork->generators.begin(), fork->generators.end(),
                                     [&](const at::Generator& a, const at::Generator& b) {
                                       return address(a) == address(b);
                                     }),
                         fork->generators.end());
  fork->held.assign(fork->generators.size(), false);
  fork->patience = seconds(patience);
  const Clock::time_point until = Clock::now() + seconds(settle);
  bool free = all_free(*fork);
  while (!free && Clock::now() < until) {
    {
      py::gil_scoped_release release;
      std::this_thread::sleep_for(kTurn);
    }
    // With the GIL: a thread that draws again and again now has to wait after its next draw.
    const Clock::time_point turn = Clock::now() + kTurn;
    while (!(free = all_free(*fork)) && Clock::now() < turn) {
      std::this_thread::sleep_for(kPause);
    }
  }
  armed().push_back(std::move(fork));
  return free;
}

// In both processes: how many mutexes had to be left to others (and, in a child, were made anew).
int64_t after_fork() {
  if (armed().empty()) {
    return 0;
  }
  const std::unique_ptr<Fork> fork = std::move(armed().back());
  armed().pop_back();
  return fork->missed;
}

}  // namespace

void add_fork_calls(py::module_& m) {
  m.def("before_fork", &before_fork);
  m.def("after_fork", &after_fork);
}

}  // namespace fastseed
