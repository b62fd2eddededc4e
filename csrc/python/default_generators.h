// torch's default CPU generator and NumPy's global one, written in one call.
#pragma once
#include <pybind11/numpy.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "../core/mt19937.h"
#include "cpu_generator.h"

namespace fastseed {
namespace {

namespace py = pybind11;

// SHA-256 of "python", "numpy" and "torch.cpu".
constexpr Name kPython{0x49f28b510ba6a411u, 0xd5e576804681d489u};
constexpr Name kNumpy{0xda38548eaf0bdd73u, 0x3be43e074a251688u};
constexpr Name kTorch{0x8680f72c6dee4cd7u, 0x97037b7bfb7a629bu};

// Waits without the GIL for a thread that draws, which may need it; and takes the GIL again without
// the mutex, for which a thread that has the GIL may wait.
void reseed_torch(at::CPUGeneratorImpl& gen, Key key) {
  if (std::unique_lock<std::mutex> lock(gen.mutex_, std::try_to_lock); lock.owns_lock()) {
    write_state(gen, key);
    return;
  }
  py::gil_scoped_release release;
  std::lock_guard<std::mutex> lock(gen.mutex_);
  write_state(gen, key);
}

// The words of an MT19937 of NumPy, followed by its position: `address` is the documented
// bit_generator.ctypes.state_address. Its lock is held while they are written. It need not be
// re-entrant, so nothing of NumPy is called meanwhile.
class NumpyWords {
 public:
  NumpyWords(const py::object& lock, uintptr_t address)
      : lock_(lock), words_(reinterpret_cast<uint32_t*>(address)) {
    lock_.attr("acquire")();  // raises, without the lock, if a signal's handler does
  }
  NumpyWords(const NumpyWords&) = delete;
  ~NumpyWords() {
    PyObject* released = PyObject_CallMethod(lock_.ptr(), "release", nullptr);
    if (released == nullptr) {
      PyErr_WriteUnraisable(lock_.ptr());
    }
    Py_XDECREF(released);
  }
  uint32_t* get() const {
    return words_;
  }

 private:
  py::object lock_;
  uint32_t* words_;
};

void expand_mt19937(uint64_t lo, uint64_t hi, const py::object& lock, uintptr_t address) {
  const NumpyWords memory(lock, address);
  loops->mt19937_expand(Key{lo, hi}, memory.get());
  memory.get()[kMtWords] = kMtWords;  // the position: the next random number makes new words
}

void write_mt19937(const py::array_t<uint32_t, py::array::c_style>& words, uint32_t position,
                   const py::object& lock, uintptr_t address) {
  if (words.size() != kMtWords || position > kMtWords) {
    throw py::value_error("a state of MT19937 has 624 words and a position in [0, 624]");
  }
  const NumpyWords memory(lock, address);
  std::memcpy(memory.get(), words.data(), kMtWords * sizeof(uint32_t));
  memory.get()[kMtWords] = position;
}

// Returns the halves of the key of Python's generator, which only random.seed can set.
std::pair<uint64_t, uint64_t> reseed_all(const ScopeKey& scope, uint32_t rank_word, uint32_t worker,
                                         uint64_t index, const py::object& lock,
                                         uintptr_t address) {
  static const at::Generator& torch_default = at::detail::getDefaultCPUGenerator();
  const auto key = [&](const Name& name) {
    return stream_key(Stream{name_key(scope, name), rank_word, worker}, index);
  };
  // Together: the CPU overlaps three chains of multiplications.
  const Key torch = key(kTorch), python = key(kPython), numpy = key(kNumpy);
  reseed_torch(*at::check_generator<at::CPUGeneratorImpl>(torch_default), torch);
  expand_mt19937(numpy.lo, numpy.hi, lock, address);
  return {python.lo, python.hi};
}

std::pair<uint64_t, uint64_t> reseed_defaults_of_cpu(uint64_t master, uint32_t task, uint32_t epoch,
                                                     uint64_t step, uint32_t rank,
                                                     const py::object& lock, uintptr_t address) {
  const ScopeKey scope = scope_key(master, task, epoch, step);
  return reseed_all(scope, with_domain(rank, Domain::kStream), 0, 0, lock, address);
}

std::pair<uint64_t, uint64_t> reseed_sample_of_cpu(uint64_t key, uint64_t tweak, uint64_t index,
                                                   uint32_t occurrence, const py::object& lock,
                                                   uintptr_t address) {
  const uint32_t rank_word = with_domain(0, Domain::kSample);
  return reseed_all(ScopeKey{key, tweak}, rank_word, occurrence, index, lock, address);
}

}  // namespace

inline void add_default_generators(py::module_& m) {
  m.def("expand_mt19937", &expand_mt19937);
  m.def("write_mt19937", &write_mt19937);
  m.def("reseed_defaults_of_cpu", &reseed_defaults_of_cpu);
  m.def("reseed_sample_of_cpu", &reseed_sample_of_cpu);
}

}  // namespace fastseed
