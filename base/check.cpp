#include "base/check.hpp"

#include <cstdio>

namespace outrider::detail {

void check_failed(const char* expression, const char* file, int line, const std::string& values) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, expression,
               values.empty() ? "" : " with", values.c_str());
  std::abort();
}

}  // namespace outrider::detail
