#include "cuda/kernel_list.hpp"

#include "cuda/hopper_backward.hpp"
#include "cuda/hopper_forward.hpp"
#include "cuda/portable_backward.hpp"
#include "cuda/portable_forward.hpp"
#include "dispatch/backward_family.hpp"
#include "dispatch/forward_family.hpp"

#include <initializer_list>
#include <set>
#include <utility>

namespace heed::cuda {
namespace {

/// A GPU that nobody has: what the compiler needs to know of one.
Device imagined(int sm) {
  Device device;
  device.sm = sm;
  constexpr int kKilobyte = 1024;
  device.max_shared_memory = (sm == 80 ? 163 : sm == 90 || sm == 100 ? 227 : 99) * kKilobyte;
  return device;
}

dispatch::Registry kernels_for(int sm) {
  dispatch::Registry registry;
  if (sm == 90) {
    for (const HopperLine& line : hopper_lines()) registry.add(make_hopper_forward(line, nullptr));
    for (const HopperBackwardLine& line : hopper_backward_lines()) registry.add(make_hopper_backward(line, nullptr));
  }
  for (const dispatch::ForwardKernelSpec& spec : portable_specs()) registry.add(make_portable_forward(spec, nullptr));
  for (const dispatch::BackwardKernelSpec& spec : portable_backward_specs())
    registry.add(make_portable_backward(spec, nullptr));
  return registry;
}

/// Every head dim that has a tile of its own, batch and group mode, no mask and causal, a head of K and V for each
/// query head or for four: forward or backward.
std::vector<Problem> training(const Problem& operation) {
  std::vector<Problem> list;
  for (const DataType type : {DataType::f16, DataType::bf16})
    for (const auto& [d, d_v] : {std::pair{64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}})
      for (const std::int64_t s : {1024, 4096})
        for (const Mask& mask : {Mask::none(), Mask::causal()})
          for (const Mode mode : {Mode::batch, Mode::group})
            for (const std::int64_t heads_k : {8, 2})
              list.push_back(Problem(operation)
                                 .type(type)
                                 .mode(mode)
                                 .batch(2)
                                 .heads(8, heads_k)
                                 .lengths(s, s)
                                 .total_rows(mode == Mode::group ? 2 * s : 0, mode == Mode::group ? 2 * s : 0)
                                 .head_dims(d, d_v)
                                 .mask(mask)
                                 .lse(true));
  return list;
}

template <class Change>
void add_changed(std::vector<Problem>& list, const std::vector<Problem>& from, const Change& change) {
  for (const Problem& problem : from) list.push_back(change(Problem(problem)));
}

std::vector<Problem> serving() {
  std::vector<Problem> list = training(Problem::forward());
  const std::vector<Problem> plain = list;
  add_changed(list, plain, [](Problem p) { return p.mask(Mask::window(1024, 0)); });
  add_changed(list, plain, [](Problem p) { return p.mask(Mask::window(1024, 0, 4)); });
  add_changed(list, plain, [](Problem p) { return p.sink(true); });
  add_changed(list, plain, [](Problem p) { return p.soft_cap(30); });
  add_changed(list, plain, [](Problem p) {  // few queries of many heads: those of a group share tiles
    constexpr std::int64_t kFew = 4;
    return p.heads(32, 8).lengths(kFew, p.s_k()).total_rows(p.total_q() > 0 ? 2 * kFew : 0, p.total_k());
  });
  return list;
}

/// What changes kernels of both directions.
void add_features(std::vector<Problem>& list, const std::vector<Problem>& plain) {
  const BiasSpec bias32{DataType::f32, {.head = true, .query = true}};
  add_changed(list, plain, [](Problem p) { return p.alibi(Alibi::per_head); });
  add_changed(list, plain, [&](Problem p) { return p.bias(bias32); });
  add_changed(list, plain, [&](Problem p) { return p.bias(BiasSpec{p.type(), bias32.shape}); });
  add_changed(list, plain, [](Problem p) { return p.dropout(0.1); });
  add_changed(list, plain, [](Problem p) { return p.bool_mask(Broadcast{.query = true}); });
  for (const std::int64_t block : {64, 128})
    add_changed(list, plain, [=](Problem p) { return p.block_mask(BlockMaskSpec{block, block, {.query = true}}); });
  add_changed(list, plain, [](Problem p) { return p.scale(-1); });
  add_changed(list, plain, [&](Problem p) {
    return p.mask(Mask::window(1024, 0, 4)).alibi(Alibi::per_head).bias(bias32).dropout(0.1).soft_cap(30).sink(true);
  });
  add_changed(list, plain, [](Problem p) { return p.output_type(DataType::f32); });
  add_changed(list, plain, [](Problem p) { return p.output_type(DataType::bf16); });
  add_changed(list, plain, [](Problem p) { return p.type(DataType::f32).output_type(DataType::f32); });
  add_changed(list, plain, [](Problem p) { return p.aligned(false); });
}

std::vector<Problem> everything() {
  std::vector<Problem> list = serving();
  add_features(list, training(Problem::forward()));
  return list;
}

/// Gradients of the features come with them, and without; the same bits in every run are asked for, and are not.
std::vector<Problem> everything_backward() {
  const std::vector<Problem> plain = training(Problem::backward());
  std::vector<Problem> list = plain;
  add_changed(list, plain, [](Problem p) { return p.mask(Mask::window(1024, 0)); });
  add_changed(list, plain, [](Problem p) { return p.accumulate(p.type()); });
  add_changed(list, plain, [](Problem p) { return p.mask(Mask::window(1024, 0, 4)); });
  add_changed(list, plain, [](Problem p) { return p.sink(true); });
  add_changed(list, plain, [](Problem p) { return p.soft_cap(30); });
  for (const bool window : {false, true})
    add_changed(list, plain, [=](Problem p) {  // nobody shares an entry
      if (window) p.mask(Mask::window(1024, 0));
      return p.bias(BiasSpec{p.type(), {.batch = true, .head = true, .query = true}});
    });
  add_features(list, plain);
  const std::vector<Problem> without = list;
  for (Problem& problem : list) {
    if (problem.bias()) problem.dbias(problem.bias()->type);
    problem.dslopes(problem.alibi() != Alibi::none).dsink(problem.sink());
  }
  list.insert(list.end(), without.begin(), without.end());
  add_changed(list, without, [](Problem p) { return p.deterministic(true); });
  return list;
}

std::shared_ptr<const dispatch::AttentionKernel> select(const dispatch::Registry& registry, const Problem& problem) {
  if (problem.operation() == Operation::forward) return dispatch::kForwardFamily.select(registry, problem, {});
  return dispatch::kBackwardFamily.select(registry, problem, {});
}

bool can(const dispatch::Registry& registry, const Problem& problem, const dispatch::AttentionKernel& kernel) {
  if (problem.operation() == Operation::forward)
    return dispatch::kForwardFamily.judge(registry, problem, {.kernel = kernel.name()}).front().can();
  return dispatch::kBackwardFamily.judge(registry, problem, {.kernel = kernel.name()}).front().can();
}

std::vector<Problem> problems_of(std::string_view profile) {
  if (profile == "inference") return serving();
  std::vector<Problem> list = profile == "flash" ? training(Problem::forward()) : everything();
  for (Problem& problem : profile == "flash" ? training(Problem::backward()) : everything_backward())
    list.push_back(std::move(problem));
  return list;
}

}  // namespace

std::vector<ListedKernel> all_kernel_sources(std::string_view profile, int sm) {
  const dispatch::Registry registry = kernels_for(sm);
  const Device small = imagined(sm);
  Device large = small;  // so many multiprocessors that backward passes divide every group of heads into parts
  large.multiprocessors = 1 << 20;
  std::vector<ListedKernel> list;
  std::set<std::string> known;
  for (const Problem& problem : problems_of(profile)) {
    const std::shared_ptr<const dispatch::AttentionKernel> kernel = select(registry, problem);
    for (const Device& device : {small, large})
      for (ListedKernel& one : sources_of(*kernel, problem, device))
        if (known.insert(one.source.text).second) list.push_back(std::move(one));
  }
  return list;
}

std::vector<ListedKernel> sources_of(const dispatch::AttentionKernel& kernel, const Problem& problem,
                                     const Device& device) {
  std::vector<ListedKernel> list;
  const auto add = [&](Compilation compilation) {
    list.push_back(
        {std::move(compilation.source), std::move(compilation.arch), compilation.shared_bytes, kernel.name()});
  };
  if (problem.operation() == Operation::forward) {
    add(static_cast<const CudaForwardKernel&>(kernel).compilation(problem, device));
  } else {
    for (auto& step : static_cast<const CudaBackwardKernel&>(kernel).steps(problem, device))
      add(std::move(step.compilation));
  }
  return list;
}

std::vector<ListedKernel> one_source_of_each(int sm) {
  const dispatch::Registry registry = kernels_for(sm);
  const std::vector<Problem> forward = everything(), backward = everything_backward();
  std::vector<ListedKernel> list;
  for (const dispatch::Registry::Entry& entry : registry.entries()) {
    const auto& kernel = static_cast<const dispatch::AttentionKernel&>(*entry.kernel);
    for (const Problem& problem : kernel.operation() == Operation::forward ? forward : backward) {
      if (!can(registry, problem, kernel)) continue;
      for (ListedKernel& one : sources_of(kernel, problem, imagined(sm))) list.push_back(std::move(one));
      break;
    }
  }
  return list;
}

}  // namespace heed::cuda
