// torch's default CPU generator and NumPy's global one, written in one call.
#include <utility>

#include "cpu_generator.h"
#include "module.h"

namespace fastseed {
namespace {

namespace py = pybind11;

// Waits without the GIL for a thread that draws, which may need it.
void reseed_torch(at::CPUGeneratorImpl& gen, Key key) {
  if (gen.mutex_.try_lock()) {
    gen.mutex_.unlock();
    reseed_cpu(gen, key);
    return;
  }
  py::gil_scoped_release release;
  reseed_cpu(gen, key);
}

// `address` is NumPy's bit_generator.ctypes.state_address; the caller holds its lock.
void expand_mt19937(uint64_t lo, uint64_t hi, uintptr_t address) {
  launch_mt19937_expand(Key{lo, hi}, reinterpret_cast<uint32_t*>(address));
}

// Returns the halves of the key of Python's generator, which only random.seed can set.
std::pair<uint64_t, uint64_t> reseed_defaults_of_cpu(uint64_t master, uint32_t task, uint32_t epoch,
                                                     uint64_t step, uint32_t rank,
                                                     uint32_t python_id, uint32_t numpy_id,
                                                     uint32_t torch_id, uintptr_t address) {
  static const at::Generator& torch_default = at::detail::getDefaultCPUGenerator();
  const Scope scope = scope_key(master, task, epoch, step);
  const auto key = [&](uint32_t name_id) {
    return stream_key(Stream{scope, name_id, with_domain(rank, Domain::kStream)}, 0);
  };
  reseed_torch(*at::check_generator<at::CPUGeneratorImpl>(torch_default), key(torch_id));
  const Key numpy = key(numpy_id), python = key(python_id);
  expand_mt19937(numpy.lo, numpy.hi, address);
  return {python.lo, python.hi};
}

}  // namespace

void add_default_generators(py::module_& m) {
  m.def("expand_mt19937", &expand_mt19937);
  m.def("reseed_defaults_of_cpu", &reseed_defaults_of_cpu);
}

}  // namespace fastseed
