// Generators' mutexes across fork(): the forking thread takes them, both processes release them.
//
// They are taken inside fork() by pthread_atfork, with the GIL held: no Python code runs between
// that and the fork, so no thread holds the GIL while it waits for one of these mutexes.
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "cpu_generator.h"
#include "module.h"

namespace fastseed {
namespace {

// What the next fork() of this thread holds, in the order of addresses, each generator once.
thread_local std::vector<at::Generator> held;

std::mutex& mutex_of(const at::Generator& generator) {
  return generator.unsafeGetGeneratorImpl()->mutex_;
}

void lock_held() {
  for (const at::Generator& generator : held) {
    mutex_of(generator).lock();
  }
}

void unlock_held() {
  for (const at::Generator& generator : held) {
    mutex_of(generator).unlock();
  }
  held.clear();
}

void hold_across_fork(std::vector<at::Generator> generators) {
  static const int installed = pthread_atfork(lock_held, unlock_held, unlock_held);
  TORCH_CHECK(installed == 0, "fastseed: pthread_atfork failed");
  generators.push_back(at::detail::getDefaultCPUGenerator());
  const auto before = [](const at::Generator& a, const at::Generator& b) {
    return a.unsafeGetGeneratorImpl() < b.unsafeGetGeneratorImpl();
  };
  std::sort(generators.begin(), generators.end(), before);
  generators.erase(std::unique(generators.begin(), generators.end()), generators.end());
  held = std::move(generators);
}

}  // namespace

void add_fork_calls(pybind11::module_& m) {
  m.def("hold_across_fork", &hold_across_fork);
}

}  // namespace fastseed
