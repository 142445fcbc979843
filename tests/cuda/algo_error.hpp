#pragma once

#include <heed/error.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace heed::cuda {

/// What is said of knobs that cannot be read: Algo is HopperAlgo or HopperBackwardAlgo.
template <class Algo>
std::string parse_error(std::string_view text) {
  try {
    Algo::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

}  // namespace heed::cuda
