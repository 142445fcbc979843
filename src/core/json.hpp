#pragma once

#include "core/invalid.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>

/// JSON read strictly: a value of the wrong kind is an error that names the key, what was found and what it must be.
namespace heed::core {

/// Keys stay in the order they are written.
using Json = nlohmann::ordered_json;

/// `what` begins the message: "problem JSON: line 1, column 3: ...".
inline Json parse_json(std::string_view text, std::string_view what) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    // Without the library's own "[json.exception.parse_error.101] parse error at ".
    std::string_view reason = error.what();
    if (const auto at = reason.find(" at line"); at != std::string_view::npos) reason.remove_prefix(at + 4);
    throw invalid("{}: not JSON, {}.", what, reason);
  }
}

class JsonReader {
 public:
  /// `what` names the document in messages, `key` the value's place in it.
  JsonReader(std::string_view what, std::string_view key, const Json& value) : what_(what), key_(key), value_(value) {}

  std::int64_t integer() const {
    if (!value_.is_number_integer() || (value_.is_number_unsigned() && value_.get<std::uint64_t>() > INT64_MAX))
      throw wrong("a whole number");
    return value_.get<std::int64_t>();
  }
  double number() const {
    if (!value_.is_number()) throw wrong("a number");
    return value_.get<double>();
  }
  bool boolean() const {
    if (!value_.is_boolean()) throw wrong("true or false");
    return value_.get<bool>();
  }
  const std::string& text() const {
    if (!value_.is_string()) throw wrong("a text");
    return value_.get_ref<const std::string&>();
  }
  const Json& object() const {
    if (!value_.is_object()) throw wrong("an object");
    return value_;
  }
  const Json& array() const {
    if (!value_.is_array()) throw wrong("an array");
    return value_;
  }
  bool null() const { return value_.is_null(); }

  /// One of the texts in a table of {text, value} rows.
  template <class Table>
  auto choice(const Table& table) const {
    const std::string& given = text();
    std::string known;
    for (const auto& [row_text, row_value] : table) {
      if (given == row_text) return row_value;
      known.append(known.empty() ? "" : ", ").append(row_text);
    }
    throw wrong("one of " + known);
  }

  /// The value at a key inside this one.
  JsonReader at(std::string_view key, const Json& value) const { return {what_, key, value}; }

  Error wrong(std::string_view expected) const {
    return invalid("{}: '{}' is {}: it must be {}.", what_, key_, value_.dump(), expected);
  }
  Error unknown(std::string_view key, std::string_view known) const {
    return invalid("{}: '{}' has no key '{}': its keys are {}.", what_, key_, key, known);
  }

 private:
  std::string_view what_, key_;
  const Json& value_;
};

}  // namespace heed::core
