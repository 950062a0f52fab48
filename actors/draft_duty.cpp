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
/// One that could not be measured, for there were prompts in most steps, is over after so many.
constexpr uint32_t k_try_steps_max = 256;
/// Of the steps of a window: hints must have been able to pay in so many for a try, and in so many
/// for what paid before to go on.
constexpr double k_promising_to_try = 0.5;
constexpr double k_promising_to_stay = 0.1;
/// Share of the tokens that tries may cost: what one of them cost is spread over the pause behind
/// it.
constexpr double k_cost_max = 0.02;
/// That pause, in times of what the try took; before the first try, where that may cost much, in
/// times of a window.
constexpr double k_pause_min = 1;
constexpr int k_first_pause = 160;
/// After so many steps a try that is so much slower is over.
struct Glance {
  uint32_t steps;
  double gain;
};
constexpr Glance k_glances[] = {{6, 0.6}, {12, 0.8}};
/// Drafting must gain so much before it begins, and so little before it ends.
constexpr double k_gain_to_begin = 1.03;
constexpr double k_gain_to_stay = 1.0;
/// A step that takes so many times what the others do is none of the way that is measured.
constexpr int k_stall = 4;
/// Steps of another number of streams before they count as a load of their own.
constexpr uint32_t k_load_steps = 8;

}  // namespace

void DraftDuty::Window::add(const StepReport& step) {
  ++steps;
  promising += step.hints_could_pay ? 1 : 0;
  tokens += step.tokens;
  time += step.time;
  longest = std::max(longest, step.time);
}

Duration DraftDuty::Window::stall() const {
  if (steps < 2) return Duration(0);
  const Duration others = (time - longest) / (steps - 1);
  return longest > k_stall * others ? longest - others : Duration(0);
}

void DraftDuty::Load::begin_anew() {
  tries = false;
  forgave = false;
  steps = 0;
  now = last = {};
}

void DraftDuty::Load::forgive(Duration stall) {
  tried.time -= stall;
  spent -= stall;
  forgiven += stall;
}

void DraftDuty::set_available(bool available) {
  if (available == available_) return;
  available_ = available;
  for (Load& load : loads_) {
    load.begin_anew();
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
  const size_t load = std::min<size_t>(std::bit_width(sequences - 1), loads_.size() - 1);
  elsewhere_ = load == current_ ? 0 : elsewhere_ + 1;
  if (elsewhere_ < k_load_steps) return elsewhere_ == 0;
  elsewhere_ = 0;
  Load& left = loads_[current_];
  if (left.tries) end_try(left, gain_of(left));
  left.begin_anew();  // What is half measured would join two times.
  current_ = load;
  return true;
}

void DraftDuty::wait(Load& load, const StepReport& step) {
  if (step.hints_could_pay) load.until_try -= step.time;
  if (++load.steps <= k_switch_steps || !step.decodes_only) return;
  load.now.add(step);
  if (load.now.steps < k_window_steps || forgives(load)) return;
  load.last = std::exchange(load.now, {});
  if (!load.begun) {
    load.begun = true;
    if (options_.competes) load.until_try = k_first_pause * load.last.time;
  }
  const double promising = static_cast<double>(load.last.promising) / load.last.steps;
  if (load.pays && promising < k_promising_to_stay) {
    load.pays = false;
    load.steps = 0;
    load.until_try = Duration(0);  // It was not slower: it is tried as soon as it could pay.
    return;
  }
  if (load.pays && load.last.rate() < load.plain) {
    // Once, and compared with the next window: this one was chosen because it is slow.
    load.plain = 0;
    load.until_try = Duration(0);
    return;
  }
  if (promising < k_promising_to_try || load.until_try > Duration(0)) return;
  load.tries = true;
  load.ready = false;
  load.forgave = false;
  load.steps = 0;
  load.tried = {};
  load.spent = load.forgiven = Duration(0);
}

bool DraftDuty::forgives(Load& load) {
  const Duration stall = load.now.stall();
  load.forgave = stall > Duration(0) && !load.forgave;
  if (!load.forgave) return false;
  if (load.tries) load.forgive(stall);
  load.now = {};
  return true;
}

double DraftDuty::gain_of(const Load& load) {
  if (load.now.steps == 0 || load.last.steps == 0) return 1;
  const double gain = load.now.rate() / load.last.rate();
  return load.pays ? 1 / gain : gain;
}

void DraftDuty::attempt(Load& load, const StepReport& step, bool ready) {
  load.spent += step.time;
  if (step.decodes_only) load.tried.add(step);
  const bool drafts = !load.pays;
  const bool waits = drafts && !load.ready && !ready;
  if (++load.steps <= k_switch_steps) return;
  if (!waits && !load.ready) {
    load.ready = true;
    load.now = {};  // So far it waited for them.
  }
  if (step.decodes_only) load.now.add(step);
  const double gain = gain_of(load);
  const bool is_measured = load.now.steps >= k_window_steps;
  if (waits) {
    // What waiting for drafts costs is known; what they would bring is not.
    if (load.steps > k_warmup_steps_max) conclude(load, std::min(gain, 1.0));
    return;
  }
  const bool is_slow = drafts && std::ranges::any_of(k_glances, [&](const Glance& glance) {
                         return load.now.steps >= glance.steps && gain < glance.gain;
                       });
  if (is_slow || is_measured) {
    if (!forgives(load)) conclude(load, gain);
  } else if (load.steps > k_try_steps_max) {
    end_try(load, gain);
  }
}

void DraftDuty::conclude(Load& load, double gain) {
  load.plain = load.pays ? load.now.rate() : load.last.rate();
  load.pays = gain > (load.pays ? k_gain_to_stay : k_gain_to_begin);
  end_try(load, gain);
}

void DraftDuty::end_try(Load& load, double gain) {
  if (load.forgiven == Duration(0)) load.forgive(load.tried.stall());  // In no window: it waited.
  // Of the tokens of the faster way, those that the other one would not give, or did not.
  double cost = load.pays ? 1 - 1 / gain : 1 - gain;
  if (!load.pays && load.tried.steps > 0) {
    cost = std::max(cost, 1 - load.tried.rate() / load.last.rate());  // With the wait for drafts.
  }
  const Duration spent = load.spent;
  load.begin_anew();
  load.until_try = Duration(static_cast<Duration::rep>(static_cast<double>(spent.count()) *
                                                       std::max(k_pause_min, cost / k_cost_max)));
}

}  // namespace outrider::actors
