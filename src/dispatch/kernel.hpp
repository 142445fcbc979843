#pragma once

#include <heed/plan.hpp>

#include "dispatch/arch.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace heed::dispatch {

/// What the registry knows about a kernel of any family. What it computes, and how it is run, is told by the family's
/// own class on top (ForwardKernel, ...), which the engines implement.
class Kernel {
 public:
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel();

  /// Unique in a registry: "cpu/avx512/fwd_tile_f32".
  const std::string& name() const { return name_; }
  const Arch& arch() const { return arch_; }

  virtual std::string_view family() const = 0;     ///< "forward"
  virtual std::string signature_text() const = 0;  ///< what it computes, one line
  virtual std::string algorithm_text() const = 0;  ///< how, one line
  virtual nlohmann::ordered_json signature_json() const = 0;
  virtual nlohmann::ordered_json algorithm_json() const = 0;

  /// The lines that a filter is matched against. A family whose signatures hold wildcards adds what `pattern` asks for
  /// where the wildcard allows it, so that "d128*causal*" finds a kernel for any head dim and any mask.
  virtual std::vector<std::string> search_texts(std::string_view pattern) const;

 protected:
  /// The name becomes "<engine>/<arch>/<stem>".
  Kernel(const Arch& arch, std::string_view stem);

 private:
  Arch arch_;
  std::string name_;
};

}  // namespace heed::dispatch
