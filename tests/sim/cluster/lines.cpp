#include "tests/sim/cluster/lines.hpp"

#include <algorithm>
#include <array>

#include "base/limits.hpp"

namespace outrider::sim::cluster {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds k_poll{250};
/// Messages that wait for their reader; then who sends waits.
constexpr size_t k_window = 8;

class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(const Runtime& runtime) : runtime_(runtime) {}
  TimePoint now() const override { return runtime_.now() + VirtualThreads::ahead(); }

 private:
  const Runtime& runtime_;
};

Error over() {
  return fail(ErrorCode::unavailable, "the line is over");
}

}  // namespace

struct Lines::Line {
  struct Item {
    TimePoint due{0};
    link::Message message;
  };
  /// What comes to one of the two ends.
  struct Way {
    ProcessId process = 0;  ///< Who reads; 0: not there yet.
    std::deque<Item> items;
    TimePoint last_due{0};
    std::optional<TimePoint> stuck_since;
    std::weak_ptr<VirtualThread> reader;
    std::weak_ptr<VirtualThread> writer;  ///< Waits for a place.
  };

  ProcessId gate = 0;
  TimePoint begun{0};
  std::array<Way, 2> ways;
  bool is_over = false;

  void end() {
    is_over = true;
    for (const Way& way : ways) {
      VirtualThreads::wake(way.reader);
      VirtualThreads::wake(way.writer);
    }
  }
  /// What is on its way is lost.
  void end_now(TimePoint now) {
    for (Way& way : ways) {
      std::erase_if(way.items, [now](const Item& item) { return item.due > now; });
    }
    end();
  }
};

class Lines::End final : public link::TensorLink {
 public:
  End(Lines& lines, std::shared_ptr<Line> line, size_t number)
      : lines_(lines),
        line_(std::move(line)),
        in_(line_->ways[number]),
        out_(line_->ways[1 - number]) {}
  ~End() override { close(); }

  Result<void> send(uint32_t, link::Message message, TimePoint deadline) override {
    while (!line_->is_over && out_.items.size() >= k_window) {
      if (now() >= deadline) return fail(ErrorCode::overloaded, "no place on the line");
      out_.writer = VirtualThreads::current();
      VirtualThreads::wait(std::min<Duration>(deadline - now(), k_poll));
    }
    if (!line_->is_over && lines_.random_.chance(lines_.travel_.lost)) line_->end_now(now());
    if (line_->is_over) return over();
    if (lines_.on_send) lines_.on_send(message);
    const Duration takes(lines_.random_.between(0, lines_.message_most_.count()));
    out_.last_due = std::max(out_.last_due + takes, now() + lines_.hop() + lines_.hop());
    out_.items.push_back({out_.last_due, std::move(message)});
    VirtualThreads::wake(out_.reader);
    return {};
  }

  Result<link::Message> receive(uint32_t, TimePoint deadline) override {
    while (true) {
      const bool can_come = comes();
      const bool is_due = !in_.items.empty() && in_.items.front().due <= now();
      if (is_due && (can_come || line_->is_over)) return take();
      if (line_->is_over && in_.items.empty()) return over();
      if (now() >= deadline) return fail(ErrorCode::deadline_exceeded, "nothing came");
      TimePoint until = std::min(deadline, now() + k_poll);
      if (!is_due && !in_.items.empty()) until = std::min(until, in_.items.front().due);
      in_.reader = VirtualThreads::current();
      VirtualThreads::wait(until - now());
    }
  }

  void close() override { line_->end(); }
  link::LinkEnd end() const override {
    return line_->is_over ? link::LinkEnd::closed : link::LinkEnd::none;
  }

 private:
  TimePoint now() const { return lines_.runtime_.now() + VirtualThreads::ahead(); }
  link::Message take() {
    link::Message message = std::move(in_.items.front().message);
    in_.items.pop_front();
    VirtualThreads::wake(in_.writer);
    return message;
  }
  /// Whether what the other end says gets here now; if not for long enough, the line is over.
  bool comes() {
    if (out_.process == 0) {
      if (now() - line_->begun > milliseconds(limits::cluster_line_wait_ms)) line_->end_now(now());
      return false;
    }
    const bool can_come = lines_.network_.carries(out_.process, line_->gate) &&
                          lines_.network_.carries(line_->gate, in_.process);
    if (can_come) in_.stuck_since.reset();
    if (!can_come && !in_.stuck_since) in_.stuck_since = now();
    if (!can_come && now() - *in_.stuck_since > milliseconds(limits::link_silence_ms)) {
      line_->end_now(now());
    }
    return can_come;
  }

  Lines& lines_;
  std::shared_ptr<Line> line_;
  Line::Way& in_;
  Line::Way& out_;
};

Duration Lines::hop() {
  return Duration(random_.between(travel_.least.count(), travel_.most.count()));
}

actors::PeerLines Lines::of(ProcessId process) {
  actors::PeerLines lines;
  lines.dial = [this, process](const std::string& gate, const actors::LineName& name) {
    return dial(process, gate, name);
  };
  lines.new_name = [this] {
    actors::LineName name(sizeof(names_));
    ++names_;
    for (size_t i = 0; i < name.size(); ++i) name[i] = static_cast<uint8_t>(names_ >> (8 * i));
    return name;
  };
  lines.clock = std::make_shared<VirtualClock>(runtime_);
  lines.threads = std::make_shared<VirtualThreads>(
      runtime_, process, [this](Duration waited) { on_late_end(waited); });
  return lines;
}

Result<std::unique_ptr<link::TensorLink>> Lines::dial(ProcessId process, const std::string& gate,
                                                      const actors::LineName& name) {
  const ProcessId there = gate_of_(gate);
  const auto is_there = [&] {
    return runtime_.alive(process) && there != 0 && there == gate_of_(gate);
  };
  VirtualThreads::sleep(hop() + hop());
  if (!is_there()) return fail(ErrorCode::unavailable, "nobody listens there");
  if (!network_.carries(process, there) || !network_.carries(there, process)) {
    VirtualThreads::sleep(milliseconds(limits::cluster_handshake_ms));
    return fail(ErrorCode::unavailable, "nobody answers there");
  }
  VirtualThreads::sleep(hop() + hop());
  if (!is_there()) return over();
  const auto [found, is_first] = waiting_.try_emplace({there, name});
  if (is_first) {
    found->second = std::make_shared<Line>();
    found->second->gate = there;
    found->second->begun = runtime_.now();
    std::erase_if(lines_, [](const auto& line) { return line.expired(); });
    lines_.push_back(found->second);
  }
  const std::shared_ptr<Line> line = found->second;
  const size_t number = is_first ? 0 : 1;
  if (!is_first) waiting_.erase(found);
  line->ways[number].process = process;
  return std::unique_ptr<link::TensorLink>(std::make_unique<End>(*this, line, number));
}

void Lines::kill(ProcessId process, bool in_flight) {
  for (const auto& it : lines_) {
    const auto line = it.lock();
    if (!line || line->is_over) continue;
    const bool is_of_it = line->gate == process || line->ways[0].process == process ||
                          line->ways[1].process == process;
    if (!is_of_it) continue;
    if (in_flight && line->gate != process) {
      line->end();
    } else {
      line->end_now(runtime_.now());
    }
  }
  std::erase_if(waiting_, [](const auto& entry) { return entry.second->is_over; });
}

size_t Lines::open() {
  return static_cast<size_t>(std::ranges::count_if(lines_, [](const auto& it) {
    const auto line = it.lock();
    return line && !line->is_over;
  }));
}

}  // namespace outrider::sim::cluster
