#pragma once

#include <cstdint>
#include <string>

namespace outrider::tools {

/// A progress bar on stderr, drawn only when stderr is a terminal. Not thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws at most once per percent.
  void update(uint64_t done, uint64_t total);

 private:
  std::string label_;
  bool terminal_;
  int percent_ = -1;
};

}  // namespace outrider::tools
