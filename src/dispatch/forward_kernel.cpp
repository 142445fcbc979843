#include "dispatch/forward_kernel.hpp"

#include <nlohmann/json.hpp>

namespace heed::dispatch {

Prepared::~Prepared() = default;

ForwardKernel::ForwardKernel(const ForwardKernelSpec& spec) : Kernel(spec.algorithm.arch, spec.stem), spec_(spec) {}

std::string ForwardKernel::impossible(const Problem&) const { return {}; }

std::string ForwardKernel::too_much(const Problem&) const { return {}; }

std::unique_ptr<const Prepared> ForwardKernel::prepare(const Problem&, int) const { return nullptr; }

std::optional<std::span<std::byte>> ForwardKernel::own_workspace(const void*, void*, std::size_t) const {
  return std::nullopt;
}

std::string_view ForwardKernel::family() const { return "forward"; }
std::string ForwardKernel::signature_text() const { return signature().to_string(); }
std::string ForwardKernel::algorithm_text() const { return algorithm().to_string(); }
nlohmann::ordered_json ForwardKernel::signature_json() const { return signature().to_json(); }
nlohmann::ordered_json ForwardKernel::algorithm_json() const { return algorithm().to_json(); }

std::vector<std::string> ForwardKernel::search_texts(std::string_view pattern) const {
  auto texts = Kernel::search_texts(pattern);
  for (std::string& line : signature().instances(pattern)) texts.push_back(name() + " " + std::move(line));
  return texts;
}

}  // namespace heed::dispatch
