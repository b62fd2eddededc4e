#include "python_calls.h"

namespace fastseed {

namespace {

constexpr uint64_t kMaxTask = (1u << 24) - 1;
constexpr uint64_t kMax32 = 0xffffffffu;
constexpr uint64_t kMax64 = ~uint64_t{0};
constexpr uint64_t kMaxIndex = (uint64_t{1} << 40) - 1;

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

// scope_key(master, task, epoch, step) -> (key, tweak)
PyObject* call_scope_key(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Scope scope;
  if (n != 4 || !read_scope(args, &scope)) {
    return wrong_call("scope_key");
  }
  return Py_BuildValue("(KK)", static_cast<unsigned long long>(scope.key),
                       static_cast<unsigned long long>(scope.tweak));
}

// stream_key(scope key, tweak, name id, rank | domain << 24, index) -> 128-bit int
PyObject* call_stream_key(PyObject*, PyObject* const* args, Py_ssize_t n) {
  uint64_t key, tweak, name_id, place, index;
  if (n != 5 || !read_uint(args[0], kMax64, &key) || !read_uint(args[1], kMax64, &tweak) ||
      !read_uint(args[2], kMax32, &name_id) || !read_uint(args[3], kMax32, &place) ||
      !read_uint(args[4], kMax64, &index)) {
    return wrong_call("stream_key");
  }
  const Stream stream{{key, tweak}, static_cast<uint32_t>(name_id), static_cast<uint32_t>(place)};
  return to_int(stream_key(stream, index));
}

// Both levels: master seed, task, epoch, step, name id, rank, worker, i. False where one is no
// exact int of its range.
bool read_key(PyObject* const* args, Py_ssize_t n, Key* key) {
  Scope scope;
  uint64_t name_id, rank, worker, i;
  if (n != 8 || !read_scope(args, &scope) || !read_uint(args[4], kMax32, &name_id) ||
      !read_uint(args[5], kSharedRank, &rank) || !read_uint(args[6], kMaxTask, &worker) ||
      !read_uint(args[7], kMaxIndex, &i)) {
    return false;
  }
  const Stream stream{scope, static_cast<uint32_t>(name_id),
                      with_domain(static_cast<uint32_t>(rank), Domain::kStream)};
  *key = stream_key(stream, member_index(static_cast<uint32_t>(worker), i));
  return true;
}

// key(...) -> 128-bit int, seed(...) -> its low 64 bits; None where read_key says false.
PyObject* call_key(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Key key;
  if (!read_key(args, n, &key)) {
    Py_RETURN_NONE;
  }
  return to_int(key);
}

PyObject* call_seed(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Key key;
  if (!read_key(args, n, &key)) {
    Py_RETURN_NONE;
  }
  return PyLong_FromUnsignedLongLong(key.lo);
}

}  // namespace

bool read_uint(PyObject* object, uint64_t most, uint64_t* value) {
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

bool read_scope(PyObject* const* args, Scope* scope) {
  uint64_t master, task, epoch, step;
  if (!read_uint(args[0], kMax64, &master) || !read_uint(args[1], kMaxTask, &task) ||
      !read_uint(args[2], kMax32, &epoch) || !read_uint(args[3], kMax64, &step)) {
    return false;
  }
  *scope = scope_key(master, static_cast<uint32_t>(task), static_cast<uint32_t>(epoch), step);
  return true;
}

PyObject* wrong_call(const char* function) {
  PyErr_Format(PyExc_TypeError, "%s takes integers of its ranges, and as many as it says",
               function);
  return nullptr;
}

bool add_derivation_calls(PyObject* module) {
  static PyMethodDef methods[] = {
      python_call<call_scope_key>("scope_key"),
      python_call<call_stream_key>("stream_key"),
      python_call<call_key>("key"),
      python_call<call_seed>("seed"),
      {nullptr, nullptr, 0, nullptr},
  };
  return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace fastseed
