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
/// Time between two tries, in times of what the last one took: without drafts a try may cost all
/// of its time, so that 1 in 40 is 2.5 %; with drafts it costs what they gain.
constexpr int k_pause_plain = 40;
constexpr int k_pause_drafting = 20;
/// Of a try that was clearly slower the pause doubles, up to this.
constexpr uint32_t k_patience_max = 16;
constexpr double k_hopeless = 0.97;
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
  tokens += step.tokens;
  time += step.time;
}

void DraftDuty::set_available(bool available) {
  if (available == available_) return;
  available_ = available;
  for (Load& load : loads_) {
    load.tries = false;
    load.now = load.last = {};
    if (available) load.patience = 1;
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
    // As if a try had taken four windows.
    if (options_.competes) load.until_try = 4 * k_pause_plain * load.last.time;
  }
  if (load.until_try > Duration(0)) return;
  load.tries = true;
  load.ready = false;
  load.warmup = 0;
  load.spent = Duration(0);
}

void DraftDuty::attempt(Load& load, const StepReport& step, bool ready) {
  load.spent += step.time;
  const bool drafts = !load.pays;
  const bool waits = drafts && !load.ready && !ready;
  if (waits || load.warmup < k_switch_steps) {
    if (++load.warmup > k_warmup_steps_max) conclude(load, 0);
    return;
  }
  load.ready = true;
  if (!step.decodes_only) return;
  load.now.add(step);
  const double gain =
      drafts ? load.now.rate() / load.last.rate() : load.last.rate() / load.now.rate();
  const bool is_over = drafts && gain < k_glance && load.now.steps >= k_glance_steps;
  if (is_over || load.now.steps >= k_window_steps) conclude(load, gain);
}

/// `gain`: tokens per second with drafts over those without.
void DraftDuty::conclude(Load& load, double gain) {
  load.patience = gain < k_hopeless ? std::min(2 * load.patience, k_patience_max) : 1;
  load.pays = gain > (load.pays ? k_gain_to_stay : k_gain_to_begin);
  load.until_try =
      load.spent * (load.pays ? k_pause_drafting : k_pause_plain * static_cast<int>(load.patience));
  load.tries = false;
  load.now = load.last = {};
}

}  // namespace outrider::actors
