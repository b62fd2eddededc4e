// An accelerator of three devices that torch believes in: its hooks hand out plain CPU generators,
// so that what reaches them through the hooks can be looked at on any machine. Besides it a
// generator on the CPU that is not torch's own, and a thread that keeps a generator's mutex.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <future>
#include <thread>
#include <vector>

namespace {

constexpr c10::DeviceIndex kDevices = 3;
constexpr c10::DeviceIndex kCurrent = 1;

struct Hooks : public at::PrivateUse1HooksInterface {
  std::vector<at::Generator> generators;

  Hooks() {
    for (int i = 0; i < kDevices; ++i) {
      generators.push_back(at::detail::createCPUGenerator());
    }
  }
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return kDevices;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return kCurrent;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return generators.at(device);
  }
};

// Counter-based, as CUDA's is: a seed and an offset, which a new seed makes 0.
struct Foreign : public c10::GeneratorImpl {
  uint64_t words[2] = {67280421310721, 0};

  Foreign()
      : GeneratorImpl(c10::Device(c10::DeviceType::CPU),
                      c10::DispatchKeySet(c10::DispatchKey::CPU)) {}
  void set_current_seed(uint64_t seed) override {
    words[0] = seed;
    words[1] = 0;
  }
  void set_offset(uint64_t offset) override {
    words[1] = offset;
  }
  uint64_t get_offset() const override {
    return words[1];
  }
  uint64_t current_seed() const override {
    return words[0];
  }
  uint64_t seed() override {
    set_current_seed(1);
    return 1;
  }
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    std::memcpy(words, state.data(), sizeof(words));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::detail::empty_cpu({sizeof(words)}, at::kByte);
    std::memcpy(state.data_ptr(), words, sizeof(words));
    return state.getIntrusivePtr();
  }
  Foreign* clone_impl() const override {
    return new Foreign(*this);
  }

 private:
  Foreign(const Foreign& other) : Foreign() {
    std::memcpy(words, other.words, sizeof(words));
  }
};

// Keeps the mutex of a generator, in a thread of its own, until it is released.
class Held {
 public:
  explicit Held(at::Generator gen)
      : thread_([this, gen]() mutable {
          std::lock_guard<std::mutex> lock(gen.mutex());
          holds_.set_value();
          over_.get_future().wait();
        }) {
    holds_.get_future().wait();
  }
  void let_go() {
    over_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> holds_, over_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  static Hooks* hooks = new Hooks;  // torch keeps the pointer for the life of the process
  at::RegisterPrivateUse1HooksInterface(hooks);
  m.def("seeds", [] {
    std::vector<uint64_t> seeds;
    for (const at::Generator& generator : hooks->generators) {
      seeds.push_back(generator.current_seed());
    }
    return seeds;
  });
  m.def("generators", [] { return hooks->generators; });
  m.def("another_class", [] { return at::make_generator<Foreign>(); });
  pybind11::class_<Held>(m, "Held")
      .def(pybind11::init<at::Generator>())
      .def("let_go", &Held::let_go, pybind11::call_guard<pybind11::gil_scoped_release>());
}
