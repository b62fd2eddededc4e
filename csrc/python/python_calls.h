// Calls from Python that are made so often that pybind11's conversions would be most of their
// cost: plain CPython functions with the vectorcall convention.
#pragma once
#include <Python.h>

#include <cstdint>
#include <exception>
#include <new>

#include "../core/derive.h"

namespace fastseed {

using PythonCall = PyObject* (*)(PyObject* module, PyObject* const* args, Py_ssize_t n);

// The interpreter's C code must not see C++ exceptions (no memory for a tensor).
template <PythonCall kCall>
PyObject* without_exceptions(PyObject* module, PyObject* const* args, Py_ssize_t n) {
  try {
    return kCall(module, args, n);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& error) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
  }
}

template <PythonCall kCall>
PyMethodDef python_call(const char* name) {
  // By way of a function without arguments, as CPython's own casts do.
  const PythonCall call = without_exceptions<kCall>;
  return PyMethodDef{name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
                     METH_FASTCALL, nullptr};
}

// An exact int of [0, most]. False, with no Python error, for anything else: the caller knows what
// to say of it.
bool read_uint(PyObject* object, uint64_t most, uint64_t* value);

// args: master seed, task, epoch, step. False where one is no exact int of its range.
bool read_scope(PyObject* const* args, Scope* scope);

// Returned where arguments that Python code of ours computed are wrong: a mistake of ours.
PyObject* wrong_call(const char* function);

// Add the functions to the module; false with a Python error set.
bool add_derivation_calls(PyObject* module);
bool add_process_calls(PyObject* module);

// The same for the calls around a fork; throws.
void add_fork_calls(PyObject* module);
bool add_state_calls(PyObject* module);

}  // namespace fastseed
