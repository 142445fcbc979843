// The out-of-line half of {fmt}, compiled here once. Its header-only form would compile it in every file that formats a
// number, which is most of the time of a build; its shared library is no choice for a libheed.so that needs none.
#ifndef FMT_HEADER_ONLY

#include <fmt/format-inl.h>

// What format.h declares and leaves to fmt's own library.
template auto fmt::detail::dragonbox::to_decimal(float) noexcept -> decimal_fp<float>;
template auto fmt::detail::dragonbox::to_decimal(double) noexcept -> decimal_fp<double>;
template auto fmt::detail::thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl(locale_ref) -> char;

#endif
