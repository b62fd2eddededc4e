// Calling operators of `_kernels` without torch's parser of arguments and without its dispatcher,
// which take longer than a small draw. Where they would do more than to call the kernel, it is left
// to them.
#pragma once
#include <ATen/core/TensorBody.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <vector>

#include "default_generators.h"

namespace fastseed {
namespace {

// Whether a mode, a transform, a tracer or a profiler sees the operators of this thread.
bool are_seen() {
  const c10::DispatchKeySet included = c10::impl::tls_local_dispatch_key_set().included_;
  return !(included - c10::default_included_set).empty() ||
         at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value();
}

// Whether autograd and torch's transforms know no more of a tensor than its version, and it is one
// piece of memory.
bool is_whole(const at::Tensor& tensor) {
  static const c10::DispatchKeySet kAutograd(
      {c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutogradCPU});
  static const c10::DispatchKeySet kOrdinary = at::empty({0}).key_set() | kAutograd;
  return (tensor.key_set() | kAutograd) == kOrdinary && !tensor._fw_grad(0).defined() &&
         tensor.is_contiguous() &&
         tensor.storage().nbytes() >=
             static_cast<size_t>(tensor.storage_offset() + tensor.numel()) * tensor.itemsize();
}

// Counts a write to the tensor of an AtenTensorHandle for autograd.
void count_write(void* handle) {
  const at::Tensor& tensor = *static_cast<at::Tensor*>(handle);
  if (!tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

// (which of the table's operators, tensor, numbers): runs it and returns True; or False, where it
// takes torch's way to the operator.
PyObject* call_directly(PyObject*, PyObject* const* args, Py_ssize_t given) {
  HANDLE_TH_ERRORS
  constexpr Py_ssize_t kFirst = 2, kMost = 16;
  constexpr int64_t kLong = 1 << 12;  // elements that take longer than to give up the GIL
  const DirectOperator& op = loops->operators[word(args[0])];
  TORCH_CHECK_TYPE(given == kFirst + op.numbers, op.name, ": another number of arguments");
  if (!THPVariable_CheckExact(args[1]) || are_seen()) {
    Py_RETURN_FALSE;
  }
  const at::Tensor& out = THPVariable_Unpack(args[1]);
  if (!is_whole(out)) {
    Py_RETURN_FALSE;
  }
  DirectNumber numbers[kMost];
  for (Py_ssize_t i = kFirst; i < given; ++i) {
    DirectNumber& number = numbers[i - kFirst];
    if (PyFloat_Check(args[i])) {
      number.real = PyFloat_AS_DOUBLE(args[i]);
    } else {
      number.word = PyLong_AsUnsignedLongLongMask(args[i]);
      if (PyErr_Occurred() != nullptr) {
        throw py::error_already_set();
      }
    }
  }
  {
    std::optional<py::gil_scoped_release> release;
    if (out.numel() > kLong) {
      release.emplace();
    }
    op.run(new at::Tensor(out), numbers);
  }
  Py_RETURN_TRUE;
  END_HANDLE_TH_ERRORS
}

// The names of the operators, in the order of the table.
std::vector<std::string> direct_operators() {
  std::vector<std::string> names;
  for (size_t i = 0; i < loops->operator_count; ++i) {
    names.emplace_back(loops->operators[i].name);
  }
  return names;
}

}  // namespace
}  // namespace fastseed
