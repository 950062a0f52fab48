#include "tests/golden/golden_stats.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace outrider::golden {
namespace {

/// Like max, but a NaN stays.
void raise(double& worst, double value) {
  if (value > worst || std::isnan(value)) {
    worst = value;
  }
}

/// A token that the engine did not list is at most as probable as the last one that it did: the
/// smallest difference that this allows counts.
double probe_difference(float reference, int32_t id, const TokenLogprob& scored) {
  const auto found = std::ranges::find(scored.top, id, &std::pair<int32_t, float>::first);
  if (found != scored.top.end()) {
    return std::abs(double{found->second} - reference);
  }
  return std::max(0.0, double{reference} - scored.top.back().second);
}

void compare_probe(const Probe& probe, const TokenLogprob& scored, Report& report) {
  const size_t count = std::min(probe.ids.size(), scored.top.size());
  for (size_t i = 0; i < count; ++i) {
    const double difference = probe_difference(probe.logprobs[i], probe.ids[i], scored);
    report.probe_tokens += 1;
    report.probe_difference_sum += difference;
    raise(report.probe_difference_max, difference);
  }
}

std::string describe(const Disagreement& d) {
  std::ostringstream out;
  out << d.where << " position " << d.position << ": token " << d.actual << " instead of "
      << d.expected << " (reference gap " << d.gap << ")";
  return out.str();
}

double ratio(double part, double whole) {
  return whole == 0 ? 0 : part / whole;
}

}  // namespace

double Report::reference_mean_nll() const {
  return ratio(reference_nll_sum, static_cast<double>(positions));
}

double Report::engine_mean_nll() const {
  return ratio(engine_nll_sum, static_cast<double>(positions));
}

double Report::mean_nll_relative() const {
  return std::abs(engine_nll_sum - reference_nll_sum) / reference_nll_sum;
}

double Report::agreement() const {
  return ratio(static_cast<double>(agreements), static_cast<double>(positions));
}

double Report::probe_difference_mean() const {
  return ratio(probe_difference_sum, static_cast<double>(probe_tokens));
}

void compare_window(const Window& window, std::span<const TokenLogprob> scored, Report& report) {
  const bool complete =
      scored.size() == window.nll.size() &&
      std::ranges::none_of(scored, [](const TokenLogprob& s) { return s.top.empty(); });
  if (!complete) {
    report.malformed.push_back(window.name + ": " + std::to_string(scored.size()) + " of " +
                               std::to_string(window.nll.size()) +
                               " positions, or one without alternatives");
    return;
  }
  for (size_t i = 0; i < scored.size(); ++i) {
    const double nll = -double{scored[i].logprob};
    report.reference_nll_sum += window.nll[i];
    report.engine_nll_sum += nll;
    raise(report.nll_difference_max, std::abs(nll - window.nll[i]));
    report.positions += 1;
    const int32_t chosen = scored[i].top.front().first;
    if (chosen == window.top1[i]) {
      report.agreements += 1;
    } else {
      report.disagreements.push_back(
          {window.name, static_cast<uint32_t>(i), window.top1[i], chosen, window.gap[i]});
    }
  }
  for (const Probe& probe : window.probes) {
    compare_probe(probe, scored[probe.position], report);
  }
}

void compare_path(const GreedyPath& path, std::span<const TokenOut> tokens, Report& report) {
  const bool complete =
      tokens.size() == path.ids.size() &&
      std::ranges::all_of(tokens, [](const TokenOut& t) { return t.logprob.has_value(); });
  if (!complete) {
    report.malformed.push_back("greedy " + path.name + ": " + std::to_string(tokens.size()) +
                               " of " + std::to_string(path.ids.size()) +
                               " tokens, or one without logprob");
    return;
  }
  PathResult result{path.name, static_cast<uint32_t>(path.ids.size()), 0, 0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].id != path.ids[i]) {
      report.path_disagreements.push_back({"greedy " + path.name, static_cast<uint32_t>(i),
                                           path.ids[i], tokens[i].id, path.gap[i]});
      break;  // from here on the two continue different texts
    }
    result.matched += 1;
    raise(result.logprob_difference_max,
          std::abs(double{tokens[i].logprob->logprob} - path.logprobs[i]));
  }
  report.paths.push_back(result);
}

std::vector<std::string> violations(const Report& report, const Limits& limits) {
  std::vector<std::string> found = report.malformed;
  if (report.positions == 0) {
    found.push_back("nothing was compared");
  }
  // Written so that a NaN on either side fails.
  if (!(report.mean_nll_relative() <= limits.mean_nll_relative)) {
    found.push_back("mean NLL " + std::to_string(report.engine_mean_nll()) + " instead of " +
                    std::to_string(report.reference_mean_nll()));
  }
  if (!(report.agreement() >= limits.top1_agreement)) {
    found.push_back("top-1 agreement " + std::to_string(report.agreement()));
  }
  if (!(report.probe_difference_mean() <= limits.logprob_mean)) {
    found.push_back("mean logprob difference of the top tokens " +
                    std::to_string(report.probe_difference_mean()));
  }
  for (const auto* list : {&report.disagreements, &report.path_disagreements}) {
    for (const Disagreement& disagreement : *list) {
      if (!(disagreement.gap < limits.near_tie_gap)) {
        found.push_back("no near-tie at " + describe(disagreement));
      }
    }
  }
  return found;
}

std::string summary(const Report& report) {
  float widest = 0;
  for (const Disagreement& disagreement : report.disagreements) {
    widest = std::max(widest, disagreement.gap);
  }
  std::ostringstream out;
  out << report.positions << " positions, mean NLL " << report.engine_mean_nll() << " (reference "
      << report.reference_mean_nll() << ", " << 100 * report.mean_nll_relative() << " %, worst "
      << report.nll_difference_max << "), top-1 " << 100 * report.agreement() << " % ("
      << report.disagreements.size() << " differ, widest gap " << widest << "), top tokens "
      << report.probe_difference_mean() << " mean " << report.probe_difference_max
      << " max, greedy";
  for (const PathResult& path : report.paths) {
    out << ' ' << path.name << ' ' << path.matched << '/' << path.steps << " (logprob "
        << path.logprob_difference_max << ')';
  }
  for (const Disagreement& disagreement : report.path_disagreements) {
    out << "; left " << describe(disagreement);
  }
  return out.str();
}

}  // namespace outrider::golden
