#pragma once

#include <heed/backward.hpp>
#include <heed/forward.hpp>

#include "dispatch/arch.hpp"

#include <cstdint>
#include <string_view>

namespace heed::dispatch {

class Registry;

/// Who can read a piece of memory.
enum class Place : std::uint8_t {
  host,
  gpu,
  both,  ///< managed by the driver, or shared
};

constexpr Memory memory_of(EngineKind engine) { return engine == EngineKind::cuda ? Memory::gpu : Memory::host; }

/// The engine for a call that leaves the choice to heed: the one whose memory q is in.
EngineChoice engine_for(const Registry& registry, const ForwardArgs& args);
EngineChoice engine_for(const Registry& registry, const BackwardArgs& args);

/// Throws Error when memory is where the engine cannot reach it.
void check_place(const Registry& registry, std::string_view name, const void* memory, EngineKind engine);
/// Likewise for every tensor of a call but those at `known`, which were seen to be in the right place.
void check_places(const Registry& registry, const ForwardArgs& args, EngineKind engine, const void* known = nullptr);
void check_places(const Registry& registry, const BackwardArgs& args, EngineKind engine, const void* known = nullptr);

}  // namespace heed::dispatch
