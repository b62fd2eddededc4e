// The three global generators that every process has: Python's and NumPy's, at the addresses that
// the Python side found and verified, and torch's on the CPU.
//
// Python's generator has no lock but the GIL, which is held while it is written. The caller holds
// NumPy's.
#include <vector>

#include "cpu_generator.h"
#include "mt19937_memory.h"
#include "python_calls.h"

namespace fastseed {
namespace {

constexpr uint64_t kMaxAddress = UINTPTR_MAX;

// SHA-256 of "python", "numpy" and "torch.cpu".
constexpr Name kPython{0x49f28b510ba6a411u, 0xd5e576804681d489u};
constexpr Name kNumpy{0xda38548eaf0bdd73u, 0x3be43e074a251688u};
constexpr Name kTorch{0x8680f72c6dee4cd7u, 0x97037b7bfb7a629bu};

void write_python(uint64_t address, Key key) {
  static const std::vector<uint32_t> base = [] {
    std::vector<uint32_t> words(kMtWords);
    mt19937_init(kMtArraySeed, words.data());
    return words;
  }();
  PythonState* state = at_address<PythonState>(address);
  mt19937_init_by_array(key, base.data(), state->words);
  state->index = kMtWords;
}

// True means that a Gaussian may be cached (`cached` is 0, or its flag says so): then the position
// is 0, from where draws change no word, and finish_numpy has to follow.
bool write_numpy(uint64_t address, uint64_t cached, Key key) {
  NumpyState* state = at_address<NumpyState>(address);
  launch_mt19937_expand(key, state->words);
  const bool unfinished = cached == 0 || *at_address<const int>(cached) != 0;
  state->position = unfinished ? 0 : kMtWords;
  return unfinished;
}

// Waits for a thread that is drawing without the GIL, which that thread, or any other, may need.
void reseed_torch(at::CPUGeneratorImpl& gen, Key key) {
  if (gen.mutex_.try_lock()) {
    gen.mutex_.unlock();
    reseed_cpu(gen, key);
    return;
  }
  Py_BEGIN_ALLOW_THREADS;
  reseed_cpu(gen, key);
  Py_END_ALLOW_THREADS;
}

bool read_key_halves(PyObject* const* args, Key* key) {
  return read_uint(args[0], ~uint64_t{0}, &key->lo) && read_uint(args[1], ~uint64_t{0}, &key->hi);
}

// write_python(address, lo, hi)
PyObject* call_write_python(PyObject*, PyObject* const* args, Py_ssize_t n) {
  uint64_t address;
  Key key;
  if (n != 3 || !read_uint(args[0], kMaxAddress, &address) || !read_key_halves(args + 1, &key)) {
    return wrong_call("write_python");
  }
  write_python(address, key);
  Py_RETURN_NONE;
}

// write_numpy(address, cached, lo, hi) -> whether finish_numpy has to follow
PyObject* call_write_numpy(PyObject*, PyObject* const* args, Py_ssize_t n) {
  uint64_t address, cached;
  Key key;
  if (n != 4 || !read_uint(args[0], kMaxAddress, &address) ||
      !read_uint(args[1], kMaxAddress, &cached) || !read_key_halves(args + 2, &key)) {
    return wrong_call("write_numpy");
  }
  return PyBool_FromLong(write_numpy(address, cached, key));
}

// finish_numpy(address) -> whether any word was read since; the next draw makes new ones.
PyObject* call_finish_numpy(PyObject*, PyObject* const* args, Py_ssize_t n) {
  uint64_t address;
  if (n != 1 || !read_uint(args[0], kMaxAddress, &address)) {
    return wrong_call("finish_numpy");
  }
  NumpyState* state = at_address<NumpyState>(address);
  const bool drawn = state->position != 0;
  state->position = kMtWords;
  return PyBool_FromLong(drawn);
}

// reseed_process(master, task, epoch, step, rank, python address, numpy address, cached)
// -> (scope key, tweak, whether finish_numpy has to follow).
// None, with nothing written, where one of the first five is no exact int of its range.
PyObject* call_reseed_process(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Scope scope;
  uint64_t rank;
  if (n != 8 || !read_scope(args, &scope) || !read_uint(args[4], kSharedRank, &rank)) {
    Py_RETURN_NONE;
  }
  uint64_t python, numpy, cached;
  if (!read_uint(args[5], kMaxAddress, &python) || !read_uint(args[6], kMaxAddress, &numpy) ||
      !read_uint(args[7], kMaxAddress, &cached)) {
    return wrong_call("reseed_process");
  }
  const uint32_t rank_word = with_domain(static_cast<uint32_t>(rank), Domain::kStream);
  const auto key = [&](const Name& name) {
    return stream_key(Stream{name_key(scope, name), rank_word, 0}, 0);
  };
  // Together: the CPU overlaps three chains of multiplications.
  const Key of_torch = key(kTorch), of_python = key(kPython), of_numpy = key(kNumpy);
  static const at::Generator& torch_default = at::detail::getDefaultCPUGenerator();
  reseed_torch(*at::check_generator<at::CPUGeneratorImpl>(torch_default), of_torch);
  write_python(python, of_python);
  const bool unfinished = write_numpy(numpy, cached, of_numpy);
  return Py_BuildValue("(KKO)", static_cast<unsigned long long>(scope.key),
                       static_cast<unsigned long long>(scope.tweak),
                       unfinished ? Py_True : Py_False);
}

}  // namespace

bool add_process_calls(PyObject* module) {
  static PyMethodDef methods[] = {
      python_call<call_write_python>("write_python"),
      python_call<call_write_numpy>("write_numpy"),
      python_call<call_finish_numpy>("finish_numpy"),
      python_call<call_reseed_process>("reseed_process"),
      {nullptr, nullptr, 0, nullptr},
  };
  return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace fastseed
