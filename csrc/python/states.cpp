// The exact states of the three global generators that every process has, packed and put back in
// one call each; fastseed/generators/adapters.py and numpy_sinks.py say the same in Python, byte for byte.
//
// A packed MT19937 is its 624 words, its position and its flags (16 bits each) and what is cached,
// all little-endian. Addresses are those that the Python side found and verified. As in
// process.cpp, Python's generator is guarded by the GIL, NumPy's by the lock that the caller holds,
// and torch's by its mutex.
#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "cpu_generator.h"
#include "mt19937_memory.h"
#include "python_calls.h"

namespace fastseed {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packed states are copied, not converted");

#pragma pack(push, 1)
struct PackedMt {
  uint32_t words[kMtWords];
  uint16_t position;
  uint16_t flags;  // 1: a Gaussian (of torch, a double) is cached; 2: torch has a float as well
};
struct PackedPython {
  PackedMt mt;
  double gauss;
};
struct PackedNumpy {
  char name[16];
  PackedMt mt;
  double gauss;
};
struct PackedTorch {
  PackedMt mt;
  uint64_t seed;
  double normal;
  float float_normal;
};
#pragma pack(pop)

constexpr char kNumpyName[16] = "MT19937";

template <class T>
PyObject* to_tensor(const T& packed) {
  at::Tensor tensor(at::detail::empty_cpu({static_cast<int64_t>(sizeof(T))}, at::kByte));
  std::memcpy(tensor.mutable_data_ptr(), &packed, sizeof(T));
  return THPVariable_Wrap(std::move(tensor));
}

// A copy, because a foreign view need not be aligned. False for anything but a plain tensor.
template <class T>
bool from_tensor(PyObject* object, T* packed) {
  if (!THPVariable_CheckExact(object)) {
    return false;
  }
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu() || tensor.dim() != 1 ||
      tensor.scalar_type() != at::kByte || tensor.numel() != static_cast<int64_t>(sizeof(T)) ||
      !tensor.is_contiguous() || tensor.const_data_ptr() == nullptr) {
    return false;
  }
  std::memcpy(packed, tensor.const_data_ptr(), sizeof(T));
  return true;
}

template <class T>
bool is_zero(const T& value) {
  const T zero{};
  return std::memcmp(&value, &zero, sizeof(T)) == 0;
}

bool good_words(const PackedMt& mt, uint16_t flags) {
  const bool drawable =
      (mt.words[0] & kMtTopBit) != 0 ||
      std::any_of(mt.words + 1, mt.words + kMtWords, [](uint32_t w) { return w; });
  return mt.position <= kMtWords && mt.flags <= flags && drawable;
}

bool good_gauss(const PackedMt& mt, double gauss) {
  return (mt.flags & 1) != 0 || is_zero(gauss);
}

// A generator of torch holds, beside its position, how many words are left: 1 before the first of
// all draws, 625 less the position after that. Any other pair is a state that somebody made.
bool pack_torch(at::CPUGeneratorImpl& gen, PackedTorch* packed) {
  const at::mt19937_data_pod& data = engine_data(gen);
  const bool fresh = data.next_ == 0 && data.left_ == 1;
  const bool drawn = data.next_ >= 1 && data.next_ <= kMtWords &&
                     data.left_ == kMtWords + 1 - static_cast<int>(data.next_);
  if (!data.seeded_ || !(fresh || drawn)) {
    return false;
  }
  const std::optional<double> normal = gen.next_double_normal_sample();
  const std::optional<float> float_normal = gen.next_float_normal_sample();
  std::memcpy(packed->mt.words, data.state_.data(), sizeof(packed->mt.words));
  packed->mt.position = static_cast<uint16_t>(data.next_);
  packed->mt.flags = static_cast<uint16_t>(normal.has_value() | float_normal.has_value() << 1);
  packed->seed = data.seed_;
  packed->normal = normal.value_or(0);
  packed->float_normal = float_normal.value_or(0);
  return true;
}

void unpack_torch(const PackedTorch& packed, at::CPUGeneratorImpl& gen) {
  at::mt19937_data_pod& data = engine_data(gen);
  begin_state(data, packed.seed);
  std::memcpy(data.state_.data(), packed.mt.words, sizeof(packed.mt.words));
  data.next_ = packed.mt.position;
  data.left_ = data.next_ == 0 ? 1 : kMtWords + 1 - static_cast<int>(data.next_);
  forget_cached_normals(gen);
  if ((packed.mt.flags & 1) != 0) {
    gen.set_next_double_normal_sample(packed.normal);
  }
  if ((packed.mt.flags & 2) != 0) {
    gen.set_next_float_normal_sample(packed.float_normal);
  }
}

at::CPUGeneratorImpl& default_generator() {
  static const at::Generator& gen = at::detail::getDefaultCPUGenerator();
  return *at::check_generator<at::CPUGeneratorImpl>(gen);
}

// Without the GIL where another thread has the mutex: it, or any other, may need the GIL.
template <class F>
void locked(at::CPUGeneratorImpl& gen, const F& work) {
  std::unique_lock<std::mutex> lock(gen.mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    Py_BEGIN_ALLOW_THREADS;
    lock.lock();
    Py_END_ALLOW_THREADS;
  }
  work();
}

bool read_gauss(PyObject* object, PackedPython* packed) {
  packed->mt.flags = object != Py_None;
  packed->gauss = 0;
  if (object != Py_None) {
    if (!PyFloat_CheckExact(object)) {
      return false;
    }
    packed->gauss = PyFloat_AS_DOUBLE(object);
  }
  return true;
}

bool read_addresses(PyObject* const* args, uint64_t* python, uint64_t* numpy, uint64_t* flag,
                    uint64_t* value) {
  return read_uint(args[0], UINTPTR_MAX, python) && read_uint(args[1], UINTPTR_MAX, numpy) &&
         read_uint(args[2], UINTPTR_MAX, flag) && read_uint(args[3], UINTPTR_MAX, value);
}

// pack_process(python address, numpy address, address of its flag, of its cached Gaussian, Python's
// cached Gaussian or None) -> three tensors; None where one is not in an ordinary state.
PyObject* call_pack_process(PyObject*, PyObject* const* args, Py_ssize_t n) {
  uint64_t python, numpy, flag, value;
  if (n != 5 || !read_addresses(args, &python, &numpy, &flag, &value)) {
    return wrong_call("pack_process");
  }
  PackedPython py;
  PackedNumpy np;
  PackedTorch th;
  bool ordinary = false;
  locked(default_generator(), [&] { ordinary = pack_torch(default_generator(), &th); });
  const PythonState* own = at_address<const PythonState>(python);
  const NumpyState* old = at_address<const NumpyState>(numpy);
  const int has = *at_address<const int>(flag);
  if (!ordinary || !read_gauss(args[4], &py) || own->index < 0 || own->index > kMtWords ||
      old->position < 0 || old->position > kMtWords || (has != 0 && has != 1)) {
    Py_RETURN_NONE;
  }
  std::memcpy(py.mt.words, own->words, sizeof(py.mt.words));
  py.mt.position = static_cast<uint16_t>(own->index);
  std::memcpy(np.name, kNumpyName, sizeof(np.name));
  std::memcpy(np.mt.words, old->words, sizeof(np.mt.words));
  np.mt.position = static_cast<uint16_t>(old->position);
  np.mt.flags = static_cast<uint16_t>(has);
  np.gauss = has != 0 ? *at_address<const double>(value) : 0;
  PyObject* all = PyTuple_New(3);
  if (all == nullptr) {
    return nullptr;
  }
  PyObject* made[] = {to_tensor(py), to_tensor(np), to_tensor(th)};
  for (Py_ssize_t i = 0; i < 3; ++i) {
    PyTuple_SET_ITEM(all, i, made[i]);
  }
  if (made[0] == nullptr || made[1] == nullptr || made[2] == nullptr) {
    Py_DECREF(all);
    return nullptr;
  }
  return all;
}

bool read_packed(PyObject* const* args, PackedPython* py, PackedNumpy* np, PackedTorch* th) {
  return from_tensor(args[0], py) && from_tensor(args[1], np) && from_tensor(args[2], th) &&
         good_words(py->mt, 1) && good_gauss(py->mt, py->gauss) &&
         std::memcmp(np->name, kNumpyName, sizeof(np->name)) == 0 && good_words(np->mt, 1) &&
         good_gauss(np->mt, np->gauss) && good_words(th->mt, 3) && good_gauss(th->mt, th->normal) &&
         ((th->mt.flags & 2) != 0 || is_zero(th->float_normal));
}

// check_process(three tensors) -> whether unpack_process would take them. Changes nothing; what is
// wrong with one that it would not take, the Python side says.
PyObject* call_check_process(PyObject*, PyObject* const* args, Py_ssize_t n) {
  PackedPython py;
  PackedNumpy np;
  PackedTorch th;
  return PyBool_FromLong(n == 3 && read_packed(args, &py, &np, &th));
}

// unpack_process(the four addresses, three tensors) -> (Python's cached Gaussian or None,), which
// the caller sets; None, with nothing changed, where one of them is not as pack_process makes it.
PyObject* call_unpack_process(PyObject*, PyObject* const* args, Py_ssize_t n) {
  uint64_t python, numpy, flag, value;
  if (n != 7 || !read_addresses(args, &python, &numpy, &flag, &value)) {
    return wrong_call("unpack_process");
  }
  PackedPython py;
  PackedNumpy np;
  PackedTorch th;
  if (!read_packed(args + 4, &py, &np, &th)) {
    Py_RETURN_NONE;
  }
  locked(default_generator(), [&] { unpack_torch(th, default_generator()); });
  PythonState* own = at_address<PythonState>(python);
  std::memcpy(own->words, py.mt.words, sizeof(py.mt.words));
  own->index = py.mt.position;
  NumpyState* old = at_address<NumpyState>(numpy);
  std::memcpy(old->words, np.mt.words, sizeof(np.mt.words));
  old->position = np.mt.position;
  *at_address<int>(flag) = np.mt.flags;
  *at_address<double>(value) = np.gauss;
  return py.mt.flags != 0 ? Py_BuildValue("(d)", py.gauss) : Py_BuildValue("(O)", Py_None);
}

}  // namespace

bool add_state_calls(PyObject* module) {
  static PyMethodDef methods[] = {
      python_call<call_pack_process>("pack_process"),
      python_call<call_check_process>("check_process"),
      python_call<call_unpack_process>("unpack_process"),
      {nullptr, nullptr, 0, nullptr},
  };
  return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace fastseed
