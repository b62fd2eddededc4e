#include "python_calls.h"

#include "../core/shuffle.h"

namespace fastseed {

namespace {

constexpr uint64_t kMaxTask = (1u << 24) - 1;
constexpr uint64_t kMax32 = 0xffffffffu;
constexpr uint64_t kMax64 = ~uint64_t{0};

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

PyObject* to_pair(const NameKey& name) {
  return Py_BuildValue("(KK)", static_cast<unsigned long long>(name.key),
                       static_cast<unsigned long long>(name.tweak));
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

bool read_word(PyObject* object, uint64_t most, uint32_t* value) {
  uint64_t number;
  if (!read_uint(object, most, &number)) {
    return false;
  }
  *value = static_cast<uint32_t>(number);
  return true;
}

// name_key(scope key, tweak, name lo, name hi) -> (key, tweak)
PyObject* call_name_key(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Scope scope;
  Name name;
  if (n != 4 || !read_uint(args[0], kMax64, &scope.key) ||
      !read_uint(args[1], kMax64, &scope.tweak) || !read_uint(args[2], kMax64, &name.lo) ||
      !read_uint(args[3], kMax64, &name.hi)) {
    return wrong_call("name_key");
  }
  return to_pair(name_key(scope, name));
}

// name_key_at(master, task, epoch, step, name lo, name hi) -> (key, tweak)
PyObject* call_name_key_at(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Scope scope;
  Name name;
  if (n != 6 || !read_scope(args, &scope) || !read_uint(args[4], kMax64, &name.lo) ||
      !read_uint(args[5], kMax64, &name.hi)) {
    return wrong_call("name_key_at");
  }
  return to_pair(name_key(scope, name));
}

// key and tweak of level 2, a word of 32 bits, worker, index
bool read_stream(PyObject* const* args, uint64_t most, Stream* stream, uint64_t* index) {
  return read_uint(args[0], kMax64, &stream->name.key) &&
         read_uint(args[1], kMax64, &stream->name.tweak) &&
         read_word(args[2], most, &stream->rank_word) &&
         read_word(args[3], kMax32, &stream->worker) && read_uint(args[4], kMax64, index);
}

// stream_key(key, tweak, rank | domain << 24, worker, index) -> 128-bit int
PyObject* call_stream_key(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Stream stream;
  uint64_t index;
  if (n != 5 || !read_stream(args, kMax32, &stream, &index)) {
    return wrong_call("stream_key");
  }
  return to_int(stream_key(stream, index));
}

// narrow_seed(key, tweak, rank, worker, index, bits) -> int of so many bits
PyObject* call_narrow_seed(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Stream stream;  // its word holds the rank alone
  uint64_t index, bits;
  if (n != 6 || !read_stream(args, kSharedRank, &stream, &index) ||
      !read_uint(args[5], 32, &bits) || bits < 31) {
    return wrong_call("narrow_seed");
  }
  return PyLong_FromUnsignedLongLong(
      narrow_seed(stream.name, stream.rank_word, stream.worker, index, static_cast<int>(bits)));
}

// All levels: master seed, task, epoch, step, name lo, name hi, rank, worker, index. False where
// one is no exact int of its range.
bool read_key(PyObject* const* args, Py_ssize_t n, Key* key) {
  Scope scope;
  Name name;
  uint32_t rank, worker;
  uint64_t index;
  if (n != 9 || !read_scope(args, &scope) || !read_uint(args[4], kMax64, &name.lo) ||
      !read_uint(args[5], kMax64, &name.hi) || !read_word(args[6], kSharedRank, &rank) ||
      !read_word(args[7], kMax32, &worker) || !read_uint(args[8], kMax64, &index)) {
    return false;
  }
  const Stream stream{name_key(scope, name), with_domain(rank, Domain::kStream), worker};
  *key = stream_key(stream, index);
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
      python_call<call_name_key>("name_key"),
      python_call<call_name_key_at>("name_key_at"),
      python_call<call_stream_key>("stream_key"),
      python_call<call_narrow_seed>("narrow_seed"),
      python_call<call_key>("key"),
      python_call<call_seed>("seed"),
      {nullptr, nullptr, 0, nullptr},
  };
  return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace fastseed
