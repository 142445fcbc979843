#include "heed/text.hpp"

#include "heed/command.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sstream>

namespace heed::command {
namespace {

UsageError cannot_write(const std::string& path) {
  return UsageError(fmt::format("'{}' : cannot be written: {}.", path, std::strerror(errno)));
}

}  // namespace

std::string figure(double value) {
  if (!(value > 0) || !std::isfinite(value)) return fmt::format("{:.3f}", value);
  if (value >= 99.95) return fmt::format("{:.1f}", value);
  if (value >= 0.9995) return fmt::format("{:.2f}", value);
  const int digits = 2 - static_cast<int>(std::floor(std::log10(value)));
  return fmt::format("{:.{}f}", value, std::min(digits, 9));
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

void require_writable(const std::string& path) {
  std::error_code unreadable;
  const bool was_there = std::filesystem::exists(path, unreadable);
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) throw cannot_write(path);
  std::fclose(file);
  if (!was_there) std::filesystem::remove(path, unreadable);
}

void write_file(const std::string& path, const std::string& content) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) throw cannot_write(path);
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  if (std::fclose(file) != 0 || !written) throw cannot_write(path);
}

}  // namespace heed::command
