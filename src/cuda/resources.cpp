#include "cuda/resources.hpp"

#include "core/json.hpp"

#include <algorithm>
#include <charconv>

namespace heed::cuda {
namespace {

/// The number in front of `word` ("168" of "Used 168 registers" and " registers"), 0 without one.
int number_before(std::string_view line, std::string_view word) {
  const auto end = line.find(word);
  if (end == line.npos) return 0;
  auto begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int number = 0;
  std::from_chars(line.data() + begin, line.data() + end, number);
  return number;
}

bool contains(std::string_view line, std::string_view word) { return line.find(word) != line.npos; }

/// Said of every kernel, and so of no interest: what is compiled, how long it took.
bool is_routine(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos || contains(line, "bytes gmem") ||
         contains(line, "Compiling entry function") || contains(line, "Function properties for") ||
         contains(line, "Compile time =") || contains(line, "bytes stack frame") || contains(line, ": Used ");
}

/// Remarks C7510 to C7518: "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to
/// ...",
/// "(C7517) warpgroup.wait is injected in around line ... by compiler". C7519, an injected arrive, costs nothing.
bool tells_serialized_wgmma(std::string_view line) {
  constexpr std::string_view kCode = "(C751";
  const auto at = line.find(kCode);
  if (at != line.npos && at + kCode.size() < line.size()) {
    const char digit = line[at + kCode.size()];
    return digit >= '0' && digit <= '8';
  }
  return contains(line, "wgmma") && contains(line, "serialized");
}

}  // namespace

Resources read_resources(std::string_view log) {
  Resources found;
  while (!log.empty()) {
    const auto end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    found.registers = std::max(found.registers, number_before(line, " registers"));
    found.shared_bytes = std::max(found.shared_bytes, number_before(line, " bytes smem"));
    found.local_bytes = std::max(found.local_bytes, number_before(line, " bytes stack frame"));
    found.spill_bytes = std::max(
        found.spill_bytes, number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads"));
    if (tells_serialized_wgmma(line)) found.serialized_wgmma = true;
    if (!is_routine(line)) found.remarks.append(line).push_back('\n');
  }
  return found;
}

core::Json to_json(const Resources& resources) {
  return {{"registers", resources.registers},
          {"shared_bytes", resources.shared_bytes},
          {"local_bytes", resources.local_bytes},
          {"spill_bytes", resources.spill_bytes},
          {"serialized_wgmma", resources.serialized_wgmma},
          {"remarks", resources.remarks}};
}

Resources resources_from_json(const core::Json& json) {
  const auto read = [&](const char* key) {
    static const core::Json kNone;
    const auto found = json.find(key);
    return core::JsonReader("resources", key, found != json.end() ? *found : kNone);
  };
  return {.registers = static_cast<int>(read("registers").integer()),
          .shared_bytes = static_cast<int>(read("shared_bytes").integer()),
          .local_bytes = static_cast<int>(read("local_bytes").integer()),
          .spill_bytes = static_cast<int>(read("spill_bytes").integer()),
          .serialized_wgmma = read("serialized_wgmma").boolean(),
          .remarks = read("remarks").text()};
}

}  // namespace heed::cuda
