#include "core/forward_args.hpp"

#include "core/invalid.hpp"
#include "core/overlap.hpp"

#include <cstdlib>
#include <utility>

namespace heed {

Problem Problem::of(const ForwardArgs& args, Memory memory) {
  const auto views = core::all_views(args);
  for (const core::NamedView& view : views) core::check_view(view, memory);
  Problem problem;
  core::read_operands(args, memory, problem);
  core::read_features(args, problem);
  if (memory == Memory::gpu) problem.aligned(core::all_aligned({args.q, args.k, args.v, args.o}));
  if (auto error = problem.validate()) throw *std::move(error);
  core::check_memory(views, core::kOutputs);
  return problem;
}

namespace core {

std::array<NamedView, kViews> all_views(const ForwardArgs& args) {
  return {{{"o", args.o},
           {"lse", args.lse},
           {"dropout.randval", args.dropout.randval},
           {"q", args.q},
           {"k", args.k},
           {"v", args.v},
           {"bias", args.bias},
           {"bool_mask", args.bool_mask},
           {"block_mask.keep", args.block_mask.keep},
           {"alibi_slopes", args.alibi_slopes},
           {"sink", args.sink},
           {"seqstart_q", args.seqstart_q},
           {"seqstart_k", args.seqstart_k},
           {"seqlen_q", args.seqlen_q},
           {"seqlen_k", args.seqlen_k},
           {"dropout.state", args.dropout.state}}};
}

void check_view(const NamedView& named, Memory memory) {
  const auto& [name, view] = named;
  if (view.rank == 0) {
    if (view.data != nullptr)
      throw invalid("{}: a pointer with no sizes; give its shape, or leave it out altogether.", name);
    return;
  }
  if (view.rank < 0 || view.rank > TensorView::kMaxRank)
    throw invalid("{}: a view has 1 to {} sizes and, if strides are given, as many strides.", name,
                  TensorView::kMaxRank);
  if (bits(view.type) == 0) throw invalid("{}: type number {} is no type of heed.", name, static_cast<int>(view.type));

  constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;
  bool empty = false;
  std::array<std::int64_t, 4> sizes{1, 1, 1, 1};
  for (int i = 0; i < view.rank; ++i) {
    if (view.size(i) < 0 || view.size(i) > kMaxSize)
      throw invalid("{} is {}: sizes are from 0 to 2^40.", name, shape_text(view));
    sizes[static_cast<std::size_t>(i)] = view.size(i);
    empty = empty || view.size(i) == 0;
  }
  if (span(sizes, view.strides) > kMaxSpan)
    throw invalid("{}: strides {}, {}, {}, {} reach further than 2^56 elements, more than any memory.", name,
                  view.strides[0], view.strides[1], view.strides[2], view.strides[3]);
  if (view.data == nullptr && !empty)
    throw invalid("{} is {} but its data is null: give a pointer, or leave it out altogether.", name, shape_text(view));
  // A processor reads across such boundaries; a GPU stops the whole process's work there.
  const auto element = static_cast<std::uintptr_t>((bits(view.type) + 7) / 8);
  if (const auto odd = reinterpret_cast<std::uintptr_t>(view.data) % element;
      memory == Memory::gpu && odd != 0 && !empty)
    throw invalid("{} begins {} byte{} behind a multiple of {}: in GPU memory {} begins at a multiple of its size.",
                  name, odd, odd == 1 ? "" : "s", element, heed::name(view.type));
}

void check_memory(std::span<const NamedView> views, std::size_t output_views) {
  std::array<Footprint, kMostViews> given;
  std::array<std::string_view, kMostViews> names;
  std::size_t count = 0, outputs = 0;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!views[i].view.given()) continue;
    given[count] = footprint(views[i].view);
    names[count++] = views[i].name;
    if (i < output_views) outputs = count;
  }
  for (std::size_t out = 0; out < outputs; ++out)
    for (std::size_t other = out + 1; other < count; ++other)
      if (overlap(given[out], given[other])) {
        const std::int64_t distance = given[other].base - given[out].base;
        throw invalid("{} and {} overlap in memory ({} begins {} bytes {} {}): an output needs memory of its own.",
                      names[out], names[other], names[other], std::abs(distance), distance < 0 ? "before" : "after",
                      names[out]);
      }
}

void check_separate(std::string_view name, const TensorView& view) {
  std::array<std::int64_t, 4> sizes{1, 1, 1, 1};
  for (int i = 0; i < view.rank; ++i) sizes[static_cast<std::size_t>(i)] = view.size(i);
  if (self_overlaps(sizes, view.strides))
    throw invalid(
        "{} overlaps itself: {} with strides {}, {}, {}, {} puts two elements in one place; an output needs a "
        "place for each.",
        name, shape_text(view), view.strides[0], view.strides[1], view.strides[2], view.strides[3]);
}

bool all_aligned(std::initializer_list<TensorView> views) {
  for (const TensorView& view : views)
    if (reinterpret_cast<std::uintptr_t>(view.data) % 16 != 0) return false;
  return true;
}

std::string shape_text(const TensorView& view) {
  std::string text = "[";
  for (int i = 0; i < view.rank; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", view.size(i));
  return text + "]";
}

void check_rank(std::string_view name, const TensorView& view, int rank, std::string_view shape) {
  if (view.rank != rank) throw invalid("{} is {}: it must be {}.", name, shape_text(view), shape);
}

void check_type(std::string_view name, const TensorView& view, std::initializer_list<DataType> accepted) {
  for (const DataType type : accepted)
    if (view.type == type) return;
  std::string list;
  for (const DataType type : accepted) list.append(list.empty() ? "" : " or ").append(heed::name(type));
  throw invalid("{} is {}: it must be {}.", name, heed::name(view.type), list);
}

void check_dim(std::string_view name, const TensorView& view, int dim, std::int64_t expected, std::string_view source) {
  if (view.size(dim) == expected) return;
  constexpr std::array<std::string_view, 4> kPlaces{"first", "second", "third", "fourth"};
  throw invalid("{} is {}: its {} size, {}, must be {}, the {}.", name, shape_text(view),
                kPlaces[static_cast<std::size_t>(dim)], view.size(dim), expected, source);
}

}  // namespace core
}  // namespace heed
