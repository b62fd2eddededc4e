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

// What is called at each reseed, by CPython's own calls.
struct Names {
  PyObject* acquire = PyUnicode_InternFromString("acquire");
  PyObject* release = PyUnicode_InternFromString("release");
  PyObject* seed = PyUnicode_InternFromString("seed");
  PyObject* get_bit_generator = PyUnicode_InternFromString("get_bit_generator");
  PyObject* set_bit_generator = PyUnicode_InternFromString("set_bit_generator");
  PyObject* random = PyImport_ImportModule("random");
  PyObject* numpy_random = PyImport_ImportModule("numpy.random");
};

const Names& names() {
  // Without the guard of a static object, for which a thread would wait that has the GIL, while
  // another one is in an import that lets go of it.
  static const Names* held = nullptr;
  if (held == nullptr) {
    held = new Names;
  }
  return *held;
}

// The words of an MT19937 of NumPy, followed by its position: `address` is the documented
// bit_generator.ctypes.state_address. Its lock is held while they are written. It need not be
// re-entrant, so nothing of NumPy is called meanwhile.
class NumpyWords {
 public:
  NumpyWords(const py::object& lock, uintptr_t address)
      : lock_(lock), words_(reinterpret_cast<uint32_t*>(address)) {
    PyObject* acquired = PyObject_CallMethodNoArgs(lock_.ptr(), names().acquire);
    if (acquired == nullptr) {  // without the lock, as if a signal's handler raises
      throw py::error_already_set();
    }
    Py_DECREF(acquired);
  }
  NumpyWords(const NumpyWords&) = delete;
  ~NumpyWords() {
    PyObject* released = PyObject_CallMethodNoArgs(lock_.ptr(), names().release);
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

py::object stolen(PyObject* made) {
  return made == nullptr ? throw py::error_already_set() : py::reinterpret_steal<py::object>(made);
}

uint64_t word(PyObject* number) {
  const uint64_t value = PyLong_AsUnsignedLongLong(number);
  return PyErr_Occurred() != nullptr ? throw py::error_already_set() : value;
}

// Where the words of NumPy's global generator are, as the last three arguments say.
struct NumpyMemory {
  explicit NumpyMemory(PyObject* const* last)
      : bit_generator(last[0]), lock(last[1]), address(word(last[2])) {}
  PyObject *bit_generator, *lock;
  uintptr_t address;
};

// Gives each of the three the key of its name.
void reseed_all(const ScopeKey& scope, uint32_t rank_word, uint32_t worker, uint64_t index,
                const NumpyMemory& memory) {
  static const at::Generator& torch_default = at::detail::getDefaultCPUGenerator();
  const auto key = [&](const Name& name) {
    return stream_key(Stream{name_key(scope, name), rank_word, worker}, index);
  };
  const py::object set =
      stolen(PyObject_CallMethodNoArgs(names().numpy_random, names().get_bit_generator));
  if (set.ptr() != memory.bit_generator) {
    throw std::invalid_argument("numpy.random has another bit generator now");
  }
  // Together: the CPU overlaps three chains of multiplications.
  const Key torch = key(kTorch), python = key(kPython), numpy = key(kNumpy);
  reseed_torch(*at::check_generator<at::CPUGeneratorImpl>(torch_default), torch);
  expand_mt19937(numpy.lo, numpy.hi, py::reinterpret_borrow<py::object>(memory.lock),
                 memory.address);
  // Setting the bit generator that is set clears the cached Gaussian.
  stolen(PyObject_CallMethodOneArg(names().numpy_random, names().set_bit_generator, set.ptr()));
  const py::object lo = stolen(PyLong_FromUnsignedLongLong(python.lo));
  const py::object hi = stolen(PyLong_FromUnsignedLongLong(python.hi));
  const py::object both = lo | (hi << py::int_(64));
  stolen(PyObject_CallMethodOneArg(names().random, names().seed, both.ptr()));
}

// The body of a function of CPython's fast calls, whose exceptions become Python's.
template <class Body>
PyObject* fast_call(Py_ssize_t given, Py_ssize_t expected, Body body) {
  try {
    if (given != expected) {
      throw py::type_error("another number of arguments");
    }
    return body();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// (master, task, epoch, step, rank, bit generator, lock, address); returns key and tweak of the
// scope.
PyObject* reseed_defaults_of_cpu(PyObject*, PyObject* const* args, Py_ssize_t given) {
  return fast_call(given, 8, [&] {
    const ScopeKey scope = scope_key(word(args[0]), static_cast<uint32_t>(word(args[1])),
                                     static_cast<uint32_t>(word(args[2])), word(args[3]));
    const auto rank = static_cast<uint32_t>(word(args[4]));
    reseed_all(scope, with_domain(rank, Domain::kStream), 0, 0, NumpyMemory(args + 5));
    return Py_BuildValue("KK", scope.key, scope.tweak);
  });
}

// (key, tweak, index, occurrence, bit generator, lock, address); returns key and tweak.
PyObject* reseed_sample_of_cpu(PyObject*, PyObject* const* args, Py_ssize_t given) {
  return fast_call(given, 7, [&] {
    const ScopeKey scope{word(args[0]), word(args[1])};
    const auto occurrence = static_cast<uint32_t>(word(args[3]));
    reseed_all(scope, with_domain(0, Domain::kSample), occurrence, word(args[2]),
               NumpyMemory(args + 4));
    return Py_BuildValue("KK", scope.key, scope.tweak);
  });
}

}  // namespace
}  // namespace fastseed
