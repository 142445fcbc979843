#pragma once

#include <heed/heed.h>

#include "capi/handles.hpp"
#include "dispatch/fakes.hpp"

#include <cstdint>
#include <vector>

/// Arguments as a program in C gives them, and a context whose engine computes nothing.
namespace heed::testing {

inline heed_tensor c_tensor(std::vector<float>& data, std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) {
  return {data.data(), HEED_F32, 4, {b, s, h, d}, {s * h * d, h * d, d, 1}};
}

struct CProblem {
  static constexpr std::int64_t b = 2, s = 3, h = 4, d = 8;

  std::vector<float> q = std::vector<float>(b * s * h * d, 0.5F), k = q, v = q, o = q;

  heed_forward_args args() {
    heed_forward_args args{};
    args.struct_size = sizeof args;
    args.q = c_tensor(q, b, s, h, d);
    args.k = c_tensor(k, b, s, h, d);
    args.v = c_tensor(v, b, s, h, d);
    args.o = c_tensor(o, b, s, h, d);
    return args;
  }
};

struct CContext {
  explicit CContext(const std::vector<FakeSpec>& specs = {FakeSpec{}}, int threads = 2)
      : fake(specs, threads), handle{fake.context} {}

  operator heed_context*() { return &handle; }  // NOLINT(google-explicit-constructor)

  FakeContext fake;
  heed_context handle;
};

}  // namespace heed::testing
