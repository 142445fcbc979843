#pragma once

#include <heed/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace heed {

/// The call is refused as invalid, with a text that holds each of these pieces.
template <class Call>
void expect_invalid(Call&& call, std::initializer_list<const char*> pieces) {
  try {
    call();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    const std::string text = error.what();
    for (const char* const piece : pieces) EXPECT_THAT(text, testing::HasSubstr(piece));
    EXPECT_EQ(text.back(), '.') << text;
  }
}

}  // namespace heed
