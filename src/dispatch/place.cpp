#include "dispatch/place.hpp"

#include "core/backward_args.hpp"
#include "core/invalid.hpp"
#include "dispatch/registry.hpp"

namespace heed::dispatch {

Place Registry::place_of(const void* pointer) const {
  for (const PlaceOf finder : place_finders_)
    if (const Place place = finder(pointer); place != Place::host) return place;
  return Place::host;
}

EngineChoice engine_for(const Registry& registry, const ForwardArgs& args) {
  return registry.place_of(args.q.data) == Place::gpu ? EngineChoice::cuda : EngineChoice::cpu;
}
EngineChoice engine_for(const Registry& registry, const BackwardArgs& args) {
  return engine_for(registry, args.forward);
}

void check_place(const Registry& registry, std::string_view name, const void* memory, EngineKind engine) {
  const Place wrong = engine == EngineKind::cuda ? Place::host : Place::gpu;
  if (!registry.finds_places() || memory == nullptr || registry.place_of(memory) != wrong) return;
  throw engine == EngineKind::cuda
      ? core::invalid("{} lies in host memory: the CUDA engine reads GPU memory. Copy it there, or use the CPU engine.",
                      name)
      : core::invalid("{} lies in GPU memory: the CPU engine reads host memory. Copy it there, or use the CUDA engine.",
                      name);
}

namespace {

template <class Args>
void check_all(const Registry& registry, const Args& args, EngineKind engine, const void* known) {
  if (!registry.finds_places()) return;
  for (const core::NamedView& named : core::all_views(args))
    if (named.view.data != known) check_place(registry, named.name, named.view.data, engine);
}

}  // namespace

void check_places(const Registry& registry, const ForwardArgs& args, EngineKind engine, const void* known) {
  check_all(registry, args, engine, known);
}
void check_places(const Registry& registry, const BackwardArgs& args, EngineKind engine, const void* known) {
  check_all(registry, args, engine, known);
}

}  // namespace heed::dispatch
