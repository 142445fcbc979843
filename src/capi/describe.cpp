#include "capi/convert.hpp"
#include "capi/handles.hpp"
#include "capi/status.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

using namespace heed;        // NOLINT(google-build-using-namespace): this file is heed's C face, all of it is heed
using namespace heed::capi;  // NOLINT(google-build-using-namespace)

namespace {

/// Hands a text to the caller, who frees it by heed_string_free.
heed_status give(char** out, auto&& text) {
  return guarded([&] {
    char*& result = required(out, "json");
    const std::string made = text();
    auto* copy = static_cast<char*>(std::malloc(made.size() + 1));
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, made.c_str(), made.size() + 1);
    result = copy;
  });
}

}  // namespace

void heed_string_free(char* text) { std::free(text); }

heed_status heed_problem_json(const heed_forward_args* args, char** json) {
  return give(json, [&] { return default_context()->problem(forward_args(args)).to_json(); });
}

heed_status heed_explain_json(heed_context* handle, const heed_forward_args* args, const heed_plan_options* options,
                              char** json) {
  return give(json, [&] { return context_of(handle)->explain(forward_args(args), plan_options(options)).to_json(); });
}

heed_status heed_backward_problem_json(const heed_backward_args* args, char** json) {
  return give(json, [&] { return default_context()->problem(backward_args(args)).to_json(); });
}

heed_status heed_backward_explain_json(heed_context* handle, const heed_backward_args* args,
                                       const heed_plan_options* options, char** json) {
  return give(json, [&] { return context_of(handle)->explain(backward_args(args), plan_options(options)).to_json(); });
}

heed_status heed_explain_problem_json(heed_context* context, const char* problem_json, const heed_plan_options* options,
                                      char** json) {
  return give(json, [&] {
    const Problem problem = Problem::from_json(&required(problem_json, "problem_json"));
    return context_of(context)->explain(problem, plan_options(options)).to_json();
  });
}

heed_status heed_kernels_json(heed_context* context, const char* filter, char** json) {
  return give(json, [&] { return context_of(context)->kernels_json(filter == nullptr ? "" : filter); });
}

heed_status heed_mask_parse(const char* text, heed_mask* mask) {
  return guarded([&] { required(mask, "mask") = c_mask(Mask::parse(&required(text, "text"))); });
}

heed_status heed_mask_check(const char* text) {
  return guarded([&] { static_cast<void>(Mask::parse(&required(text, "text"))); });
}
