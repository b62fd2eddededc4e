// An accelerator of three devices that torch believes in: its hooks hand out plain CPU generators,
// so that what reaches them through the hooks can be looked at on any machine.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/csrc/utils/pybind.h>

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
}
