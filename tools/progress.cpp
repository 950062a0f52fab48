#include "tools/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace outrider::tools {
namespace {

/// Between lines where there is no terminal, and before the first.
constexpr Duration k_line_interval = std::chrono::seconds(10);

const Clock& steady_clock() {
  static const SteadyClock clock;
  return clock;
}

void say_on_stderr(const std::string& text) {
  std::fprintf(stderr, "outrider: %s\n", text.c_str());
}

}  // namespace

ProgressBar::ProgressBar(std::string label, Say say)
    : ProgressBar(std::move(label), std::move(say), steady_clock(), isatty(STDERR_FILENO) == 1) {}

ProgressBar::ProgressBar(std::string label, Say say, const Clock& clock, bool is_terminal)
    : label_(std::move(label)),
      say_(say ? std::move(say) : say_on_stderr),
      clock_(clock),
      is_terminal_(is_terminal),
      told_(clock.now()) {}

ProgressBar::~ProgressBar() {
  if (is_terminal_ && percent_ >= 0) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  const int percent = total == 0 ? 100 : static_cast<int>(std::min(done, total) * 100 / total);
  if (percent == percent_) return;
  if (!is_terminal_) {
    if (clock_.now() - told_ < k_line_interval) return;
    told_ = clock_.now();
    percent_ = percent;
    return say_(label_ + ": " + std::to_string(percent) + " %");
  }
  percent_ = percent;
  constexpr int k_width = 40;
  const int filled = percent * k_width / 100;
  const std::string bar = std::string(static_cast<size_t>(filled), '#') +
                          std::string(static_cast<size_t>(k_width - filled), '.');
  std::fprintf(stderr, "\r%s [%s] %3d %%", label_.c_str(), bar.c_str(), percent);
  std::fflush(stderr);
}

}  // namespace outrider::tools
