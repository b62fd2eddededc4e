// Calls from Python that are made so often that pybind11's conversions would be most of their
// cost: plain CPython functions with the vectorcall convention.
#pragma once
#include <Python.h>

namespace fastseed {

// Adds them to the module; false with a Python error set.
bool add_python_calls(PyObject* module);

}  // namespace fastseed
