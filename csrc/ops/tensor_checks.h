// What the operators check of their tensors, and how they report a write.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/stableivalue_conversions.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>

#include "../core/device.h"
#include "../core/float16.h"

namespace fastseed {

using Dtype = torch::headeronly::ScalarType;
using Library = torch::stable::detail::StableLibrary;
using torch::stable::Tensor;

// What torch calls a type of elements.
struct Named {
  Dtype dtype;
  const char* name;
};
template <class T>
constexpr Named kElement{};
template <>
constexpr Named kElement<uint8_t>{Dtype::Byte, "uint8"};
template <>
constexpr Named kElement<int32_t>{Dtype::Int, "int32"};
template <>
constexpr Named kElement<int64_t>{Dtype::Long, "int64"};
template <>
constexpr Named kElement<uint32_t>{Dtype::UInt32, "uint32"};
template <>
constexpr Named kElement<uint64_t>{Dtype::UInt64, "uint64"};
template <>
constexpr Named kElement<Half>{Dtype::Half, "float16"};
template <>
constexpr Named kElement<BFloat16>{Dtype::BFloat16, "bfloat16"};
template <>
constexpr Named kElement<float>{Dtype::Float, "float32"};
template <>
constexpr Named kElement<double>{Dtype::Double, "float64"};

inline bool same_device(const Tensor& a, const Tensor& b) {
  return a.device() == b.device();
}

// Bytes of the storage from the first element of `tensor` on; 0 if it was freed (resize_(0)).
inline int64_t bytes_behind(const Tensor& tensor) {
  int64_t size = 0;
  STD_TORCH_CHECK(aoti_torch_get_storage_size(tensor.get(), &size) == AOTI_TORCH_SUCCESS,
                  "fastseed: the tensor has no storage");
  const int64_t offset = tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
  return size > offset && tensor.data_ptr() != nullptr ? size - offset : 0;
}

inline int64_t bytes_of(const Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

// A tensor that the loops can walk: contiguous, and none of it freed.
inline void check_memory(const Tensor& tensor, const char* op, const char* argument) {
  STD_TORCH_CHECK(tensor.is_contiguous(), "fastseed.", op, ": ", argument, " must be contiguous");
  STD_TORCH_CHECK(bytes_of(tensor) == 0 || bytes_of(tensor) <= bytes_behind(tensor), "fastseed.",
                  op, ": ", argument, " must have memory for all of its elements");
}

constexpr int64_t kAnySize = -1;
using Shape = std::initializer_list<int64_t>;

inline std::string text_of(Shape shape) {
  std::string text;
  for (const int64_t size : shape) {
    text += (text.empty() ? "" : ", ") + (size == kAnySize ? "n" : std::to_string(size));
  }
  return text;
}

// A contiguous tensor of this dtype and shape, on the device of `like`. Returns its elements.
template <class T>
T* checked(const Tensor& tensor, const char* op, const char* argument, Shape shape,
           const Tensor& like) {
  STD_TORCH_CHECK(tensor.scalar_type() == kElement<T>.dtype, "fastseed.", op, ": ", argument,
                  " must be of dtype torch.", kElement<T>.name);
  bool fits = tensor.dim() == static_cast<int64_t>(shape.size());
  int64_t d = 0;
  for (const int64_t size : shape) {
    fits = fits && (size == kAnySize || tensor.size(d) == size);
    ++d;
  }
  STD_TORCH_CHECK(fits, "fastseed.", op, ": ", argument, " must be of shape (", text_of(shape),
                  ")");
  STD_TORCH_CHECK(same_device(tensor, like), "fastseed.", op, ": ", argument,
                  " must be on the device of the other tensors");
  check_memory(tensor, op, argument);
  return static_cast<T*>(tensor.data_ptr());
}

// run(elements) of a tensor of one of these types.
template <class... T, class Run>
void for_types(const Tensor& tensor, const char* op, const char* argument, const Run& run) {
  const auto runs = [&](auto* none) {
    using Type = std::remove_pointer_t<decltype(none)>;
    if (tensor.scalar_type() != kElement<Type>.dtype) {
      return false;
    }
    run(static_cast<Type*>(tensor.data_ptr()));
    return true;
  };
  if (!(runs(static_cast<T*>(nullptr)) || ...)) {
    std::string names;
    size_t left = sizeof...(T);
    ((names += kElement<T>.name, names += --left > 1 ? ", " : left == 1 ? " or " : ""), ...);
    STD_TORCH_CHECK(false, "fastseed.", op, ": ", argument, " must be of dtype ", names);
  }
}

template <class Run>
void for_reals(const Tensor& tensor, const char* op, const char* argument, const Run& run) {
  for_types<Half, BFloat16, float, double>(tensor, op, argument, run);
}

// `written`, which is contiguous, and `bytes` from the first element of `other` on have no byte in
// common: one of them is written while the other is read.
inline void check_disjoint(const Tensor& written, const Tensor& other, int64_t bytes,
                           const char* op, const char* argument) {
  const auto a = reinterpret_cast<uintptr_t>(written.data_ptr());
  const auto b = reinterpret_cast<uintptr_t>(other.data_ptr());
  STD_TORCH_CHECK(bytes_of(written) == 0 || bytes == 0 ||
                      a + static_cast<uintptr_t>(bytes_of(written)) <= b ||
                      b + static_cast<uintptr_t>(bytes) <= a,
                  "fastseed.", op, ": ", argument, " must not share memory with what is written");
}

// Gradients are not recorded while it lives.
class NoGrad {
 public:
  NoGrad() : recorded_(aoti_torch_grad_mode_is_enabled()) {
    aoti_torch_grad_mode_set_enabled(false);
  }
  ~NoGrad() {
    aoti_torch_grad_mode_set_enabled(recorded_);
  }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool recorded_;
};

inline bool is_inference(const Tensor& tensor) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(tensor)};
  return torch_call_dispatcher("aten::is_inference", "", stack.data(), TORCH_ABI_VERSION) ==
             AOTI_TORCH_SUCCESS &&
         torch::stable::detail::to<bool>(stack[0]);
}

// Does it for an AtenTensorHandle in a fiftieth of the time, once the module `_generators` is
// there.
inline void (*count_write)(void* tensor) = nullptr;

// Counts a write for autograd, which the stable ABI (2.10 to 2.13) has no call for: this operator
// changes no element and no stride, but increments the version counter. An inference tensor has no
// counter; there the operator would raise, and torch takes milliseconds to describe that.
inline void mark_written(const Tensor& tensor) {
  if (count_write != nullptr) {
    return count_write(tensor.get());
  }
  if (is_inference(tensor)) {
    return;
  }
  const NoGrad guard;
  std::array<StableIValue, 3> stack{torch::stable::detail::from(tensor),
                                    torch::stable::detail::from(int64_t{0}),
                                    torch::stable::detail::from(int64_t{0})};
  const AOTITorchError error =
      torch_call_dispatcher("aten::transpose_", "", stack.data(), TORCH_ABI_VERSION);
  STD_TORCH_CHECK(error == AOTI_TORCH_SUCCESS,
                  "fastseed: torch does not count a write to a tensor");
  torch::stable::detail::to<Tensor>(stack[0]);  // takes over the reference
}

// The tensors of a call, checked one after another. What is written has no byte in common with any
// other argument.
class Arguments {
 public:
  // All of them are on the device of `like`.
  Arguments(const char* op, const Tensor& like) : op_(op), like_(like) {}

  // Return the elements.
  template <class T>
  const T* read(const Tensor& tensor, const char* name, Shape shape) const {
    const T* elements = checked<T>(tensor, op_, name, shape, like_);
    keep_apart(tensor, name, bytes_of(tensor));
    return elements;
  }
  template <class T>  // null without one
  const T* read(const std::optional<Tensor>& tensor, const char* name, Shape shape) const {
    return tensor.has_value() ? read<T>(*tensor, name, shape) : nullptr;
  }
  template <class T>
  T* write(const Tensor& tensor, const char* name, Shape shape) {
    (void)read<T>(tensor, name, shape);
    written_[count_++] = &tensor;
    return static_cast<T*>(tensor.data_ptr());
  }

  // Of a dtype and shape that the operator looks at.
  void read_any(const Tensor& tensor, const char* name) const {
    STD_TORCH_CHECK(same_device(tensor, like_), "fastseed.", op_, ": ", name,
                    " must be on the device of the other tensors");
    check_memory(tensor, op_, name);
    keep_apart(tensor, name, bytes_of(tensor));
  }
  void write_any(const Tensor& tensor, const char* name) {
    read_any(tensor, name);
    written_[count_++] = &tensor;
  }

  // `bytes` from the first element on, of what is read.
  void keep_apart(const Tensor& tensor, const char* name, int64_t bytes) const {
    for (int i = 0; i < count_; ++i) {
      check_disjoint(*written_[i], tensor, bytes, op_, name);
    }
  }

  void mark_written() const {
    for (int i = 0; i < count_; ++i) {
      fastseed::mark_written(*written_[i]);
    }
  }

  // When all is checked: what is written is marked, and then it is; see operators.h.
  template <class Device, class F>
  void run(int64_t n, int64_t grain, const F& f) const {
    mark_written();
    Device::run(like_, n, grain, f);
  }

 private:
  const char* op_;
  const Tensor& like_;
  std::array<const Tensor*, 3> written_{};
  int count_ = 0;
};

}  // namespace fastseed
