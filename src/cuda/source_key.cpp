#include "cuda/source_key.hpp"

#include "cuda/sha256.hpp"

#include <algorithm>
#include <map>

namespace heed::cuda {
namespace {

/// The name in a line `#include "name"`; empty for any other line.
std::string_view included_by(std::string_view line) {
  const auto skip_blanks = [&] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  skip_blanks();
  if (!line.starts_with('#')) return {};
  line.remove_prefix(1);
  skip_blanks();
  constexpr std::string_view kInclude = "include";
  if (!line.starts_with(kInclude)) return {};
  line.remove_prefix(kInclude.size());
  skip_blanks();
  if (!line.starts_with('"')) return {};
  line.remove_prefix(1);
  return line.substr(0, line.find('"'));
}

void add_reached(std::string_view text, std::span<const SourceFile> headers,
                 std::map<std::string_view, std::string_view>& reached) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view name = included_by(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (name.empty() || reached.count(name) > 0) continue;
    const auto header =
        std::find_if(headers.begin(), headers.end(), [&](const auto& each) { return each.name == name; });
    if (header == headers.end()) continue;
    reached.emplace(header->name, header->text);
    add_reached(header->text, headers, reached);
  }
}

}  // namespace

std::vector<SourceFile> reached_headers(std::string_view text, std::span<const SourceFile> headers) {
  std::map<std::string_view, std::string_view> reached;
  add_reached(text, headers, reached);
  std::vector<SourceFile> list;
  for (const auto& [name, content] : reached) list.push_back({name, content});
  return list;
}

std::string source_key(std::string_view text, std::span<const SourceFile> reached,
                       std::span<const std::string> options) {
  Sha256 sum;
  // Every part with its length, so that no two lists of parts look alike.
  const auto add = [&](std::string_view part) { sum.add(std::uint64_t{part.size()}).add(part); };
  add(text);
  sum.add(std::uint64_t{reached.size()});
  for (const SourceFile& header : reached) {
    add(header.name);
    add(header.text);
  }
  sum.add(std::uint64_t{options.size()});
  for (const std::string& option : options) add(option);
  return to_hex(sum.digest());
}

}  // namespace heed::cuda
