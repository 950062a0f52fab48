#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.hpp"

namespace outrider::tools {

/// How far something is: a bar on stderr where that is a terminal, which disappears when it is
/// destroyed; else a line now and then, for whoever reads a log.
class ProgressBar {
 public:
  /// `say` hears the lines; by default they go to stderr. The clock outlives this.
  using Say = std::function<void(const std::string&)>;
  explicit ProgressBar(std::string label, Say say = {});
  ProgressBar(std::string label, Say say, const Clock& clock, bool is_terminal);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(uint64_t done, uint64_t total);

 private:
  std::string label_;
  Say say_;
  const Clock& clock_;
  bool is_terminal_;
  TimePoint told_;
  int percent_ = -1;
};

}  // namespace outrider::tools
