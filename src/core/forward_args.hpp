#pragma once

#include <heed/forward.hpp>
#include <heed/problem.hpp>

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

/// The steps by which Problem::of reads ForwardArgs, and the forward half of BackwardArgs. Each throws Error at the
/// first broken rule; none allocates otherwise.
namespace heed::core {

/// Every view of the arguments with the name it has there, outputs first.
struct NamedView {
  std::string_view name;
  TensorView view;
};
inline constexpr std::size_t kOutputs = 3, kViews = 16;
std::array<NamedView, kViews> all_views(const ForwardArgs& args);

/// What must hold for any view, whatever it is used for: rank, sizes, reach, data where there are elements, and in GPU
/// memory its elements at multiples of their size.
void check_view(const NamedView& named, Memory memory);

/// q, k, v, o against each other, and the sequences: sets types, mode, sizes and strides.
void read_operands(const ForwardArgs& args, Memory memory, Problem& problem);

/// Everything that is optional: masks, bias, ALiBi, sink, dropout, LSE. Needs the sizes.
void read_features(const ForwardArgs& args, Problem& problem);

/// The first `outputs` of the views share memory with nothing. Needs checked views, at most kMostViews of them.
inline constexpr std::size_t kMostViews = 24;
void check_memory(std::span<const NamedView> views, std::size_t outputs);

/// An output has a place for each of its elements.
void check_separate(std::string_view name, const TensorView& view);

/// In GPU memory: whether every one of these begins at a multiple of 16 bytes.
bool all_aligned(std::initializer_list<TensorView> views);

// ---- words for messages ----

/// "[2, 128, 8, 64]"
std::string shape_text(const TensorView& view);

void check_rank(std::string_view name, const TensorView& view, int rank, std::string_view shape);
void check_type(std::string_view name, const TensorView& view, std::initializer_list<DataType> accepted);
/// Dimension `dim` of `name` must be `expected`, as told by `source` ("h of q").
void check_dim(std::string_view name, const TensorView& view, int dim, std::int64_t expected, std::string_view source);

}  // namespace heed::core
