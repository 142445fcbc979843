// What most tests include; see src/precompiled.hpp.
#include <heed/heed.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
