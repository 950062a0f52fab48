#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "tests/sim/cluster/timeline.hpp"

namespace outrider::sim::cluster {

/// What a run found, and if somebody wants to read it, what happened.
class Report {
 public:
  /// Null: no trace.
  Report(const Timeline& time, std::ostream* trace) : time_(time), trace_(trace) {}

  void violation(std::string what) {
    note("VIOLATION " + what);
    if (violations_.size() < k_violations_max) violations_.push_back(stamp() + std::move(what));
  }
  void note(const std::string& what) {
    if (trace_ != nullptr) *trace_ << stamp() << what << "\n";
  }
  bool traces() const { return trace_ != nullptr; }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  static constexpr size_t k_violations_max = 10;

  std::string stamp() const {
    std::string ms = std::to_string(time_.now().count() / 1000);
    ms.insert(ms.size() > 3 ? ms.size() - 3 : 0, ".");
    return ms + " ms: ";
  }

  const Timeline& time_;
  std::ostream* trace_;
  std::vector<std::string> violations_;
};

}  // namespace outrider::sim::cluster
