// What the files of this folder add to the module `fastseed._generators`.
#pragma once
#include <torch/csrc/utils/pybind.h>

namespace fastseed {

void add_default_generators(pybind11::module_& m);

}  // namespace fastseed
