#pragma once

#include <dlfcn.h>

#include <chrono>
#include <future>
#include <string>
#include <string_view>
#include <thread>

namespace heed::cuda::test {

/// Two threads, each with a GPU of its own, as a collective operation ties them together: what `first` asks of the
/// driver by `function` waits until `second` is done. Whether it came to that, rather than to the end of a time limit.
template <class First, class Second>
bool second_goes_on_while_the_driver_holds_first(std::string_view function, const First& first, const Second& second) {
  static std::string held;
  static std::promise<void> reached, done;
  static thread_local bool is_first = false;
  static bool in_time;
  held = function;
  reached = {}, done = {}, in_time = true;
  const auto before =
      reinterpret_cast<void (*)(void (*)(const char*))>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_cuda_before"));
  before([](const char* called) {
    if (!is_first || called != held) return;
    is_first = false;
    reached.set_value();
    in_time = done.get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  });
  std::thread one([&] {
    is_first = true;
    first();
  });
  reached.get_future().wait();
  second();
  done.set_value();
  one.join();
  before(nullptr);
  return in_time;
}

}  // namespace heed::cuda::test
