#include "tools/progress.hpp"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace outrider::tools {

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (terminal_ && percent_ >= 0) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  const int percent = total == 0 ? 100 : static_cast<int>(done * 100 / total);
  if (!terminal_ || percent == percent_) return;
  percent_ = percent;
  constexpr int k_width = 40;
  const int filled = percent * k_width / 100;
  const std::string bar = std::string(static_cast<size_t>(filled), '#') +
                          std::string(static_cast<size_t>(k_width - filled), '.');
  std::fprintf(stderr, "\r%s [%s] %3d %%", label_.c_str(), bar.c_str(), percent);
  std::fflush(stderr);
}

}  // namespace outrider::tools
