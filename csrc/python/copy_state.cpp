// Copying the whole state of one torch CPU generator to another: what fork(name) does four times.
//
// Tensors of get_state and set_state would take 5 KB and half a dozen allocations each way.
#include <torch/csrc/Generator.h>

#include <mutex>
#include <optional>

#include "cpu_generator.h"
#include "python_calls.h"

namespace fastseed {
namespace {

// Everything that a draw reads. Never both mutexes at a time, so that no order of them matters.
struct Copy {
  at::mt19937_data_pod data;
  std::optional<float> float_normal;
  std::optional<double> normal;

  explicit Copy(at::CPUGeneratorImpl& gen) {
    std::lock_guard<std::mutex> lock(gen.mutex_);
    data = engine_data(gen);
    float_normal = gen.next_float_normal_sample();
    normal = gen.next_double_normal_sample();
  }

  void put(at::CPUGeneratorImpl& gen) const {
    std::lock_guard<std::mutex> lock(gen.mutex_);
    engine_data(gen) = data;
    gen.set_next_float_normal_sample(float_normal);
    gen.set_next_double_normal_sample(normal);
  }
};

at::CPUGeneratorImpl* cpu_generator(PyObject* object) {
  if (!THPGenerator_Check(object)) {
    return nullptr;
  }
  const at::Generator& gen = reinterpret_cast<THPGenerator*>(object)->cdata;
  return dynamic_cast<at::CPUGeneratorImpl*>(gen.unsafeGetGeneratorImpl());
}

// copy_state(from, to): two torch.Generator on the CPU.
PyObject* call_copy_state(PyObject*, PyObject* const* args, Py_ssize_t n) {
  at::CPUGeneratorImpl* from = n == 2 ? cpu_generator(args[0]) : nullptr;
  at::CPUGeneratorImpl* to = n == 2 ? cpu_generator(args[1]) : nullptr;
  if (from == nullptr || to == nullptr) {
    return wrong_call("copy_state");
  }
  Py_BEGIN_ALLOW_THREADS;  // a thread that holds a mutex while it draws may be waiting for the GIL
  Copy(*from).put(*to);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

}  // namespace

bool add_copy_calls(PyObject* module) {
  static PyMethodDef methods[] = {
      python_call<call_copy_state>("copy_state"),
      {nullptr, nullptr, 0, nullptr},
  };
  return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace fastseed
