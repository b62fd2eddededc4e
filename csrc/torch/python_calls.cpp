#include "python_calls.h"

#include <cstdint>

#include "../core/derive.h"

namespace fastseed {
namespace {

constexpr uint64_t kMaxTask = (1u << 24) - 1;
constexpr uint64_t kMaxEpoch = 0xffffffffu;
constexpr uint64_t kMaxAny = ~uint64_t{0};
constexpr uint64_t kMaxIndex = (uint64_t{1} << 40) - 1;

// An exact int of [0, most]; anything else is left to the caller, who has words for it.
bool read(PyObject* object, uint64_t most, uint64_t* value) {
  if (!PyLong_CheckExact(object)) {
    return false;
  }
  const unsigned long long number = PyLong_AsUnsignedLongLong(object);
  if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
    PyErr_Clear();  // negative, or more than 64 bits
    return false;
  }
  *value = number;
  return number <= most;
}

PyObject* to_int(Key key) {
  PyObject* hi = PyLong_FromUnsignedLongLong(key.hi);
  PyObject* lo = PyLong_FromUnsignedLongLong(key.lo);
  PyObject* by = PyLong_FromLong(64);
  PyObject* top = hi != nullptr && by != nullptr ? PyNumber_Lshift(hi, by) : nullptr;
  PyObject* all = top != nullptr && lo != nullptr ? PyNumber_Or(top, lo) : nullptr;
  Py_XDECREF(hi);
  Py_XDECREF(lo);
  Py_XDECREF(by);
  Py_XDECREF(top);
  return all;
}

PyObject* wrong_call(const char* function) {
  PyErr_Format(PyExc_TypeError, "%s takes integers in range, and as many as it says", function);
  return nullptr;
}

// scope_key(master, task, epoch, step) -> (key, tweak)
PyObject* py_scope_key(PyObject*, PyObject* const* args, Py_ssize_t n) {
  uint64_t master, task, epoch, step;
  if (n != 4 || !read(args[0], kMaxAny, &master) || !read(args[1], kMaxTask, &task) ||
      !read(args[2], kMaxEpoch, &epoch) || !read(args[3], kMaxAny, &step)) {
    return wrong_call("scope_key");
  }
  const Scope scope =
      scope_key(master, static_cast<uint32_t>(task), static_cast<uint32_t>(epoch), step);
  return Py_BuildValue("(KK)", static_cast<unsigned long long>(scope.key),
                       static_cast<unsigned long long>(scope.tweak));
}

// stream_key(scope key, tweak, name id, rank | domain << 24, index) -> 128-bit int
PyObject* py_stream_key(PyObject*, PyObject* const* args, Py_ssize_t n) {
  uint64_t key, tweak, name_id, place, index;
  if (n != 5 || !read(args[0], kMaxAny, &key) || !read(args[1], kMaxAny, &tweak) ||
      !read(args[2], kMaxEpoch, &name_id) || !read(args[3], kMaxEpoch, &place) ||
      !read(args[4], kMaxAny, &index)) {
    return wrong_call("stream_key");
  }
  const Stream stream{{key, tweak}, static_cast<uint32_t>(name_id), static_cast<uint32_t>(place)};
  return to_int(stream_key(stream, index));
}

// Both levels: master, task, epoch, step, name id, rank, worker, i. False where an argument is no
// exact int of its range.
bool read_key(PyObject* const* args, Py_ssize_t n, Key* key) {
  uint64_t master, task, epoch, step, name_id, rank, worker, i;
  if (n != 8 || !read(args[0], kMaxAny, &master) || !read(args[1], kMaxTask, &task) ||
      !read(args[2], kMaxEpoch, &epoch) || !read(args[3], kMaxAny, &step) ||
      !read(args[4], kMaxEpoch, &name_id) || !read(args[5], kSharedRank, &rank) ||
      !read(args[6], kMaxTask, &worker) || !read(args[7], kMaxIndex, &i)) {
    return false;
  }
  const Scope scope =
      scope_key(master, static_cast<uint32_t>(task), static_cast<uint32_t>(epoch), step);
  const Stream stream{scope, static_cast<uint32_t>(name_id),
                      with_domain(static_cast<uint32_t>(rank), Domain::kStream)};
  *key = stream_key(stream, member_index(static_cast<uint32_t>(worker), i));
  return true;
}

// key(...) -> 128-bit int, seed(...) -> its low 64 bits; None where read_key says false.
PyObject* py_key(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Key key;
  if (!read_key(args, n, &key)) {
    Py_RETURN_NONE;
  }
  return to_int(key);
}

PyObject* py_seed(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Key key;
  if (!read_key(args, n, &key)) {
    Py_RETURN_NONE;
  }
  return PyLong_FromUnsignedLongLong(key.lo);
}

template <PyObject* (*kFunction)(PyObject*, PyObject* const*, Py_ssize_t)>
PyMethodDef method(const char* name) {
  return PyMethodDef{name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kFunction)),
                     METH_FASTCALL, nullptr};
}

}  // namespace

bool add_python_calls(PyObject* module) {
  static PyMethodDef methods[] = {
      method<py_scope_key>("scope_key"), method<py_stream_key>("stream_key"), method<py_key>("key"),
      method<py_seed>("seed"),           {nullptr, nullptr, 0, nullptr},
  };
  return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace fastseed
