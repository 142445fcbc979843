#include "dispatch/attention_kernel.hpp"

#include <nlohmann/json.hpp>

namespace heed::dispatch {

Prepared::~Prepared() = default;

AttentionKernel::AttentionKernel(const AttentionKernelSpec& spec)
    : Kernel(spec.algorithm.arch, spec.stem), spec_(spec) {}

std::string AttentionKernel::impossible(const Problem&) const { return {}; }

std::string AttentionKernel::too_much(const Problem&) const { return {}; }

std::unique_ptr<const Prepared> AttentionKernel::prepare(const Problem&, int) const { return nullptr; }

std::optional<std::span<std::byte>> AttentionKernel::own_workspace(const void*, void*, std::size_t) const {
  return std::nullopt;
}

std::string_view AttentionKernel::family() const { return enum_text(operation()); }
std::string AttentionKernel::signature_text() const { return signature().to_string(); }
std::string AttentionKernel::algorithm_text() const { return algorithm().to_string(); }
nlohmann::ordered_json AttentionKernel::signature_json() const { return signature().to_json(); }
nlohmann::ordered_json AttentionKernel::algorithm_json() const { return algorithm().to_json(); }

std::vector<std::string> AttentionKernel::search_texts(std::string_view pattern) const {
  auto texts = Kernel::search_texts(pattern);
  for (std::string& line : signature().instances(pattern, operation())) texts.push_back(name() + " " + std::move(line));
  return texts;
}

}  // namespace heed::dispatch
