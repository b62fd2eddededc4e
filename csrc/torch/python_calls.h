// Calls from Python that are made so often that pybind11's conversions would be most of their
// cost: plain CPython functions with the vectorcall convention.
#pragma once
#include <Python.h>

#include <cstdint>

#include "../core/derive.h"

namespace fastseed {

using PythonCall = PyObject* (*)(PyObject* module, PyObject* const* args, Py_ssize_t n);

template <PythonCall kCall>
PyMethodDef python_call(const char* name) {
  // By way of a function without arguments, as CPython's own casts do.
  return PyMethodDef{name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kCall)),
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
bool add_copy_calls(PyObject* module);

}  // namespace fastseed
