#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.hpp"

namespace outrider {

/// Why an operation did not succeed, and what the caller can do about it.
enum class ErrorCode : uint8_t {
  invalid_argument = 1,  ///< The caller's value is wrong; `field` names it. Repeating is useless.
  not_found,             ///< The named thing does not exist.
  unsupported,           ///< Well-formed, but not something this build can do.
  corrupt,               ///< Data from a file or a peer breaks its own format. Drop it.
  io,                    ///< The operating system refused. Retrying later may help.
  too_large,             ///< Over a stated limit; the message holds both numbers.
  overloaded,            ///< A bounded queue is full. Retry after a pause (HTTP 429).
  unavailable,           ///< No worker, still loading or draining (HTTP 503). Retry elsewhere.
  unauthenticated,       ///< Missing or wrong API key.
  cancelled,             ///< The caller gave up.
  deadline_exceeded,     ///< The request's own deadline passed.
  internal,              ///< A bug on our side; logged with its request id.
};

/// Lower-case name of a code, as used in logs and metric labels.
std::string_view to_string(ErrorCode code);

/// A failed operation: code, a sentence for a person, and the input field at fault (may be empty).
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::string field;
};

/// Shorthand for `return fail(ErrorCode::corrupt, "…", "field")`.
inline Error fail(ErrorCode code, std::string message, std::string field = {}) {
  return Error{code, std::move(message), std::move(field)};
}

/// A value or an Error. Reading the wrong side is a broken invariant and aborts.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    OUTRIDER_CHECK(ok(), std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    OUTRIDER_CHECK(ok(), std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  T&& value() && {
    OUTRIDER_CHECK(ok(), std::get<1>(state_).message);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    OUTRIDER_CHECK(!ok());
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    OUTRIDER_CHECK(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace outrider

/// Moves the value of `expression` to `target`, or returns its error from the enclosing function.
#define OUTRIDER_ASSIGN(target, expression)                     \
  do {                                                          \
    auto outrider_assigned_ = (expression);                     \
    if (!outrider_assigned_) return outrider_assigned_.error(); \
    target = std::move(*outrider_assigned_);                    \
  } while (false)

/// Returns the error of `expression` from the enclosing function, if it has one.
#define OUTRIDER_TRY(expression)                                           \
  do {                                                                     \
    if (auto outrider_try_result_ = (expression); !outrider_try_result_) { \
      return outrider_try_result_.error();                                 \
    }                                                                      \
  } while (false)
