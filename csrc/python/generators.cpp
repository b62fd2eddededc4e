// Giving keys to torch's generators, one or many. Needs ATen, because the stable ABI cannot set a
// generator's state; so this module is built for one torch.
#include <ATen/Context.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "../core/shuffle.h"
#include "../ops/parallel.h"
#include "cpu_generator.h"
#include "default_generators.h"
#include "direct.h"

namespace fastseed {
namespace {

namespace py = pybind11;

// A key for whatever kind of generator it is: the full state of torch's own CPU generators, seed
// `lo` and offset 0 for the counter-based ones and for those of other libraries.
void reseed_any(at::Generator gen, Key key) {
  if (auto* cpu = dynamic_cast<at::CPUGeneratorImpl*>(gen.unsafeGetGeneratorImpl())) {
    reseed_cpu(*cpu, key);
    return;
  }
  std::lock_guard<std::mutex> lock(gen.mutex());
  gen.set_current_seed(key.lo);
}

// A number that is another one after the default generator of the CPU has drawn.
uint64_t cpu_position() {
  auto& gen = *at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>();
  std::lock_guard<std::mutex> lock(gen.mutex_);
  const at::mt19937_data_pod& data = engine_data(gen);
  const uint64_t cached = (gen.next_float_normal_sample() ? 1 : 0) |
                          (gen.next_double_normal_sample() ? 2 : 0) | data.next_ << 2;
  return (uint64_t{data.state_[0]} << 32 | data.state_[396]) ^ cached << 16;
}

// Many generators behind one handle, so that a call converts nothing.
//
// A generator may stand in the list more than once: as in a loop over the list, the last of its
// places decides. Each is visited once, in the order of addresses; where several mutexes are held
// at a time they are taken in that order, which every pool shares, so no two can wait for each
// other.
class Pool {
 public:
  explicit Pool(std::vector<at::Generator> generators) : generators_(std::move(generators)) {
    std::vector<Member> all;
    for (size_t i = 0; i < generators_.size(); ++i) {
      all.push_back(Member{generators_[i].unsafeGetGeneratorImpl(), static_cast<int64_t>(i)});
    }
    std::sort(all.begin(), all.end(), [](const Member& a, const Member& b) {
      return a.impl != b.impl ? a.impl < b.impl : a.index < b.index;
    });
    for (size_t i = 0; i < all.size(); ++i) {
      if (i + 1 < all.size() && all[i + 1].impl == all[i].impl) {
        continue;
      }
      if (dynamic_cast<at::CPUGeneratorImpl*>(all[i].impl) != nullptr) {
        cpu_.push_back(all[i]);
      } else {
        others_.push_back(all[i]);
      }
    }
  }

  int64_t size() const {
    return static_cast<int64_t>(generators_.size());
  }

  void reseed(const Stream& stream) const {
    std::vector<uint64_t> keys(2 * generators_.size());
    loops->derive_keys(stream, 0, size(), keys.data());
    const auto key = [&](int64_t i) { return Key{keys[2 * i], keys[2 * i + 1]}; };
    parallel(static_cast<int64_t>(cpu_.size()), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        reseed_cpu(cpu(i), key(cpu_[i].index));
      }
    });
    for (const Member& m : others_) {
      reseed_any(generators_[m.index], key(m.index));
    }
  }

  void manual_seed(const uint64_t* seeds) const {
    parallel(static_cast<int64_t>(cpu_.size()), kGrain, [&](int64_t begin, int64_t end) {
      const int64_t width = loops->init_width();
      for (int64_t i = begin; i < end; i += width) {
        init_together(seeds, i, std::min(width, end - i), std::min(i + 2 * width, end));
      }
    });
    for (const Member& m : others_) {
      std::lock_guard<std::mutex> lock(m.impl->mutex_);
      m.impl->set_current_seed(seeds[m.index]);
    }
  }

 private:
  struct Member {
    c10::GeneratorImpl* impl;
    int64_t index;
  };

  static constexpr int64_t kGrain = 64;  // generators a thread is worth waking for

  at::CPUGeneratorImpl& cpu(int64_t i) const {
    return *static_cast<at::CPUGeneratorImpl*>(cpu_[i].impl);
  }

  // Members first to first + n - 1, at most kMaxInitWidth; those up to `soon` may be asked for in
  // advance.
  void init_together(const uint64_t* seeds, int64_t first, int64_t n, int64_t soon) const {
    std::unique_lock<std::mutex> locks[kMaxInitWidth];
    uint32_t low[kMaxInitWidth] = {};
    uint32_t* states[kMaxInitWidth] = {};
    uint32_t* next[kMaxInitWidth] = {};
    for (int64_t k = 0; k < n; ++k) {
      const uint64_t seed = seeds[cpu_[first + k].index];
      at::CPUGeneratorImpl& gen = cpu(first + k);
      locks[k] = std::unique_lock<std::mutex>(gen.mutex_);
      at::mt19937_data_pod& data = engine_data(gen);
      begin_state(data, seed);
      forget_cached_normals(gen);
      low[k] = static_cast<uint32_t>(seed);
      states[k] = data.state_.data();
      next[k] = first + n + k < soon ? engine_data(cpu(first + n + k)).state_.data() : states[k];
    }
    loops->mt19937_init(low, states, next, static_cast<int>(n));
  }

  std::vector<at::Generator> generators_;
  std::vector<Member> cpu_, others_;
};

const at::AcceleratorHooksInterface& hooks_of(const std::string& type) {
  const c10::DeviceType device = c10::Device(type).type();
  return at::globalContext().getAcceleratorHooksInterface(device);
}

// Every default generator of this device type, in the order of ordinals. Initializes nothing.
std::vector<at::Generator> default_generators(const std::string& type) {
  const at::AcceleratorHooksInterface& hooks = hooks_of(type);
  std::vector<at::Generator> generators;
  for (c10::DeviceIndex i = 0; i < hooks.deviceCount(); ++i) {
    generators.push_back(hooks.getDefaultGenerator(i));
  }
  return generators;
}

// Each of them takes the seed of its ordinal relative to the current device, at offset 0.
void reseed_defaults(const std::string& type, int64_t current, const Stream& stream) {
  const std::vector<at::Generator> generators = default_generators(type);
  const int64_t count = static_cast<int64_t>(generators.size());
  for (int64_t i = 0; i < count; ++i) {
    const at::Generator& gen = generators[static_cast<size_t>(i)];
    const int64_t relative = ((i - current) % count + count) % count;
    std::lock_guard<std::mutex> lock(gen.unsafeGetGeneratorImpl()->mutex_);
    gen.unsafeGetGeneratorImpl()->set_current_seed(
        stream_key(stream, static_cast<uint64_t>(relative)).lo);
  }
}

}  // namespace
}  // namespace fastseed

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace fastseed;
  m.doc() = "Keys for the generators of this process (see csrc/python/generators.cpp).";

  // CPython's own calls: after a training step, whose code and data fill the caches, a call through
  // pybind11 costs more than the derivation.
  const auto fast = [](auto* function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
  };
  static PyMethodDef functions[] = {
      {"reseed_defaults_of_cpu", fast(&reseed_defaults_of_cpu), METH_FASTCALL, nullptr},
      {"reseed_sample_of_cpu", fast(&reseed_sample_of_cpu), METH_FASTCALL, nullptr},
      {"call_directly", fast(&call_directly), METH_FASTCALL, nullptr},
      {nullptr, nullptr, 0, nullptr}};
  if (PyModule_AddFunctions(m.ptr(), functions) != 0) {
    throw py::error_already_set();
  }
  m.def("direct_operators", &direct_operators);
  m.def("expand_mt19937", &expand_mt19937);
  m.def("write_mt19937", &write_mt19937);

  m.def("scope_key", [](uint64_t master, uint32_t task, uint32_t epoch, uint64_t step) {
    const ScopeKey scope = scope_key(master, task, epoch, step);
    return std::make_pair(scope.key, scope.tweak);
  });
  m.def("name_key", [](uint64_t key, uint64_t tweak, uint64_t name_lo, uint64_t name_hi) {
    const NameKey found = name_key(ScopeKey{key, tweak}, Name{name_lo, name_hi});
    return std::make_pair(found.key, found.tweak);
  });
  m.def("stream_key",
        [](uint64_t key, uint64_t tweak, uint32_t rank_word, uint32_t worker, uint64_t index) {
          const Key found = stream_key(Stream{{key, tweak}, rank_word, worker}, index);
          return std::make_pair(found.lo, found.hi);
        });
  m.def("narrow_seed",
        [](uint64_t key, uint64_t tweak, uint32_t rank, uint32_t worker, uint64_t index, int bits) {
          return narrow_seed(NameKey{key, tweak}, rank, worker, index, bits);
        });
  m.def("reseed", [](const at::Generator& gen, uint64_t lo, uint64_t hi) {
    py::gil_scoped_release release;
    reseed_any(gen, Key{lo, hi});
  });
  m.def("cpu_position", &cpu_position);
  m.def("default_generators", &default_generators);
  m.def("reseed_defaults", [](const std::string& type, int64_t current, uint64_t key,
                              uint64_t tweak, uint32_t rank_word, uint32_t worker) {
    py::gil_scoped_release release;
    reseed_defaults(type, current, Stream{{key, tweak}, rank_word, worker});
  });
  m.def("current_device",
        [](const std::string& type) { return hooks_of(type).getCurrentDevice(); });

  py::class_<Pool>(m, "Pool")
      .def(py::init<std::vector<at::Generator>>())
      .def("__len__", &Pool::size)
      .def("reseed",
           [](const Pool& pool, uint64_t key, uint64_t tweak, uint32_t rank_word, uint32_t worker) {
             py::gil_scoped_release release;
             pool.reseed(Stream{{key, tweak}, rank_word, worker});
           })
      .def("manual_seed", [](const Pool& pool, py::buffer seeds) {
        const py::buffer_info info = seeds.request();
        if (info.itemsize != 8 || info.ndim != 1 || info.shape[0] != pool.size() ||
            info.strides[0] != 8) {
          throw std::invalid_argument(
              "fastseed.GeneratorPool.manual_seed: seeds must be one contiguous 64-bit integer a "
              "generator");
        }
        py::gil_scoped_release release;
        pool.manual_seed(static_cast<const uint64_t*>(info.ptr));
      });

  m.def("connect", [](intptr_t loop_table) {
    loops = reinterpret_cast<const LoopTable*>(loop_table);
    *loops->count_write = &count_write;
  });
}
