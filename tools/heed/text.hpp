#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace heed::command {

/// A positive number with at least three digits that count and no exponent: 214.7, 12.34, 0.521, 0.0163.
std::string figure(double value);

/// Splits at blanks.
std::vector<std::string> split_words(const std::string& text);

/// JSON is UTF-8: what is not, as in the name of a file, becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& json, int indent = 2);

/// Today and now, UTC: "2025-01-31T12:00:00Z".
std::string utc_now();

/// Throws UsageError when the file cannot be written. What it holds stays, and where there is none none is left.
void require_writable(const std::string& path);

/// Writes the whole file or throws UsageError.
void write_file(const std::string& path, const std::string& content);

}  // namespace heed::command
