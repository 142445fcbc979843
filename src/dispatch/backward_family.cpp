#include "dispatch/backward_family.hpp"

#include "dispatch/attention_rules.hpp"

#include <array>

namespace heed::dispatch {
namespace {

constexpr BackwardRule kOperation{"operation", "this family computes the backward pass",
                                  [](const Problem& p, const BackwardKernel&) -> rules::Broken {
                                    if (p.operation() == Operation::backward) return std::nullopt;
                                    return fmt::format("the operation is {}", enum_text(p.operation()));
                                  }};

constexpr BackwardRule kGradientTypes{"gradient-types", "kernels write dq, dk and dv in the type of q",
                                      [](const Problem& p, const BackwardKernel&) -> rules::Broken {
                                        if (p.gradient_type() == p.type()) return std::nullopt;
                                        return fmt::format("they are {}, q is {}", name(p.gradient_type()),
                                                           name(p.type()));
                                      }};

/// The oracle alone writes f64.
constexpr BackwardRule kBiasGradientType{"dbias-type", "kernels write dbias in f32 or in the type of bias",
                                         [](const Problem& p, const BackwardKernel&) -> rules::Broken {
                                           if (!p.dbias() || *p.dbias() != DataType::f64) return std::nullopt;
                                           return "it is f64";
                                         }};

using K = BackwardKernel;
constexpr std::array kRules{
    kOperation,          rules::kTypes<K>,    rules::kOutputTypes<K>, kGradientTypes,         kBiasGradientType,
    rules::kHeadDim<K>,  rules::kHeadDimV<K>, rules::kMath<K>,        rules::kMode<K>,        rules::kMask<K>,
    rules::kFeatures<K>, rules::kRowCount<K>, rules::kAccumulate<K>,  rules::kDeterminism<K>, rules::kLengths<K>,
    rules::kTmaType<K>,  rules::kTmaBase<K>,  rules::kTmaKeys<K>,     rules::kTmaStride<K>,   rules::kRoom<K>,
    rules::kAlgorithm<K>};

}  // namespace

constinit const Family<Problem, BackwardKernel> kBackwardFamily{"backward", kRules};

}  // namespace heed::dispatch
