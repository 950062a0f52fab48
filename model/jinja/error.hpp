#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/result.hpp"

namespace outrider::model::jinja {

/// Stops a parse or a render. Thrown and caught inside the interpreter only: template.cpp
/// turns it into an Error, and a line of 0 into the line that was running.
class TemplateError : public std::runtime_error {
 public:
  TemplateError(ErrorCode why, const std::string& message, uint32_t where = 0)
      : std::runtime_error(message), code(why), line(where) {}

  ErrorCode code;
  uint32_t line;
};

/// A value has the wrong type or range for what the template does with it.
[[noreturn]] inline void fail_value(const std::string& message) {
  throw TemplateError(ErrorCode::invalid_argument, message);
}

// Prices of work, in about nanoseconds or bytes, whichever is more. A byte of text costs 1.
inline constexpr uint64_t k_node_work = 32;     ///< evaluating or running one node
inline constexpr uint64_t k_element_work = 24;  ///< one element of a list, one comparison
inline constexpr uint64_t k_text_work = 64;     ///< one new text, whatever its length
inline constexpr uint64_t k_scope_work = 128;   ///< one scope: a round of a loop, a call
inline constexpr uint64_t k_kept_work = 512;    ///< a scope that a macro keeps until the end
inline constexpr uint64_t k_case_work = 8;      ///< a byte that is read as a character

/// What one render may use up: bounds its time and its memory together.
class Budget {
 public:
  Budget(uint64_t work, uint32_t nesting) : work_(work), nesting_(nesting) {}

  void charge(uint64_t units) {
    if (units > work_) {
      throw TemplateError(ErrorCode::too_large, "the template does more work than is allowed");
    }
    work_ -= units;
  }

 private:
  friend class Nesting;
  uint64_t work_;
  uint32_t nesting_;
};

/// One level of recursion, over the template's nodes or over a value's elements.
class Nesting {
 public:
  explicit Nesting(Budget& budget) : budget_(budget) {
    if (budget_.nesting_ == 0) {
      throw TemplateError(ErrorCode::too_large, "the template or its values nest too deeply");
    }
    --budget_.nesting_;
  }
  ~Nesting() { ++budget_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Budget& budget_;
};

}  // namespace outrider::model::jinja
