#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "actors/engine_port.hpp"

namespace outrider::actors {

/// Whether a draft model pays here: a draft may compute on what the target needs. Tokens per second
/// with drafts and without are measured in windows next to each other, for each number of streams
/// (by powers of two), and the faster way is taken; the other is tried again, as often as costs no
/// more than a small share of the tokens: soon where it was hardly slower, so that a draft which
/// was late for a while is used again; and at once when drafting becomes slower than the other way
/// was. The cost of tries is shared out over steps in which hints could pay. Where hints could pay
/// in less than half of the steps nothing is tried, and where they could in hardly any what paid
/// before is given up. Pure: fed with what steps took.
class DraftDuty {
 public:
  struct Options {
    bool always = false;    ///< Drafts are wanted whatever they cost.
    bool competes = false;  ///< Draft and target share cores: rather plain until it is proved.
  };
  explicit DraftDuty(Options options) : options_(options) {}

  /// Whether there is anybody to draft. A draft that comes is tried at once, and where drafting was
  /// the faster way before it is taken up again.
  void set_available(bool available);
  /// Whether drafts are wanted now.
  bool on() const;
  /// A step of the target. `ready`: drafts come for what is to be drafted for.
  void observe(const StepReport& step, bool ready);

 private:
  /// Tokens and the time that they took.
  struct Window {
    uint32_t steps = 0;
    uint32_t promising = 0;  ///< Of these, in which hints could have paid.
    uint64_t tokens = 0;
    Duration time{0};
    Duration longest{0};  ///< Of the steps.

    void add(const StepReport& step);
    double rate() const {
      return static_cast<double>(tokens) / to_seconds(std::max(time, Duration(1)));
    }
    /// What one step took that the others do not explain: somebody else had the machine, or the
    /// process was stopped. 0: there is none.
    Duration stall() const;
  };
  /// What is known of so many streams.
  struct Load {
    bool pays = false;     ///< Drafting was the faster way the last time.
    bool tries = false;    ///< The other way is being tried.
    bool begun = false;    ///< The first window is over.
    bool ready = false;    ///< Of a try with drafts: they have come.
    bool forgave = false;  ///< The window before this one had a stall, and was dropped.
    Window last;           ///< The last whole window of the usual way.
    double plain = 0;      ///< Tokens per second without drafts, when that was last measured.
    Window now;            ///< The one that fills.
    uint32_t steps = 0;    ///< Since drafts were last begun or ended.
    Window tried;          ///< All of the try that a window could have, also while it waits.
    Duration spent{0};     ///< By the try so far.
    Duration forgiven{0};  ///< What stalls took of it more.
    Duration until_try{0};

    void begin_anew();
    /// A stall is none of what the try cost.
    void forgive(Duration stall);
  };
  bool choose_load(uint32_t sequences);
  /// Whether the window that fills is to be begun again: it has a stall, and the one before had
  /// none. What stalls again and again is what steps take.
  static bool forgives(Load& load);
  void wait(Load& load, const StepReport& step);
  void attempt(Load& load, const StepReport& step, bool ready);
  /// `gain`: tokens per second with drafts over those without.
  void conclude(Load& load, double gain);
  /// The try is over, whether or not it was long enough to say anything.
  void end_try(Load& load, double gain);
  /// As far as a try was measured; 1 where nothing was.
  static double gain_of(const Load& load);

  Options options_;
  bool available_ = true;         ///< Until it is told.
  std::array<Load, 12> loads_{};  ///< Of 1 stream, 2, 3 to 4, 5 to 8, ...
  size_t current_ = 0;
  uint32_t elsewhere_ = 0;  ///< Steps in a row that had another load.
};

}  // namespace outrider::actors
