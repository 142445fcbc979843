#pragma once

#include "dispatch/arch.hpp"

#include <optional>
#include <string>

namespace heed::dispatch {

class Registry;

/// All that dispatch knows of an engine. An engine adds its kernels to the registry and is then asked nothing more:
/// plans talk to the kernels, which keep alive what they need.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine();

  virtual EngineKind kind() const = 0;

  /// Why it cannot be used on this machine ("no NVIDIA driver: libcuda.so.1 not found"); nothing when it can.
  virtual std::optional<std::string> unavailable() const = 0;

  /// What it found, in words: "avx512bf16 (AMD EPYC 9B14)".
  virtual std::string arch_text() const = 0;

  /// Tells the registry how to find out whose memory a pointer leads to. Asked of engines that cannot be used, too: the
  /// memory of a GPU that is too old is not the CPU engine's.
  virtual void register_places(Registry&) const {}

  /// Adds every kernel it has, also those that this machine cannot run (with the reason): explain and `heed kernels`
  /// show them too.
  virtual void register_kernels(Registry& registry) const = 0;
};

}  // namespace heed::dispatch
