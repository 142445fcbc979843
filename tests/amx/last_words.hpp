// What is said before the process ends, from a signal handler: without memory of its own and without locks.
#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>

namespace heed::amx {

class LastWords {
 public:
  LastWords() { *this << "AMX emulator: "; }

  LastWords& operator<<(const char* text) {
    for (; *text != '\0'; ++text) put(*text);
    return *this;
  }
  /// Not negative.
  LastWords& operator<<(int number) {
    if (number >= 10) *this << number / 10;
    put(static_cast<char>('0' + number % 10));
    return *this;
  }

  [[noreturn]] void end() {
    text_[length_++] = '\n';
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text_.data(), length_);
    std::abort();
  }

 private:
  void put(char letter) {
    if (length_ + 1 < text_.size()) text_[length_++] = letter;
  }

  std::array<char, 256> text_{};
  std::size_t length_ = 0;
};

}  // namespace heed::amx
