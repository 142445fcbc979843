#pragma once

#include "dispatch/kernel.hpp"
#include "dispatch/place.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::dispatch {

/// The kernels of every family and engine that this build has, runnable on this machine or not, and the engines that
/// are missing. Filled once, by the engines; from then on it is only read, so that threads and plans share it without a
/// lock.
class Registry {
 public:
  struct Entry {
    std::shared_ptr<const Kernel> kernel;
    std::string lacks;  ///< why this machine cannot run it; empty: it can

    KernelInfo info() const;
  };
  struct MissingEngine {
    EngineKind engine;
    std::string reason;
  };

  /// `lacks` is the engine's word on why this machine cannot run the kernel ("needs amx, this machine has avx512").
  /// Throws Error (internal) when the name is taken.
  void add(std::shared_ptr<const Kernel> kernel, std::string lacks = {});
  void add_missing(EngineKind engine, std::string reason);

  /// Where memory is, as far as an engine knows: Place::host from all that do not know it.
  using PlaceOf = Place (*)(const void* pointer);
  void add_place_finder(PlaceOf finder) { place_finders_.push_back(finder); }
  Place place_of(const void* pointer) const;
  bool finds_places() const { return !place_finders_.empty(); }

  /// Sorted by name.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<MissingEngine>& missing_engines() const { return missing_; }
  /// Null when there is none.
  const Entry* find(std::string_view name) const;

  /// Kernels whose name, signature or algorithm holds something that matches the pattern; all of them when it is empty.
  std::vector<const Entry*> filter(std::string_view pattern) const;
  /// Kernels that run on this arch: same engine, at most its level.
  std::vector<const Entry*> runnable_on(const Arch& arch) const;

  nlohmann::ordered_json to_json(std::string_view pattern = {}) const;

 private:
  std::vector<Entry> entries_;
  std::vector<MissingEngine> missing_;
  std::vector<PlaceOf> place_finders_;
};

}  // namespace heed::dispatch
