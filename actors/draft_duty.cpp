#include "actors/draft_duty.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace outrider::actors {
namespace {

/// Steps that a window measures, and those after a switch that are still of the way before.
constexpr uint32_t k_window_steps = 24;
constexpr uint32_t k_switch_steps = 2;
/// A try in which no drafts come within so many steps has failed.
constexpr uint32_t k_warmup_steps_max = 64;
/// Share of the tokens that tries may cost: what one of them cost is spread over the pause behind
/// it.
constexpr double k_cost_max = 0.02;
/// That pause, in times of what the try took; before the first try, where that may cost much, in
/// times of a window.
constexpr double k_pause_min = 1;
constexpr int k_first_pause = 160;
/// After so many steps a try that is so much slower is over.
constexpr uint32_t k_glance_steps = 6;
constexpr double k_glance = 0.6;
/// Drafting must gain so much before it begins, and so little before it ends.
constexpr double k_gain_to_begin = 1.03;
constexpr double k_gain_to_stay = 1.0;
/// Steps of another number of streams before they count as a load of their own.
constexpr uint32_t k_load_steps = 8;

}  // namespace

void DraftDuty::Window::add(const StepReport& step) {
  ++steps;
  promising += step.hints_could_pay ? 1 : 0;
  tokens += step.tokens;
  time += step.time;
}

void DraftDuty::set_available(bool available) {
  if (available == available_) return;
  available_ = available;
  for (Load& load : loads_) {
    load.tries = false;
    load.now = load.last = {};
    if (available && load.begun) load.until_try = Duration(0);
  }
}

bool DraftDuty::on() const {
  const Load& load = loads_[current_];
  return available_ && (options_.always || load.pays != load.tries);
}

void DraftDuty::observe(const StepReport& step, bool ready) {
  if (!available_ || options_.always || step.sequences == 0) return;
  if (!choose_load(step.sequences)) return;
  Load& load = loads_[current_];
  if (load.tries) {
    attempt(load, step, ready);
  } else {
    wait(load, step);
  }
}

/// False: the step says nothing of the load that holds.
bool DraftDuty::choose_load(uint32_t sequences) {
  const size_t load = std::min<size_t>(std::bit_width(sequences), loads_.size() - 1);
  elsewhere_ = load == current_ ? 0 : elsewhere_ + 1;
  if (elsewhere_ < k_load_steps) return elsewhere_ == 0;
  elsewhere_ = 0;
  current_ = load;
  // What was half measured would join two times.
  Load& now = loads_[current_];
  now.tries = false;
  now.now = now.last = {};
  return true;
}

void DraftDuty::wait(Load& load, const StepReport& step) {
  load.until_try -= step.time;
  if (!step.decodes_only) return;
  load.now.add(step);
  if (load.now.steps < k_window_steps) return;
  load.last = std::exchange(load.now, {});
  if (!load.begun) {
    load.begun = true;
    if (options_.competes) load.until_try = k_first_pause * load.last.time;
  }
  const bool could_pay = 2 * load.last.promising >= load.last.steps;
  if (!could_pay) load.pays = false;
  if (!could_pay || load.until_try > Duration(0)) return;
  load.tries = true;
  load.ready = false;
  load.warmup = 0;
  load.spent = Duration(0);
}

void DraftDuty::attempt(Load& load, const StepReport& step, bool ready) {
  load.spent += step.time;
  const bool drafts = !load.pays;
  const bool waits = drafts && !load.ready && !ready;
  if (++load.warmup <= k_switch_steps) return;
  if (!waits && !load.ready) {
    load.ready = true;
    load.now = {};  // So far it waited for them.
  }
  if (step.decodes_only) load.now.add(step);
  if (load.now.steps == 0) return;
  const double gain =
      drafts ? load.now.rate() / load.last.rate() : load.last.rate() / load.now.rate();
  // What waiting for drafts costs is known; what they would bring is not.
  if (waits && load.warmup > k_warmup_steps_max) return conclude(load, std::min(gain, 1.0));
  if (waits) return;
  const bool is_over = drafts && gain < k_glance && load.now.steps >= k_glance_steps;
  if (is_over || load.now.steps >= k_window_steps) conclude(load, gain);
}

/// `gain`: tokens per second with drafts over those without.
void DraftDuty::conclude(Load& load, double gain) {
  load.pays = gain > (load.pays ? k_gain_to_stay : k_gain_to_begin);
  // Of the tokens of the faster way, those that the other one would not have given.
  const double cost = load.pays ? 1 - 1 / gain : std::max(0.0, 1 - gain);
  load.until_try = Duration(static_cast<Duration::rep>(static_cast<double>(load.spent.count()) *
                                                       std::max(k_pause_min, cost / k_cost_max)));
  load.tries = false;
  load.now = load.last = {};
}

}  // namespace outrider::actors
