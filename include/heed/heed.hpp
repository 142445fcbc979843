#pragma once

/// heed: fused multi-head attention.
///
///   heed::forward({.q = {q, heed::bf16, {b, s, h, d}},
///                  .k = {k, heed::bf16, {b, s, h_k, d}},
///                  .v = {v, heed::bf16, {b, s, h_k, d}},
///                  .o = {o, heed::bf16, {b, s, h, d}},
///                  .mask = heed::Mask::causal()});

#include <heed/backward.hpp>
#include <heed/error.hpp>
#include <heed/executor.hpp>
#include <heed/forward.hpp>
#include <heed/mask.hpp>
#include <heed/oracle.hpp>
#include <heed/philox.hpp>
#include <heed/plan.hpp>
#include <heed/problem.hpp>
#include <heed/tensor.hpp>
#include <heed/types.hpp>
#include <heed/version.h>
#include <heed/work.hpp>
