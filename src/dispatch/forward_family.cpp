#include "dispatch/forward_family.hpp"

#include "dispatch/attention_rules.hpp"

#include <array>

namespace heed::dispatch {
namespace {

constexpr ForwardRule kOperation{"operation", "this family computes the forward pass",
                                 [](const Problem& p, const ForwardKernel&) -> rules::Broken {
                                   if (p.operation() == Operation::forward) return std::nullopt;
                                   return fmt::format("the operation is {}", enum_text(p.operation()));
                                 }};

using K = ForwardKernel;
constexpr std::array kRules{kOperation,           rules::kTypes<K>,    rules::kOutputTypes<K>, rules::kHeadDim<K>,
                            rules::kHeadDimV<K>,  rules::kMath<K>,     rules::kMode<K>,        rules::kMask<K>,
                            rules::kFeatures<K>,  rules::kRowCount<K>, rules::kAccumulate<K>,  rules::kDeterminism<K>,
                            rules::kLengths<K>,   rules::kTmaType<K>,  rules::kTmaBase<K>,     rules::kTmaKeys<K>,
                            rules::kTmaStride<K>, rules::kRoom<K>,     rules::kAlgorithm<K>};

}  // namespace

constinit const Family<Problem, ForwardKernel> kForwardFamily{"forward", kRules};

}  // namespace heed::dispatch
