// The MT19937 words inside a torch CPU generator, in place.
//
// set_engine(at::mt19937) copies the 2.5 KB engine three times, which costs as much as the
// derivation. An explicit instantiation may name private members ([temp.spec.general]/6): were
// torch to rename or retype them, this file would not compile.
#pragma once
#include <ATen/CPUGeneratorImpl.h>

namespace fastseed {
namespace access {

template <class Tag, typename Tag::Type kMember>
struct Reveal {
  friend constexpr typename Tag::Type member(Tag) {
    return kMember;
  }
};

struct Engine {
  using Type = at::mt19937 at::CPUGeneratorImpl::*;
  friend constexpr Type member(Engine);
};
struct Data {
  using Type = at::mt19937_data_pod at::mt19937::*;
  friend constexpr Type member(Data);
};

template struct Reveal<Engine, &at::CPUGeneratorImpl::engine_>;
template struct Reveal<Data, &at::mt19937::data_>;

}  // namespace access

inline at::mt19937_data_pod& engine_data(at::CPUGeneratorImpl& gen) {
  return (gen.*member(access::Engine{})).*member(access::Data{});
}

}  // namespace fastseed
