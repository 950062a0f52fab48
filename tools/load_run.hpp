#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/philox.hpp"
#include "tools/http_client.hpp"
#include "tools/http_streams.hpp"
#include "tools/load_metrics.hpp"

namespace outrider::tools {

/// Takes one streamed completion as its bytes come, into a record that outlives it. Kinds of error:
/// "http <status>", "disconnected", "timeout", "transport", "too large", "error event", "cut
/// stream" (no finish reason came) and "no output".
class CompletionReader {
 public:
  explicit CompletionReader(RequestRecord& record) : record_(record) {}

  void push(unsigned status, std::string_view bytes, double now_s);
  void end(const HttpEnd& end, double now_s);
  /// What the server or the network said, as `shown`. Empty: nothing went wrong.
  const std::string& detail() const { return detail_; }

 private:
  void take_event(std::string_view event, double now_s);
  void fail(std::string kind, std::string detail);

  RequestRecord& record_;
  SseReader events_;
  std::string refusal_;  ///< body of an answer other than 200
  std::string detail_;
  bool finished_ = false;
};

/// Closed loop: `streams` requests at any time, the next is sent when one ends. Open loop: `rate`
/// requests per second on average, at times that do not depend on answers (Poisson).
struct LoadCell {
  uint32_t streams = 0;
  double rate = 0;  ///< requests per second; 0: closed loop

  std::string name() const;
};

struct LoadOutcome {
  /// One for each body, in the order of sending; after an interrupt of those that had ended.
  std::vector<RequestRecord> records;
  std::map<std::string, std::string> details;  ///< the first detail of each kind of error
  double client_cpu_s = 0;                     ///< that this thread ran
  /// That this thread was ready but had no CPU: what it saw late, the server is not to blame for.
  double client_wait_s = 0;
};

/// Sends each body once to /v1/completions and returns when all have ended. `random` gives the
/// arrival times of an open loop. `on_end` hears how many have ended, after each.
LoadOutcome run_load(HttpStreams& streams, const Clock& clock, const LoadCell& cell,
                     std::span<const std::string> bodies, Random& random,
                     const std::function<void(size_t ended)>& on_end = {});

/// Pauses between arrivals of a Poisson process: exponential, from a uniform draw in [0, 1).
double poisson_gap_s(double rate, float uniform);

}  // namespace outrider::tools
