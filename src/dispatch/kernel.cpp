#include "dispatch/kernel.hpp"

#include <fmt/format.h>

namespace heed::dispatch {

Kernel::Kernel(const Arch& arch, std::string_view stem)
    : arch_(arch), name_(fmt::format("{}/{}/{}", dispatch::name(arch.engine()), arch.to_string(), stem)) {}

Kernel::~Kernel() = default;

std::vector<std::string> Kernel::search_texts(std::string_view) const {
  return {name(), signature_text(), algorithm_text()};
}

}  // namespace heed::dispatch
