#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

namespace outrider::detail {

[[noreturn]] void check_failed(const char* expression, const char* file, int line,
                               const std::string& values);

template <class... Values>
std::string describe_values(const Values&... values) {
  std::ostringstream out;
  ((out << ' ' << values), ...);
  return out.str();
}

}  // namespace outrider::detail

/// Aborts with the expression and the given values. For what cannot happen: a broken invariant of
/// our own code. What can happen (bad input, a full disk) is a Result.
#define OUTRIDER_CHECK(condition, ...)                                                    \
  do {                                                                                    \
    if (!(condition)) [[unlikely]] {                                                      \
      ::outrider::detail::check_failed(#condition, __FILE__, __LINE__,                    \
                                       ::outrider::detail::describe_values(__VA_ARGS__)); \
    }                                                                                     \
  } while (false)
