#include "tools/load_run.hpp"

#include <cmath>
#include <fstream>
#include <memory>

#include "tools/server_json.hpp"
#include "tools/shown.hpp"

namespace outrider::tools {
namespace {

constexpr size_t k_refusal_bytes_max = 4096;
constexpr size_t k_detail_bytes_max = 200;  ///< of a refusal that is no JSON

/// Seconds that this thread ran, and that it waited for a CPU. Zeros where the kernel keeps none.
struct ThreadTimes {
  double ran_s = 0;
  double waited_s = 0;

  static ThreadTimes now() {
    std::ifstream file("/proc/thread-self/schedstat");
    ThreadTimes times;
    file >> times.ran_s >> times.waited_s;  // nanoseconds
    return {times.ran_s / 1e9, times.waited_s / 1e9};
  }
};

/// One load while it runs: what the callbacks share.
class Run {
 public:
  Run(HttpStreams& streams, const Clock& clock, std::span<const std::string> bodies,
      const std::function<void(size_t)>& on_end)
      : streams_(streams), clock_(clock), bodies_(bodies), on_end_(on_end), start_(clock.now()) {
    outcome_.records.resize(bodies.size());
  }

  void closed_loop(uint32_t count) {
    for (uint32_t i = 0; i < count && next_ < bodies_.size(); ++i) send([this] { send_next(); });
    streams_.run();
  }

  void open_loop(double rate, Random& random) {
    arrive(rate, random, 0);
    streams_.run();
  }

  LoadOutcome take() { return std::move(outcome_); }

 private:
  double now_s() const { return to_seconds(clock_.now() - start_); }

  void send_next() {
    if (next_ < bodies_.size()) send([this] { send_next(); });
  }

  /// Sends all that is due, then waits for the next arrival.
  void arrive(double rate, Random& random, double due_s) {
    while (next_ < bodies_.size() && due_s <= now_s()) {
      outcome_.records[next_].late_s = now_s() - due_s;
      send([] {});
      due_s += poisson_gap_s(rate, random.uniform());
    }
    if (next_ == bodies_.size()) return;
    const auto pause =
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(due_s - now_s()));
    streams_.after(std::max(pause, Duration(0)),
                   [this, rate, &random, due_s] { arrive(rate, random, due_s); });
  }

  void send(std::function<void()> then) {
    const size_t index = next_++;
    RequestRecord& record = outcome_.records[index];
    record.sent_s = now_s();
    auto reader = std::make_shared<CompletionReader>(record);
    streams_.start(
        "/v1/completions", bodies_[index],
        [this, reader](unsigned status, std::string_view bytes) {
          reader->push(status, bytes, now_s());
        },
        [this, reader, &record, then = std::move(then)](const HttpEnd& end) {
          reader->end(end, now_s());
          if (!record.ok()) outcome_.details.try_emplace(record.error, reader->detail());
          ++ended_;
          if (on_end_) on_end_(ended_);
          then();
        });
  }

  HttpStreams& streams_;
  const Clock& clock_;
  std::span<const std::string> bodies_;
  const std::function<void(size_t)>& on_end_;
  TimePoint start_;
  size_t next_ = 0;
  size_t ended_ = 0;
  LoadOutcome outcome_;
};

}  // namespace

void CompletionReader::fail(std::string kind, std::string detail) {
  if (!record_.error.empty()) return;
  record_.error = std::move(kind);
  detail_ = shown(std::move(detail));
}

void CompletionReader::take_event(std::string_view event, double now_s) {
  if (event == "[DONE]") return;
  const auto json = nlohmann::json::parse(event, nullptr, false);
  if (!json.is_object())
    return fail("error event", "not JSON: " + std::string(event.substr(0, k_detail_bytes_max)));
  if (auto error = error_of(json)) return fail("error event", std::move(*error));
  if (const auto& usage = member_of(json, "usage"); usage.is_object()) {
    record_.prompt_tokens = count_of(usage, "prompt_tokens");
    record_.cached_tokens = count_of(member_of(usage, "prompt_tokens_details"), "cached_tokens");
    record_.output_tokens = count_of(usage, "completion_tokens");
  }
  if (const auto& timings = member_of(json, "timings"); timings.is_object()) {
    record_.draft_tokens = count_of(timings, "draft_n");
    record_.accepted_tokens = count_of(timings, "draft_n_accepted");
  }
  const auto& choices = member_of(json, "choices");
  if (!choices.is_array() || choices.empty() || !choices[0].is_object()) return;
  record_.last_s = now_s;
  if (!text_of(choices[0], "text").empty()) record_.outputs_s.push_back(now_s);
  finished_ = finished_ || member_of(choices[0], "finish_reason").is_string();
}

void CompletionReader::push(unsigned status, std::string_view bytes, double now_s) {
  if (status == 200) {
    events_.push(bytes, [&](std::string_view event) { take_event(event, now_s); });
  } else if (refusal_.size() < k_refusal_bytes_max) {
    refusal_.append(bytes);
  }
}

void CompletionReader::end(const HttpEnd& end, double now_s) {
  record_.ended_s = now_s;
  if (end.status != 0 && end.status != 200) {
    fail("http " + std::to_string(end.status),
         error_of(nlohmann::json::parse(refusal_, nullptr, false))
             .value_or(refusal_.substr(0, k_detail_bytes_max)));
  }
  if (!end.failure.empty()) fail(end.failure, end.detail);
  if (!finished_) fail("cut stream", "no finish reason came");
  if (record_.outputs_s.empty()) fail("no output", "no event had text");
  if (record_.output_tokens == 0) {
    record_.output_tokens = static_cast<uint32_t>(record_.outputs_s.size());
  }
}

std::string LoadCell::name() const {
  if (rate == 0) return std::to_string(streams) + (streams == 1 ? " stream" : " streams");
  char text[32];
  std::snprintf(text, sizeof(text), "%g req/s", rate);
  return text;
}

double poisson_gap_s(double rate, float uniform) {
  return -std::log1p(-static_cast<double>(uniform)) / rate;
}

LoadOutcome run_load(HttpStreams& streams, const Clock& clock, const LoadCell& cell,
                     std::span<const std::string> bodies, Random& random,
                     const std::function<void(size_t)>& on_end) {
  const ThreadTimes before = ThreadTimes::now();
  Run run(streams, clock, bodies, on_end);
  if (cell.rate == 0) {
    run.closed_loop(cell.streams);
  } else {
    run.open_loop(cell.rate, random);
  }
  LoadOutcome outcome = run.take();
  if (streams.interrupted()) {
    std::erase_if(outcome.records, [](const RequestRecord& r) { return r.ended_s == 0; });
  }
  const ThreadTimes after = ThreadTimes::now();
  outcome.client_cpu_s = after.ran_s - before.ran_s;
  outcome.client_wait_s = after.waited_s - before.waited_s;
  return outcome;
}

}  // namespace outrider::tools
